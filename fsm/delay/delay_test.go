package delay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// machine is one node's state machine with a proposer that answers at once; leaders may come and go on top of it.
type machine struct {
	t      testing.TB
	store  *store.Store
	tables *metadata.Tables

	mu    sync.Mutex
	fsm   *fsm.FSM
	index uint64

	fault atomic.Pointer[func(n int) fault] // of the n-th proposal
	count int
}

// fault is what goes wrong with a proposal.
type fault uint8

const (
	none    fault = iota
	refused       // Propose says no
	lost          // not applied, and the answer says that nobody knows
	unheard       // applied, and the answer says that nobody knows
)

var errFault = errors.New("injected")

const segment = 8 << 20

func newMachine(t testing.TB, levels []time.Duration) *machine {
	t.Helper()
	return newMachineOf(t, levels, segment)
}

func newMachineOf(t testing.TB, levels []time.Duration, segment int64) *machine {
	t.Helper()
	m := &machine{t: t, tables: metadata.New()}
	onFatal := func(err error) { t.Errorf("fatal: %v", err) }
	var err error
	m.store, err = store.Open(store.Config{Dir: t.TempDir(), SegmentSize: segment, DelayLevels: levels, OnFatal: onFatal})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.store.Close() })
	m.fsm, err = fsm.New(fsm.Config{Store: m.store, Tables: m.tables, OnFatal: onFatal, Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) apply(encode func(dst []byte) []byte) any {
	m.index++
	return m.fsm.Apply(&raft.Log{Index: m.index, Term: 1, Type: raft.LogCommand, Data: encode(command.AppendEntryHead(nil))})
}

// propose is raftnode.Node.Propose.
func (m *machine) propose(p Proposal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	f := none
	if inject := m.fault.Load(); inject != nil {
		f = (*inject)(m.count)
	}
	if f == refused {
		return errFault
	}
	encoded := p.AppendCommand(nil, time.Now().UnixMilli())
	if f == lost {
		go p.Done(nil, 0, errFault)
		return nil
	}
	result := m.apply(func(dst []byte) []byte { return append(dst, encoded...) })
	if f == unheard {
		go p.Done(nil, 0, errFault)
		return nil
	}
	go p.Done(result, 0, nil)
	return nil
}

// delayed stores n messages of a level, bodies numbered from first on, for T/0 to T/3 in turn.
func (m *machine) delayed(level, first, n int, storeTime time.Time) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for n > 0 {
		k := min(n, 2000)
		m.apply(func(dst []byte) []byte {
			dst, start := command.BeginAppend(dst)
			for i := first; i < first+k; i++ {
				dst = record.Append(dst, &record.Message{Topic: scheduleTopic, QueueID: int32(level - 1), BornTimestamp: 5, StoreTimestamp: storeTime.UnixMilli(),
					BornHost: netip.MustParseAddrPort("10.1.1.1:1"), StoreHost: netip.MustParseAddrPort("10.1.1.2:2"), Body: []byte(strconv.Itoa(i)), Flag: 3, ReconsumeTimes: 1,
					Properties: fmt.Appendf(nil, "KEYS\x01k%d\x02DELAY\x01%d\x02REAL_TOPIC\x01T\x02REAL_QID\x01%d", i, level, i%4)})
			}
			return command.EndAppend(dst, start, k)
		})
		first, n = first+k, n-k
	}
}

// lead runs a deliverer until the returned function is called.
func (m *machine) lead(levels []time.Duration, change ...func(*Config)) (d *Deliverer, stop func()) {
	cfg := Config{Store: m.store, Tables: m.tables, Propose: m.propose, Levels: levels}
	for _, f := range change {
		f(&cfg)
	}
	d = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	return d, func() {
		cancel()
		<-done
	}
}

