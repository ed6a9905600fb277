package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"
)

const segment = 1 << 20

// fakeStore is a log of segments with one store time each.
type fakeStore struct {
	mu       sync.Mutex
	low      int64
	ages     []time.Duration // of the newest record of each segment from offset 0 on; the last segment is being written
	space    store.Space
	cleaning bool
	unread   error
	now      func() time.Time
}

func (f *fakeStore) LogRange() (int64, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.low, int64(len(f.ages))*segment - 100
}

func (f *fakeStore) SegmentSize() int64 { return segment }

func (f *fakeStore) NewestBefore(boundary int64) (int64, error) {
	if boundary%segment != 0 {
		return 0, fmt.Errorf("%d is no boundary", boundary)
	}
	return f.now().Add(-f.ages[boundary/segment-1]).UnixMilli(), f.unread
}

func (f *fakeStore) Space() store.Space { return f.space }
func (f *fakeStore) Cleaning() bool     { return f.cleaning }

func used(percent int64) store.Space {
	d := store.Disk{Total: 100 * segment, Free: (100 - percent) * segment, Usable: (100 - percent) * segment}
	return store.Space{CommitLog: d, ConsumeQueue: d}
}

func hours(n ...int) (ages []time.Duration) {
	for _, h := range n {
		ages = append(ages, time.Duration(h)*time.Hour)
	}
	return ages
}

func repeat(h, n int) (list []int) {
	for range n {
		list = append(list, h)
	}
	return list
}

// TestRounds is RocketMQ's table of triggers, ages and ratios (format notes §9.1, §9.2).
func TestRounds(t *testing.T) {
	four, noon := time.Date(2024, 5, 6, 4, 59, 59, 0, time.UTC), time.Date(2024, 5, 6, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		now      time.Time
		ages     []time.Duration
		low      int64
		space    store.Space
		manual   bool
		noForce  bool
		cleaning bool
		unread   error
		when     []int
		want     int64 // segments; 0: nothing is proposed
	}{
		"the hour, old ones":                   {now: four, ages: hours(100, 80, 73, 72, 71, 1), space: used(10), want: 4},
		"another hour":                         {now: noon, ages: hours(100, 80, 1), space: used(10)},
		"two hours a day":                      {now: noon, when: []int{2, 12}, ages: hours(100, 80, 1), space: used(10), want: 2},
		"the hour, none is old":                {now: four, ages: hours(71, 70, 1), space: used(10)},
		"an old one behind a young one stays":  {now: four, ages: hours(80, 10, 90, 1), space: used(10), want: 1},
		"the last is never taken":              {now: four, ages: hours(100, 100), space: used(10), want: 1},
		"only one segment":                     {now: four, ages: hours(100), space: used(10)},
		"no log":                               {now: four, space: used(10)},
		"at most ten":                          {now: four, ages: hours(repeat(100, 30)...), space: used(10), want: 10},
		"goes on from the minimum":             {now: four, low: 3 * segment, ages: hours(100, 100, 100, 100, 80, 1, 1), space: used(10), want: 5},
		"a minimum inside a segment":           {now: four, low: 3*segment - 77, ages: hours(100, 100, 100, 100, 1, 1), space: used(10), want: 4},
		"an operator asks, old ones":           {now: noon, manual: true, ages: hours(100, 80, 1, 1), space: used(10), want: 2},
		"75 % is not more than 75 %":           {now: noon, ages: hours(100, 80, 1, 1), space: used(75)},
		"76 %, old ones":                       {now: noon, ages: hours(100, 80, 1, 1), space: used(76), want: 2},
		"85 %, still with regard to age":       {now: noon, ages: hours(100, 80, 1, 1), space: used(85), want: 2},
		"86 %, one segment over":               {now: noon, ages: hours(1, 1, 1, 1), space: used(86), want: 1},
		"88 %, three segments over":            {now: noon, ages: hours(1, 1, 1, 1, 1), space: used(88), want: 3},
		"88 %, old ones beyond that":           {now: noon, ages: hours(90, 90, 90, 90, 80, 1, 1), space: used(88), want: 5},
		"88 %, but not forcibly":               {now: noon, noForce: true, ages: hours(80, 1, 1, 1), space: used(88), want: 1},
		"95 %, at most ten":                    {now: noon, ages: hours(repeat(1, 30)...), space: used(99), want: 10},
		"95 %, the last stays":                 {now: noon, ages: hours(1, 1), space: used(95), want: 1},
		"88 %, the round before is not done":   {now: noon, cleaning: true, ages: hours(80, 1, 1, 1), space: used(88), want: 1},
		"queues' disk":                         {now: noon, ages: hours(100, 1), space: store.Space{CommitLog: used(10).CommitLog, ConsumeQueue: used(80).ConsumeQueue}, want: 1},
		"a disk that cannot be read asks too":  {now: noon, ages: hours(100, 1), want: 1},
		"a segment that cannot be read":        {now: four, ages: hours(100, 100, 1), unread: errors.New("broken"), space: used(10)},
		"queues' disk over, log's disk is not": {now: noon, ages: hours(1, 1, 1, 1), space: store.Space{CommitLog: used(10).CommitLog, ConsumeQueue: used(87).ConsumeQueue}, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeStore{ages: c.ages, low: c.low, space: c.space, cleaning: c.cleaning, unread: c.unread, now: func() time.Time { return c.now }}
			var got []int64
			l := New(Config{Store: f, Propose: collect(t, &got), DeleteWhen: c.when, CleanForcibly: !c.noForce, Location: time.UTC, Now: f.now})
			if c.manual {
				l.Arm()
			}
			l.over = grace // it has been so for a while
			l.round(context.Background())
			var want []int64
			if c.want > 0 {
				want = []int64{c.want * segment}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("proposed %v, want %v", got, want)
			}
		})
	}
}

