package metadata

import (
	"bytes"
	"testing"

	"raftmq/fsm/command"
)

func lockOf(group, owner, from string, ids ...int32) command.QueueLock {
	l := command.QueueLock{Group: group, Owner: owner}
	for _, id := range ids {
		l.Queues = append(l.Queues, command.LockedQueue{QueueName: command.QueueName{Topic: "T", QueueID: id}, From: from})
	}
	return l
}

// TestF79_OneOwner: a queue changes its owner only by a command that names the former one, and an unlock only takes from its own owner.
func TestF79_OneOwner(t *testing.T) {
	tb := filled(t)
	if err := tb.RaiseLevel(command.Raise{Level: 2}); err != nil {
		t.Fatal(err)
	}
	owner := func(id int32, want string) {
		t.Helper()
		if got := tb.QueueLockOwner("g", command.QueueName{Topic: "T", QueueID: id}); got != want {
			t.Errorf("queue %d: owner %q, want %q", id, got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(tb.LockQueues(lockOf("g", "a", "", 0, 1)))
	must(tb.LockQueues(lockOf("g", "b", "", 1, 2)))
	must(tb.LockQueues(lockOf("h", "c", "", 0)))
	must(tb.LockQueues(lockOf("g", "d", "")))
	owner(0, "a")
	owner(1, "a")
	owner(2, "b")
	must(tb.LockQueues(lockOf("g", "b", "x", 0)))
	owner(0, "a")
	must(tb.LockQueues(lockOf("g", "b", "a", 0, 3)))
	owner(0, "b")
	owner(3, "b")
	must(tb.LockQueues(lockOf("g", "c", "a", 0))) // a second taker comes too late
	owner(0, "b")
	must(tb.UnlockQueues(command.QueueUnlock{Locks: []command.QueueLock{lockOf("g", "a", "", 0, 1, 9), lockOf("none", "a", "", 0)}}))
	owner(0, "b")
	owner(1, "")
	if locks, all := tb.QueueLocks(); all || len(locks) != 2 {
		t.Errorf("locks %+v, all %v", locks, all)
	}
	must(tb.AdoptQueueLocks(command.QueueLocksAdopt{Locks: []command.QueueLock{lockOf("g", "z", "", 0, 5)}}))
	owner(0, "b")
	owner(5, "z")
	if !tb.AllQueueLocks() {
		t.Error("the tables do not say that they have all locks")
	}

	b, err := tb.Export()
	must(err)
	want := `"locks":[{"g":"g","c":"b","qs":[{"t":"T","q":0},{"t":"T","q":2},{"t":"T","q":3}]},{"g":"g","c":"z","qs":[{"t":"T","q":5}]},{"g":"h","c":"c","qs":[{"t":"T","q":0}]}],"allLocks":true`
	if !bytes.Contains(b, []byte(want)) {
		t.Errorf("exported %s, want %s in it", b, want)
	}
	other := New()
	must(other.Import(b))
	again, err := other.Export()
	must(err)
	if !bytes.Equal(b, again) {
		t.Errorf("import changed the tables:\n%s\n%s", b, again)
	}
	must(other.Detach("another"))
	if locks, all := other.QueueLocks(); len(locks) != 0 || !all {
		t.Errorf("a new cluster begins with locks %+v, all %v", locks, all)
	}
	must(other.UnlockQueues(command.QueueUnlock{Locks: []command.QueueLock{lockOf("g", "b", "", 0)}}))
	owner(0, "b") // the captured copy is another's
}

// TestLocksOfLevel1: what an older raftmq reads has none.
func TestLocksOfLevel1(t *testing.T) {
	tb := filled(t)
	before, err := tb.Export()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(before, []byte("ocks")) {
		t.Errorf("tables of level 1 have locks: %s", before)
	}
}
