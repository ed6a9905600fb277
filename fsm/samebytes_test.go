package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const testSegment = 64 << 10

// replica is an FSM with its store and tables in a folder.
type replica struct {
	dir    string
	store  *store.Store
	tables *metadata.Tables
	fsm    *FSM
	fatal  error
}

func openReplica(t *testing.T, dir string, wrap func(Store) Store) *replica {
	t.Helper()
	r := &replica{dir: dir, tables: metadata.New()}
	onFatal := func(err error) { r.fatal = err }
	var err error
	r.store, err = store.Open(store.Config{Dir: dir, SegmentSize: testSegment, QueueFileSize: 2000, FS: lazyFS{}, OnFatal: onFatal, Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	var s Store = r.store
	if wrap != nil {
		s = wrap(s)
	}
	r.fsm, err = New(Config{Store: s, Tables: r.tables, OnFatal: onFatal, Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatalf("new fsm: %v", err)
	}
	return r
}

// script makes entries of every shape: single messages, batches, several commands in one entry, table commands, entries that roll the
// segment, a store time that goes back, and commands that store and change a table at once, some of which are refused.
func script(t *testing.T, seed uint64) []*raft.Log {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1))
	var logs []*raft.Log
	add := func(data []byte) {
		logs = append(logs, &raft.Log{Index: uint64(len(logs) + 2), Term: uint64(1 + len(logs)/20), Type: raft.LogCommand, Data: data})
	}
	table := func(b []byte, kind command.Kind, v any) []byte {
		b, err := command.AppendJSON(b, kind, v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	message := func(b []byte, topic string, queue int32, n, size int) []byte {
		b, start := command.BeginAppend(b)
		for range n {
			body := make([]byte, size)
			for i := range body {
				body[i] = byte(rnd.Uint32())
			}
			b = record.Append(b, &record.Message{Topic: []byte(topic), QueueID: queue, BornTimestamp: 1, StoreTimestamp: 1_000_000 + int64(rnd.IntN(5000)),
				BornHost: netip.MustParseAddrPort("10.0.0.1:1"), StoreHost: netip.MustParseAddrPort("10.0.0.2:9876"), Body: body, Properties: []byte("TAGS\x01a\x02")})
		}
		return command.EndAppend(b, start, n)
	}
	records := func(topics ...string) (b []byte, n int) {
		for i, topic := range topics {
			b = record.Append(b, &record.Message{Topic: []byte(topic), QueueID: int32(i % 2), BornTimestamp: 1, StoreTimestamp: 1_000_000 + int64(rnd.IntN(5000)),
				BornHost: netip.MustParseAddrPort("10.0.0.1:1"), StoreHost: netip.MustParseAddrPort("[::1]:9876"), Body: make([]byte, rnd.IntN(3000)), Properties: []byte("DELAY\x011")})
		}
		return b, len(topics)
	}
	deliver := func(b []byte, level int, from, to int64, topics ...string) []byte {
		r, n := records(topics...)
		return command.AppendDelayDeliver(b, &command.DelayDeliver{Level: level, Expected: from, Next: to, Count: n, Records: r})
	}
	end := func(b []byte, o command.Outcome, half int64, topics ...string) []byte {
		r, n := records(topics...)
		return command.AppendTransactionEnd(b, &command.TransactionEnd{Outcome: o, Half: half, Count: n, Records: r})
	}
	add(table(command.AppendEntryHead(nil), command.KindSettings, command.Settings{ClusterID: "c", ClusterName: "C", BrokerName: "B", SegmentSize: testSegment, AutoCreateTopic: true, DefaultTopicQueues: 8}))
	for i := range 48 {
		b := command.AppendEntryHead(nil)
		round := int64(i / 8)
		switch i % 8 {
		case 0:
			b = table(b, command.KindTopicPut, command.TopicPut{Topic: command.TopicConfig{TopicName: fmt.Sprintf("T%d", i), ReadQueueNums: 2, WriteQueueNums: 2, Perm: 6}, Millis: int64(i)})
			b = message(b, fmt.Sprintf("T%d", i), 0, 1, 100)
		case 1:
			b = message(b, "T0", 1, 5, 300)
		case 2:
			b = message(b, "T0", 0, 1, 20_000)
		case 3:
			b = table(b, command.KindOffsetsCommit, command.OffsetsCommit{Offsets: []command.ConsumerOffset{{Topic: "T0", Group: "g", QueueID: 0, Offset: int64(i)}}})
			b = deliver(b, 2, 3*round, 3*round+3, "T0", "T8", "T0")
			b = deliver(b, 2, 3*round, 3*round+3, "T0", "T0", "T0") // of a leader that was deposed
		case 4:
			for range 6 {
				b = message(b, "T0", int32(rnd.IntN(2)), 1+rnd.IntN(3), rnd.IntN(2000))
			}
		case 5:
			b = message(b, "T8", 0, 3, 9000)
			b = end(b, command.Committed, 2*round, "T0", metadata.OpHalfTopic)
			b = end(b, command.Committed, 2*round, "T0", metadata.OpHalfTopic) // again
			b = deliver(b, 1, round, round+1)                                  // nothing to store
		case 6:
			if i > 40 {
				b = table(b, command.KindTopicDelete, command.TopicDelete{Topic: "T8", Millis: int64(i)})
			}
			b = message(b, "T16", 0, 1, 1)
		case 7:
			// Trims: refused ones, one between two appends of an entry, one that is behind, one of nearly all.
			for _, offset := range map[int][]int64{15: {testSegment, 100 * testSegment}, 23: {2 * testSegment}, 31: {1, testSegment, -testSegment}, 47: {5 * testSegment}}[i] {
				b = message(b, "T0", 1, 1, 700)
				b = table(b, command.KindLogTrim, command.LogTrim{MinOffset: offset})
			}
			b = message(b, "T0", 1, 1, 1000)
			b = table(b, command.KindTransactionCheck, command.TransactionCheck{Checked: []int64{0, 2*round + 1, 2*round + 3}, LostBelow: 2*round - 8})
			if round%3 == 2 {
				b = end(b, command.GivenUp, 2*round-1, metadata.CheckMaxTopic)
			}
		default:
			b = end(b, command.RolledBack, 2*round+1+round%2*4, metadata.OpHalfTopic)
			b = message(b, "T0", 1, 1, 1000)
		}
		add(b)
	}
	return logs
}

// image is a crash: the folder as it was in the middle of an operation, and the newest snapshot then.
type image struct {
	dir, at  string
	snapshot []byte
	index    uint64 // of the snapshot
}

// crashes takes an image of the folder before and after every operation of the FSM on the store.
type crashes struct {
	Store
	t        *testing.T
	from     string
	to       string
	images   []image
	snapshot []byte
	index    uint64
}

func (c *crashes) take(at string) {
	dir := filepath.Join(c.to, fmt.Sprintf("%04d", len(c.images)))
	for attempt := 0; ; attempt++ {
		err := os.CopyFS(dir, os.DirFS(c.from))
		if err == nil {
			break
		}
		// The store's own goroutines replace and remove files meanwhile.
		if !errors.Is(err, fs.ErrNotExist) || attempt == 100 {
			c.t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			c.t.Fatal(err)
		}
	}
	c.images = append(c.images, image{dir, at, c.snapshot, c.index})
}

func (c *crashes) BeginEntry(i, term uint64) error {
	err := c.Store.BeginEntry(i, term)
	c.take(fmt.Sprintf("entry %d begun", i))
	return err
}

func (c *crashes) Append(topic []byte, q int32, records []byte, n int) (store.Appended, error) {
	a, err := c.Store.Append(topic, q, records, n)
	c.take(fmt.Sprintf("appended at %d", a.PhyOffset))
	return a, err
}

func (c *crashes) EndEntry() error {
	err := c.Store.EndEntry()
	c.take("entry ended")
	return err
}

func (c *crashes) Publish() {
	c.Store.Publish()
	c.take("published")
}

func (c *crashes) FlushAll() error {
	c.take("before flush")
	err := c.Store.FlushAll()
	c.take("flushed")
	return err
}

// Trim takes one image with the files still there, or some of them, and one when they are gone.
func (c *crashes) Trim(minOffset int64) error {
	err := c.Store.Trim(minOffset)
	c.take(fmt.Sprintf("trimmed to %d", minOffset))
	if err == nil {
		awaitCleaned(c.t, c.Store.(*store.Store))
		c.take(fmt.Sprintf("trimmed to %d, files gone", minOffset))
	}
	return err
}

// awaitCleaned waits until the files of what was trimmed are gone.
func awaitCleaned(t *testing.T, s *store.Store) {
	t.Helper()
	low, _ := s.LogRange()
	for deadline := time.Now().Add(20 * time.Second); s.CleanedTo() < low; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("cleaned up to %d, trimmed to %d, files from %d", s.CleanedTo(), low, s.Stats().FileMin)
		}
	}
}

type memorySink struct{ bytes.Buffer }

func (*memorySink) ID() string    { return "memory" }
func (*memorySink) Cancel() error { return nil }
func (*memorySink) Close() error  { return nil }

// TestSameBytesAfterACrashAtEveryStep feeds the same entries to an FSM that never stops and to FSMs that start from a crash in every
// possible step of it; all end with the same files and tables (Same-Bytes, Index-With-Bytes).
func TestSameBytesAfterACrashAtEveryStep(t *testing.T) {
	logs := script(t, 7)
	root := t.TempDir()
	c := &crashes{t: t, from: filepath.Join(root, "whole"), to: filepath.Join(root, "crashes")}
	whole := openReplica(t, c.from, func(s Store) Store { c.Store = s; return c })
	for i, l := range logs {
		r, ok := whole.fsm.Apply(l).(command.Results)
		if !ok || whole.fatal != nil {
			t.Fatalf("entry %d: %v %v", l.Index, r, whole.fatal)
		}
		if i%17 == 16 {
			snap, err := whole.fsm.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			var sink memorySink
			if err := snap.Persist(&sink); err != nil {
				t.Fatal(err)
			}
			c.snapshot, c.index = sink.Bytes(), l.Index
		}
	}
	want := closeAndRead(t, whole)
	if len(c.images) < 150 {
		t.Fatalf("only %d crash images", len(c.images))
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := 0; i < len(c.images); i += step {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel() // it is mostly waiting for the disk
			c.images[i].ends(t, logs, want)
		})
	}
	t.Logf("%d crash images", len(c.images))
}

