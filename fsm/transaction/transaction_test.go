package transaction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// machine is one node's state machine with a proposer that answers at once, and producers that are asked.
type machine struct {
	t      testing.TB
	store  *store.Store
	tables *metadata.Tables

	mu     sync.Mutex
	fsm    *fsm.FSM
	index  uint64
	now    time.Time
	asked  []int64 // queue offsets, in order
	times  []int
	absent map[int64]bool // nobody to ask
	answer func(half int64)
	refuse error
}

const segment = 64 << 10

func newMachine(t testing.TB) *machine {
	t.Helper()
	m := &machine{t: t, tables: metadata.New(), absent: map[int64]bool{}, now: time.UnixMilli(1_700_000_000_000)}
	onFatal := func(err error) { t.Errorf("fatal: %v", err) }
	var err error
	m.store, err = store.Open(store.Config{Dir: t.TempDir(), SegmentSize: segment, OnFatal: onFatal})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.store.Close() })
	m.fsm, err = fsm.New(fsm.Config{Store: m.store, Tables: m.tables, OnFatal: onFatal, Logger: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	settings, err := command.AppendJSON(nil, command.KindSettings, command.Settings{ClusterName: "C", BrokerName: "B"})
	if err != nil {
		t.Fatal(err)
	}
	m.apply(settings)
	return m
}

func (m *machine) apply(encoded []byte) command.Results {
	m.index++
	r, ok := m.fsm.Apply(&raft.Log{Index: m.index, Term: 1, Type: raft.LogCommand, Data: append(command.AppendEntryHead(nil), encoded...)}).(command.Results)
	if !ok {
		m.t.Fatal("no results")
	}
	return r
}

func (m *machine) propose(p Proposal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return m.refuse
	}
	p.Done(m.apply(p.AppendCommand(nil, m.now.UnixMilli())), 0, nil)
	return nil
}

func (m *machine) CheckTransaction(half record.View, times int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.absent[half.QueueOffset()] {
		return false
	}
	m.asked, m.times = append(m.asked, half.QueueOffset()), append(m.times, times)
	if m.answer != nil {
		m.answer(half.QueueOffset())
	}
	return true
}

// half stores half messages, bodies numbered by their queue offsets.
func (m *machine) half(n int, props string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.store.MaxOffset(metadata.HalfTopic, 0)
	for i := range int64(n) {
		b, start := command.BeginAppend(nil)
		b = record.Append(b, &record.Message{Topic: halfTopic, StoreTimestamp: m.now.UnixMilli(), BornTimestamp: 7, BornHost: netip.MustParseAddrPort("10.0.0.1:1"),
			StoreHost: netip.MustParseAddrPort("10.0.0.2:2"), Body: strconv.AppendInt(nil, first+i, 10), Properties: []byte("TRAN_MSG\x01true\x02PGROUP\x01pg\x02REAL_TOPIC\x01T\x02REAL_QID\x010" + props)})
		m.apply(command.EndAppend(b, start, 1))
	}
	eventually(m.t, "half messages readable", func() bool { return m.store.ReadableOffset(metadata.HalfTopic, 0) == first+int64(n) })
}

func (m *machine) end(half int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.apply(command.AppendTransactionEnd(nil, &command.TransactionEnd{Outcome: command.RolledBack, Half: half}))[0].Err
}

func (m *machine) service(change ...func(*Config)) *Service {
	cfg := Config{Store: m.store, Tables: m.tables, Checker: m, Propose: m.propose, Now: func() time.Time {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.now
	}}
	for _, f := range change {
		f(&cfg)
	}
	return New(cfg)
}

// after lets time go by and makes a pass; it returns who was asked.
func (m *machine) after(d time.Duration, s *Service) []int64 {
	m.t.Helper()
	m.mu.Lock()
	m.now = m.now.Add(d)
	m.asked, m.times = nil, nil
	m.mu.Unlock()
	if err := s.pass(context.Background()); err != nil {
		m.t.Fatal(err)
	}
	return m.asked
}

