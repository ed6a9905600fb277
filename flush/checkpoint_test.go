package flush

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The first 40 bytes of the checkpoints of three stores that RocketMQ wrote (the rest is zero), and what they say.
var goldenCheckpoints = []struct {
	name, bytes string
	want        Checkpoint
}{
	{"4.9.4-clean", "000001a229739730000001a229739730000001a22972d49a00000000000000000000000000000000", Checkpoint{Physic: 1795991770928, Logics: 1795991770928, Index: 1795991721114}},
	{"4.9.4-killed", "000001a2297502ae000001a2297514b7000001a2297514b700000000000000000000000000000000", Checkpoint{Physic: 1795991863982, Logics: 1795991868599, Index: 1795991868599}},
	{"5.3.3-clean", "000001a2297657d7000001a229766b19000001a229757a7d00000000000000000000000000000000", Checkpoint{Physic: 1795991951319, Logics: 1795991956249, Index: 1795991894653}},
}

func golden(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return append(b, make([]byte, CheckpointSize-len(b))...)
}

func TestGoldenCheckpoints(t *testing.T) {
	for _, g := range goldenCheckpoints {
		b := golden(t, g.bytes)
		c, err := DecodeCheckpoint(b)
		if err != nil || c != g.want {
			t.Errorf("%s: %+v, %v", g.name, c, err)
		}
		if again := AppendCheckpoint(nil, c); !bytes.Equal(again[:24], b[:24]) || len(again) != len(b) {
			t.Errorf("%s: encoded %x, want %x", g.name, again[:24], b[:24])
		}
	}
}

// TestCheckpointTimes: from where RocketMQ recovers (its getMinTimestamp and getMinTimestampIndex).
func TestCheckpointTimes(t *testing.T) {
	for _, c := range []struct {
		c          Checkpoint
		min, index int64
	}{
		{Checkpoint{}, 0, 0},
		{Checkpoint{Physic: 2999, Logics: 5000}, 0, 0},
		{Checkpoint{Physic: 10_000, Logics: 9000, Index: 7000}, 6000, 6000},
		{Checkpoint{Physic: 9000, Logics: 10_000, Index: 5000}, 6000, 5000},
	} {
		if got := c.c.MinTimestamp(); got != c.min {
			t.Errorf("%+v: min %d, want %d", c.c, got, c.min)
		}
		if got := c.c.MinTimestampIndex(); got != c.index {
			t.Errorf("%+v: min with index %d, want %d", c.c, got, c.index)
		}
	}
}

func TestCheckpointFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint")
	now := Checkpoint{Physic: 1, Logics: 2, Index: 3}
	for name, before := range map[string][]byte{
		"none": nil, "empty": {}, "short": make([]byte, 100), "long": make([]byte, 5000),
		"negative": bytes.Repeat([]byte{0x80}, CheckpointSize), "tail": append(make([]byte, CheckpointSize-1), 1),
	} {
		os.Remove(path)
		if before != nil {
			if err := os.WriteFile(path, before, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, why, err := OpenCheckpoint(path)
		if err != nil || !errors.Is(why, ErrCheckpoint) || c.Last() != (Checkpoint{}) {
			t.Fatalf("%s: %v, %v, %+v", name, why, err, c.Last())
		}
		if err := errors.Join(c.Write(now), c.Write(now), c.Close()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(b, AppendCheckpoint(nil, now)) {
			t.Fatalf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	c, why, err := OpenCheckpoint(path)
	if why != nil || err != nil || c.Last() != now {
		t.Fatalf("%v, %v, %+v", why, err, c.Last())
	}
	now.Physic = 10
	if err := errors.Join(c.Write(now), c.Close()); err != nil {
		t.Fatal(err)
	}
	if c, _, err = OpenCheckpoint(path); err != nil || c.Last() != now {
		t.Fatalf("%v, %+v", err, c.Last())
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func FuzzCheckpoint(f *testing.F) {
	for _, g := range goldenCheckpoints {
		f.Add(golden(f, g.bytes))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCheckpoint(b)
		if err != nil {
			if !errors.Is(err, ErrCheckpoint) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeCheckpoint(AppendCheckpoint(nil, c))
		if err != nil || again != c {
			t.Fatalf("%+v, then %+v, %v", c, again, err)
		}
	})
}
