package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"raftmq/commitlog"
	"raftmq/commitlog/record"
	"raftmq/flush"
)

// fallen is a node of ours that holds the messages of a RocketMQ broker that was killed, one a Raft entry, and was killed itself.
type fallen struct {
	golden   golden
	records  [][]byte // as RocketMQ stored them
	offsets  []int64  // of each; the last is the end
	dir      string
	snapshot Position
	at       int // entries that the snapshot covers
	flushed  int // entries below the recovery point
	want     map[string]string
}

// newFallen applies the golden store's records; behind entry flushed nothing was ever flushed.
func newFallen(t *testing.T, name string, flushed int) *fallen {
	t.Helper()
	f := &fallen{golden: readGolden(t, name), dir: t.TempDir()}
	b := f.golden.log(t)
	for off := int64(0); off < int64(len(b)); {
		n, err := record.Check(b[off:], true)
		if err == nil {
			f.records = append(f.records, b[off:off+int64(n)])
			f.offsets = append(f.offsets, off)
		} else if !errors.Is(err, record.ErrBlank) {
			t.Fatal(err)
		}
		off += int64(n)
	}
	f.offsets = append(f.offsets, int64(len(b)))
	f.at, f.flushed = 60, len(f.records)+flushed
	if len(f.records) < 100 {
		t.Fatalf("only %d records", len(f.records))
	}
	cfg := f.config(t, t.TempDir())
	s := open(t, cfg)
	f.apply(t, s, 0, f.at)
	f.snapshot = s.Position()
	f.apply(t, s, f.at, f.flushed)
	waitIndexed(t, s)
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	f.apply(t, s, f.flushed, len(f.records))
	waitIndexed(t, s)
	copyDir(t, cfg.Dir, f.dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f.want = contents(t, cfg.Dir)
	return f
}

func (f *fallen) config(t *testing.T, dir string) Config {
	cfg := quiet(t, dir)
	cfg.Snapshot = func() (Position, error) { return f.snapshot, nil }
	return cfg
}

// apply applies records [from, to) as entries, and waits until they are dispatched.
func (f *fallen) apply(t *testing.T, s *Store, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		v := record.View(f.records[i])
		if err := s.BeginEntry(uint64(i+1), 1); err != nil {
			t.Fatal(err)
		}
		a, err := s.Append(v.Topic(), v.QueueID(), v, 1)
		if err != nil {
			t.Fatal(err)
		}
		if a.PhyOffset != f.offsets[i] || record.AssignsQueueOffset(v.SysFlag()) && a.QueueOffset != v.QueueOffset() {
			t.Fatalf("record %d went to %+v, RocketMQ has it at %d, queue offset %d", i, a, f.offsets[i], v.QueueOffset())
		}
		if err := s.EndEntry(); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s)
}

// segment changes a segment's bytes at a physical offset.
func (f *fallen) write(t *testing.T, off int64, b []byte) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(f.dir, commitLogDir, fmt.Sprintf("%020d", off-off%testSegment)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(b, off%testSegment); err != nil {
		t.Fatal(err)
	}
}

func (f *fallen) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.RemoveAll(filepath.Join(f.dir, n)); err != nil {
			t.Fatal(err)
		}
	}
}

