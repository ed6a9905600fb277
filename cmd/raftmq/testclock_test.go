package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A step of the clock moves the wall time and nothing else.
func TestSteppedClock(t *testing.T) {
	for _, d := range []time.Duration{0, time.Hour, -time.Hour, 30 * 24 * time.Hour, -time.Nanosecond, 1500 * time.Millisecond} {
		before := time.Now()
		moved := stepped(before, d)
		if got := moved.UnixNano() - before.UnixNano(); got != int64(d) {
			t.Errorf("wall clock moved by %v, want %v", time.Duration(got), d)
		}
		if got := moved.Sub(before); got != 0 {
			t.Errorf("a step of %v took %v", d, got)
		}
		if since := time.Since(moved); since < 0 || since > time.Minute {
			t.Errorf("%v passed since a time that is stepped by %v", since, d)
		}
	}
}

func TestTestClockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openTestClock(path); !errors.Is(err, errNoTestClock) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, bad := range []string{"", "+1h", "1h raftmq-test-clock", clockMagic, clockMagic + " soon"} {
		write(bad)
		if _, err := openTestClock(path); !errors.Is(err, errNoTestClock) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	write(clockMagic + " -1h")
	c, err := openTestClock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	off := func() time.Duration { return time.Until(c.now().Round(0)).Round(time.Minute) }
	if got := off(); got != -time.Hour {
		t.Errorf("the clock is off by %v", got)
	}
	write("something else") // is not believed
	write(clockMagic + " +2h\n")
	for deadline := time.Now().Add(10 * time.Second); off() != 2*time.Hour; time.Sleep(clockEvery) {
		if time.Now().After(deadline) {
			t.Fatalf("the clock is off by %v, 10 s after the file said +2h", off())
		}
	}
}