// ends starts from the image, applies what is left of logs and compares.
func (img *image) ends(t *testing.T, logs []*raft.Log, want map[string][]byte) {
	r := openReplica(t, img.dir, nil)
	next := 0
	if img.snapshot != nil {
		if err := r.fsm.Restore(io.NopCloser(bytes.NewReader(img.snapshot))); err != nil {
			t.Fatalf("%s: restore: %v", img.at, err)
		}
		for logs[next].Index <= img.index {
			next++
		}
	}
	for ; next < len(logs); next += 3 { // in batches, as Raft replays
		r.fsm.ApplyBatch(logs[next:min(next+3, len(logs))])
		if r.fatal != nil {
			t.Fatalf("%s: replay of entry %d: %v", img.at, logs[next].Index, r.fatal)
		}
	}
	if diff := difference(want, closeAndRead(t, r)); diff != "" {
		t.Fatalf("%s: ended differently: %s", img.at, diff)
	}
	if err := os.RemoveAll(img.dir); err != nil {
		t.Fatal(err)
	}
}

// closeAndRead closes a replica and returns its commit log and consume queue files, its tables and its minima by name. Trailing
// zeros (room taken ahead) do not count, nor do units below a queue's minimum: a queue that was built again has none.
func closeAndRead(t *testing.T, r *replica) map[string][]byte {
	t.Helper()
	tables, err := r.tables.Export()
	if err != nil {
		t.Fatal(err)
	}
	awaitCleaned(t, r.store)
	low, _ := r.store.LogRange()
	out := map[string][]byte{"tables": tables, "position": fmt.Append(nil, r.store.Position(), low)}
	minima := map[string]int64{}
	for _, q := range r.store.Position().QueueOffsets {
		name := filepath.Join("consumequeue", q.Topic, strconv.Itoa(int(q.QueueID)))
		minima[name] = r.store.MinOffset(q.Topic, q.QueueID)
		out["minimum of "+name] = fmt.Append(nil, minima[name])
	}
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"commitlog", "consumequeue"} {
		err := filepath.WalkDir(filepath.Join(r.dir, sub), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(r.dir, path)
			if low, ok := minima[filepath.Dir(rel)]; ok {
				from, err := strconv.ParseInt(filepath.Base(rel), 10, 64)
				if err != nil {
					return err
				}
				clear(b[:min(max(low*20-from, 0), int64(len(b)))])
			}
			if b = bytes.TrimRight(b, "\x00"); len(b) > 0 {
				out[rel] = b
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func difference(a, b map[string][]byte) string {
	var diffs []string
	for name := range a {
		if !bytes.Equal(a[name], b[name]) {
			diffs = append(diffs, fmt.Sprintf("%s (%d and %d bytes)", name, len(a[name]), len(b[name])))
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			diffs = append(diffs, name+" is new")
		}
	}
	sort.Strings(diffs)
	return strings.Join(diffs, ", ")
}
