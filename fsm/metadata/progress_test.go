package metadata

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"raftmq/fsm/command"
)

// TestHalvesAgainstASet compares the compact form with a plain set under random ends.
func TestHalvesAgainstASet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		tb, ended := New(), map[int64]bool{}
		const n = 60
		for range rnd.IntN(120) {
			if rnd.IntN(30) == 0 {
				below := rnd.Int64N(n / 2)
				if err := tb.NoteChecks(command.TransactionCheck{LostBelow: below}); err != nil {
					t.Fatal(err)
				}
				for o := range below {
					ended[o] = true
				}
				continue
			}
			o := rnd.Int64N(n)
			if err := tb.CheckHalf(o); errors.Is(err, ErrTransactionEnded) != ended[o] {
				t.Fatalf("end of %d: %v, ended %v", o, err, ended[o])
			} else if err == nil {
				tb.EndHalf(o)
				ended[o] = true
			}
		}
		progress, open := int64(0), int64(0)
		for ended[progress] {
			progress++
		}
		for o := range int64(n) {
			next := o
			for ended[next] {
				next++
			}
			if got := tb.NextOpenHalf(o); got != next || tb.HalfEnded(o) != ended[o] {
				t.Fatalf("next open from %d is %d, ended %v; want %d, %v", o, got, tb.HalfEnded(o), next, ended[o])
			}
			if !ended[o] {
				open++
			}
		}
		if tb.halves.progress != progress || tb.OpenHalves(n) != open {
			t.Fatalf("progress %d, %d open; want %d, %d", tb.halves.progress, tb.OpenHalves(n), progress, open)
		}
		for i, s := range tb.halves.ended {
			if s.From <= progress || i > 0 && s.From <= tb.halves.ended[i-1].To {
				t.Fatalf("stretches %v with progress %d", tb.halves.ended, progress)
			}
		}
		checkRoundTrip(t, tb)
	}
}

func checkRoundTrip(t *testing.T, tb *Tables) {
	t.Helper()
	a, err := tb.Export()
	if err != nil {
		t.Fatal(err)
	}
	again := New()
	if err := again.Import(a); err != nil {
		t.Fatal(err)
	}
	if b, err := again.Export(); err != nil || !bytes.Equal(a, b) {
		t.Fatalf("import changed the tables (%v):\n%s\n%s", err, a, b)
	}
}

func TestProgressInSnapshots(t *testing.T) {
	tb := filled(t)
	if b, err := tb.Export(); err != nil || !strings.HasPrefix(string(b), `{"version":1,`) {
		t.Errorf("without progress, older nodes must read it: %.60s %v", b, err)
	}
	tb.AdvanceDelay(3, 17)
	tb.AdvanceDelay(1, 5)
	tb.EndHalf(0)
	tb.EndHalf(4)
	if err := tb.NoteChecks(command.TransactionCheck{Checked: []int64{0, 2, 4, 2, 7, -1}}); err != nil {
		t.Fatal(err)
	}
	capture := tb.Capture()
	tb.EndHalf(1) // not in the capture
	tb.EndHalf(2)
	tb.AdvanceDelay(1, 6)
	b, err := capture()
	if err != nil || !strings.HasPrefix(string(b), `{"version":2,`) {
		t.Fatalf("%.60s %v", b, err)
	}
	again := New()
	if err := again.Import(b); err != nil {
		t.Fatal(err)
	}
	if again.DelayProgress(3) != 17 || again.DelayProgress(1) != 5 || again.DelayProgress(2) != 0 {
		t.Error("delay progress changed")
	}
	if again.NextOpenHalf(0) != 1 || again.HalfEnded(2) || !again.HalfEnded(4) || again.HalfChecks(2) != 2 || again.HalfChecks(7) != 1 || again.HalfChecks(4) != 0 {
		t.Errorf("transactions changed: %+v", again.halves)
	}
	checkRoundTrip(t, again)
	if tb.HalfChecks(2) != 0 || tb.NextOpenHalf(0) != 3 {
		t.Errorf("an ended half message kept its checks: %+v", tb.halves)
	}

	// A snapshot of before this state existed.
	old := New()
	if err := old.Import([]byte(`{"version":1,"nextNumber":1,"nodes":[],"topics":[],"topicVersion":{},"groups":[],"groupVersion":{},"offsets":[]}`)); err != nil {
		t.Fatal(err)
	}
	if old.DelayProgress(1) != 0 || old.NextOpenHalf(0) != 0 || old.CheckDelay(1, 0) != nil {
		t.Error("an older snapshot has progress")
	}
	for name, bad := range map[string]string{
		"stretch at the progress": `{"version":2,"transactions":{"progress":5,"ended":[{"from":5,"to":6}]}}`,
		"empty stretch":           `{"version":2,"transactions":{"progress":5,"ended":[{"from":7,"to":7}]}}`,
		"stretches that touch":    `{"version":2,"transactions":{"progress":5,"ended":[{"from":7,"to":8},{"from":8,"to":9}]}}`,
		"illegal levels":          `{"version":2,"settings":{"messageDelayLevel":"1x"}}`,
	} {
		if err := again.Import([]byte(bad)); err == nil {
			t.Errorf("%s was imported", name)
		}
	}
	if again.DelayProgress(3) != 17 {
		t.Error("a failed import lost the tables")
	}
}

func TestDelayProgress(t *testing.T) {
	tb := New()
	if err := tb.CheckDelay(1, 0); err != nil {
		t.Error(err)
	}
	if err := tb.CheckDelay(1, 1); !errors.Is(err, ErrDelayProgress) {
		t.Errorf("ahead of the progress: %v", err)
	}
	tb.AdvanceDelay(1, 4)
	if err := tb.CheckDelay(1, 0); !errors.Is(err, ErrDelayProgress) {
		t.Errorf("behind the progress: %v", err)
	}
	if err := tb.CheckDelay(2, 0); err != nil {
		t.Errorf("another level: %v", err)
	}
	s := settings
	s.MessageDelayLevel = "1s 1x"
	if err := New().PutSettings(s); !errors.Is(err, command.ErrDelayLevels) {
		t.Errorf("settings with illegal levels: %v", err)
	}
}

// BenchmarkEndHalf ends half messages while one of the beginning stays open, as under a producer that never answers.
func BenchmarkEndHalf(b *testing.B) {
	tb := New()
	b.ReportAllocs()
	for o := int64(1); b.Loop(); o++ {
		if err := tb.CheckHalf(o); err != nil {
			b.Fatal(err)
		}
		tb.EndHalf(o)
	}
}