func collect(t *testing.T, got *[]int64) func(context.Context, []byte) error {
	return func(_ context.Context, encoded []byte) error {
		r, err := command.NewReader(append(command.AppendEntryHead(nil), encoded...))
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := r.Next()
		if err != nil || c.Kind != command.KindLogTrim {
			t.Fatalf("kind %d: %v", c.Kind, err)
		}
		var trim command.LogTrim
		if err := json.Unmarshal(c.Payload, &trim); err != nil {
			t.Fatal(err)
		}
		*got = append(*got, trim.MinOffset)
		return nil
	}
}

// TestManualRounds: an operator's wish lasts twenty rounds.
func TestManualRounds(t *testing.T) {
	now := time.Date(2024, 5, 6, 12, 0, 0, 0, time.UTC)
	f := &fakeStore{ages: hours(100, 1), space: used(10), now: func() time.Time { return now }}
	var got []int64
	l := New(Config{Store: f, Propose: collect(t, &got), Location: time.UTC, Now: f.now})
	l.Arm()
	for range manualRounds + 5 {
		l.round(context.Background())
	}
	if len(got) != manualRounds {
		t.Errorf("%d rounds, want %d", len(got), manualRounds)
	}
}

// TestPatience: segments that somebody reads for ever do not end forced cleaning for ever.
func TestPatience(t *testing.T) {
	now := time.Date(2024, 5, 6, 12, 0, 0, 0, time.UTC)
	f := &fakeStore{ages: hours(1, 1, 1, 1), space: used(88), cleaning: true, now: func() time.Time { return now }}
	var got []int64
	l := New(Config{Store: f, Propose: collect(t, &got), CleanForcibly: true, Location: time.UTC, Now: f.now})
	l.over = grace
	for round := 1; round <= 2*(patience+1); round++ {
		l.round(context.Background())
		if want := round / (patience + 1); len(got) != want {
			t.Fatalf("%d trims in %d rounds, want %d", len(got), round, want)
		}
	}
}

// TestGrace: a disk that is too full for a moment, or only here, is no reason to take what is young.
func TestGrace(t *testing.T) {
	now := time.Date(2024, 5, 6, 12, 0, 0, 0, time.UTC)
	f := &fakeStore{ages: hours(1, 1, 1, 1), space: used(88), now: func() time.Time { return now }}
	var got []int64
	spare := false
	l := New(Config{Store: f, Propose: collect(t, &got), CleanForcibly: true, Spare: func(context.Context) bool { return spare }, Location: time.UTC, Now: f.now})
	rounds := func(n, want int) {
		t.Helper()
		got = nil
		for range n {
			l.round(context.Background())
		}
		if len(got) != want {
			t.Fatalf("%d trims in %d rounds, want %d", len(got), n, want)
		}
	}
	rounds(grace, 0)
	f.space = used(80)
	rounds(1, 0)
	f.space = used(88)
	rounds(grace, 0)
	rounds(2, 2)
	spare = true
	rounds(5, 0)
	spare = false
	rounds(1, 1)
}

// TestRun: a round in each interval, at once when an operator asks; it ends with its context and outlives a failing
// proposal.
func TestRun(t *testing.T) {
	now := time.Date(2024, 5, 6, 12, 0, 0, 0, time.UTC)
	f := &fakeStore{ages: hours(100, 1), space: used(10), now: func() time.Time { return now }}
	calls := make(chan struct{})
	l := New(Config{Store: f, Interval: time.Hour, Location: time.UTC, Now: f.now, Propose: func(context.Context, []byte) error {
		calls <- struct{}{}
		return errors.New("not the leader")
	}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { l.Run(ctx); close(done) }()
	for range 3 {
		l.Arm()
		select {
		case <-calls:
		case <-time.After(10 * time.Second):
			t.Fatal("no round")
		}
	}
	cancel()
	<-done
}

func TestParseDeleteWhen(t *testing.T) {
	for text, want := range map[string][]int{"04": {4}, "4": {4}, "02;14": {2, 14}, "0; 23": {0, 23}, "": nil, "24": nil, "-1": nil, "4,5": nil, "4;": nil} {
		got, err := ParseDeleteWhen(text)
		if !reflect.DeepEqual(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
}

// TestCurrentLimits: limits that change while the loop runs count from the next round on.
func TestCurrentLimits(t *testing.T) {
	now := time.Date(2024, 5, 6, 12, 0, 0, 0, time.UTC)
	f := &fakeStore{ages: hours(100, 20, 1, 0), space: used(10), now: func() time.Time { return now }}
	limits := Limits{FileReservedTime: 48 * time.Hour, DeleteWhen: []int{3}, MaxUsedRatio: 75, CleanForciblyRatio: 85}
	var got []int64
	l := New(Config{Store: f, Propose: collect(t, &got), Location: time.UTC, Now: f.now, Current: func() Limits { return limits }})
	for _, change := range []func(){
		func() {}, // not the hour
		func() { limits.DeleteWhen = []int{12} },
		func() { limits.FileReservedTime = 10 * time.Hour },
		func() { limits.DeleteWhen = []int{3} },
		func() { limits.MaxUsedRatio = 5 }, // the disk is fuller than that
	} {
		change()
		l.round(context.Background())
	}
	if want := []int64{segment, 2 * segment, 2 * segment}; !reflect.DeepEqual(got, want) {
		t.Errorf("trimmed to %v, want %v", got, want)
	}
}
