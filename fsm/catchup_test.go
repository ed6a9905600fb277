package fsm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

var errCut = errors.New("the link is cut")

// cutLink lets a source fail for ever once it has sent a piece behind off.
func cutLink(s *source, off int64) {
	s.before = func(at int64) error {
		if at > off {
			return errCut
		}
		return nil
	}
}

// TestCatchUpFetchesWhatIsMissing: a follower that is empty, behind or a bit behind gets only the log bytes that it lacks. A cut link, a restart
// in the middle, and one between the snapshot and its restoration lose nothing that was fetched; nothing is visible before all is
// there. In the end leader and follower are equal.
func TestCatchUpFetchesWhatIsMissing(t *testing.T) {
	logs := script(t, 9)
	for name, have := range map[string]int{"empty": 0, "behind": 11, "a bit behind": 30} {
		t.Run(name, func(t *testing.T) {
			leader := openFollower(t, t.TempDir(), nil)
			leader.fsm.ApplyBatch(logs[:40])
			leader.snapshot(t, logs[39].Index)
			meta, snapshot := leader.newest(t)
			awaitCleaned(t, leader.store)
			low, end := leader.store.LogRange()
			dir := t.TempDir()
			peers := map[string]*follower{"leader": leader}
			f := openFollower(t, dir, peers)
			f.fsm.ApplyBatch(logs[:have])
			_, own := f.store.LogRange()
			own = max(own, low) // what lacks begins here

			if _, err := f.take(t, meta, snapshot); !errors.Is(err, ErrNotYet) {
				t.Fatalf("a snapshot without its log bytes is taken: %v", err)
			}
			cutLink(f.sources["leader"], own+(end-own)/3)
			waitHeldUp(t, f, snapshot, errCut)
			if _, err := f.take(t, meta, snapshot); !errors.Is(err, ErrNotYet) {
				t.Fatalf("a snapshot with half of its log bytes is taken: %v", err)
			}
			if list, err := f.snaps.List(); err != nil || len(list) != 0 {
				t.Fatalf("it is visible: %v %v", list, err)
			}
			first := f.sources["leader"].bytes
			f.close()

			f = openFollower(t, dir, peers)
			f.fsm.ApplyBatch(logs[:have])
			f.receive(t, "leader", snapshot)
			id, err := f.take(t, meta, snapshot)
			if err != nil {
				t.Fatal(err)
			}
			if got := first + f.sources["leader"].bytes; got != end-own {
				t.Errorf("%d and %d bytes were sent, the follower lacked %d", first, got-first, end-own)
			}
			if s := f.catchUp.Status(); s.State != "fetched" || s.At != end || s.To != end || s.Total != f.sources["leader"].bytes {
				t.Errorf("status %+v", s)
			}
			// The process dies before Raft restores it: the next start finds it whole.
			f.close()
			f = openFollower(t, dir, peers)
			list, err := f.snaps.List()
			if err != nil || len(list) != 1 || list[0].ID != id {
				t.Fatalf("the received snapshot is not there after a restart: %v %v", list, err)
			}
			f.restore(t, id)
			if left := f.stagedFiles(t); len(left) != 0 {
				t.Errorf("installed bytes are still staged: %v", left)
			}
			if s := f.catchUp.Status(); s.State != "" {
				t.Errorf("status %+v", s)
			}
			f.fsm.ApplyBatch(logs[40:])
			if f.fatal != nil {
				t.Fatal(f.fatal)
			}
			// Sent again, as after a lost answer, it changes nothing.
			f.receive(t, "leader", snapshot)
			if f.sources["leader"].bytes != 0 {
				t.Errorf("%d bytes were sent though none lacked", f.sources["leader"].bytes)
			}
			leader.fsm.ApplyBatch(logs[40:])
			if diff := difference(closeAndRead(t, leader.replica), closeAndRead(t, f.replica)); diff != "" {
				t.Fatalf("leader and follower differ: %s", diff)
			}
			f.close()
			leader.close()
		})
	}
}

// waitHeldUp receives until the transfer says why it does not go on.
func waitHeldUp(t *testing.T, f *follower, snapshot []byte, why error) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		if err := f.catchUp.Receive(t.Context(), "leader", snapshot); !errors.Is(err, ErrNotYet) {
			t.Fatalf("receive: %v", err)
		}
		if s := f.catchUp.Status(); s.State == "waiting" && strings.Contains(s.Problem, why.Error()) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("status %+v", s)
		}
	}
}

