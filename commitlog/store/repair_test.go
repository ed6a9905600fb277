package store

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/commitlog"
	"raftmq/commitlog/consumequeue"
)

// peers is who can be asked for log bytes in a test.
type peers struct {
	list atomic.Pointer[[]Copy]
}

func (p *peers) set(list ...Copy) { p.list.Store(&list) }

func (p *peers) copies(context.Context) []Copy {
	if list := p.list.Load(); list != nil {
		return *list
	}
	return nil
}

// goodCopy serves the log of another folder.
func goodCopy(t *testing.T, dir string) Copy {
	fetch := peerOf(t, dir)
	return Copy{"good", func(_ context.Context, from, to int64, w io.Writer) error { return fetch(from, to, w) }}
}

var (
	errDown = errors.New("nobody answers")
	down    = Copy{"down", func(context.Context, int64, int64, io.Writer) error { return errDown }}
	bad     = Copy{"bad", func(_ context.Context, from, to int64, w io.Writer) error {
		_, err := w.Write(make([]byte, to-from))
		return err
	}}
)

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// repairWorld is a closed store's folder, a copy of it, and what it holds.
func repairWorld(t *testing.T) (cfg Config, p *peers, m *model, at Position, good string) {
	t.Helper()
	cfg = quiet(t, t.TempDir())
	cfg.ScrubRate = -1
	s := open(t, cfg)
	m = fill(t, s, 41, 200)
	at = s.Position()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good = t.TempDir()
	copyDir(t, cfg.Dir, good)
	p = &peers{}
	cfg.Copies = p.copies
	return cfg, p, m, at, good
}

func get(s *Store, topic string, queue int32, offset int64) GetStatus {
	var res GetResult
	defer res.Release()
	s.Get(&GetRequest{Topic: []byte(topic), QueueID: queue, Offset: offset, MaxMsgs: 1}, &res)
	return res.Status
}