// lastUnits calls change with every queue's last file and the number of units in it.
func (f *fallen) lastUnits(t *testing.T, change func(queue string, b []byte, units int)) {
	t.Helper()
	queues, err := filepath.Glob(filepath.Join(f.dir, queueDir, "*", "*"))
	if err != nil || len(queues) < 10 {
		t.Fatalf("%d queues, %v", len(queues), err)
	}
	for _, q := range queues {
		files, _ := filepath.Glob(filepath.Join(q, "*"))
		for _, path := range slices.Backward(files) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			units := 0
			for units*20 < len(b) && binary.BigEndian.Uint32(b[units*20+8:]) != 0 {
				units++
			}
			if units == 0 {
				continue
			}
			rel, _ := filepath.Rel(filepath.Join(f.dir, queueDir), q)
			change(rel, b, units)
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
}

func (f *fallen) checkpointAt(t *testing.T, millis int64) {
	t.Helper()
	b := flush.AppendCheckpoint(nil, flush.Checkpoint{Physic: millis, Logics: millis})
	if err := os.WriteFile(filepath.Join(f.dir, checkpointName), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// The damage of each case (the capture's damage.py), and what RocketMQ made of it.
var recoveryCases = []struct {
	name, rocketMQ string
	log            bool // it damages the log
	harm           func(t *testing.T, f *fallen)
}{
	{"asis", "kept all, entered the last indexed record twice", false, func(t *testing.T, f *fallen) {}},
	{"torn", "kept a record without its properties", true, func(t *testing.T, f *fallen) { f.write(t, f.end()-10, make([]byte, 10)) }},
	{"crc", "cut one record, its unit came back to life later", true, func(t *testing.T, f *fallen) { f.write(t, f.body(1), []byte{0xff}) }},
	{"crcmid", "cut four records", true, func(t *testing.T, f *fallen) { f.write(t, f.body(4), []byte{0xff}) }},
	{"size", "cut one record", true, func(t *testing.T, f *fallen) {
		last := len(f.records) - 1
		f.write(t, f.offsets[last], binary.BigEndian.AppendUint32(nil, uint32(len(f.records[last])+7)))
	}},
	{"garbage", "kept all", true, func(t *testing.T, f *fallen) { f.write(t, f.end(), bytes.Repeat([]byte{0xab}, 64)) }},
	{"nocq", "5.3.3 lost all units but the last segment's", false, func(t *testing.T, f *fallen) { f.remove(t, queueDir) }},
	{"noindex", "indexed a part", false, func(t *testing.T, f *fallen) { f.remove(t, indexDir) }},
	{"nocheckpoint", "indexed all again", false, func(t *testing.T, f *fallen) { f.remove(t, checkpointName) }},
	{"noabort", "took the kill for a clean stop", false, func(t *testing.T, f *fallen) { f.remove(t, abortName) }},
	{"noabortcq", "rebuilt what it looked at", false, func(t *testing.T, f *fallen) { f.remove(t, abortName, queueDir) }},
	{"shortcq", "rebuilt the last units", false, func(t *testing.T, f *fallen) {
		f.lastUnits(t, func(_ string, b []byte, units int) { clear(b[(units-1)*20 : units*20]) })
	}},
	{"lostseg", "cut 24 records", true, func(t *testing.T, f *fallen) {
		files, err := filepath.Glob(filepath.Join(f.dir, commitLogDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		last := f.offsets[len(f.records)-1]
		for _, path := range files {
			if filepath.Base(path) >= fmt.Sprintf("%020d", last-last%testSegment) {
				os.Remove(path)
			}
		}
	}},
	{"longcq", "kept the unit that points at nothing", false, func(t *testing.T, f *fallen) {
		done := 0
		f.lastUnits(t, func(queue string, b []byte, units int) {
			if queue == "GoldenRoll/0" && units*20 < len(b) {
				binary.BigEndian.PutUint64(b[units*20:], uint64(f.end()+5000))
				binary.BigEndian.PutUint32(b[units*20+8:], 200)
				done++
			}
		})
		if done != 1 {
			t.Fatalf("%d queues harmed", done)
		}
	}},
	{"cpeq", "began with the third segment", false, func(t *testing.T, f *fallen) { f.remove(t, indexDir); f.checkpointAt(t, f.third(t)+3000) }},
	{"cpbelow", "began with the second segment", false, func(t *testing.T, f *fallen) { f.remove(t, indexDir); f.checkpointAt(t, f.third(t)+2999) }},
	{"cplate", "began with the last segment and indexed nothing before", false, func(t *testing.T, f *fallen) {
		f.remove(t, indexDir)
		f.checkpointAt(t, f.third(t)+1_000_000_000)
	}},
}

func (f *fallen) end() int64 { return f.offsets[len(f.records)] }

// body is the offset of a body of the n-th record from the end.
func (f *fallen) body(n int) int64 { return f.offsets[len(f.records)-n] + 88 }

// third is the store time of the third segment's first record.
func (f *fallen) third(t *testing.T) int64 {
	t.Helper()
	for i, off := range f.offsets[:len(f.records)] {
		if off >= 2*testSegment {
			return record.View(f.records[i]).StoreTimestamp()
		}
	}
	t.Fatal("no third segment")
	return 0
}

// TestRecoveryCases: what real RocketMQ recovers wrongly, or with loss, is recovered rightly here. Each of the 17 damages of the golden
// capture is done twice: where nothing had been flushed, so that the Raft log brings back what is gone, and where all had been, so that
// damage of the log is refused without a peer, changed by nobody, and healed with one. In the end log, queues and index are those of a node
// that never fell and of RocketMQ before its fall, and stay so at the next start.
func TestRecoveryCases(t *testing.T) {
	if len(recoveryCases) != 17 {
		t.Fatalf("%d cases", len(recoveryCases))
	}
	versions := []string{"store-4.9.4-killed", "store-5.3.3-killed"}
	for _, version := range versions {
		for _, flushed := range []int{-30, 0} {
			t.Run(fmt.Sprintf("%s/flushed=%d", version, flushed), func(t *testing.T) {
				whole := newFallen(t, version, flushed)
				whole.matchGolden(t)
				for _, c := range recoveryCases {
					t.Run(c.name, func(t *testing.T) {
						f := *whole
						f.dir = t.TempDir()
						copyDir(t, whole.dir, f.dir)
						c.harm(t, &f)
						below := c.log && c.name != "garbage" && flushed == 0
						if below {
							f.refuses(t)
						}
						f.recovers(t, below)
						f.recovers(t, false)
						os.RemoveAll(f.dir)
					})
				}
			})
		}
	}
}

// matchGolden compares log and queues with RocketMQ's own files.
func (f *fallen) matchGolden(t *testing.T) {
	t.Helper()
	compared := 0
	for file, want := range f.golden {
		if !strings.HasPrefix(file, queueDir+"/") && !strings.HasPrefix(file, commitLogDir+"/") {
			continue
		}
		text := strings.TrimRight(string(want), "\x00")
		if text == "" {
			continue // made ahead
		}
		compared++
		if got := f.want[file]; got != text {
			t.Errorf("%s differs from RocketMQ's: %d bytes, want %d", file, len(got), len(text))
		}
	}
	if compared < 15 {
		t.Fatalf("only %d files compared", compared)
	}
}

// refuses: without a peer the node does not start, names the place, and leaves the log as it is.
func (f *fallen) refuses(t *testing.T) {
	t.Helper()
	read := func() map[string]string {
		all := map[string]string{}
		for name, text := range contents(t, f.dir) {
			if strings.HasPrefix(name, commitLogDir) {
				all[name] = text
			}
		}
		return all
	}
	before := read()
	s, err := Open(f.config(t, f.dir))
	if err == nil {
		s.Close()
		t.Fatal("damage below the recovery point was not noticed")
	}
	var damage *commitlog.DamageError
	if !errors.As(err, &damage) {
		t.Fatalf("got %v", err)
	}
	d := damage.Damages[0]
	last := f.offsets[len(f.records)-1]
	if !strings.Contains(err.Error(), d.File) || d.From > last || d.To < f.end() && d.To < last-10_000 {
		t.Errorf("%v", err)
	}
	if !maps.Equal(read(), before) {
		t.Fatal("the log was changed")
	}
}

// recovers opens the folder, lets Raft bring what it would, and compares.
func (f *fallen) recovers(t *testing.T, heal bool) {
	t.Helper()
	cfg := f.config(t, f.dir)
	fetched := false
	if heal {
		text := f.golden.log(t)
		cfg.Fetch = func(from, to int64, w io.Writer) error {
			fetched = true
			b := append(slices.Clone(text), make([]byte, max(0, to-int64(len(text))))...)
			_, err := w.Write(b[from:to])
			return err
		}
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if fetched != heal {
		t.Errorf("asked a peer: %v", fetched)
	}
	r := s.Recovered()
	if int(r.RaftIndex) < f.flushed && r.LogEnd < f.offsets[f.flushed] {
		t.Fatalf("recovered %+v, %d entries were durable", r, f.flushed)
	}
	if err := s.Restore(f.snapshot); err != nil {
		t.Fatal(err)
	}
	f.apply(t, s, f.at, len(f.records))
	waitIndexed(t, s)
	if err := s.log.Verify(0); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sameContents(t, contents(t, f.dir), f.want)
}
