package mappedfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

const testFileSize = 4 * PageSize

func open(t testing.TB, o Options) *Queue {
	t.Helper()
	q, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func appendBytes(t testing.TB, q *Queue, b []byte) {
	t.Helper()
	dst, err := q.Append(len(b))
	if err != nil {
		t.Fatal(err)
	}
	copy(dst, b)
	q.Commit(int64(len(b)))
}

func read(t testing.TB, q *Queue, off int64, max int) []byte {
	t.Helper()
	v, err := q.View(off, max)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	return bytes.Clone(v.Bytes)
}

func TestAppendRollReopen(t *testing.T) {
	for _, step := range []int64{0, PageSize, 3 * PageSize} {
		dir := filepath.Join(t.TempDir(), "a", "b")
		q := open(t, Options{Dir: dir, FileSize: testFileSize, AllocateStep: step, Random: true})
		if q.Remaining() != testFileSize || q.MinOffset() != 0 || q.MaxOffset() != 0 {
			t.Fatalf("empty queue: remaining %d, range %d to %d", q.Remaining(), q.MinOffset(), q.MaxOffset())
		}
		var want []byte
		for i := range 10 {
			if i == 5 {
				if err := q.Prepare(); err != nil {
					t.Fatal(err)
				}
			}
			chunk := bytes.Repeat([]byte{byte(i + 1)}, testFileSize/2)
			appendBytes(t, q, chunk)
			want = append(want, chunk...)
		}
		if _, err := q.Append(testFileSize + 1); !errors.Is(err, ErrNoRoom) {
			t.Errorf("append of more than a file: %v", err)
		}
		if got, err := q.Flush(0); err != nil || got != q.MaxOffset() {
			t.Fatalf("flush: %d, %v", got, err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		q = open(t, Options{Dir: dir, FileSize: testFileSize, AllocateStep: step})
		var got []byte
		for off := q.MinOffset(); off < q.MaxOffset(); {
			b := read(t, q, off, PageSize+1)
			got = append(got, b...)
			off += int64(len(b))
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("step %d: reopened queue has %d bytes, want %d or others", step, len(got), len(want))
		}
	}
}

func TestUncommittedIsNotReadable(t *testing.T) {
	q := open(t, Options{Dir: t.TempDir(), FileSize: testFileSize})
	b, err := q.Append(10)
	if err != nil {
		t.Fatal(err)
	}
	copy(b, "0123456789")
	if _, err := q.View(0, 10); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("view before commit: %v", err)
	}
	q.Commit(4)
	if got := read(t, q, 0, 10); string(got) != "0123" {
		t.Fatalf("view after commit of 4: %q", got)
	}
	if got, err := q.Flush(0); got != 4 || err != nil {
		t.Fatalf("flush: %d, %v; uncommitted bytes must not count", got, err)
	}
}

func TestFlushLeastPages(t *testing.T) {
	q := open(t, Options{Dir: t.TempDir(), FileSize: testFileSize})
	appendBytes(t, q, make([]byte, 2*PageSize-1))
	if got, err := q.Flush(2); got != 0 || err != nil {
		t.Fatalf("flush of less than 2 pages: %d, %v", got, err)
	}
	appendBytes(t, q, make([]byte, 1))
	if got, err := q.Flush(2); got != 2*PageSize || err != nil {
		t.Fatalf("flush of 2 pages: %d, %v", got, err)
	}
	appendBytes(t, q, make([]byte, 2*PageSize))
	if got, err := q.Flush(100); got != testFileSize || err != nil {
		t.Fatalf("flush of a full file: %d, %v", got, err)
	}
}

func TestWriteAt(t *testing.T) {
	dir := t.TempDir()
	q := open(t, Options{Dir: dir, FileSize: testFileSize, AllocateStep: PageSize})
	// The first write decides where the queue begins.
	if err := q.WriteAt([]byte("first"), 5*testFileSize+100); err != nil {
		t.Fatal(err)
	}
	if q.MinOffset() != 5*testFileSize || q.MaxOffset() != 5*testFileSize+105 {
		t.Fatalf("range %d to %d", q.MinOffset(), q.MaxOffset())
	}
	if err := q.WriteAt([]byte("x"), 5*testFileSize-1); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("write below the first file: %v", err)
	}
	// Across a file end and over a gap.
	if err := q.WriteAt([]byte("ABCDEF"), 7*testFileSize-3); err != nil {
		t.Fatal(err)
	}
	if got := read(t, q, 7*testFileSize-3, 100); string(got) != "ABC" {
		t.Fatalf("before the file end: %q", got)
	}
	if got := read(t, q, 7*testFileSize, 100); string(got) != "DEF" {
		t.Fatalf("behind the file end: %q", got)
	}
	if got := read(t, q, 5*testFileSize+100, 5); string(got) != "first" {
		t.Fatalf("the first write: %q", got)
	}
	if got, err := q.Flush(0); got != q.MaxOffset() || err != nil {
		t.Fatalf("flush: %d, %v", got, err)
	}
	// Writing again moves the durable end back and no other.
	if err := q.WriteAt([]byte("first"), 5*testFileSize+100); err != nil {
		t.Fatal(err)
	}
	if q.FlushedOffset() != 5*testFileSize+100 || q.MaxOffset() != 7*testFileSize+3 {
		t.Fatalf("flushed %d, max %d", q.FlushedOffset(), q.MaxOffset())
	}
	if got, err := q.Flush(0); got != q.MaxOffset() || err != nil {
		t.Fatalf("flush: %d, %v", got, err)
	}
}

func TestTruncate(t *testing.T) {
	dir := t.TempDir()
	q := open(t, Options{Dir: dir, FileSize: testFileSize})
	for range 3 {
		appendBytes(t, q, bytes.Repeat([]byte{7}, testFileSize))
	}
	if _, err := q.Flush(0); err != nil {
		t.Fatal(err)
	}
	cut := int64(testFileSize + PageSize + 100)
	if err := q.Truncate(cut); err != nil {
		t.Fatal(err)
	}
	if q.MaxOffset() != cut || q.FlushedOffset() != cut || q.Files() != 2 {
		t.Fatalf("max %d, flushed %d, %d files", q.MaxOffset(), q.FlushedOffset(), q.Files())
	}
	b, err := os.ReadFile(filepath.Join(dir, fileName(testFileSize)))
	if err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Repeat([]byte{7}, PageSize+100), make([]byte, testFileSize-PageSize-100)...)
	if !bytes.Equal(b, want) {
		t.Fatal("bytes behind the cut are not zero, or bytes before it changed")
	}
	appendBytes(t, q, []byte("new"))
	if got := read(t, q, cut-1, 4); string(got) != "\x07new" {
		t.Fatalf("append after the cut: %q", got)
	}
	if q.FlushedOffset() != cut {
		t.Fatalf("flushed %d: an append is not durable", q.FlushedOffset())
	}
	// At a file's start the file goes.
	if err := q.Truncate(testFileSize); err != nil {
		t.Fatal(err)
	}
	if q.Files() != 1 || q.Remaining() != testFileSize {
		t.Fatalf("%d files, %d remain", q.Files(), q.Remaining())
	}
	if err := q.Truncate(testFileSize + 1); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("truncate forward: %v", err)
	}
	if err := q.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Fatalf("%d files left", len(list))
	}
	appendBytes(t, q, []byte("again"))
}

