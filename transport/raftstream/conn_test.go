package raftstream

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A call is given up when nothing moves for its deadline's time, not when it takes longer as a whole: 16 MiB on a link of 64 KiB a second.
func TestDeadlineIsForSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, patience = 16 << 20, 10 * time.Second
		near, far := net.Pipe()
		c := &conn{Conn: near, layer: &Layer{}}
		defer func() { _ = c.Close() }()
		go func() {
			defer func() { _ = far.Close() }()
			b := make([]byte, 64<<10)
			for range size / len(b) {
				time.Sleep(time.Second) // the link's speed
				if _, err := io.ReadFull(far, b); err != nil {
					t.Error(err)
					return
				}
			}
			time.Sleep(patience / 2)
			if _, err := far.Write([]byte("done")); err != nil {
				t.Error(err)
			}
		}()
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Write(make([]byte, size)); n != size || err != nil {
			t.Fatalf("%d bytes were written: %v", n, err)
		}
		answer := make([]byte, 4)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "done" {
			t.Fatalf("%q, %v", answer, err)
		}
	})
}

// A peer that takes some of a call and then nothing more does not hold it up for ever, neither in its writes nor in the wait for the answer.
func TestDeadlineOfAPeerThatStops(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes int64
	}{{"at once", 0}, {"in the middle", 1 << 20}, {"before it answers", 4 << 20}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size, patience = 4 << 20, 10 * time.Second
				near, far := net.Pipe()
				c := &conn{Conn: near, layer: &Layer{}}
				defer func() { _ = errors.Join(c.Close(), far.Close()) }()
				go func() { _, _ = io.CopyN(io.Discard, far, tc.takes) }()
				began := time.Now()
				if err := c.SetDeadline(began.Add(patience)); err != nil {
					t.Fatal(err)
				}
				_, err := c.Write(make([]byte, size))
				if err == nil {
					_, err = c.Read(make([]byte, 1))
				}
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
				if got, most := time.Since(began), patience+time.Duration(tc.takes/slowestLink)*time.Second; got < patience || got > most {
					t.Errorf("it took %v, want %v to %v", got, patience, most)
				}
				// The next call has its own time.
				if err := c.SetDeadline(time.Time{}); err != nil {
					t.Fatal(err)
				}
				go func() { _, _ = io.Copy(io.Discard, far) }()
				if _, err := c.Write(make([]byte, 100)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