// TestCatchUpFromTheNextLeader: the leader dies in the middle, and the next one's snapshot is newer. What is staged is continued.
func TestCatchUpFromTheNextLeader(t *testing.T) {
	logs := script(t, 9)
	leader, next := openFollower(t, t.TempDir(), nil), openFollower(t, t.TempDir(), nil)
	defer leader.close()
	defer next.close()
	leader.fsm.ApplyBatch(logs[:25])
	leader.snapshot(t, logs[24].Index)
	next.fsm.ApplyBatch(logs[:44])
	next.snapshot(t, logs[43].Index)
	_, old := leader.newest(t)
	meta, snapshot := next.newest(t)
	_, end := next.store.LogRange()

	f := openFollower(t, t.TempDir(), map[string]*follower{"leader": leader, "next": next})
	defer f.close()
	cutLink(f.sources["leader"], 200_000)
	waitHeldUp(t, f, old, errCut)
	f.receive(t, "next", snapshot)
	id, err := f.take(t, meta, snapshot)
	if err != nil {
		t.Fatal(err)
	}
	f.restore(t, id)
	a, b := f.sources["leader"].bytes, f.sources["next"].bytes
	if low, _ := next.store.LogRange(); a == 0 || b == 0 || a+b != end-low {
		t.Errorf("%d and %d bytes were sent, the follower lacked %d", a, b, end)
	}
	f.fsm.ApplyBatch(logs[44:])
	next.fsm.ApplyBatch(logs[44:])
	if diff := difference(closeAndRead(t, next.replica), closeAndRead(t, f.replica)); diff != "" || f.fatal != nil {
		t.Fatalf("leader and follower differ: %s; %v", diff, f.fatal)
	}
}

// TestCatchUpAfterAnOlderLeader: what is staged reaches beyond the next leader's snapshot. It is what belongs to that one, and more.
func TestCatchUpAfterAnOlderLeader(t *testing.T) {
	logs := script(t, 9)
	leader, next := openFollower(t, t.TempDir(), nil), openFollower(t, t.TempDir(), nil)
	defer leader.close()
	defer next.close()
	leader.fsm.ApplyBatch(logs[:44])
	leader.snapshot(t, logs[43].Index)
	next.fsm.ApplyBatch(logs[:25])
	next.snapshot(t, logs[24].Index)
	next.fsm.ApplyBatch(logs[25:])
	_, newer := leader.newest(t)
	meta, snapshot := next.newest(t)

	f := openFollower(t, t.TempDir(), map[string]*follower{"leader": leader, "next": next})
	defer f.close()
	f.receive(t, "leader", newer)
	f.receive(t, "next", snapshot)
	if got := f.sources["next"].bytes; got != 0 {
		t.Errorf("%d bytes were sent again", got)
	}
	id, err := f.take(t, meta, snapshot)
	if err != nil {
		t.Fatal(err)
	}
	f.restore(t, id)
	f.fsm.ApplyBatch(logs[25:])
	if diff := difference(closeAndRead(t, next.replica), closeAndRead(t, f.replica)); diff != "" || f.fatal != nil {
		t.Fatalf("leader and follower differ: %s; %v", diff, f.fatal)
	}
}

// TestCatchUpOfADivergedLog: a follower whose log holds other bytes than the leader's, below or beyond the snapshot, keeps none of them. (Its Raft log was
// cut after it had applied it, as an unsafe mode may do.)
func TestCatchUpOfADivergedLog(t *testing.T) {
	logs, others := script(t, 9), script(t, 10)
	for name, have := range map[string]int{"shorter": 25, "longer": 44} {
		t.Run(name, func(t *testing.T) {
			leader := openFollower(t, t.TempDir(), nil)
			leader.fsm.ApplyBatch(logs[:40])
			leader.snapshot(t, logs[39].Index)
			low, _ := leader.store.LogRange()
			dir := t.TempDir()
			f := openFollower(t, dir, map[string]*follower{"leader": leader})
			f.fsm.ApplyBatch(logs[:10])
			for _, l := range others[10:have] {
				c := *l
				c.Term = 7
				f.fsm.Apply(&c)
			}
			if f.fatal != nil {
				t.Fatal(f.fatal)
			}
			meta, snapshot := leader.newest(t)
			f.receive(t, "leader", snapshot)
			if s := f.catchUp.Status(); !s.Replaces || s.From != low {
				t.Errorf("status %+v", s)
			}
			id, err := f.take(t, meta, snapshot)
			if err != nil {
				t.Fatal(err)
			}
			// Killed here, the old log may not come back.
			f.close()
			f = openFollower(t, dir, map[string]*follower{"leader": leader})
			f.restore(t, id)
			f.fsm.ApplyBatch(logs[40:])
			leader.fsm.ApplyBatch(logs[40:])
			if diff := difference(closeAndRead(t, leader.replica), closeAndRead(t, f.replica)); diff != "" || f.fatal != nil {
				t.Fatalf("leader and follower differ: %s; %v", diff, f.fatal)
			}
			f.close()
			leader.close()
		})
	}
}

