package broker

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/transport/remoting"

	"github.com/hashicorp/go-hclog"
)

// lineCounter keeps log lines.
type lineCounter struct {
	mu    sync.Mutex
	lines []string
}

func (l *lineCounter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func (l *lineCounter) logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: l})
}

func (l *lineCounter) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// fullDisk is a disk whose use a test sets, percent.
type fullDisk struct{ used atomic.Int64 }

func (d *fullDisk) stat(path string) store.Disk {
	free := 100 - d.used.Load()
	return store.Disk{Path: path, Total: 100, Free: free, Usable: free}
}

// TestDiskFull: sends, ends of transactions and send-backs are refused with RocketMQ's code and text, which names the ratios, and taken
// again by themselves when there is space (F27).
func TestDiskFull(t *testing.T) {
	var disk fullDisk
	n := newNode(t, func(o *nodeOptions) { o.store.Disk, o.store.SpaceInterval = disk.stat, time.Millisecond })
	n.putTopic("T", 1)
	c := n.dial()
	h := c.half("T", 0, "", "body")
	want(t, c.send("T", 0, "", []byte("x")), 0)
	disk.used.Store(93)
	eventually(t, "disk full", func() bool { return n.store.Flags() == store.FlagDiskFull })
	const text = "service not available now. It may be caused by one of the following reasons: the broker's disk is full [CL:  0.93 CQ:  0.93 INDEX:  0.93], " +
		"messages are put to the slave, message store has been shut down, etc."
	r := want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable, text)
	if r.GetString("MSG_REGION") != "DefaultRegion" || r.GetString("TRACE_ON") != "true" {
		t.Errorf("ext %v", r.Ext)
	}
	want(t, c.call(remoting.RequestSendMessage, batchBody("a", "b"), sendFields("T", 0, "", "batch", "true")...), remoting.ResponseServiceNotAvailable, text)
	want(t, c.end(h, remoting.TransactionCommit), remoting.ResponseServiceNotAvailable, "Service not available now.")
	if got := n.raft.kinds[command.KindAppend].Load(); got != 2 {
		t.Errorf("%d appends were proposed", got)
	}
	// Reads go on.
	n.waitReadable("T", 0, 1)
	want(t, c.pull("g", "T", 0, 0, flagCarried, 0), 0)
	disk.used.Store(90)
	eventually(t, "space", func() bool { return n.store.Flags() == 0 })
	want(t, c.send("T", 0, "", []byte("x")), 0)
	want(t, c.end(h, remoting.TransactionCommit), 0)
}

// TestPageCacheBusy: a send that arrives while Apply is stuck is sent away at once (2); one that waited for a leader and meets it then
// is refused by the store's own check (1).
func TestPageCacheBusy(t *testing.T) {
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	n := newNode(t, func(o *nodeOptions) { o.store.Now = now })
	n.putTopic("T", 1)
	c := n.dial()
	if err := n.store.BeginEntry(1000, 1); err != nil { // and nothing more: the batch does not end
		t.Fatal(err)
	}
	if n.store.PutStatus() != store.PutOK {
		t.Error("busy at once")
	}
	ahead.Store(int64(2 * time.Second))
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseSystemBusy, remarkRejected)
	if err := n.broker.propose(nil); err == nil || refusalOf(err, 0).code != remoting.ResponseSystemError || refusalOf(err, 0).remark != "[PC_SYNCHRONIZED]broker busy, start flow control for a while" ||
		endRefusalOf(err, 0).remark != "OS page cache busy, please try another machine" {
		t.Errorf("behind the gate: %v", err)
	}
	ahead.Store(int64(10_000 * time.Second)) // the guard: so long is no hold of a lock
	if n.store.PageCacheBusy() {
		t.Error("the guard is missing")
	}
	if err := n.store.EndEntry(); err != nil {
		t.Fatal(err)
	}
	n.store.Publish()
}

