package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"raftmq/commitlog/faultfile"
)

// TestNotAheadOfTheRaftLog: where the Raft log syncs on a timer, a power cut can take entries from it that the log still has. They
// are cut off, but never below the recovery point, which moves only after the Raft log was synced.
func TestNotAheadOfTheRaftLog(t *testing.T) {
	k := killed(t)
	for last := k.point.RaftIndex; last <= k.point.RaftIndex+80; last++ {
		f := k.f.Crash(faultfile.LoseNothing, nil)
		cfg := crashConfig(f)
		cfg.RaftLast = func() (uint64, error) { return last, nil }
		l, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if index, _, end := l.Recovered(); index > last || end < k.point.LogEnd || l.MaxOffset() != end {
			t.Fatalf("recovered entry %d up to %d, the Raft log ends with %d", index, end, last)
		}
		if err := l.Restore(k.snapshot); err != nil {
			t.Fatal(err)
		}
		h := &history{snapshots: []Position{{}}}
		if err := h.run(l, k.steps); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content(t, l), k.ref.bytes) || fmt.Sprint(l.Position()) != k.position {
			t.Fatal("replay gives other bytes")
		}
		closeLog(t, l)
	}
	cfg := crashConfig(k.f)
	cfg.RaftLast = func() (uint64, error) { return k.point.RaftIndex - 1, nil }
	if _, err := Open(cfg); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a Raft log that ends below the recovery point: %v", err)
	}
}

// TestBeforePoint: nothing is called durable before the Raft log is.
func TestBeforePoint(t *testing.T) {
	f := faultfile.New()
	cfg := crashConfig(f)
	var fail error
	calls := 0
	var l *Log
	cfg.BeforePoint = func() error {
		calls++
		if p, err := readPoint(&cfg); err != nil || p.LogEnd >= l.FlushedTo() {
			t.Errorf("the point is at %d already (%v), the log is flushed up to %d", p.LogEnd, err, l.FlushedTo())
		}
		return fail
	}
	l = openLog(t, cfg)
	apply(t, l, 1, "T", 0, records("T", 0, 1, 200, 1, 0), 1)
	fail = errors.New("test")
	if _, err := l.SetRecoveryPoint(); !errors.Is(err, fail) || calls != 1 || l.RecoveryPoint().LogEnd != 0 {
		t.Fatalf("%v, %d calls, point %+v", err, calls, l.RecoveryPoint())
	}
	fail = nil
	if p, err := l.SetRecoveryPoint(); err != nil || calls != 2 || p.LogEnd != 200 {
		t.Fatalf("%v, %d calls, point %+v", err, calls, p)
	}
}
