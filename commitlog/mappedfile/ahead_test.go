package mappedfile_test

import (
	"testing"
	"time"

	"raftmq/commitlog/faultfile"
	"raftmq/commitlog/mappedfile"
)

// hangingFS says that it makes a file, and hangs in it, while hang is not nil.
type hangingFS struct {
	*faultfile.FS
	makes, hang chan struct{}
}

// Create implements mappedfile.FS.
func (f *hangingFS) Create(path string, size int64) (mappedfile.Handle, error) {
	if f.hang != nil {
		f.makes <- struct{}{}
		<-f.hang
	}
	return f.FS.Create(path, size)
}

// While the disk hangs in making the file after next, the writer goes on into the next one, which is there (Apply-Never-Waits). Then the order
// of the files is what it was.
func TestWriterTakesAFileWhileTheNextIsMade(t *testing.T) {
	f := &hangingFS{FS: faultfile.New(), makes: make(chan struct{}, 8)}
	q, err := mappedfile.Open(mappedfile.Options{Dir: "d", FileSize: fileSize, Staged: true, Ahead: 2, FS: f})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	put(t, q, make([]byte, fileSize)) // makes the first
	if err := q.Prepare(); err != nil {
		t.Fatal(err)
	}
	put(t, q, make([]byte, fileSize)) // takes one of two
	f.hang = make(chan struct{})
	made, wrote := make(chan error, 1), make(chan struct{})
	go func() { made <- q.Prepare() }()
	<-f.makes
	go func() {
		defer close(wrote)
		put(t, q, make([]byte, fileSize))
	}()
	select {
	case <-wrote:
	case <-time.After(20 * time.Second):
		t.Error("the writer waits though the next file is there")
	}
	close(f.hang)
	<-wrote
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	for range 4 {
		put(t, q, make([]byte, fileSize))
		if err := q.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.WriteOut(); err != nil {
		t.Fatal(err)
	}
	q.Commit(q.WriteOffset() - q.MaxOffset())
	if got := int64(len(content(t, q))); got != 7*fileSize || got != q.WriteOffset() {
		t.Errorf("%d bytes, written up to %d", got, q.WriteOffset())
	}
}
