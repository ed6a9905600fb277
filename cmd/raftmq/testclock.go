package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A step of the machine's clock can't be tried out on a machine that others use, so tests give a node a file that says how far its
// clock is off. It is for tests only: the flag is hidden, the file must begin with a word that says so, and the node warns.

// clockMagic is the first word of such a file; a duration follows, as in "raftmq-test-clock +1h".
const clockMagic = "raftmq-test-clock"

// clockEvery is how often the file is read.
const clockEvery = 20 * time.Millisecond

var errNoTestClock = errors.New("no clock for tests")

// testClock is a clock whose wall time is off by what its file says now, as after a step: monotonic time goes on undisturbed.
type testClock struct {
	path   string
	offset atomic.Int64
	stop   chan struct{}
	wg     sync.WaitGroup
}

func openTestClock(path string) (*testClock, error) {
	c := &testClock{path: path, stop: make(chan struct{})}
	if err := c.read(); err != nil {
		return nil, err
	}
	c.wg.Go(func() {
		tick := time.NewTicker(clockEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = c.read() // a file that is being replaced is read the next time
			case <-c.stop:
				return
			}
		}
	})
	return c, nil
}

func (c *testClock) read() error {
	b, err := os.ReadFile(c.path)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoTestClock, err)
	}
	magic, text, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	if magic != clockMagic {
		return fmt.Errorf("%w: %s does not begin with %q: this flag is for RaftMQ's own tests", errNoTestClock, c.path, clockMagic)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errNoTestClock, c.path, err)
	}
	c.offset.Store(int64(d))
	return nil
}

// now is the time with a wall clock that is off.
func (c *testClock) now() time.Time { return stepped(time.Now(), time.Duration(c.offset.Load())) }

// stepped moves the wall clock of t by d and leaves its monotonic reading. Add moves both, and there is no other way to have such
// a time but from the machine, so the reading (the second word of a time.Time, in ns) is put back; TestSteppedClock fails if that changes.
func stepped(t time.Time, d time.Duration) time.Time {
	moved := t.Add(d)
	type words struct {
		wall uint64
		ext  int64
	}
	(*words)(unsafe.Pointer(&moved)).ext = (*words)(unsafe.Pointer(&t)).ext
	return moved
}

func (c *testClock) close() {
	close(c.stop)
	c.wg.Wait()
}
