package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"raftmq/commitlog"
)

// harmLog overwrites four bytes of the log, past all of its guards.
func harmLog(t *testing.T, dir string, off int64) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, commitLogDir, "*"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	f, err := os.OpenFile(segments[off/testSegment], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{1, 2, 3, 4}, off%testSegment); err != nil {
		t.Fatal(err)
	}
}

// peerOf serves the log of another folder.
func peerOf(t *testing.T, dir string) func(from, to int64, w io.Writer) error {
	t.Helper()
	var text []byte
	segments, err := filepath.Glob(filepath.Join(dir, commitLogDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		b, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, b...)
	}
	return func(from, to int64, w io.Writer) error { _, err := w.Write(text[from:to]); return err }
}

// TestDamageMetLater: damage far below what Open looks at is met by who builds the queues, or by a reader. It is the log that is
// blamed and not the queue; no damaged record is given out; and a peer heals it, at once or at the next start.
func TestDamageMetLater(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	cfg.VerifyBytes = 1
	s := open(t, cfg)
	m := fill(t, s, 41, 200)
	victim := m.queues["T1/1"][3]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good := t.TempDir()
	copyDir(t, cfg.Dir, good)
	want := contents(t, good)

	t.Run("by dispatch", func(t *testing.T) {
		cfg := cfg
		cfg.Dir = t.TempDir()
		copyDir(t, good, cfg.Dir)
		harmLog(t, cfg.Dir, victim.phy+4) // the magic number
		if err := os.RemoveAll(filepath.Join(cfg.Dir, queueDir)); err != nil {
			t.Fatal(err)
		}
		var damage *commitlog.DamageError
		if s, err := Open(cfg); !errors.As(err, &damage) || damage.Damages[0].From > victim.phy || damage.Damages[0].To <= victim.phy {
			t.Fatalf("%v, %v", s, err)
		}
		cfg.Fetch = peerOf(t, good)
		s := open(t, cfg)
		m.check(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		sameContents(t, contents(t, cfg.Dir), want)
	})
	t.Run("by dispatch, with a peer", func(t *testing.T) {
		cfg := cfg
		cfg.Dir = t.TempDir()
		copyDir(t, good, cfg.Dir)
		harmLog(t, cfg.Dir, victim.phy+4)
		if err := os.RemoveAll(filepath.Join(cfg.Dir, queueDir)); err != nil {
			t.Fatal(err)
		}
		cfg.Fetch = peerOf(t, good)
		s := open(t, cfg) // finds it, looks again, heals it
		m.check(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("by a reader", func(t *testing.T) {
		cfg := cfg
		cfg.Dir = t.TempDir()
		copyDir(t, good, cfg.Dir)
		fatal := make(chan error, 2)
		cfg.OnFatal = func(err error) { fatal <- err }
		s := open(t, cfg)
		harmLog(t, cfg.Dir, victim.phy) // the size
		var res GetResult
		s.Get(&GetRequest{Topic: []byte("T1"), QueueID: 1, Offset: 3, MaxMsgs: 1}, &res)
		if res.Status != OffsetFoundNull || len(res.Buffers) > 0 {
			t.Fatalf("%v with %d buffers", res.Status, len(res.Buffers))
		}
		var damage *commitlog.DamageError
		select {
		case err := <-fatal:
			if !errors.As(err, &damage) {
				t.Fatalf("it was not the log that was blamed: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the node goes on")
		}
		s.Close()
		if _, err := Open(cfg); !errors.As(err, &damage) {
			t.Fatalf("the next start: %v", err)
		}
		cfg.Fetch = peerOf(t, good)
		s = open(t, cfg)
		m.check(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		sameContents(t, contents(t, cfg.Dir), want)
	})
}