// TestCatchUpBelievesNoChecksum: bytes that pass every checksum of the way but are not what the leader has applied are given up before anything
// is installed, and fetched again.
func TestCatchUpBelievesNoChecksum(t *testing.T) {
	logs := script(t, 9)
	leader := openFollower(t, t.TempDir(), nil)
	defer leader.close()
	leader.fsm.ApplyBatch(logs[:40])
	leader.snapshot(t, logs[39].Index)
	low, end := leader.store.LogRange()
	meta, snapshot := leader.newest(t)
	f := openFollower(t, t.TempDir(), map[string]*follower{"leader": leader})
	defer f.close()
	src := f.sources["leader"]
	src.change = func(off int64, b []byte) {
		if off <= end/2 && end/2 < off+int64(len(b)) && src.stops == 0 {
			src.stops++
			b[end/2-off] ^= 1
		}
	}
	f.receive(t, "leader", snapshot)
	if src.bytes != 2*(end-low) || src.stops != 1 {
		t.Errorf("%d bytes were sent, %d changed, the log is [%d, %d)", src.bytes, src.stops, low, end)
	}
	id, err := f.take(t, meta, snapshot)
	if err != nil {
		t.Fatal(err)
	}
	// Rot in what is staged: found before it is installed, and the snapshot is passed over from then on.
	pieces := f.stagedFiles(t)
	b, err := os.ReadFile(pieces[0])
	if err != nil {
		t.Fatal(err)
	}
	b[10_000] ^= 1
	if err := os.WriteFile(pieces[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	_, r, err := f.snaps.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.fsm.Restore(r); err == nil {
		t.Fatal("rotten bytes were installed")
	}
	if list, err := f.snaps.List(); err != nil || len(list) != 0 {
		t.Errorf("snapshots %v, %v", list, err)
	}
	if _, to := f.store.LogRange(); to != 0 {
		t.Errorf("the log ends at %d", to)
	}
	f.install(t, leader)
	if diff := difference(closeAndRead(t, leader.replica), closeAndRead(t, f.replica)); diff != "" {
		t.Fatalf("leader and follower differ: %s", diff)
	}
}

// TestCatchUpHasALimit: fetching takes at least as long as the rate says, and Receive does not wait for it.
func TestCatchUpHasALimit(t *testing.T) {
	logs := script(t, 9)
	leader := openFollower(t, t.TempDir(), nil)
	defer leader.close()
	leader.fsm.ApplyBatch(logs[:40])
	leader.snapshot(t, logs[39].Index)
	low, end := leader.store.LogRange()
	_, snapshot := leader.newest(t)
	f := openFollower(t, t.TempDir(), map[string]*follower{"leader": leader})
	defer f.close()
	f.catchUp.cfg.Rate = 2 * (end - low) // half a second
	began := time.Now()
	if err := f.catchUp.Receive(t.Context(), "leader", snapshot); !errors.Is(err, ErrNotYet) {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	f.receive(t, "leader", snapshot)
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("%d bytes at %d a second took %v", end-low, f.catchUp.cfg.Rate, took)
	}
}

// TestCatchUpEnds: Close ends a transfer and an installation; one that nobody asks for any more ends by itself.
func TestCatchUpEnds(t *testing.T) {
	logs := script(t, 9)
	leader := openFollower(t, t.TempDir(), nil)
	defer leader.close()
	leader.fsm.ApplyBatch(logs[:40])
	leader.snapshot(t, logs[39].Index)
	meta, snapshot := leader.newest(t)
	f := openFollower(t, t.TempDir(), map[string]*follower{"leader": leader})
	f.catchUp.cfg.Interest = 10 * time.Millisecond
	cutLink(f.sources["leader"], 1000)
	waitHeldUp(t, f, snapshot, errCut)
	f.catchUp.mu.Lock()
	done := f.catchUp.transfer.done
	f.catchUp.mu.Unlock()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the transfer goes on for nobody")
	}
	f.sources["leader"].before = nil
	f.receive(t, "leader", snapshot)
	id, err := f.take(t, meta, snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.catchUp.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.catchUp.Receive(context.Background(), "leader", snapshot); !errors.Is(err, ErrCatchUpClosed) {
		t.Errorf("receive: %v", err)
	}
	_, r, err := f.snaps.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.fsm.Restore(r); !errors.Is(err, ErrCatchUpClosed) {
		t.Errorf("restore: %v", err)
	}
	if list, err := f.snaps.List(); err != nil || len(list) != 1 {
		t.Errorf("what the next start installs is gone: %v %v", list, err)
	}
	f.close()
}

// TestF55SnapshotOfTodayStillOpens: a folder as the build before left it, a snapshot and a file of a transfer that it staged, opens with
// the state that it had.
func TestF55SnapshotOfTodayStillOpens(t *testing.T) {
	logs := script(t, 9)
	dir := t.TempDir()
	f := openFollower(t, dir, nil)
	f.fsm.ApplyBatch(logs[:40])
	f.snapshot(t, logs[39].Index)
	want, err := f.tables.Export()
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprint(f.store.Position())
	f.close()
	old := filepath.Join(dir, "staging", "5-77-1796000000000.0.log")
	if err := os.WriteFile(old, []byte("log bytes"), 0o644); err != nil {
		t.Fatal(err)
	}
	f = openFollower(t, dir, nil)
	list, err := f.snaps.List()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	f.restore(t, list[0].ID)
	got, err := f.tables.Export()
	if err != nil || string(got) != string(want) || fmt.Sprint(f.store.Position()) != at {
		t.Fatalf("position %v, was %v; tables equal %v; %v", f.store.Position(), at, string(got) == string(want), err)
	}
	f.fsm.ApplyBatch([]*raft.Log{logs[40]})
	if f.fatal != nil {
		t.Fatal(f.fatal)
	}
	f.close()
}
