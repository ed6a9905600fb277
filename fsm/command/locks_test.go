package command

import "testing"

// TestLockFormat holds the bytes still.
func TestLockFormat(t *testing.T) {
	q := func(topic, broker, from string, id int32) LockedQueue {
		return LockedQueue{QueueName{topic, broker, id}, from}
	}
	lock := QueueLock{Group: "g", Owner: "c", Queues: []LockedQueue{q("T", "", "", 0), q("T", "other", "d", 1)}}
	for kind, c := range map[Kind]struct {
		payload any
		want    string
	}{
		23: {lock, "\x17\x01\x00\x00\x00\x4c" + `{"g":"g","c":"c","qs":[{"t":"T","q":0},{"t":"T","b":"other","q":1,"f":"d"}]}`},
		24: {QueueUnlock{Locks: []QueueLock{lock}}, "\x18\x01\x00\x00\x00\x58" + `{"locks":[{"g":"g","c":"c","qs":[{"t":"T","q":0},{"t":"T","b":"other","q":1,"f":"d"}]}]}`},
		25: {QueueLocksAdopt{}, "\x19\x01\x00\x00\x00\x02" + `{}`},
	} {
		b, err := AppendJSON(nil, kind, c.payload)
		if err != nil || string(b) != c.want {
			t.Errorf("kind %d: %q (%v), want %q", kind, b, err, c.want)
		}
	}
	if b, _ := AppendJSON(nil, KindQueueLock, QueueLock{Group: "g", Owner: "c"}); string(b) != "\x17\x01\x00\x00\x00\x11"+`{"g":"g","c":"c"}` {
		t.Errorf("a renewal is %q", b)
	}
}
