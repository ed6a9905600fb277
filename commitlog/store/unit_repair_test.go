package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"raftmq/commitlog/consumequeue"
)

// harmUnits changes units [from, to) of a queue in its files, behind the store's back: its mapping shows it.
func harmUnits(t *testing.T, dir, topic string, queueID int32, from, to int64, change func(n int64, u []byte)) {
	t.Helper()
	const inFile = testQueueFile / consumequeue.UnitSize
	for n := from; n < to; n++ {
		path := filepath.Join(dir, queueDir, topic, fmt.Sprint(queueID), fmt.Sprintf("%020d", n/inFile*testQueueFile))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		unit, at := make([]byte, consumequeue.UnitSize), n%inFile*consumequeue.UnitSize
		if _, err = f.ReadAt(unit, at); err == nil {
			change(n, unit)
			_, err = f.WriteAt(unit, at)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedUnits: damage in a queue's files is not served. The node goes on; the units are written again from the log, and
// the files are what they were, byte for byte.
func TestDamagedUnits(t *testing.T) {
	encode := func(u consumequeue.Unit) []byte { return consumequeue.AppendUnit(nil, u) }
	noise := func(n int64, u []byte) {
		for i := range u {
			u[i] = byte(n*31 + int64(i)*7 + 129)
		}
	}
	for name, harm := range map[string]struct {
		from, to int64
		change   func(n int64, u []byte)
	}{
		"zero":                      {3, 4, func(_ int64, u []byte) { clear(u) }},
		"filler":                    {3, 4, func(_ int64, u []byte) { copy(u, encode(consumequeue.Unit{Size: 1<<31 - 1})) }},
		"names the log's begin":     {3, 4, func(_ int64, u []byte) { clear(u[:8]) }},
		"behind the log's end":      {3, 4, func(_ int64, u []byte) { u[0] = 1 }},
		"negative":                  {3, 4, func(_ int64, u []byte) { u[0] = 0x80 }},
		"size":                      {3, 4, func(_ int64, u []byte) { u[11] ^= 1 }},
		"huge size":                 {3, 4, func(_ int64, u []byte) { u[8] = 0x70 }},
		"noise":                     {3, 4, noise},
		"the first":                 {0, 1, noise},
		"the last":                  {-1, 0, noise},
		"several":                   {2, 7, noise},
		"a whole file":              {50, 100, noise},
		"a whole file of zeros":     {0, 50, func(_ int64, u []byte) { clear(u) }},
		"over the end of a file":    {48, 53, noise},
		"all of the queue":          {0, -1, noise},
		"tags too, beside a unit":   {3, 5, func(n int64, u []byte) { u[19] ^= 1; u[11] ^= byte(4 - n) }},
		"another queue's, shifted":  {3, 4, nil}, // filled in below
		"another queue's, same n":   {3, 4, nil},
		"a unit of its own, before": {3, 4, nil},
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			cfg := quiet(t, t.TempDir())
			cfg.ScrubRate, cfg.Logger = -1, nil
			s := open(t, cfg)
			for i := range uint64(120) { // of two queues with equal ids and offsets, in turn
				apply(t, s, i+1, command{topic: "A", queueID: 1, tag: "t", bodies: [][]byte{fmt.Appendf(nil, "a%d", i)}},
					command{topic: "B", queueID: 1, bodies: [][]byte{fmt.Appendf(nil, "b%d", i)}})
			}
			settle(t, s)
			if err := s.FlushAll(); err != nil {
				t.Fatal(err)
			}
			unit := func(topic string, n int64) []byte {
				u, err := s.queues.QueueOf(topic, 1).At(n)
				if err != nil {
					t.Fatal(err)
				}
				return encode(u)
			}
			switch name {
			case "another queue's, shifted":
				harm.change = func(_ int64, u []byte) { copy(u, unit("B", 9)) }
			case "another queue's, same n":
				harm.change = func(n int64, u []byte) { copy(u, unit("B", n)) }
			case "a unit of its own, before":
				harm.change = func(n int64, u []byte) { copy(u, unit("A", n-1)) }
			}
			from, to := harm.from, harm.to
			if from < 0 {
				from, to = 119, 120
			} else if to < 0 {
				to = 120
			}
			want := contents(t, cfg.Dir)
			harmUnits(t, cfg.Dir, "A", 1, from, to, harm.change)

			var res GetResult
			req := GetRequest{Topic: []byte("A"), QueueID: 1, Offset: from, MaxMsgs: 32}
			s.Get(&req, &res)
			if res.Status != OffsetFoundNull || res.NextBeginOffset != from || res.Count != 0 || len(res.Buffers) != 0 {
				t.Fatalf("a damaged unit: %v next %d, %d messages", res.Status, res.NextBeginOffset, res.Count)
			}
			if from > 0 {
				before := req
				before.Offset = from - 1
				if s.Get(&before, &res); res.Status != Found {
					t.Fatalf("the one before it: %v", res.Status)
				}
			}
			if got := get(s, "B", 1, 3); got != Found {
				t.Fatalf("another queue: %v", got)
			}
			eventually(t, "the units are repaired", func() bool {
				s.Get(&req, &res)
				return res.Status == Found
			})
			for n := range int64(120) {
				s.Get(&GetRequest{Topic: []byte("A"), QueueID: 1, Offset: n, MaxMsgs: 1}, &res)
				if res.Status != Found || string(split(t, &res)[0].Body()) != fmt.Sprintf("a%d", n) {
					t.Fatalf("offset %d: %v", n, res.Status)
				}
			}
			res.Release()
			if got := s.ScrubStats().UnitsRepaired; got != uint64(to-from) {
				t.Errorf("%d units repaired, want %d", got, to-from)
			}
			if err := s.FlushAll(); err != nil {
				t.Fatal(err)
			}
			sameContents(t, contents(t, cfg.Dir), want)
		})
	}
}

// TestDamagedUnitOtherReads: reads by time and by id do not believe a damaged unit either, and do not guess.
func TestDamagedUnitOtherReads(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	cfg.ScrubRate, cfg.Logger = -1, nil
	s := open(t, cfg)
	var phy []int64
	for i := range uint64(9) {
		phy = append(phy, apply(t, s, i+1, command{topic: "A", stored: int64(1000 + i), bodies: [][]byte{body(10)}})[0].PhyOffset)
	}
	settle(t, s)
	reads := map[string]func() error{
		"by time": func() error {
			n, err := s.OffsetByTime("A", 0, 1004)
			if err == nil && n != 4 {
				err = fmt.Errorf("wrong offset %d", n)
			}
			return err
		},
		"by id": func() error {
			_, release, err := s.RecordAt(phy[4])
			if err == nil {
				release()
			}
			return err
		},
	}
	for name, read := range reads {
		harmUnits(t, cfg.Dir, "A", 0, 4, 5, func(_ int64, u []byte) {
			copy(u, consumequeue.AppendUnit(nil, consumequeue.Unit{PhyOffset: phy[7], Size: 102}))
		})
		if err := read(); !errors.Is(err, errDamagedUnit) {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, name+" works again", func() bool { return read() == nil })
	}
}

// TestDamagedUnitAfterTrim: a unit of zeros names a place that was trimmed; it is damage all the same, and its message is not passed over.
func TestDamagedUnitAfterTrim(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	cfg.ScrubRate, cfg.Logger = -1, nil
	s := open(t, cfg)
	var phy []int64
	for i := range uint64(12) {
		phy = append(phy, apply(t, s, i+1, command{topic: "A", bodies: [][]byte{body(20_000)}})[0].PhyOffset)
	}
	settle(t, s)
	if err := s.Trim(testSegment); err != nil {
		t.Fatal(err)
	}
	low := int64(slices.IndexFunc(phy, func(p int64) bool { return p >= testSegment }))
	eventually(t, "the queue's minimum is raised", func() bool { return s.MinOffset("A", 0) == low })
	harmUnits(t, cfg.Dir, "A", 0, low+1, low+2, func(_ int64, u []byte) {
		copy(u, consumequeue.AppendUnit(nil, consumequeue.Unit{PhyOffset: 5, Size: 200}))
	})
	if got := get(s, "A", 0, low+1); got != OffsetFoundNull {
		t.Fatalf("%v", got)
	}
	eventually(t, "it is repaired", func() bool { return get(s, "A", 0, low+1) == Found })
}

// TestUnitWithoutRecord: what the log does not have can't be written again: the node stops, and the next start builds all queues.
func TestUnitWithoutRecord(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	cfg.ScrubRate, cfg.Logger = -1, nil
	fatal := make(chan error, 2)
	cfg.OnFatal = func(err error) { fatal <- err }
	s := open(t, cfg)
	m := fill(t, s, 9, 60)
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	// The queue of another topic's folder: its messages are none of the log's.
	q := s.queues.QueueOf("T1", 1)
	other := s.queues.QueueOf("T0", 1)
	if q == nil || other == nil || other.Max() < 3 {
		t.Fatal("the history is too short")
	}
	s.units.add(q, 2)
	eventually(t, "a sound unit is left alone", func() bool { return !s.units.has(q) })
	if err := s.sound(q, 2); err != nil || s.ScrubStats().UnitsRepaired != 0 {
		t.Fatalf("%v, %d repaired", err, s.ScrubStats().UnitsRepaired)
	}
	set, err := consumequeue.Open(consumequeue.Config{Dir: filepath.Join(t.TempDir(), "queues"), FileSize: testQueueFile}, consumequeue.Point{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	b := set.NewBatch()
	if err := errors.Join(b.Add([]byte("none"), 0, 0, consumequeue.Unit{PhyOffset: 1, Size: 100}), b.Write()); err != nil {
		t.Fatal(err)
	}
	s.units.add(set.QueueOf("none", 0), 0)
	if err := <-fatal; !errors.Is(err, errDamagedUnit) || len(fatal) > 0 {
		t.Fatalf("%v, and %d more", err, len(fatal))
	}
	if err := s.FlushAll(); !errors.Is(err, ErrStopped) {
		t.Fatalf("flushed: %v", err)
	}
	s.Close()
	cfg.OnFatal = func(err error) { t.Error(err) }
	s = open(t, cfg)
	m.check(t, s)
}
