package workload

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/history"
	"raftmq/transport/client"
)

func TestValueOf(t *testing.T) {
	m := NewMessage("p1-42", 100)
	if len(m.Body) != 100 || ValueOf(m.Body) != "p1-42" {
		t.Errorf("body of %d bytes names %q", len(m.Body), ValueOf(m.Body))
	}
	if got := ValueOf(NewMessage("longer than that", 3).Body); got != "longer than that" {
		t.Errorf("short body names %q", got)
	}
	if got := ValueOf([]byte("no mark")); !strings.Contains(got, "foreign") {
		t.Errorf("a foreign body is %q", got)
	}
}

// script is a sender whose attempts fail as told, then succeed.
type script struct {
	errs []error
	keys []string
}

func (s *script) Send(_ context.Context, batch ...*Message) (Ack, error) {
	m := batch[0]
	m.UniqKey = "key"
	s.keys = append(s.keys, m.UniqKey)
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		if err != nil {
			return Ack{}, err
		}
	}
	return Ack{Queue: 3, Offset: 7, Node: "n1"}, nil
}

func (s *script) Close() {}

func TestSendOutcomes(t *testing.T) {
	refused := fmt.Errorf("%w: code 13", ErrRefused)
	lost := errors.New("connection lost")
	forever := func(err error) []error { return slices.Repeat([]error{err}, 1000) }
	cases := []struct {
		name     string
		errs     []error
		want     history.Outcome
		attempts int // 0: any
	}{
		{"acknowledged", nil, history.OK, 1},
		{"acknowledged at the third attempt", []error{lost, refused}, history.OK, 3},
		{"never an answer", forever(lost), history.Unknown, 0},
		{"always refused", forever(refused), history.Fail, 0},
		{"refused, but once without an answer", append([]error{lost}, forever(refused)...), history.Unknown, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rec, err := history.Create("")
			if err != nil {
				t.Fatal(err)
			}
			w := NewQueue(nil, rec, Config{})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			w.send(ctx, "p1", &script{errs: c.errs}, NewMessage("p1-0", 10))
			ops, err := rec.Close()
			if err != nil || len(ops) != 1 {
				t.Fatalf("%d operations, %v", len(ops), err)
			}
			op := ops[0]
			if op.Outcome != c.want || c.attempts > 0 && op.Attempts != c.attempts || op.UniqKey != "key" {
				t.Errorf("%+v", op)
			}
			if acked, _ := w.Progress(); acked != map[bool]int{true: 1}[c.want == history.OK] {
				t.Errorf("progress %d", acked)
			}
			if (op.Offset == 7) != (c.want == history.OK) {
				t.Errorf("offset %d", op.Offset)
			}
		})
	}
}

func TestProduceSendsAllAndStops(t *testing.T) {
	rec, err := history.Create("")
	if err != nil {
		t.Fatal(err)
	}
	w := NewQueue(nil, rec, Config{Rate: -1, Messages: 100})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { w.produce(t.Context(), t.Context(), i, &script{}) })
	}
	wg.Wait()
	ops, err := rec.Close()
	if err != nil || len(ops) != 100 {
		t.Errorf("%d operations, want 100; %v", len(ops), err)
	}
	seen := map[string]bool{}
	for _, op := range ops {
		if seen[op.Value] {
			t.Errorf("value %s twice", op.Value)
		}
		seen[op.Value] = true
	}
}

