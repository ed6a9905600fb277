package fsm

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"

	"github.com/hashicorp/raft"
)

// TestNewestPosition: the newest snapshot whose log bytes are here counts; not one that is still staged, nor a damaged one.
func TestNewestPosition(t *testing.T) {
	dir := t.TempDir()
	staging, err := store.OpenStaging(lazyFS{}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer staging.Close()
	files, err := raft.NewFileSnapshotStore(dir, 5, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := func(end int64) {
		t.Helper()
		p, err := NewestPosition(files, staging)
		if err != nil || p.LogEnd != end {
			t.Fatalf("%+v, %v; want the snapshot that ends at %d", p, err, end)
		}
	}
	_, trans := raft.NewInmemTransport("")
	take := func(index uint64, h *head) string {
		t.Helper()
		sink, err := files.Create(1, index, 1, raft.Configuration{}, 1, trans)
		if err != nil {
			t.Fatal(err)
		}
		b, err := appendHead(nil, h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
		return sink.ID()
	}
	at := func(index uint64, end int64) *head {
		return &head{Version: snapshotVersion, Applied: index, Term: 1, Position: store.Position{RaftIndex: index, RaftTerm: 1, LogEnd: end}, Tables: []byte("{}")}
	}
	want(0)
	take(10, at(10, 1000))
	want(1000)
	take(20, at(20, 2000))
	want(2000)
	// Fetched, not installed yet.
	if err := staging.Begin(2000, false); err != nil {
		t.Fatal(err)
	}
	if err := staging.Append(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := staging.Seal(30, 3000); err != nil {
		t.Fatal(err)
	}
	take(30, at(30, 3000))
	want(2000)
	damaged := take(40, at(40, 4000))
	state := filepath.Join(dir, "snapshots", damaged, "state.bin")
	b, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	b[30] ^= 1
	if err := os.WriteFile(state, b, 0o600); err != nil {
		t.Fatal(err)
	}
	want(2000)
	newer := at(50, 5000)
	newer.Version++
	take(50, newer)
	if _, err := NewestPosition(files, staging); !errors.Is(err, ErrSnapshotVersion) || !errors.Is(err, command.ErrUnknown) {
		t.Fatalf("a newer program's snapshot: %v", err)
	}
}