// TestReaderMeetsDamage: a flipped bit anywhere in a record that is read, body or head, is not given out; the node goes on, tells the exact
// range, serves everything else, and the message comes as soon as one copy is whole.
func TestReaderMeetsDamage(t *testing.T) {
	leakCheck(t)
	for name, at := range map[string]func(modelRecord) int64{
		"size": func(r modelRecord) int64 { return r.phy },
		"body": func(r modelRecord) int64 { return r.phy + 88 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg, p, m, pos, good := repairWorld(t)
			cfg.VerifyBytes = -1
			cfg.Logger = nil
			s := open(t, cfg)
			if err := s.Restore(pos); err != nil {
				t.Fatal(err)
			}
			n := slices.IndexFunc(m.queues["T1/1"], func(r modelRecord) bool { return len(r.body) > 20 })
			victim := m.queues["T1/1"][n]
			harmLog(t, cfg.Dir, at(victim))
			p.set(down, bad)
			if got := get(s, "T1", 1, int64(n)); got != OffsetFoundNull {
				t.Fatalf("a damaged record: %v", got)
			}
			var st RepairStats
			eventually(t, "both copies are tried", func() bool {
				st = s.RepairStats()
				return len(st.Damaged) == 1 && strings.Contains(st.Damaged[0].Tried, "bad: ") && strings.Contains(st.Damaged[0].Tried, "down: nobody answers")
			})
			d := st.Damaged[0]
			if d.From > victim.phy || d.To <= victim.phy || d.To-d.From > 64<<10 || d.File == "" || d.RaftIndex == 0 || d.Since.IsZero() {
				t.Fatalf("the range: %+v, the record is at %d", d, victim.phy)
			}
			if got := get(s, "T1", 1, int64(n)); got != OffsetFoundNull {
				t.Fatalf("in quarantine: %v", got)
			}
			for k, list := range m.queues {
				for i, r := range list {
					if r.phy >= d.From && r.phy < d.To {
						continue
					}
					if got := get(s, k[:2], int32(k[3]-'0'), int64(i)); got != Found {
						t.Fatalf("%s at %d: %v", k, i, got)
					}
				}
			}
			if _, _, err := s.ReadLog(victim.phy, 10); !errors.Is(err, ErrQuarantined) {
				t.Fatalf("a peer that is sent the bytes: %v", err)
			}
			if _, _, err := s.RecordAt(victim.phy); err == nil || errors.Is(err, ErrNotFound) {
				t.Fatalf("a query: %v", err)
			}
			apply(t, s, 1000, command{topic: "T9", bodies: [][]byte{[]byte("on it goes")}, stored: 1_700_000_000_000})
			settle(t, s)
			p.set(down, bad, goodCopy(t, good))
			s.repairer.kick()
			eventually(t, "the repair", func() bool { return len(s.RepairStats().Damaged) == 0 })
			if st := s.RepairStats(); st.Found != 1 || st.Repaired != 1 || st.RepairedBytes != uint64(d.To-d.From) {
				t.Fatalf("%+v", st)
			}
			m.check(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDispatchMeetsDamage: the node opens although its queues can't be built through a damaged range; queues grow when it is repaired, and
// until then nobody is told that they end there.
func TestDispatchMeetsDamage(t *testing.T) {
	leakCheck(t)
	cfg, p, m, pos, good := repairWorld(t)
	cfg.VerifyBytes = 1
	cfg.Logger = nil
	victim := m.queues["T1/1"][0]
	harmLog(t, cfg.Dir, victim.phy+4)
	if err := os.RemoveAll(filepath.Join(cfg.Dir, queueDir)); err != nil {
		t.Fatal(err)
	}
	s := open(t, cfg)
	if err := s.Restore(pos); err != nil {
		t.Fatal(err)
	}
	if len(s.RepairStats().Damaged) != 1 {
		t.Fatalf("%+v", s.RepairStats())
	}
	if got, want := s.MaxOffset("T1", 1), int64(len(m.queues["T1/1"])); got != want {
		t.Fatalf("max offset %d, want %d", got, want)
	}
	if got := get(s, "T1", 1, 3); got != OffsetOverflowOne && got != OffsetFoundNull {
		t.Fatalf("a message behind: %v", got)
	}
	unbuilt := 0
	for _, q := range pos.QueueOffsets {
		if first := m.queues[q.Topic+"/"+strconv.Itoa(int(q.QueueID))][0].phy; first >= victim.phy {
			unbuilt++
			if got := get(s, q.Topic, q.QueueID, 0); got != OffsetOverflowOne && got != OffsetFoundNull {
				t.Errorf("the first message of %s/%d, which can't be read yet: %v", q.Topic, q.QueueID, got)
			}
			if low := s.MinOffset(q.Topic, q.QueueID); low != 0 {
				t.Errorf("%s/%d begins at %d", q.Topic, q.QueueID, low)
			}
		}
	}
	if unbuilt == 0 {
		t.Fatal("every queue begins before the damage")
	}
	if err := s.FlushAll(); err == nil {
		t.Fatal("a snapshot covers what is not in the queues")
	}
	apply(t, s, 1000, command{topic: "T9", bodies: [][]byte{[]byte("on it goes")}, stored: 1_700_000_000_000})
	s.Publish()
	p.set(goodCopy(t, good))
	s.repairer.kick()
	eventually(t, "dispatch goes on", func() bool { _, end := s.LogRange(); return s.DispatchedTo() == end })
	m.check(t, s)
	if got := get(s, "T9", 0, 0); got != Found {
		t.Fatal(got)
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Damage that waits is still known after a restart that looks elsewhere.
	harmLog(t, cfg.Dir, victim.phy+4)
	p.set()
	cfg.ScrubRate = 1 << 30
	s = open(t, cfg)
	eventually(t, "the scrub finds it", func() bool { return len(s.RepairStats().Damaged) == 1 })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.ScrubRate = -1
	s = open(t, cfg)
	if len(s.RepairStats().Damaged) != 1 {
		t.Fatal("forgotten over a restart")
	}
}

// TestScrub: what nobody reads is found by the scrub, log and queues, and written again; a whole store is passed over in silence.
func TestScrub(t *testing.T) {
	leakCheck(t)
	cfg, p, m, _, good := repairWorld(t)
	cfg.VerifyBytes = -1
	cfg.Logger = nil
	cfg.ScrubRate = 1 << 30
	p.set(goodCopy(t, good))
	s := open(t, cfg)
	pass := func() {
		t.Helper()
		before := s.ScrubStats().Passes
		s.ScrubNow()
		eventually(t, "a pass", func() bool {
			return s.ScrubStats().Passes > before+1 || s.ScrubStats().Passes > before && !s.ScrubStats().Ended.IsZero()
		})
	}
	pass()
	if st := s.ScrubStats(); s.RepairStats().Found != 0 || st.UnitsRepaired != 0 || st.Verified < uint64(st.End) {
		t.Fatalf("a whole store: %+v, %+v", s.RepairStats(), st)
	}
	harmLog(t, cfg.Dir, m.queues["T2/0"][5].phy+60) // a host
	harmLog(t, cfg.Dir, m.queues["T0/1"][1].phy+10)
	q := s.queues.QueueOf("T1", 1)
	unit, err := q.At(4)
	if err != nil {
		t.Fatal(err)
	}
	wrong := unit
	wrong.TagsCode ^= 1 << 20
	if err := s.queues.Rewrite(q, 4, wrong); err != nil {
		t.Fatal(err)
	}
	if err := s.queues.Rewrite(q, q.Max(), wrong); !errors.Is(err, consumequeue.ErrRange) {
		t.Fatalf("a unit behind the end: %v", err)
	}
	s.ScrubNow()
	eventually(t, "all is repaired", func() bool {
		st := s.RepairStats()
		u, err := q.At(4)
		return err == nil && u == unit && st.Repaired >= 2 && len(st.Damaged) == 0
	})
	m.check(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := contents(t, good)
	sameContents(t, contents(t, cfg.Dir), want)
	s = open(t, cfg)
	if st := s.ScrubStats(); st.Passes == 0 || st.Ended.IsZero() {
		t.Fatalf("after a restart: %+v", st)
	}
}

// TestScrubComparesSegments: a sealed segment whose checksum is not the one that the replicas have agreed on. What came with an installation is taken
// from another node; where the journal vouches for each entry nothing is overwritten, and it is told.
func TestScrubComparesSegments(t *testing.T) {
	leakCheck(t)
	cfg, p, m, pos, good := repairWorld(t)
	whole := peerOf(t, good)
	agreed := func(segment int64) (uint32, bool) {
		if segment+testSegment > pos.LogEnd {
			return 0, false
		}
		h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
		if err := whole(segment, segment+testSegment, h); err != nil {
			t.Error(err)
		}
		return h.Sum32(), true
	}
	t.Run("installed", func(t *testing.T) {
		cfg := cfg
		cfg.Dir = t.TempDir()
		cfg.Logger, cfg.ScrubRate, cfg.Sums = nil, 1<<30, agreed
		p.set(goodCopy(t, good))
		s := open(t, cfg)
		in, err := s.Install(0, pos.LogEnd)
		if err != nil {
			t.Fatal(err)
		}
		if err := whole(0, pos.LogEnd, in.(io.Writer)); err != nil {
			t.Fatal(err)
		}
		if err := in.Commit(pos); err != nil {
			t.Fatal(err)
		}
		harmLog(t, cfg.Dir, m.queues["T2/0"][0].phy+60)
		s.ScrubNow()
		eventually(t, "the segment is repaired", func() bool { st := s.RepairStats(); return st.Repaired > 0 && len(st.Damaged) == 0 })
		m.check(t, s)
		if sum, err := s.log.SegmentSum(0); err != nil {
			t.Fatal(err)
		} else if want, _ := agreed(0); sum != want {
			t.Fatalf("checksum %08x, agreed %08x", sum, want)
		}
	})
	t.Run("journalled", func(t *testing.T) {
		cfg := cfg
		cfg.Dir = t.TempDir()
		copyDir(t, good, cfg.Dir)
		told := make(chan int64, 100)
		cfg.Logger, cfg.ScrubRate = nil, 1<<30
		cfg.Sums = func(segment int64) (uint32, bool) { return 7, segment == testSegment }
		cfg.OnDiverged = func(from, _ int64, _ error) { told <- from }
		s := open(t, cfg)
		s.ScrubNow()
		select {
		case from := <-told:
			if from != testSegment {
				t.Errorf("told of segment %d", from)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("nothing is told")
		}
		if st := s.RepairStats(); st.Found != 0 {
			t.Errorf("%+v", st)
		}
		m.check(t, s)
	})
}

// TestSuspectLog: a range that others have found to differ is compared with another node's bytes, and let go when they are the same.
func TestSuspectLog(t *testing.T) {
	cfg, p, m, pos, good := repairWorld(t)
	cfg.Logger = nil
	s := open(t, cfg)
	if err := s.Restore(pos); err != nil {
		t.Fatal(err)
	}
	r := m.queues["T1/1"][3]
	if err := s.SuspectLog(r.phy, r.phy+1, errors.New("a test")); err != nil {
		t.Fatal(err)
	}
	p.set(goodCopy(t, good))
	s.repairer.kick()
	eventually(t, "it is whole", func() bool { st := s.RepairStats(); return st.Repaired == 1 && len(st.Damaged) == 0 })
	m.check(t, s)
	cfg.Copies = nil
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	var d *commitlog.DamageError
	if err := s.SuspectLog(0, 1, errors.New("a test")); err == nil || errors.As(err, &d) {
		t.Fatalf("with nobody to ask: %v", err)
	}
}