// messages reads everything that is in a queue.
func (m *machine) messages(topic string, queue int32) (out []record.Message) {
	m.t.Helper()
	var res store.GetResult
	defer res.Release()
	for next := int64(0); ; next = res.NextBeginOffset {
		m.store.Get(&store.GetRequest{Topic: []byte(topic), QueueID: queue, Offset: next, MaxMsgs: 10_000, MaxBytes: 16 << 20}, &res)
		if res.Status != store.Found {
			return out
		}
		for _, b := range res.Buffers {
			b = append([]byte{}, b...)
			for len(b) > 0 {
				var msg record.Message
				n, err := record.Decode(b, &msg)
				if err != nil {
					m.t.Fatal(err)
				}
				out, b = append(out, msg), b[n:]
			}
		}
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

func (m *machine) stored(topic string) (n int64) {
	for q := range int32(4) {
		n += m.store.ReadableOffset(topic, q)
	}
	return n
}

// checkOnce makes sure that bodies 0…n-1 are in T, each once, each queue in order.
func (m *machine) checkOnce(n int) {
	m.t.Helper()
	seen := make([]int, n)
	for q := range int32(4) {
		last := -1
		for _, msg := range m.messages("T", q) {
			i, err := strconv.Atoi(string(msg.Body))
			if err != nil || i >= n || i%4 != int(q) || i <= last {
				m.t.Fatalf("queue %d has %q behind %d", q, msg.Body, last)
			}
			seen[i]++
			last = i
		}
	}
	for i, times := range seen {
		if times != 1 {
			m.t.Fatalf("message %d was delivered %d times", i, times)
		}
	}
}

func TestDelivery(t *testing.T) {
	levels := []time.Duration{300 * time.Millisecond, time.Hour}
	m := newMachine(t, levels)
	d, stop := m.lead(levels)
	defer stop()
	begin := time.Now()
	m.delayed(2, 0, 3, begin)
	m.delayed(1, 0, 1, begin)
	eventually(t, "delivered", func() bool { return m.stored("T") == 1 })
	took := time.Since(begin)
	if took < levels[0] || took > levels[0]+10*time.Second {
		t.Errorf("delivered after %v, want %v, and little more", took, levels[0])
	}
	got := m.messages("T", 0)[0]
	if string(got.Properties) != "KEYS\x01k0\x02DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010" || got.Flag != 3 || got.ReconsumeTimes != 1 || got.BornTimestamp != 5 ||
		got.BornHost.String() != "10.1.1.1:1" || got.StoreHost.String() != "10.1.1.2:2" || got.StoreTimestamp < begin.Add(levels[0]).UnixMilli() {
		t.Errorf("delivered %+v", got)
	}
	eventually(t, "counted", func() bool { return d.Stats() == Stats{Delivered: 1, Commands: 1, Pending: 3} })
	// One that comes while the queue is empty again.
	m.delayed(1, 1, 1, time.Now())
	eventually(t, "delivered the second", func() bool { return m.stored("T") == 2 })
}

// TestBacklog: 100,000 messages that are due at the same moment. On a machine of their own they take 0.2 s; the limit is for one
// that does ten other things.
func TestBacklog(t *testing.T) {
	n := 100_000
	if raceEnabled {
		n = 20_000
	}
	levels := []time.Duration{time.Minute}
	m := newMachine(t, levels)
	due := time.Now().Add(3 * time.Second)
	m.delayed(1, 0, n, due.Add(-levels[0]))
	eventually(t, "all wait", func() bool { return m.store.ReadableOffset(metadata.ScheduleTopic, 0) == int64(n) })
	if early := time.Until(due); early < 0 {
		t.Logf("the messages were stored only %v after they were due", -early)
		due = time.Now()
	}
	d, stop := m.lead(levels)
	defer stop()
	eventually(t, "all delivered", func() bool { return m.stored("T") == int64(n) })
	late := time.Since(due)
	t.Logf("%d messages %v after they were due, %d commands or one more", n, late, d.Stats().Commands)
	if late > 30*time.Second {
		t.Errorf("the last message came %v late", late)
	}
	m.checkOnce(n)
}

// TestF15LeaderChange: leaders that overlap, one of them deposed without knowing it, deliver everything once.
func TestF15LeaderChange(t *testing.T) {
	const n = 10_000
	levels := []time.Duration{100 * time.Millisecond}
	m := newMachine(t, levels)
	_, stop1 := m.lead(levels)
	m.delayed(1, 0, n/2, time.Now())
	_, stop2 := m.lead(levels)
	m.delayed(1, n/2, n/2, time.Now())
	eventually(t, "some delivered", func() bool { return m.stored("T") > 0 })
	stop1()
	_, stop3 := m.lead(levels)
	defer stop3()
	stop2()
	eventually(t, "all delivered", func() bool { return m.stored("T") == n })
	m.checkOnce(n)
}

// TestF17Faults: every kind of failed proposal, and nothing is lost, repeated or out of order.
func TestF17Faults(t *testing.T) {
	const n = 2000
	levels := []time.Duration{time.Millisecond}
	m := newMachine(t, levels)
	inject := func(k int) fault { return fault(k % 4) }
	m.fault.Store(&inject)
	_, stop := m.lead(levels)
	defer stop()
	for i := 0; i < n; i += 100 {
		m.delayed(1, i, 100, time.Now())
		time.Sleep(2 * time.Millisecond) // several commands
	}
	eventually(t, "all delivered", func() bool { return m.stored("T") == n })
	m.checkOnce(n)
}

// Delayed messages that retention has removed hold up nothing.
func TestRemovedMessages(t *testing.T) {
	const n, segment = 2000, 64 << 10
	levels := []time.Duration{time.Millisecond}
	m := newMachineOf(t, levels, segment)
	for i := 0; i < n; i += 100 {
		m.delayed(1, i, 100, time.Now())
	}
	eventually(t, "readable", func() bool { return m.store.ReadableOffset(metadata.ScheduleTopic, 0) == n })
	if err := m.store.Trim(2 * segment); err != nil {
		t.Fatal(err)
	}
	eventually(t, "removed", func() bool { return m.store.MinOffset(metadata.ScheduleTopic, 0) > 0 })
	first := m.store.MinOffset(metadata.ScheduleTopic, 0)
	d, stop := m.lead(levels)
	defer stop()
	eventually(t, "the rest is delivered", func() bool { return m.stored("T") == n-first })
	eventually(t, "counted", func() bool { return d.Stats().Delivered == uint64(n-first) && m.tables.DelayProgress(1) == n })
}

func TestPassedOver(t *testing.T) {
	levels := []time.Duration{time.Millisecond}
	m := newMachine(t, levels)
	now := time.Now()
	for _, props := range []string{"", "REAL_TOPIC\x01T", "REAL_QID\x010", "REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010",
		"REAL_TOPIC\x01T\x02REAL_QID\x01-1", "REAL_TOPIC\x01T\x02REAL_QID\x01x", "REAL_TOPIC\x01T\x02REAL_QID\x014000000", "REAL_TOPIC\x01../T\x02REAL_QID\x010"} {
		m.mu.Lock()
		m.apply(func(dst []byte) []byte {
			dst, start := command.BeginAppend(dst)
			dst = record.Append(dst, &record.Message{Topic: scheduleTopic, StoreTimestamp: now.UnixMilli(), Properties: []byte(props)})
			return command.EndAppend(dst, start, 1)
		})
		m.mu.Unlock()
	}
	m.delayed(1, 0, 1, now)
	d, stop := m.lead(levels)
	defer stop()
	eventually(t, "the good one is delivered", func() bool { return m.stored("T") == 1 })
	eventually(t, "counted", func() bool { // one command, or more when a pass began before all was readable
		got := d.Stats()
		return got.Delivered == 1 && got.Discarded == 8 && got.Commands >= 1 && got.Pending == 0
	})
}

// TestClockWasAhead: store times of a leader whose clock was wrong hold nothing back (RocketMQ's correctDeliverTimestamp).
func TestClockWasAhead(t *testing.T) {
	levels := []time.Duration{200 * time.Millisecond}
	m := newMachine(t, levels)
	m.delayed(1, 0, 1, time.Now().Add(time.Hour))
	_, stop := m.lead(levels)
	defer stop()
	eventually(t, "delivered", func() bool { return m.stored("T") == 1 })

	l := &level{d: &Deliverer{}, after: time.Hour}
	now := time.UnixMilli(1_000_000_000)
	for ahead, want := range map[time.Duration]time.Duration{0: longestWait, time.Second: longestWait, 2 * clockTolerance: 0, -time.Hour: 0, 3*time.Second - time.Hour: 3 * time.Second} {
		v := record.View(record.Append(nil, &record.Message{StoreTimestamp: now.Add(ahead).UnixMilli()}))
		if got := l.wait(v, now); got != want {
			t.Errorf("stored %v ahead: wait %v, want %v", ahead, got, want)
		}
	}
}

// A damaged record is neither delivered nor passed over: another leader has it whole.
func TestDamagedRecord(t *testing.T) {
	b := &batch{}
	b.start(1, 0)
	rec := record.Append(nil, &record.Message{Topic: scheduleTopic, Body: []byte("body"), Properties: []byte("REAL_TOPIC\x01T\x02REAL_QID\x010")})
	if err := b.add(rec); err != nil || b.Count != 1 {
		t.Fatal(err)
	}
	at := len(rec) - len("REAL_TOPIC=T;REAL_QID=0") - 2 - len(scheduleTopic) - 1 - 2
	rec[at] ^= 1
	if err := b.add(rec); err == nil || errors.Is(err, errUndeliverable) || b.Count != 1 {
		t.Errorf("error %v, %d records", err, b.Count)
	}
}

func FuzzAdd(f *testing.F) {
	f.Add([]byte("REAL_TOPIC\x01T\x02REAL_QID\x010\x02DELAY\x013"), []byte("body"))
	f.Add([]byte("REAL_TOPIC\x01\x02REAL_QID\x01"), []byte{})
	f.Fuzz(func(t *testing.T, props, body []byte) {
		if len(props) > record.MaxPropertiesLen {
			return
		}
		b := &batch{}
		b.start(1, 0)
		if b.add(record.Append(nil, &record.Message{Topic: scheduleTopic, Properties: props, Body: body})) != nil {
			return
		}
		var m record.Message
		if n, err := record.Decode(b.Records, &m); err != nil || n != len(b.Records) || b.Count != 1 || string(m.Properties) != string(props) || string(m.Body) != string(body) {
			t.Errorf("%q %q became %+v, %v", props, body, m, err)
		}
	})
}

func BenchmarkDeliver(b *testing.B) {
	levels := []time.Duration{time.Millisecond}
	m := newMachine(b, levels)
	m.delayed(1, 0, 50_000, time.Now().Add(-time.Minute))
	eventually(b, "dispatched", func() bool { return m.store.ReadableOffset(metadata.ScheduleTopic, 0) == 50_000 })
	l := New(Config{Store: m.store, Tables: m.tables, Propose: m.propose, Levels: levels}).levels[0]
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		m.tables.AdvanceDelay(1, 0)
		if l.step(b.Context()) != 0 || l.batch.Count == 0 {
			b.Fatal("nothing was delivered")
		}
		n += l.batch.Count
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/msg")
}
