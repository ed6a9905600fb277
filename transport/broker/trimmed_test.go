package broker

import (
	"fmt"
	"testing"

	"raftmq/fsm/metadata"
	"raftmq/transport/remoting"
)

// TestF13OffsetCorrection: an offset one behind the last message is "nothing new"; what is further is corrected to the queue's end, never
// to its begin.
func TestF13OffsetCorrection(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "", "", "", "")
	const next = 4 // the last message is 3
	for offset, w := range map[int64]struct {
		code int32
		next int64
	}{next: {remoting.ResponsePullNotFound, next}, next + 1: {remoting.ResponsePullOffsetMoved, next}, next + 3: {remoting.ResponsePullOffsetMoved, next}, 1 << 50: {remoting.ResponsePullOffsetMoved, next}} {
		want(t, c.call(remoting.RequestUpdateConsumerOffset, nil, updateFields("g", "T", 0, offset)...), 0)
		if r := want(t, c.queryOffset("g", "T", 0), 0); r.GetString("offset") != fmt.Sprint(offset) {
			t.Errorf("stored offset %s, committed %d", r.GetString("offset"), offset)
		}
		r := pullResponse(t, want(t, c.pull("g", "T", 0, offset, flagCarried, 0), w.code))
		if r.NextBeginOffset != w.next || r.MinOffset != 0 || r.MaxOffset != next {
			t.Errorf("at %d: %+v", offset, r)
		}
	}
}

// TestTrimmedQueue: what consumers and tools are told of messages that retention has removed.
func TestTrimmedQueue(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.settings.SegmentSize, o.store.SegmentSize = 64<<10, 64<<10 })
	n.putTopic("T", 1)
	n.putTopic("Gone", 1)
	c := n.dial()
	want(t, c.send("Gone", 0, "", make([]byte, 1000)), 0)
	first := want(t, c.send("T", 0, "", make([]byte, 1000)), 0)
	for range 100 {
		want(t, c.send("T", 0, "", make([]byte, 1000)), 0)
	}
	n.waitReadable("T", 0, 101)
	if err := n.store.Trim(64 << 10); err != nil { // nobody else applies anything now
		t.Fatal(err)
	}
	eventually(t, "the files are gone", func() bool { return n.store.CleanedTo() == 64<<10 })
	low := n.store.MinOffset("T", 0)
	if low < 40 || low > 70 {
		t.Fatalf("minimum %d", low)
	}
	r := pullResponse(t, want(t, c.pull("g", "T", 0, low-1, flagCarried, 0), remoting.ResponsePullOffsetMoved, "OFFSET_TOO_SMALL"))
	if r.NextBeginOffset != low || r.MinOffset != low || r.MaxOffset != 101 {
		t.Errorf("below the minimum: %+v", r)
	}
	want(t, c.pull("g", "T", 0, low, flagCarried, 0), 0, "FOUND")
	// All its messages are gone: the end is what it was, and the beginning is there too.
	for offset, code := range map[int64]int32{0: remoting.ResponsePullOffsetMoved, 1: remoting.ResponsePullNotFound, 2: remoting.ResponsePullOffsetMoved} {
		r := pullResponse(t, want(t, c.pull("g", "Gone", 0, offset, flagCarried, 0), code))
		if r.NextBeginOffset != 1 || r.MinOffset != 1 || r.MaxOffset != 1 {
			t.Errorf("empty queue at %d: %+v", offset, r)
		}
	}
	for code, offset := range map[int32]string{remoting.RequestGetMinOffset: "1", remoting.RequestGetMaxOffset: "1"} {
		if r := want(t, c.call(code, nil, "topic", "Gone", "queueId", "0"), 0); r.GetString("offset") != offset {
			t.Errorf("%s: %s", remoting.RequestCodeName(code), r.GetString("offset"))
		}
	}
	if r := sendResponse(t, want(t, c.send("Gone", 0, "", []byte("more")), 0)); r.QueueOffset != 1 {
		t.Errorf("the next message is %d", r.QueueOffset)
	}
	// By its id, and to be sent back, it is not there.
	want(t, c.call(remoting.RequestViewMessageByID, nil, "offset", fmt.Sprint(phyOffset(t, first))), 1)
	want(t, c.sendBack("g", phyOffset(t, first), 1), 1, fmt.Sprintf("look message by offset failed, %d", phyOffset(t, first)))
	if info := c.runtimeInfo(); info["commitLogMinOffset"] != "65536" || info["earliestMessageTimeStamp"] == "-1" {
		t.Errorf("minimum %s, earliest %s", info["commitLogMinOffset"], info["earliestMessageTimeStamp"])
	}
	if got := n.store.MaxOffset(metadata.ScheduleTopic, 0); got != 0 {
		t.Errorf("%d messages were sent back", got)
	}
}