func TestDeleteBeforeKeepsViews(t *testing.T) {
	dir := t.TempDir()
	q := open(t, Options{Dir: dir, FileSize: testFileSize})
	for i := range 4 {
		appendBytes(t, q, bytes.Repeat([]byte{byte(i + 1)}, testFileSize))
	}
	v, err := q.View(0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := q.DeleteBefore(2*testFileSize + 1); n != 2 || err != nil {
		t.Fatalf("removed %d, %v", n, err)
	}
	if v.Bytes[9] != 1 {
		t.Fatal("the view changed")
	}
	if n := q.Hanged(); n != 1 {
		t.Errorf("%d hanged files with a view on the first of two", n)
	}
	v.Release()
	if n := q.Hanged(); n != 0 {
		t.Errorf("%d hanged files after the last view", n)
	}
	if _, err := q.View(0, 10); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("view of a removed file: %v", err)
	}
	if q.MinOffset() != 2*testFileSize || q.FlushedOffset() != 2*testFileSize {
		t.Fatalf("min %d, flushed %d", q.MinOffset(), q.FlushedOffset())
	}
	if n, err := q.DeleteBefore(1 << 40); n != 1 || err != nil {
		t.Fatalf("removed %d, %v; the last must stay", n, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("second release of a view did not panic")
		}
	}()
	v.Release()
}

