package store

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// arrivals are what a listener was told.
type arrivals struct {
	mu   sync.Mutex
	list []string
}

func (a *arrivals) listen(topic []byte, queueID int32, next, tagsCode int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, fmt.Sprintf("%s/%d next %d tags %d", topic, queueID, next, tagsCode))
}

func (a *arrivals) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.list
	a.list = nil
	return list
}

// TestRepairedMessagesArriveAgain: whoever waits because of damage is told when it is repaired, unit or log, whatever tag it waits for.
func TestRepairedMessagesArriveAgain(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	cfg.ScrubRate, cfg.Logger, cfg.VerifyBytes = -1, nil, -1
	p := &peers{}
	cfg.Copies = p.copies
	s := open(t, cfg)
	var a arrivals
	s.OnArrival(a.listen)
	var phy []int64
	for i := range uint64(8) {
		phy = append(phy, apply(t, s, i+1, command{topic: "A", queueID: 2, tag: []string{"a", "b"}[i%2], bodies: [][]byte{body(100)}})[0].PhyOffset)
	}
	settle(t, s)
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	good := t.TempDir()
	copyDir(t, cfg.Dir, good)
	wanted := a.take()
	if len(wanted) != 8 {
		t.Fatalf("%d arrivals: %v", len(wanted), wanted)
	}
	harmUnits(t, cfg.Dir, "A", 2, 3, 5, func(_ int64, u []byte) { clear(u) })
	if got := get(s, "A", 2, 3); got != OffsetFoundNull {
		t.Fatalf("a damaged unit: %v", got)
	}
	var got []string
	eventually(t, "both tags of the repaired units are told", func() bool { got = append(got, a.take()...); return len(got) >= 2 })
	for _, tag := range []string{"a", "b"} {
		want := fmt.Sprintf("A/2 next 5 tags %d", int32(tag[0]))
		if !slices.Contains(got, want) {
			t.Errorf("%q was not told: %v", want, got)
		}
	}
	harmLog(t, cfg.Dir, phy[5]+90)
	if got := get(s, "A", 2, 5); got != OffsetFoundNull {
		t.Fatalf("a damaged record: %v", got)
	}
	a.take()
	p.set(goodCopy(t, good))
	s.repairer.kick()
	got = nil
	eventually(t, "the repaired record is told", func() bool { got = append(got, a.take()...); return slices.Contains(got, wanted[5]) })
	if got := get(s, "A", 2, 5); got != Found {
		t.Errorf("told, and not there: %v", got)
	}
}

// TestScrubTellsOfADamagedQueueFileOnce, and repairs all of its units.
func TestScrubTellsOfADamagedQueueFileOnce(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	var mu sync.Mutex
	var text bytes.Buffer
	cfg.ScrubRate = 1 << 40
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &lockedWriter{&mu, &text}, Level: hclog.Warn})
	s := open(t, cfg)
	for i := range uint64(120) {
		apply(t, s, i+1, command{topic: "A", queueID: 1, bodies: [][]byte{body(20)}})
	}
	settle(t, s)
	eventually(t, "the pass that began with the store ends", func() bool { return s.ScrubStats().Passes > 0 })
	harmUnits(t, cfg.Dir, "A", 1, 0, 100, func(n int64, u []byte) { u[11] ^= 1; u[19] ^= byte(n) })
	s.ScrubNow()
	eventually(t, "all units are repaired", func() bool { return s.ScrubStats().UnitsRepaired == 100 })
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(text.String(), "a consume queue unit is damaged"); n != 2 {
		t.Errorf("%d warnings of 100 units in two files:\n%s", n, text.String())
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}
