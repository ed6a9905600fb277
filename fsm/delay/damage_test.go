package delay

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm"
	"raftmq/fsm/metadata"

	"github.com/hashicorp/go-hclog"
)

// TestDamagedMessageHoldsItsLevelOnly: a delayed message whose record is damaged on this leader is neither passed over nor delivered out of turn, the store says where it is; other levels
// go on, and when another node's bytes have come so does its own, with each message once.
func TestDamagedMessageHoldsItsLevelOnly(t *testing.T) {
	levels := []time.Duration{time.Millisecond, time.Millisecond}
	m := &machine{t: t, tables: metadata.New()}
	dir := t.TempDir()
	var copies atomic.Pointer[[]store.Copy]
	copies.Store(&[]store.Copy{})
	var err error
	m.store, err = store.Open(store.Config{Dir: dir, SegmentSize: segment, DelayLevels: levels, ScrubRate: -1, OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
		Copies: func(context.Context) []store.Copy { return *copies.Load() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.store.Close() })
	if m.fsm, err = fsm.New(fsm.Config{Store: m.store, Tables: m.tables, Logger: hclog.NewNullLogger()}); err != nil {
		t.Fatal(err)
	}
	m.delayed(1, 0, 10, time.Now().Add(-time.Minute))
	eventually(t, "the queue is built", func() bool { return m.store.ReadableOffset(metadata.ScheduleTopic, 0) == 10 })
	if err := m.store.FlushAll(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "commitlog", fmt.Sprintf("%020d", 0))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var res store.GetResult
	m.store.Get(&store.GetRequest{Topic: scheduleTopic, Offset: 4, MaxMsgs: 1}, &res)
	phy := record.View(res.Buffers[0]).PhyOffset()
	res.Release()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{whole[phy+88] ^ 1}, phy+88); err != nil { // its body
		t.Fatal(err)
	}
	d, stop := m.lead(levels)
	defer stop()
	eventually(t, "the damage is found", func() bool { return len(m.store.RepairStats().Damaged) == 1 })
	if at := m.store.RepairStats().Damaged[0]; at.From > phy || at.To <= phy {
		t.Errorf("damaged: %+v", at)
	}
	m.delayed(2, 10, 5, time.Now())
	eventually(t, "the other level's messages", func() bool { return m.tables.DelayProgress(2) == 5 })
	if p := m.tables.DelayProgress(1); p > 4 {
		t.Fatalf("level 1 is at %d, message 4 is damaged", p)
	}
	copies.Store(&[]store.Copy{{Node: "n2", Fetch: func(_ context.Context, from, to int64, w io.Writer) error {
		_, err := w.Write(whole[from:to])
		return err
	}}})
	eventually(t, "its own", func() bool { return m.tables.DelayProgress(1) == 10 && m.stored("T") == 15 })
	eventually(t, "all to be counted", func() bool { return d.Stats().Delivered == 15 }) // after they are stored
	seen := map[string]int{}
	for q := range int32(4) {
		for _, msg := range m.messages("T", q) {
			seen[string(msg.Body)]++
		}
	}
	for i := range 15 {
		if seen[fmt.Sprint(i)] != 1 {
			t.Errorf("message %d was delivered %d times", i, seen[fmt.Sprint(i)])
		}
	}
}
