package group

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

func queues(ids ...int32) (out []Queue) {
	for _, id := range ids {
		out = append(out, Queue{Topic: "T", BrokerName: "b", QueueID: id})
	}
	return out
}

func expectQueues(t *testing.T, what string, got, want []Queue) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestLocks(t *testing.T) {
	r, c, _ := newTestRegistry()
	lock := func(group, client string, ids ...int32) []Queue {
		locked, err := r.LockQueues(group, client, queues(ids...), nil)
		if err != nil {
			t.Error(err)
		}
		return locked
	}
	expectQueues(t, "a locks", lock("g", "a", 0, 1), queues(0, 1))
	expectQueues(t, "b gets the rest", lock("g", "b", 1, 2), queues(2))
	expectQueues(t, "another group", lock("h", "b", 1), queues(1))
	c.at = c.at.Add(LockLease - time.Second)
	expectQueues(t, "a renews one", lock("g", "a", 0), queues(0))
	c.at = c.at.Add(2 * time.Second)
	expectQueues(t, "b gets what ran out", lock("g", "b", 0, 1), queues(1))
	if err := r.UnlockQueues("g", "b", queues(0, 1), nil); err != nil {
		t.Error(err)
	}
	expectQueues(t, "unlock frees own only", lock("g", "c", 0, 1), queues(1))
	r.BeginLockTerm(LockQuiet, nil)
	for _, id := range []string{"a", "b", "c"} {
		expectQueues(t, "quiet", lock("g", id, 0, 1, 2), nil)
	}
	c.at = c.at.Add(LockQuiet)
	expectQueues(t, "quiet is over", lock("g", "c", 0), queues(0))
	r.BeginLockTerm(0, nil)
	expectQueues(t, "no quiet needed", lock("g", "a", 0), queues(0))
	c.at = c.at.Add(LockLease)
	if err := r.ExpireLocks(nil); err != nil {
		t.Error(err)
	}
	if s := r.Stats(); s.Locks != 0 {
		t.Errorf("%d locks left", s.Locks)
	}
}

// TestF79_RecordedLocks: a recorder hears of each change of owner once and in order, of renewals without queues, and what it refuses has not
// happened.
func TestF79_RecordedLocks(t *testing.T) {
	r, c, _ := newTestRegistry()
	refuse := errors.New("refused")
	var said []string
	var fail error
	lock := func(client string, ids ...int32) ([]Queue, error) {
		return r.LockQueues("g", client, queues(ids...), func(locked []Queue, take []Lock) error {
			text := fmt.Sprintf("%s %d:", client, len(locked))
			for _, l := range take {
				text += fmt.Sprintf(" %d from %q", l.Queue.QueueID, l.From)
			}
			said = append(said, text)
			return fail
		})
	}
	heard := func(want ...string) {
		t.Helper()
		if !slices.Equal(said, want) {
			t.Errorf("recorded %q, want %q", said, want)
		}
		said = nil
	}
	fail = refuse
	if _, err := lock("a", 0, 1); !errors.Is(err, refuse) || r.Stats().Locks != 0 {
		t.Errorf("a refused lock: %v, %d locks", err, r.Stats().Locks)
	}
	fail = nil
	if _, err := lock("a", 0, 1); err != nil {
		t.Error(err)
	}
	if _, err := lock("a", 1, 0); err != nil { // renews
		t.Error(err)
	}
	if got, err := lock("b", 0); err != nil || len(got) != 0 { // nothing to record
		t.Error(got, err)
	}
	heard(`a 2: 0 from "" 1 from ""`, `a 2: 0 from "" 1 from ""`, "a 2:")
	c.at = c.at.Add(LockLease)
	fail = refuse
	if _, err := lock("b", 0); !errors.Is(err, refuse) {
		t.Error(err)
	}
	fail = nil
	if _, err := lock("b", 0, 2); err != nil {
		t.Error(err)
	}
	heard(`b 1: 0 from "a"`, `b 2: 0 from "a" 2 from ""`)
	if err := r.ExpireLocks(func(gone []Lock) error {
		if len(gone) != 1 || gone[0].Owner != "a" || gone[0].Queue.QueueID != 1 {
			t.Errorf("ran out: %+v", gone)
		}
		return refuse
	}); !errors.Is(err, refuse) || r.Stats().Locks != 3 {
		t.Errorf("expiry: %v, %d locks", err, r.Stats().Locks)
	}
	// What is told to the owner is what is recorded, with a whole lease from now on.
	c.at = c.at.Add(LockLease - time.Second)
	owner := map[int32]string{0: "b", 2: "c"}
	owned, agree := r.ExtendLocks("g", "b", queues(0, 1, 2), func(q Queue) string { return owner[q.QueueID] })
	expectQueues(t, "extended", owned, queues(0))
	if agree {
		t.Error("leases that contradict the records count as right")
	}
	c.at = c.at.Add(2 * time.Second)
	if got, _ := lock("c", 0, 2); !slices.Equal(got, queues(2)) {
		t.Errorf("c has %v: 0 was extended, 2 was not", got)
	}
}

// TestF79_NewLeaderKeepsOwners: recorded owners have a whole lease under a new leader, nobody else gets their queues before, and
// nobody waits.
func TestF79_NewLeaderKeepsOwners(t *testing.T) {
	r, c, _ := newTestRegistry()
	record := func([]Queue, []Lock) error { return nil }
	r.BeginLockTerm(0, []Lock{{Group: "g", Owner: "a", Queue: queues(0)[0]}})
	c.at = c.at.Add(LockLease - time.Second)
	got, err := r.LockQueues("g", "b", queues(0, 1), record)
	if err != nil {
		t.Error(err)
	}
	expectQueues(t, "b", got, queues(1))
	got, _ = r.LockQueues("g", "a", queues(0, 1), record)
	expectQueues(t, "a", got, queues(0))
	c.at = c.at.Add(LockLease)
	got, _ = r.LockQueues("g", "b", queues(0), record)
	expectQueues(t, "b, when a is silent", got, queues(0))
}

// TestLocksBeforeTheyWereRecorded: they are handed over once, not before quiet has passed.
func TestLocksBeforeTheyWereRecorded(t *testing.T) {
	r, c, _ := newTestRegistry()
	r.BeginLockTerm(LockQuiet, nil)
	calls := 0
	record := func(all []Lock) error { calls += 1 + len(all); return nil }
	if done, err := r.RecordLocks(record); done || err != nil || calls != 0 {
		t.Errorf("in the quiet: %v %v, %d", done, err, calls)
	}
	c.at = c.at.Add(LockQuiet)
	if _, err := r.LockQueues("g", "a", queues(0, 1), nil); err != nil {
		t.Error(err)
	}
	refuse := errors.New("refused")
	if _, err := r.RecordLocks(func([]Lock) error { return refuse }); !errors.Is(err, refuse) {
		t.Error(err)
	}
	for _, want := range []int{3, 4} {
		if done, err := r.RecordLocks(record); !done || err != nil || calls != want {
			t.Errorf("recorded: %v %v, %d, want %d", done, err, calls, want)
		}
	}
}
