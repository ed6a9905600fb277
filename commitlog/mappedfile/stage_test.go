package mappedfile_test

import (
	"bytes"
	"errors"
	"testing"

	"raftmq/commitlog/faultfile"
	"raftmq/commitlog/mappedfile"
)

// put appends b, which the next WriteOut brings to the file.
func put(t *testing.T, q *mappedfile.Queue, b []byte) {
	t.Helper()
	dst, err := q.Append(len(b))
	if err != nil {
		t.Fatal(err)
	}
	copy(dst, b)
}

func content(t *testing.T, q *mappedfile.Queue) (b []byte) {
	t.Helper()
	for off := q.MinOffset(); off < q.MaxOffset(); {
		v, err := q.View(off, fileSize)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, v.Bytes...)
		off += int64(len(v.Bytes))
		v.Release()
	}
	return b
}

// TestStaged: what is handed out is in the file after WriteOut only, across the ends of files, over skipped room, and for pieces
// larger than what is gathered.
func TestStaged(t *testing.T) {
	for name, fs := range map[string]mappedfile.FS{"real": nil, "twin": faultfile.New()} {
		dir := t.TempDir()
		q, err := mappedfile.Open(mappedfile.Options{Dir: dir, FileSize: 4 << 20, AllocateStep: 1 << 20, Staged: true, FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		piece := func(n int) {
			b := bytes.Repeat([]byte{byte(len(want)/1000 + 1)}, n)
			if int64(n) > q.Remaining() {
				rest := q.Remaining()
				if err := q.Skip(rest); err != nil {
					t.Fatal(err)
				}
				want = append(want, make([]byte, rest)...)
			}
			put(t, q, b)
			want = append(want, b...)
		}
		for _, n := range []int{1, 100, 5000, 3 << 20, 900_000, 600_000, 100, 4 << 20, 7, 1 << 20, 1<<20 + 1} {
			piece(n)
			piece(n / 2)
			if err := q.WriteOut(); err != nil {
				t.Fatal(err)
			}
			q.Commit(int64(len(want)) - q.MaxOffset())
			if !bytes.Equal(content(t, q), want) {
				t.Fatalf("%s: after %d bytes the file holds something else", name, n)
			}
		}
		put(t, q, []byte("given up"))
		end := q.MaxOffset()
		if err := q.Truncate(end); err != nil {
			t.Fatal(err)
		}
		put(t, q, []byte("kept"))
		if err := q.WriteOut(); err != nil {
			t.Fatal(err)
		}
		q.Commit(4)
		if want = append(want, "kept"...); !bytes.Equal(content(t, q), want) {
			t.Fatalf("%s: after Truncate the file holds something else", name)
		}
		if err := q.Skip(q.Remaining() + 1); !errors.Is(err, mappedfile.ErrNoRoom) {
			t.Fatalf("skip behind the end: %v", err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCommitNeedsWriteOut: bytes that are still in memory can't be made readable.
func TestCommitNeedsWriteOut(t *testing.T) {
	q, err := mappedfile.Open(mappedfile.Options{Dir: t.TempDir(), FileSize: fileSize, Staged: true})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	put(t, q, []byte("text"))
	defer func() {
		if recover() == nil {
			t.Error("committed what is not written")
		}
	}()
	q.Commit(4)
}

// TestWriteOutFails: full disk, then another try; any other error stays with the caller, and nothing became readable.
func TestWriteOutFails(t *testing.T) {
	f := faultfile.New()
	q, err := mappedfile.Open(mappedfile.Options{Dir: "d", FileSize: fileSize, Staged: true, FS: f})
	if err != nil {
		t.Fatal(err)
	}
	put(t, q, []byte("some text"))
	for _, cause := range []error{mappedfile.ErrNoSpace, faultfile.ErrInjected} {
		f.FailAt(f.Ops(), cause)
		if err := q.WriteOut(); !errors.Is(err, cause) || q.MaxOffset() != 0 {
			t.Fatalf("got %v, readable up to %d", err, q.MaxOffset())
		}
	}
	if err := q.WriteOut(); err != nil {
		t.Fatal(err)
	}
	q.Commit(9)
	if got := content(t, q); string(got) != "some text" {
		t.Fatalf("%q", got)
	}
}

// TestPool: bytes are readable when CommitBuffers has carried them to the file, by pages, at the end of a file, and at once where
// no buffer was free; buffers come back.
func TestPool(t *testing.T) {
	pool, err := mappedfile.NewPool(2, fileSize, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}()
	f := faultfile.New()
	q, err := mappedfile.Open(mappedfile.Options{Dir: "d", FileSize: fileSize, Staged: true, Pool: pool, FS: f})
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	write := func(n int) {
		for n > 0 {
			k := min(n, int(q.Remaining()))
			b := bytes.Repeat([]byte{byte(len(want)/100 + 1)}, k)
			put(t, q, b)
			if err := q.WriteOut(); err != nil {
				t.Fatal(err)
			}
			q.Commit(int64(k))
			want = append(want, b...)
			n -= k
		}
	}
	commit := func(pages int, end int64) {
		t.Helper()
		if got, err := q.CommitBuffers(pages); err != nil || got != end || q.MaxOffset() != end {
			t.Fatalf("committed up to %d (%v), want %d", got, err, end)
		}
		if !bytes.Equal(content(t, q), want[:end]) {
			t.Fatalf("up to %d the files hold something else", end)
		}
	}
	write(100)
	if q.MaxOffset() != 0 || pool.Available() != 1 {
		t.Fatalf("readable up to %d before the commit, %d buffers free", q.MaxOffset(), pool.Available())
	}
	commit(1, 0)
	commit(0, 100)
	write(2 * mappedfile.PageSize)
	commit(4, 100)
	commit(2, 2*mappedfile.PageSize+100)
	// Three files and a bit: the third finds no buffer.
	write(fileSize * 3)
	if pool.Available() != 0 {
		t.Fatalf("%d buffers free with four files to commit", pool.Available())
	}
	end := int64(len(want))
	commit(100, end) // whole files; and the last had no buffer, so it waits for nothing
	if pool.Available() != 2 {
		t.Fatalf("%d of 2 buffers free after the commit", pool.Available())
	}
	// A buffer that was used before: skipped bytes are zero all the same.
	write(int(q.Remaining()) + 10)
	if err := q.Skip(q.Remaining()); err != nil {
		t.Fatal(err)
	}
	q.Commit(q.WriteOffset() - int64(len(want)))
	want = append(want, make([]byte, q.WriteOffset()-int64(len(want)))...)
	commit(0, int64(len(want)))
	// Flush and Truncate know what is committed only.
	write(fileSize / 2)
	if got, err := q.Flush(0); err != nil || got > int64(len(want))-fileSize/2 {
		t.Fatalf("flushed up to %d, %v", got, err)
	}
	cut := int64(len(want)) - 10
	if err := q.Truncate(cut); err != nil {
		t.Fatal(err)
	}
	want = want[:cut]
	if pool.Available() != 2 || !bytes.Equal(content(t, q), want) {
		t.Fatalf("after Truncate: %d buffers free", pool.Available())
	}
	write(100)
	commit(0, int64(len(want))) // a file from before has no buffer
	// A commit that fails poisons.
	write(int(q.Remaining()) + 50)
	f.FailAt(f.Ops(), nil)
	if _, err := q.CommitBuffers(0); !errors.Is(err, mappedfile.ErrPoisoned) {
		t.Fatalf("got %v", err)
	}
	if _, err := q.CommitBuffers(0); !errors.Is(err, mappedfile.ErrPoisoned) {
		t.Fatalf("then %v", err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if pool.Available() != 2 {
		t.Fatalf("%d of 2 buffers free after Close", pool.Available())
	}
}

// TestPrepareAhead: next and next but one are there, in the order in which they are used, and are gone after a cut.
func TestPrepareAhead(t *testing.T) {
	f := faultfile.New()
	q, err := mappedfile.Open(mappedfile.Options{Dir: "d", FileSize: fileSize, Staged: true, Ahead: 2, FS: f})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for files := 2; files < 8; files++ {
		if err := q.Prepare(); err != nil {
			t.Fatal(err)
		}
		if got := len(f.Files("d")); got != files {
			t.Fatalf("%d files, want %d", got, files)
		}
		if room := q.Room(); room != int64(files)*fileSize-q.WriteOffset() {
			t.Fatalf("room %d at %d with %d files", room, q.WriteOffset(), files)
		}
		before := f.Ops()
		put(t, q, make([]byte, fileSize))
		if got := f.Ops() - before; got > 1 { // the file before is written out
			t.Fatalf("the writer needed %d operations: %v", got, f.Trace()[before:])
		}
		if err := q.WriteOut(); err != nil {
			t.Fatal(err)
		}
		q.Commit(fileSize)
	}
	// The second fails: the first counts.
	f.FailAt(f.Ops(), nil)
	if err := q.Prepare(); err == nil {
		t.Fatal("no error")
	}
	if err := q.Truncate(fileSize); err != nil {
		t.Fatal(err)
	}
	if got := f.Files("d"); len(got) != 1 {
		t.Fatalf("after the cut: %v", got)
	}
}