func TestReset(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, FileSize: testFileSize}
	q := open(t, o)
	appendBytes(t, q, []byte("old"))
	if err := q.Prepare(); err != nil {
		t.Fatal(err)
	}
	base := int64(10*testFileSize + 77)
	if err := q.Reset(base); err != nil {
		t.Fatal(err)
	}
	if q.MinOffset() != base || q.MaxOffset() != base || q.Remaining() != testFileSize-77 {
		t.Fatalf("range %d to %d, %d remain", q.MinOffset(), q.MaxOffset(), q.Remaining())
	}
	appendBytes(t, q, []byte("new"))
	if _, err := q.View(base-1, 4); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("view below the base: %v", err)
	}
	if got := read(t, q, base, 4); string(got) != "new" {
		t.Fatalf("%q", got)
	}
	if got, err := q.Flush(0); got != base+3 || err != nil {
		t.Fatalf("flush %d, %v", got, err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = open(t, o)
	if q.MinOffset() != 10*testFileSize {
		t.Fatalf("reopened: min %d", q.MinOffset())
	}
	if err := q.SetMinOffset(base); err != nil || q.MinOffset() != base {
		t.Fatalf("min %d, %v", q.MinOffset(), err)
	}
	if err := q.SetMinOffset(11 * testFileSize); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("min in another file: %v", err)
	}
}

