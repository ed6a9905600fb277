package mappedfile_test

import (
	"errors"
	"testing"

	"raftmq/commitlog/faultfile"
	"raftmq/commitlog/mappedfile"
)

const fileSize = 4 * mappedfile.PageSize

func openFaulty(t *testing.T, f *faultfile.FS) *mappedfile.Queue {
	t.Helper()
	q, err := mappedfile.Open(mappedfile.Options{Dir: "d", FileSize: fileSize, AllocateStep: mappedfile.PageSize, FS: f})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestNoSpace: a full disk is an error, changes nothing, and passes.
func TestNoSpace(t *testing.T) {
	f := faultfile.New()
	q := openFaulty(t, f)
	write := func() error {
		b, err := q.Append(mappedfile.PageSize)
		if err == nil {
			b[0] = 1
			q.Commit(mappedfile.PageSize)
		}
		return err
	}
	for want := int64(0); want < 3*fileSize; want += mappedfile.PageSize {
		for failures := 0; ; failures++ {
			f.FailAt(f.Ops()+failures, mappedfile.ErrNoSpace) // each operation of this append in turn
			before := f.Ops()
			err := write()
			if err == nil && f.Ops() <= before+failures {
				break
			}
			if !errors.Is(err, mappedfile.ErrNoSpace) || q.WriteOffset() != want || q.MaxOffset() != want {
				t.Fatalf("at %d: %v, write offset %d", want, err, q.WriteOffset())
			}
			if files := f.Files("d"); int64(len(files)) != (want+fileSize-1)/fileSize {
				t.Fatalf("at %d: files %v", want, files)
			}
		}
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestScantSpace: where a whole step has no room any more, what is needed still has, in the current file and in a
// new one. Room tells how far the writer comes by itself.
func TestScantSpace(t *testing.T) {
	const size, step = 4 << 20, 1 << 20
	f := faultfile.New()
	q, err := mappedfile.Open(mappedfile.Options{Dir: "d", FileSize: size, AllocateStep: step, FS: f})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	write := func(n int) {
		t.Helper()
		if _, err := q.Append(n); err != nil {
			t.Fatal(err)
		}
		q.Commit(int64(n))
	}
	f.FailAt(f.Ops()+1, mappedfile.ErrNoSpace) // Create, then the first step
	write(100)
	if room := q.Room(); room != 256<<10-100 {
		t.Errorf("room %d in a file that got the least", room)
	}
	if err := q.Prepare(); err != nil {
		t.Fatal(err)
	}
	if room := q.Room(); room != 2*step-100 {
		t.Errorf("room %d after Prepare, the next file must not count before the current one is taken whole", room)
	}
	write(size - 100)
	if room := q.Room(); room != step {
		t.Errorf("room %d at the end of a file, the next has a step", room)
	}
	write(10)
	for i := range 2 { // a step, and what is left of it
		f.FailAt(f.Ops()+i, mappedfile.ErrNoSpace)
	}
	if err := q.Prepare(); !errors.Is(err, mappedfile.ErrNoSpace) {
		t.Errorf("Prepare on a full disk: %v", err)
	}
}

// TestF33FailedSyncPoisons is F33: no later flush and no later write is believed.
func TestF33FailedSyncPoisons(t *testing.T) {
	f := faultfile.New()
	q := openFaulty(t, f)
	if err := q.WriteAt([]byte("text"), 0); err != nil {
		t.Fatal(err)
	}
	f.FailAt(f.Ops(), nil)
	_, first := q.Flush(0)
	_, second := q.Flush(0)
	_, third := q.Append(1)
	for _, err := range []error{first, second, third, q.WriteAt([]byte("x"), 0), q.Prepare(), q.Truncate(0)} {
		if !errors.Is(err, mappedfile.ErrPoisoned) || !errors.Is(err, faultfile.ErrInjected) {
			t.Errorf("got %v, want ErrPoisoned with its cause", err)
		}
	}
	if q.FlushedOffset() != 0 {
		t.Errorf("flushed %d", q.FlushedOffset())
	}
}

// TestOpenFails fails each operation of Open; faultfile panics on use after close, and
// a second Open must find the folder as it was.
func TestOpenFails(t *testing.T) {
	f := faultfile.New()
	q := openFaulty(t, f)
	for range 3 {
		if err := q.WriteAt(make([]byte, fileSize), q.MaxOffset()); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		start := f.Ops()
		f.FailAt(start+i, nil)
		q, err := mappedfile.Open(mappedfile.Options{Dir: "d", FileSize: fileSize, FS: f})
		if err == nil {
			if q.MaxOffset() != 3*fileSize || f.Ops() > start+i {
				t.Fatalf("operation %d: max %d", i, q.MaxOffset())
			}
			_ = q.Close()
			return
		}
		if !errors.Is(err, faultfile.ErrInjected) {
			t.Fatalf("operation %d: %v", i, err)
		}
	}
}