func (m *machine) wantAsked(what string, got []int64, want ...int64) {
	m.t.Helper()
	if !slices.Equal(got, want) {
		m.t.Errorf("%s: asked about %v, want %v", what, got, want)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// givenUp reads TRANS_CHECK_MAX_TIME_TOPIC.
func (m *machine) givenUp(n int64) (out []record.Message) {
	m.t.Helper()
	eventually(m.t, "given up messages readable", func() bool { return m.store.ReadableOffset(metadata.CheckMaxTopic, 0) == n })
	for i := range n {
		var res store.GetResult
		m.store.Get(&store.GetRequest{Topic: []byte(metadata.CheckMaxTopic), Offset: i, MaxMsgs: 1}, &res)
		if res.Status != store.Found {
			m.t.Fatal(res.Status)
		}
		var msg record.Message
		if _, err := record.Decode(append([]byte{}, res.Buffers[0]...), &msg); err != nil {
			m.t.Fatal(err)
		}
		res.Release()
		out = append(out, msg)
	}
	return out
}

func TestChecks(t *testing.T) {
	m := newMachine(t)
	s := m.service(func(c *Config) { c.MaxCheck = 3 })
	m.answer = s.Unknown
	m.half(3, "")
	m.wantAsked("too young", m.after(5999*time.Millisecond, s))
	m.half(1, "")
	m.wantAsked("three are old enough", m.after(time.Millisecond, s), 0, 1, 2)
	if err := m.end(1); err != nil {
		t.Fatal(err)
	}
	m.wantAsked("one has ended, one has become old", m.after(time.Minute, s), 0, 2, 3)
	if !slices.Equal(m.times, []int{2, 2, 1}) {
		t.Errorf("counts %v", m.times)
	}
	if err := m.end(0); err != nil {
		t.Fatal(err)
	}
	m.wantAsked("the prefix has ended", m.after(time.Minute, s), 2, 3)
	m.wantAsked("asked often enough", m.after(time.Minute, s), 3)
	if err := m.end(3); err != nil {
		t.Fatal(err)
	}
	m.wantAsked("nothing is open", m.after(time.Minute, s))
	got := m.givenUp(1)[0]
	if string(got.Body) != "2" || got.QueueID != 0 || got.SysFlag != 0 || got.BornTimestamp != 7 || got.StoreTimestamp != m.now.Add(-time.Minute).UnixMilli() ||
		string(got.Properties) != "TRAN_MSG\x01true\x02PGROUP\x01pg\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02TRANSACTION_CHECK_TIMES\x013" {
		t.Errorf("given up %+v", got)
	}
	if c, ok := m.tables.Topic(metadata.CheckMaxTopic); !ok || c.WriteQueueNums != 1 || c.Perm != 6 {
		t.Errorf("topic %+v", c)
	}
	if err := m.end(2); !errors.Is(err, metadata.ErrTransactionEnded) {
		t.Errorf("end of what was given up: %v", err)
	}
	if st := s.Stats(); st.Checks != 9 || st.GivenUp != 1 || st.Open != 0 || st.Unasked != 0 {
		t.Errorf("stats %+v", st)
	}
	if len(s.waiting) > 1 {
		t.Errorf("remembers %d half messages that have ended", len(s.waiting))
	}
}

func TestImmunity(t *testing.T) {
	m := newMachine(t)
	s := m.service()
	m.answer = s.Unknown
	for _, seconds := range []string{"1", "600", "-1", "x", "0"} {
		m.half(1, "\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x01"+seconds)
	}
	m.wantAsked("at once", m.after(0, s), 4)
	m.wantAsked("short immunity", m.after(time.Second, s), 0, 4)
	m.wantAsked("no or bad immunity", m.after(5*time.Second, s), 0, 2, 3, 4)
	m.wantAsked("a minute", m.after(time.Minute, s), 0, 2, 3, 4)
	if n := m.tables.HalfChecks(1); n != 0 {
		t.Errorf("F21: %d checks of a half message that nobody was asked about", n)
	}
	m.wantAsked("ten minutes", m.after(10*time.Minute, s), 0, 1, 2, 3, 4)
}

// TestF21NobodyThere: the counter rises on real checks only, and the message is not given up before somebody
// could be asked, unless it is very old.
func TestF21NobodyThere(t *testing.T) {
	m := newMachine(t)
	s := m.service(func(c *Config) { c.MaxCheck, c.MaxAge = 2, time.Hour })
	m.half(2, "")
	m.absent[0], m.absent[1] = true, true
	for range 20 {
		m.wantAsked("nobody is there", m.after(time.Minute, s))
	}
	if n := m.tables.HalfChecks(0); n != 0 || s.Stats().Unasked != 40 {
		t.Errorf("%d checks counted, %+v", n, s.Stats())
	}
	delete(m.absent, 0)
	m.wantAsked("one producer comes", m.after(time.Minute, s), 0)
	if err := m.end(0); err != nil {
		t.Error(err)
	}
	m.wantAsked("an hour old", m.after(40*time.Minute, s))
	if got := m.givenUp(1); string(got[0].Body) != "1" {
		t.Errorf("given up %s", got[0].Body)
	}
}

// TestF19BackOff: a producer that does not answer is asked less and less often up to the limit, and nobody else
// waits for it.
func TestF19BackOff(t *testing.T) {
	m := newMachine(t)
	s := m.service(func(c *Config) { c.MaxCheck = 5 })
	m.answer = func(half int64) {
		if half%2 == 1 {
			s.Unknown(half)
		}
	}
	m.half(2, "")
	var bad, good []int
	for pass := range 20 {
		asked := m.after(time.Minute, s)
		if slices.Contains(asked, 0) {
			bad = append(bad, pass)
		}
		if slices.Contains(asked, 1) {
			good = append(good, pass)
		}
	}
	if !slices.Equal(bad, []int{0, 1, 3, 7, 11}) || !slices.Equal(good, []int{0, 1, 2, 3, 4}) {
		t.Errorf("the silent one was asked in passes %v, the other in %v", bad, good)
	}
	if got := m.givenUp(2); string(got[0].Body) != "1" || string(got[1].Body) != "0" {
		t.Errorf("given up %s, then %s", got[0].Body, got[1].Body)
	}
	if err := s.pass(t.Context()); err != nil || s.Stats().Open != 0 {
		t.Errorf("%v %+v", err, s.Stats())
	}
}

// TestF19Around: thousands of transactions end around one that never does.
func TestF19Around(t *testing.T) {
	m := newMachine(t)
	s := m.service()
	m.half(3000, "")
	for half := range int64(3000) {
		if half != 7 && half != 2500 {
			if err := m.end(half); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.wantAsked("the two that are open", m.after(time.Minute, s), 7, 2500)
	if next, open := m.tables.NextOpenHalf(0), s.Stats().Open; next != 7 || open != 2 {
		t.Errorf("next open %d, %d open", next, open)
	}
}

// TestLeaderChange: the count goes on where it was, and what a deposed leader does too is done once.
func TestLeaderChange(t *testing.T) {
	m := newMachine(t)
	limit := func(c *Config) { c.MaxCheck = 2 }
	a, b := m.service(limit), m.service(limit)
	m.half(1, "")
	m.wantAsked("first leader", m.after(time.Minute, a), 0)
	m.wantAsked("second leader", m.after(time.Minute, b), 0)
	if !slices.Equal(m.times, []int{2}) {
		t.Errorf("the second leader counted from %v", m.times)
	}
	m.wantAsked("both give up", m.after(time.Hour, a))
	p := &pass{Service: b, begin: m.now}
	var res store.GetResult
	defer res.Release()
	m.store.Get(&store.GetRequest{Topic: halfTopic, MaxMsgs: 1}, &res)
	if err := p.giveUp(t.Context(), res.Buffers[0], 2); err != nil { // decided before a's command was applied
		t.Error(err)
	}
	if a.Stats().GivenUp != 1 || b.Stats().GivenUp != 0 {
		t.Errorf("given up by a %d times, by b %d times", a.Stats().GivenUp, b.Stats().GivenUp)
	}
	m.givenUp(1)
}

func TestProposerRefuses(t *testing.T) {
	m := newMachine(t)
	s := m.service()
	m.half(1, "")
	m.refuse = errors.New("busy")
	m.now = m.now.Add(time.Minute)
	if err := s.pass(t.Context()); !errors.Is(err, m.refuse) || m.tables.HalfChecks(0) != 0 {
		t.Errorf("error %v", err)
	}
	m.refuse = nil
	m.wantAsked("again, later", m.after(2*time.Minute, s), 0)
	if m.tables.HalfChecks(0) != 1 {
		t.Errorf("%d checks", m.tables.HalfChecks(0))
	}
}

// Half messages that retention has removed count as ended.
func TestRemovedMessages(t *testing.T) {
	m := newMachine(t)
	s := m.service()
	m.half(1000, "")
	if err := m.store.Trim(segment); err != nil {
		t.Fatal(err)
	}
	eventually(t, "removed", func() bool { return m.store.MinOffset(metadata.HalfTopic, 0) > 0 })
	first := m.store.MinOffset(metadata.HalfTopic, 0)
	asked := m.after(time.Minute, s)
	if len(asked) != int(1000-first) || asked[0] != first {
		t.Errorf("asked about %d from %d on, want %d from %d on", len(asked), asked[0], 1000-first, first)
	}
	if next, open := m.tables.NextOpenHalf(0), s.Stats().Open; next != first || open != 1000-first {
		t.Errorf("next open %d, %d open", next, open)
	}
}

func TestClockWasAhead(t *testing.T) {
	m := newMachine(t)
	s := m.service()
	m.now = m.now.Add(time.Hour)
	m.half(1, "")
	m.wantAsked("a store time of a wrong clock", m.after(-time.Hour, s), 0)
}

// TestRun passes by itself and ends with its context; what another leadership remembered is forgotten.
func TestRun(t *testing.T) {
	m := newMachine(t)
	s := m.service(func(c *Config) { c.Interval = 10 * time.Millisecond })
	m.half(1, "")
	m.mu.Lock()
	m.now = m.now.Add(time.Minute)
	m.mu.Unlock()
	for round := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx)
		}()
		eventually(t, fmt.Sprintf("asked in leadership %d", round), func() bool { return s.Stats().Checks > uint64(round) })
		cancel()
		<-done
	}
}

func BenchmarkPass(b *testing.B) {
	m := newMachine(b)
	s := m.service()
	const n = 2000
	m.half(n, "")
	m.now = m.now.Add(time.Second) // too young, all are looked at
	b.ReportAllocs()
	for b.Loop() {
		if err := s.pass(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/half")
}

// TestCurrentLimits: limits that change while the service runs count from the next pass on.
func TestCurrentLimits(t *testing.T) {
	m := newMachine(t)
	var mu sync.Mutex
	limits := Limits{Timeout: time.Hour, Interval: 10 * time.Millisecond, MaxCheck: 15, MaxAge: 100 * time.Hour}
	passes := 0
	s := m.service(func(c *Config) {
		c.Interval = time.Hour
		c.Current = func() Limits {
			mu.Lock()
			defer mu.Unlock()
			passes++
			return limits
		}
	})
	m.half(1, "")
	m.mu.Lock()
	m.now = m.now.Add(time.Minute)
	m.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	counted := func() int {
		mu.Lock()
		defer mu.Unlock()
		return passes
	}
	eventually(t, "passes at the interval as it is now", func() bool { return counted() > 3 })
	if n := s.Stats().Checks; n != 0 {
		t.Errorf("%d checks of a message that is too young", n)
	}
	mu.Lock()
	limits.Timeout = time.Second
	mu.Unlock()
	eventually(t, "it is old enough now", func() bool { return s.Stats().Checks > 0 })
	cancel()
	<-done
}

// TestDamagedHalfHoldsNobodyUp: a half message whose record is damaged on this leader is told of and not passed over for good; those before and behind it are asked about, and it is when it is
// repaired.
func TestDamagedHalfHoldsNobodyUp(t *testing.T) {
	m := &machine{t: t, tables: metadata.New(), absent: map[int64]bool{}, now: time.UnixMilli(1_700_000_000_000)}
	dir := t.TempDir()
	var copies atomic.Pointer[[]store.Copy]
	copies.Store(&[]store.Copy{})
	var err error
	m.store, err = store.Open(store.Config{Dir: dir, SegmentSize: segment, ScrubRate: -1, OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
		Copies: func(context.Context) []store.Copy { return *copies.Load() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.store.Close() })
	if m.fsm, err = fsm.New(fsm.Config{Store: m.store, Tables: m.tables, Logger: hclog.NewNullLogger()}); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := m.service(func(c *Config) { c.Logger = hclog.New(&hclog.LoggerOptions{Output: &log}) })
	m.half(5, "")
	if err := m.store.FlushAll(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "commitlog", fmt.Sprintf("%020d", 0))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var phy int64
	var res store.GetResult
	m.store.Get(&store.GetRequest{Topic: halfTopic, Offset: 2, MaxMsgs: 1}, &res)
	phy = record.View(res.Buffers[0]).PhyOffset()
	res.Release()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{whole[phy+90] ^ 1}, phy+90); err != nil {
		t.Fatal(err)
	}
	m.wantAsked("one is damaged", m.after(time.Hour, s), 0, 1, 3, 4)
	m.wantAsked("it is damaged still", m.after(time.Hour, s), 0, 1, 3, 4)
	if n := strings.Count(log.String(), "half messages are damaged on this node"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	if d := m.store.RepairStats().Damaged; len(d) != 1 || d[0].From > phy || d[0].To <= phy {
		t.Errorf("damaged: %+v", d)
	}
	copies.Store(&[]store.Copy{{Node: "n2", Fetch: func(_ context.Context, from, to int64, w io.Writer) error {
		_, err := w.Write(whole[from:to])
		return err
	}}})
	eventually(t, "the repair", func() bool { return len(m.store.RepairStats().Damaged) == 0 })
	if got := m.after(time.Hour, s); !slices.Contains(got, 2) {
		t.Errorf("repaired, and its producer is not asked: %v", got)
	}
	if !strings.Contains(log.String(), "all half messages can be read again") {
		t.Errorf("the end is not told:\n%s", log.String())
	}
}