func TestLayout(t *testing.T) {
	full := make([]byte, testFileSize)
	tests := []struct {
		name  string
		files map[string][]byte
		bad   string // file named in the error
		max   int64
	}{
		{"empty tail is made again (F39)", map[string][]byte{fileName(0): full, fileName(testFileSize): nil}, "", 2 * testFileSize},
		{"only an empty file", map[string][]byte{fileName(0): nil}, "", testFileSize},
		{"two empty tails", map[string][]byte{fileName(0): full, fileName(testFileSize): nil, fileName(2 * testFileSize): nil}, "", 3 * testFileSize},
		{"empty in the middle", map[string][]byte{fileName(0): nil, fileName(testFileSize): full}, fileName(0), 0},
		{"short", map[string][]byte{fileName(0): full[1:]}, fileName(0), 0},
		{"long", map[string][]byte{fileName(0): append(full, 1)}, fileName(0), 0},
		{"gap", map[string][]byte{fileName(0): full, fileName(2 * testFileSize): full}, fileName(2 * testFileSize), 0},
		{"gap before the empty tail", map[string][]byte{fileName(0): full, fileName(2 * testFileSize): nil}, fileName(2 * testFileSize), 0},
		{"odd offset", map[string][]byte{fileName(1): full}, fileName(1), 0},
		{"foreign name", map[string][]byte{"notes.txt": full}, "notes.txt", 0},
		{"short name", map[string][]byte{"0": full}, "0", 0},
		{"sign", map[string][]byte{"+0000000000000000000": full}, "+0000000000000000000", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, b := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			o := Options{Dir: dir, FileSize: testFileSize}
			q, err := Open(o)
			if tt.bad != "" {
				if !errors.Is(err, ErrLayout) || !bytes.Contains([]byte(err.Error()), []byte(tt.bad)) {
					t.Fatalf("got %v, want ErrLayout that names %s", err, tt.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if q.MaxOffset() != tt.max {
				t.Fatalf("max %d, want %d", q.MaxOffset(), tt.max)
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, FileSize: testFileSize}
	q := open(t, o)
	appendBytes(t, q, []byte("text"))
	o.ReadOnly = true
	r := open(t, o)
	if got := read(t, r, 0, 4); string(got) != "text" {
		t.Fatalf("%q", got)
	}
	_, err := r.Append(1)
	for _, err := range []error{err, r.WriteAt([]byte("x"), 0), r.Truncate(0), r.Reset(0), r.Prepare()} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("got %v, want ErrReadOnly", err)
		}
	}
	o.Dir = filepath.Join(dir, "missing")
	if _, err := Open(o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("read-only open of a missing folder: %v", err)
	}
}

// TestFault is F37: a mapped file that is cut from outside is an error, not SIGBUS.
func TestFault(t *testing.T) {
	dir := t.TempDir()
	q := open(t, Options{Dir: dir, FileSize: testFileSize})
	appendBytes(t, q, make([]byte, testFileSize-PageSize))
	if err := os.Truncate(filepath.Join(dir, fileName(0)), PageSize); err != nil {
		t.Fatal(err)
	}
	if err := q.WriteAt(make([]byte, 100), 2*PageSize); !errors.Is(err, ErrFault) {
		t.Fatalf("write behind the end of the file: %v", err)
	}
	err := Guard(func() error {
		v, err := q.View(2*PageSize, 10)
		if err != nil {
			return err
		}
		defer v.Release()
		t.Log(v.Bytes[0])
		return nil
	})
	if !errors.Is(err, ErrFault) {
		t.Fatalf("read behind the end of the file: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("Guard swallowed a panic that is no fault")
		}
	}()
	_ = Guard(func() error { var p *int; *p = 1; return nil })
}

func TestClosed(t *testing.T) {
	q := open(t, Options{Dir: t.TempDir(), FileSize: testFileSize})
	appendBytes(t, q, []byte("text"))
	v, err := q.View(0, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(q.Close(), q.Close()); err != nil {
		t.Fatal(err)
	}
	if string(v.Bytes) != "text" {
		t.Error("a view must outlive Close")
	}
	v.Release()
	_, err1 := q.Append(1)
	_, err2 := q.View(0, 1)
	_, err3 := q.Flush(0)
	for _, err := range []error{err1, err2, err3, q.WriteAt([]byte("x"), 0)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
}

// TestPrepareRaces runs the pre-allocation goroutine, readers, a flusher and a retention loop
// beside the writer; every byte must be what was written.
func TestPrepareRaces(t *testing.T) {
	q := open(t, Options{Dir: t.TempDir(), FileSize: testFileSize, AllocateStep: PageSize})
	const files = 40
	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(f func() error) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	loop(q.Prepare)
	loop(func() error { _, err := q.Flush(1); return err })
	loop(func() error { _, err := q.DeleteBefore(q.MaxOffset() - 5*testFileSize); return err })
	loop(func() error {
		off := max(q.MinOffset(), q.MaxOffset()-3*testFileSize)
		v, err := q.View(off, testFileSize)
		if errors.Is(err, ErrOutOfRange) {
			return nil
		}
		if err != nil {
			return err
		}
		defer v.Release()
		for i, b := range v.Bytes {
			if want := byte((off + int64(i)) / 64); b != want {
				t.Errorf("offset %d: %d, want %d", off+int64(i), b, want)
				return errors.New("wrong byte")
			}
		}
		return nil
	})
	for i := range files * testFileSize / 64 {
		appendBytes(t, q, bytes.Repeat([]byte{byte(i)}, 64))
	}
	close(stop)
	wg.Wait()
	if got, err := q.Flush(0); err != nil || got != files*testFileSize {
		t.Fatalf("flush: %d, %v", got, err)
	}
}