// TestPutStatuses is the table of the format notes' §4.3, for what the store says before anything is proposed.
func TestPutStatuses(t *testing.T) {
	n := newNode(t)
	for _, c := range []struct {
		status        store.PutStatus
		code          int32
		remark, ofEnd string
	}{
		{store.CreateMappedFileFailed, 1, "create mapped file failed, server is busy or broken.", "Create mapped file failed."},
		{store.OSPageCacheBusy, 1, "[PC_SYNCHRONIZED]broker busy, start flow control for a while", "OS page cache busy, please try another machine"},
		{store.ServiceNotAvailable, 14, n.broker.serviceNotAvailable(), "Service not available now."},
	} {
		err := fmt.Errorf("wrapped: %w", n.broker.putRefused(c.status))
		if f := refusalOf(err, 0); f.code != c.code || f.remark != c.remark {
			t.Errorf("%d: %d %q", c.status, f.code, f.remark)
		}
		if f := endRefusalOf(err, 0); f.code != c.code || f.remark != c.ofEnd {
			t.Errorf("%d: end: %d %q", c.status, f.code, f.remark)
		}
	}
	if f := refusalOf(command.ErrNoResult, 0); f.code != 1 || f.remark != "UNKNOWN_ERROR" {
		t.Errorf("no result: %d %q", f.code, f.remark)
	}
	if f := endRefusalOf(raftnode.ErrTooLarge, 100); f.code != 13 || f.remark[:20] != "The message is illeg" {
		t.Errorf("too large: %d %q", f.code, f.remark)
	}
}

// TestClosedStore: a store that was shut down is RocketMQ's third reason.
func TestClosedStore(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	want(t, c.send("T", 0, "", []byte("x")), 0)
	if err := n.store.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable, n.broker.serviceNotAvailable())
}

// TestRefusalWarnings: the first in a row is told and each 50,000th, whoever refuses; a put that goes through ends the row.
func TestRefusalWarnings(t *testing.T) {
	var disk fullDisk
	var lines lineCounter
	n := newNode(t, func(o *nodeOptions) {
		o.store.Disk, o.store.SpaceInterval = disk.stat, time.Millisecond
		o.config = func(c *Config) { c.Logger = lines.logger() }
	})
	n.putTopic("T", 1)
	c := n.dial()
	disk.used.Store(95)
	eventually(t, "disk full", func() bool { return !n.store.Flags().Writeable() })
	for range 3 {
		want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	}
	if got := lines.count("messages are refused"); got != 1 {
		t.Errorf("%d lines for three refusals", got)
	}
	n.raft.follow(2, testOther)
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	if got := lines.count("messages are refused"); got != 1 {
		t.Errorf("%d lines, a follower counts on", got)
	}
	n.broker.refused.row.Store(refusalsPerWarning)
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	if got := lines.count("messages are refused"); got != 2 {
		t.Errorf("%d lines at the 50,000th", got)
	}
	n.raft.lead(3)
	disk.used.Store(10)
	eventually(t, "space", func() bool { return n.store.Flags().Writeable() })
	want(t, c.send("T", 0, "", []byte("x")), 0)
	if row := n.broker.refused.row.Load(); row != 0 {
		t.Errorf("%d in a row after a put", row)
	}
	disk.used.Store(95)
	eventually(t, "disk full", func() bool { return !n.store.Flags().Writeable() })
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	if got := lines.count("messages are refused"); got != 3 {
		t.Errorf("%d lines, a new row begins with one", got)
	}
	// Slow puts: told once in ten seconds.
	for range 5 {
		n.broker.warnSlow(slowPut+time.Millisecond, 100)
	}
	n.broker.warnSlow(slowPut, 100)
	if got := lines.count("putting a message took long"); got != 1 {
		t.Errorf("%d lines for five slow puts", got)
	}
	n.clock.Add(int64(11 * time.Second))
	n.broker.warnSlow(time.Second, 100)
	if got := lines.count("unsaid=4"); got != 1 {
		t.Errorf("%d lines tell how many were not told", got)
	}
}

// TestPeersFull: with room here and none at a majority, messages are refused with the same code, and reads and offsets go on (F27).
func TestPeersFull(t *testing.T) {
	var full atomic.Bool
	n := newNode(t, func(o *nodeOptions) { o.config = func(c *Config) { c.PeersFull = full.Load } })
	n.putTopic("T", 1)
	c := n.dial()
	want(t, c.send("T", 0, "", []byte("x")), 0)
	full.Store(true)
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable, remarkPeersFull)
	n.waitReadable("T", 0, 1)
	want(t, c.pull("g", "T", 0, 0, flagCarried, 0), 0)
	want(t, c.call(remoting.RequestUpdateConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0", "commitOffset", "1"), 0)
	full.Store(false)
	want(t, c.send("T", 0, "", []byte("x")), 0)
}