func TestRate(t *testing.T) {
	rec, err := history.Create("")
	if err != nil {
		t.Fatal(err)
	}
	w := NewQueue(nil, rec, Config{Rate: 100, Producers: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	w.produce(ctx, ctx, 0, &script{})
	// 100 a second for 0.3 s; a slow machine sends fewer, never more.
	if ops, err := rec.Close(); err != nil || len(ops) > 32 || len(ops) == 0 {
		t.Errorf("%d operations, %v", len(ops), err)
	}
}

func TestRawSenderAndReadQueue(t *testing.T) {
	f := startFakeNode(t)
	s := NewRawSender([]string{f.addr}, "p1", "T", 2)
	defer s.Close()
	var want []Delivery
	for i := range 8 {
		m := NewMessage(fmt.Sprint("p1-", i), 50)
		ack, err := s.Send(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if ack != (Ack{Queue: 2, Offset: int64(i), Node: f.addr}) {
			t.Errorf("acknowledgement %+v", ack)
		}
		want = append(want, Delivery{Value: m.Value, UniqKey: m.UniqKey, Topic: "T", Queue: 2, Offset: int64(i), Size: len(m.Body), Sum: crc32.ChecksumIEEE(m.Body)})
	}
	got, err := readAll(t, f)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("read %v, %v\nwant %v", got, err, want)
	}
}

func readAll(t *testing.T, f *fakeNode) ([]Delivery, error) {
	t.Helper()
	c, err := client.Dial(t.Context(), f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []Delivery
	n, err := ReadQueue(t.Context(), c, "g", "T", 2, func(d Delivery) { got = append(got, d) })
	if n != len(got) {
		t.Errorf("count %d of %d", n, len(got))
	}
	return got, err
}

func TestRawSenderErrors(t *testing.T) {
	f := startFakeNode(t)
	s := NewRawSender([]string{f.addr}, "p1", "T", 2)
	defer s.Close()
	for _, c := range []struct {
		code    int32
		refused bool
	}{{2, true}, {13, true}, {16, true}, {17, true}, {1, false}, {14, false}} {
		f.mu.Lock()
		f.refuse = []int32{c.code}
		f.mu.Unlock()
		_, err := s.Send(t.Context(), NewMessage("v", 10))
		if err == nil || errors.Is(err, ErrRefused) != c.refused {
			t.Errorf("code %d: %v, want refused=%v", c.code, err, c.refused)
		}
	}
	f.mu.Lock()
	f.swallow = 1
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	m := NewMessage("v", 10)
	if _, err := s.Send(ctx, m); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("no answer: %v", err)
	}
	key := m.UniqKey
	if _, err := s.Send(t.Context(), m); err != nil || m.UniqKey != key {
		t.Errorf("second attempt: %v, key %q, first %q", err, m.UniqKey, key)
	}
	gone := NewRawSender([]string{"127.0.0.1:1"}, "p2", "T", 0)
	defer gone.Close()
	if _, err := gone.Send(t.Context(), m); !errors.Is(err, ErrRefused) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestReadQueueNoticesDamage(t *testing.T) {
	cases := map[string]func(rec []byte){
		"body":       func(rec []byte) { rec[len(rec)-40] ^= 1 },
		"checksum":   func(rec []byte) { rec[8] ^= 1 },
		"queue":      func(rec []byte) { rec[15]++ },
		"offset":     func(rec []byte) { rec[27] = 0 }, // all records at offset 0
		"topic name": func(rec []byte) { rec[len(rec)-len("UNIQ_KEY\x01p1-9")-3]++ },
	}
	for name, corrupt := range cases {
		t.Run(name, func(t *testing.T) {
			f := startFakeNode(t)
			s := NewRawSender([]string{f.addr}, "p1", "T", 2)
			defer s.Close()
			for i := range 4 {
				if _, err := s.Send(t.Context(), NewMessage(fmt.Sprint("p1-", i), 60)); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := readAll(t, f); err != nil || len(got) != 4 {
				t.Fatalf("undamaged: %v, %v", got, err)
			}
			f.mu.Lock()
			f.behind = 3 // a node whose dispatch catches up is asked again
			f.mu.Unlock()
			if got, err := readAll(t, f); err != nil || len(got) != 4 {
				t.Fatalf("after some time: %v, %v", got, err)
			}
			f.mu.Lock()
			f.corrupt = corrupt
			f.mu.Unlock()
			if got, err := readAll(t, f); err == nil {
				t.Errorf("damage not noticed: %v", got)
			}
		})
	}
}

func TestRawConsumerFollowsTheQueue(t *testing.T) {
	f := startFakeNode(t)
	s := NewRawSender([]string{f.addr}, "p1", "T", 2)
	defer s.Close()
	got := make(chan Delivery, 100)
	// The first address is dead: the consumer goes on to the next.
	c := NewRawConsumer([]string{"127.0.0.1:1", f.addr}, 0, "g", "T", []int32{2}, func(d Delivery) { got <- d })
	defer c.Close()
	for i := range 10 {
		if _, err := s.Send(t.Context(), NewMessage(fmt.Sprint("p1-", i), 60)); err != nil {
			t.Fatal(err)
		}
		select {
		case d := <-got:
			if d.Value != fmt.Sprint("p1-", i) || d.Offset != int64(i) || d.Node != f.addr {
				t.Errorf("delivery %d: %+v", i, d)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("nothing delivered")
		}
	}
}

// The largest body is what the broker takes, and what the stock client makes of it by packing fits too: it compresses bodies that cannot be
// made smaller.
func TestLargestBodies(t *testing.T) {
	cfg := Config{Kind: checker.Sizes, Seed: 1}
	for _, stock := range []bool{false, true} {
		p, most := newPlan(&cfg, "p1", stock), 0
		for range 5000 {
			most = max(most, p.size())
		}
		packed := bytes.Buffer{}
		z := zlib.NewWriter(&packed)
		if _, err := z.Write(NewMessage("p1-0", most).Body); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if most > 4<<20 || !stock && most != 4<<20 || stock && (packed.Len() > 4<<20 || most < 4<<20-64<<10) {
			t.Errorf("stock %v: %d bytes, packed %d", stock, most, packed.Len())
		}
	}
}

// What has expired is passed over, at a leader and at another node, and where the queue begins is told.
func TestReadersPassOverWhatHasExpired(t *testing.T) {
	for _, leads := range []bool{true, false} {
		f := startFakeNode(t)
		s := NewRawSender([]string{f.addr}, "p1", "T", 2)
		for i := range 8 {
			if _, err := s.Send(t.Context(), NewMessage(fmt.Sprint(i), 20)); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		f.mu.Lock()
		f.expired, f.leads = 3, leads
		f.mu.Unlock()
		c, err := client.Dial(t.Context(), f.addr)
		if err != nil {
			t.Fatal(err)
		}
		n, first, err := readQueue(t.Context(), c, "g", "T", 2, func(Delivery) {})
		if n != 5 || first != 3 || err != nil {
			t.Errorf("leads %v: %d messages from %d on, %v", leads, n, first, err)
		}
		_ = c.Close()
		got := make(chan string, 8)
		r := NewRawConsumer([]string{f.addr}, 0, "g", "T", []int32{2}, func(d Delivery) { got <- d.Value })
		select {
		case v := <-got:
			if v != "3" {
				t.Errorf("leads %v: %s came first", leads, v)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("leads %v: the consumer got nothing", leads)
		}
		r.Close()
	}
}
