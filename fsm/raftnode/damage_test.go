package raftnode

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// damageConfig is a log of small files.
func damageConfig(dir string, kind LogStoreKind) Config {
	cfg := Config{NodeID: "n", Dir: dir, LogStore: kind, WALSegmentBytes: 64 << 10, CacheBytes: 1, Logger: hclog.NewNullLogger()}
	cfg.ensureDefaults()
	return cfg
}

// entryOf is an entry without zeros, whose size depends on its index; the last one is larger than two pages.
func entryOf(i uint64) *raft.Log {
	n := 500 + int(i)%7*100
	if i == lastEntry {
		n = 9000
	}
	r := rand.New(rand.NewPCG(i, 1))
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(1 + r.IntN(255))
	}
	return &raft.Log{Index: i, Term: 1 + i/100, Type: raft.LogCommand, Data: b}
}

const lastEntry = 200 // more than one file full

func fillLog(t *testing.T, cfg Config) {
	t.Helper()
	s, err := openLogStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= lastEntry; i++ {
		batch := []*raft.Log{entryOf(i)}
		if i%5 == 0 && i+2 < lastEntry {
			batch = append(batch, entryOf(i+1), entryOf(i+2))
			i += 2
		}
		if err := s.StoreLogs(batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// digests are of all files below dir.
func digests(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	out := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tailBatches finds the batches of the last file by its format.
func tailBatches(t *testing.T, b []byte) (begins []int, end int) {
	t.Helper()
	begins, at := []int{0}, walHead
	for at+frameHead <= len(b) {
		kind, size, ok := frame(b[at : at+frameHead])
		if !ok {
			break
		}
		at += frameHead + size
		if kind == frameCommit {
			begins, end = append(begins, at), at
		}
	}
	return begins[:len(begins)-1], end
}

// TestDamageOfTheRaftLogIsNotTakenForATornWrite: what was acknowledged is never cut (Never-Clean-Up), and what a crash has torn always is.
func TestDamageOfTheRaftLogIsNotTakenForATornWrite(t *testing.T) {
	const damage, whole, torn = "damage", "whole", "torn"
	type files struct {
		dir, tail, sealed string
		begins            []int // of the tail's batches
		end               int
	}
	flip := func(path string, at int) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, int64(at)); err != nil {
			return err
		}
		b[0] ^= 0x10
		_, err = f.WriteAt(b, int64(at))
		return err
	}
	zero := func(path string, from, to int) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt(make([]byte, to-from), int64(from))
		return err
	}
	template := t.TempDir()
	fillLog(t, damageConfig(template, WAL))
	lastBegin := func(f files) int { return f.begins[len(f.begins)-1] }
	for _, tt := range []struct {
		name string
		do   func(f files) error
		want string
		lazy bool
	}{
		{"nothing", func(files) error { return nil }, whole, false},
		{"flip in the first entry of the tail", func(f files) error { return flip(f.tail, walHead+frameHead+100) }, damage, false},
		{"flip in the tail's head", func(f files) error { return flip(f.tail, 9) }, damage, false},
		{"flip in an entry's length in the middle", func(f files) error { return flip(f.tail, f.begins[3]+4) }, damage, false},
		{"flip in an entry's type in the middle", func(f files) error { return flip(f.tail, f.begins[3]) }, damage, false},
		{"flip in a commit's checksum in the middle", func(f files) error { return flip(f.tail, f.begins[4]-3) }, damage, false},
		{"a page of zeros in the middle", func(f files) error { return zero(f.tail, f.begins[3], f.begins[3]+4096) }, damage, false},
		{"flip in the last entry", func(f files) error { return flip(f.tail, lastBegin(f)+4000) }, damage, false},
		{"flip in the last commit's checksum", func(f files) error { return flip(f.tail, f.end-2) }, damage, false},
		{"the last batch lacks a page", func(f files) error {
			at := (lastBegin(f) + 4095) / 4096 * 4096
			return zero(f.tail, at, at+4096)
		}, torn, false},
		{"the last batch lacks its end", func(f files) error { return zero(f.tail, (lastBegin(f)+4095)/4096*4096, f.end) }, torn, false},
		{"the last batch lacks its begin", func(f files) error { return zero(f.tail, lastBegin(f), (lastBegin(f)+4095)/4096*4096) }, torn, false},
		{"the last batch is not there", func(f files) error { return zero(f.tail, lastBegin(f), f.end) }, torn, false},
		{"the tail is cut", func(f files) error { return os.Truncate(f.tail, int64(f.begins[5])) }, damage, false},
		{"the tail is empty", func(f files) error { return os.Truncate(f.tail, 0) }, damage, false}, // by what was applied
		{"the tail is gone", func(f files) error { return os.Remove(f.tail) }, damage, false},       // likewise
		{"a sealed file is gone", func(f files) error { return os.Remove(f.sealed) }, damage, false},
		{"a sealed file is cut", func(f files) error { return os.Truncate(f.sealed, 5000) }, damage, false},
		{"flip in a sealed file's head", func(f files) error { return flip(f.sealed, 1) }, damage, false},
		{"flip in a sealed file's entry", func(f files) error { return flip(f.sealed, 5000) }, damage, false},
		{"the list of files is gone", func(f files) error { return os.Remove(filepath.Join(f.dir, "wal", "wal-meta.db")) }, damage, false},
		{"the list of files is garbage", func(f files) error {
			return os.WriteFile(filepath.Join(f.dir, "wal", "wal-meta.db"), bytes.Repeat([]byte{0xa5}, 32<<10), 0o644)
		}, damage, false},
		{"the list of files is cut", func(f files) error { return os.Truncate(filepath.Join(f.dir, "wal", "wal-meta.db"), 100) }, damage, false},
		{"all of it is gone", func(f files) error { return os.RemoveAll(filepath.Join(f.dir, "wal")) }, damage, false},
		// In the mode that syncs on a timer later batches may reach the disk before earlier ones.
		{"flip in the last entry, lazy", func(f files) error { return flip(f.tail, lastBegin(f)+4000) }, torn, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := files{dir: t.TempDir()}
			cfg := damageConfig(f.dir, WAL)
			if err := os.CopyFS(f.dir, os.DirFS(template)); err != nil {
				t.Fatal(err)
			}
			list, err := filepath.Glob(filepath.Join(f.dir, "wal", "*.wal"))
			if err != nil || len(list) < 2 {
				t.Fatalf("%d files: %v", len(list), err)
			}
			f.sealed, f.tail = list[0], list[len(list)-1]
			b, err := os.ReadFile(f.tail)
			if err != nil {
				t.Fatal(err)
			}
			f.begins, f.end = tailBatches(t, b)
			if err := tt.do(f); err != nil {
				t.Fatal(err)
			}
			before := digests(t, f.dir)
			cfg.lazyTail = tt.lazy
			last, err := readAll(t, cfg, lastEntry)
			switch tt.want {
			case damage:
				if !errors.Is(err, ErrLogDamaged) {
					t.Fatalf("last entry %d: %v", last, err)
				}
				for path, sum := range digests(t, f.dir) {
					if filepath.Ext(path) == ".wal" && before[path] != sum && before[path] != [32]byte{} {
						t.Errorf("%s was changed", path)
					}
				}
			case whole:
				if last != lastEntry || err != nil {
					t.Errorf("last entry %d: %v", last, err)
				}
			case torn:
				// The entry was never acknowledged here: the node has not applied it.
				if last, err = readAll(t, cfg, lastEntry-1); last != lastEntry-1 || err != nil {
					t.Fatalf("last entry %d: %v", last, err)
				}
				s, err := openLogStore(cfg)
				if err != nil {
					t.Fatal(err)
				}
				short := entryOf(lastEntry)
				short.Data = short.Data[:40]
				if err := errors.Join(s.StoreLog(short), s.Close()); err != nil {
					t.Fatal(err)
				}
				// What is left of the torn batch behind the new one is not taken for damage.
				if err := checkWAL(filepath.Join(f.dir, "wal"), false, hclog.NewNullLogger()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// readAll opens a node's stores as Open does and reads every entry, compared with what was stored.
func readAll(t *testing.T, cfg Config, applied uint64) (last uint64, err error) {
	t.Helper()
	n := &Node{cfg: cfg}
	if n.cfg.Snapshots == nil {
		n.cfg.Snapshots = raft.NewInmemSnapshotStore()
	}
	if n.stable, err = openStable(filepath.Join(cfg.Dir, "stable.db"), nil); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.stable.Close()) }()
	if term, _ := n.stable.GetUint64(keyCurrentTerm); term == 0 {
		if err := n.stable.SetUint64(keyCurrentTerm, 10); err != nil {
			t.Fatal(err)
		}
	}
	if n.logs, err = openLogStore(cfg); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.logs.Close()) }()
	if err := n.checkState(applied); err != nil {
		return 0, err
	}
	first, last := n.logs.bounds()
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := n.logs.GetLog(i, &l); err != nil {
			return last, err
		}
		if want := entryOf(i); l.Term != want.Term || l.Extensions != nil || i < lastEntry && !bytes.Equal(l.Data, want.Data) {
			t.Fatalf("entry %d is not what was stored, and that was not noticed", i)
		}
	}
	return last, nil
}

// TestFlipAnywhereInTheRaftLogIsNoticed: one bit, at places all over the log's files, is noticed before a wrong entry is handed out, or it changes nothing.
func TestFlipAnywhereInTheRaftLogIsNoticed(t *testing.T) {
	for _, kind := range []LogStoreKind{WAL, Bolt} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			fillLog(t, damageConfig(dir, kind))
			list, err := filepath.Glob(filepath.Join(dir, map[LogStoreKind]string{WAL: "wal/*.wal", Bolt: "log.db"}[kind]))
			if err != nil || len(list) == 0 {
				t.Fatalf("%v %v", list, err)
			}
			r := rand.New(rand.NewPCG(3, uint64(len(kind))))
			noticed := 0
			for range 60 {
				path := list[r.IntN(len(list))]
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				at := r.IntN(len(bytes.TrimRight(b, "\x00")))
				b[at] ^= 1 << r.IntN(8)
				copyDir := t.TempDir()
				if err := os.CopyFS(copyDir, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				rel, _ := filepath.Rel(dir, path)
				if err := os.WriteFile(filepath.Join(copyDir, rel), b, 0o644); err != nil {
					t.Fatal(err)
				}
				last, err := readAll(t, damageConfig(copyDir, kind), lastEntry)
				if errors.Is(err, ErrLogDamaged) {
					noticed++
				} else if err != nil || last != lastEntry {
					t.Errorf("byte %d of %s: last entry %d, %v", at, rel, last, err)
				}
			}
			if noticed < 20 {
				t.Errorf("%d of 60 flips were noticed", noticed)
			}
		})
	}
}

// TestLostVoteIsDamage: a node that does not know its term any more could vote twice in it.
func TestLostVoteIsDamage(t *testing.T) {
	dir := t.TempDir()
	cfg := damageConfig(dir, WAL)
	fillLog(t, cfg)
	stable := filepath.Join(dir, "stable.db")
	check := func() error {
		n := &Node{cfg: cfg}
		n.cfg.Snapshots = raft.NewInmemSnapshotStore()
		var err error
		if n.stable, err = openStable(stable, nil); err != nil {
			return err
		}
		if n.logs, err = openLogStore(cfg); err != nil {
			t.Fatal(err)
		}
		err = n.checkState(lastEntry)
		return errors.Join(err, n.closeStores())
	}
	if err := check(); !errors.Is(err, ErrLogDamaged) {
		t.Errorf("without a term: %v", err)
	}
	s, err := openStable(stable, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SetUint64(keyCurrentTerm, 7), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := check(); err != nil {
		t.Errorf("with a term: %v", err)
	}
	b, err := os.ReadFile(stable)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{b[:100], bytes.Repeat([]byte{7}, len(b)), append(slices.Clone(b[:8192]), bytes.Repeat([]byte{9}, len(b)-8192)...)} {
		if err := os.WriteFile(stable, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := check(); !errors.Is(err, ErrLogDamaged) {
			t.Errorf("%d bytes of stable.db: %v", len(bad), err)
		}
	}
}

// TestEntrySum holds the format, and that entries without a checksum, of a raftmq from before, are read.
func TestEntrySum(t *testing.T) {
	l := &raft.Log{Index: 5, Term: 3, Type: raft.LogCommand, Data: []byte("data"), Extensions: []byte("ext")}
	plain := *l
	out := withSums([]*raft.Log{l, {Index: 6, Term: 3, Data: []byte("x")}})
	raw := append(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 5), 3), byte(raft.LogCommand))
	want := binary.BigEndian.AppendUint32([]byte("extRMS\x01"), crc32.Checksum(append(raw, "dataext"...), crc32.MakeTable(crc32.Castagnoli)))
	if !bytes.Equal(out[0].Extensions, want) || string(l.Extensions) != "ext" {
		t.Errorf("stored extensions %q, want %q; the entry's own are %q", out[0].Extensions, want, l.Extensions)
	}
	for _, e := range out {
		if err := checkEntry(e.Index, e); err != nil {
			t.Error(err)
		}
	}
	if string(out[0].Extensions) != "ext" || out[1].Extensions != nil {
		t.Errorf("extensions read: %q, %q", out[0].Extensions, out[1].Extensions)
	}
	if err := checkEntry(5, &plain); err != nil || string(plain.Extensions) != "ext" {
		t.Errorf("an entry without a checksum: %v, %q", err, plain.Extensions)
	}
	for name, change := range map[string]func(e *raft.Log){
		"index": func(e *raft.Log) { e.Index++ }, "term": func(e *raft.Log) { e.Term++ }, "type": func(e *raft.Log) { e.Type++ },
		"data": func(e *raft.Log) { e.Data = []byte("dAta") }, "extensions": func(e *raft.Log) { e.Extensions[0]++ }, "sum": func(e *raft.Log) { e.Extensions[len(e.Extensions)-1]++ },
	} {
		e := *withSums([]*raft.Log{l})[0]
		if change(&e); !errors.Is(checkEntry(5, &e), ErrLogDamaged) {
			t.Errorf("%s changed, and that is not noticed", name)
		}
	}
}

func FuzzEntrySum(f *testing.F) {
	f.Add(uint64(1), uint64(1), []byte("data"), []byte("ext"))
	f.Add(uint64(1), uint64(1), []byte("data"), []byte("RMS\x01\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, index, term uint64, data, ext []byte) {
		l := &raft.Log{Index: index, Term: term, Data: data, Extensions: ext}
		e := *withSums([]*raft.Log{l})[0]
		if err := checkEntry(index, &e); err != nil || !bytes.Equal(e.Extensions, ext) {
			t.Fatalf("%v, extensions %q", err, e.Extensions)
		}
		_ = checkEntry(index, l) // whatever it holds
	})
}

// FuzzWALTail: whatever the last file holds, looking at it ends, and what is whole at its begin is not touched.
func FuzzWALTail(f *testing.F) {
	dir := f.TempDir()
	s, err := openLogStore(damageConfig(dir, WAL))
	if err != nil {
		f.Fatal(err)
	}
	for i := range uint64(4) {
		if err := s.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: []byte(strings.Repeat("x", int(i)*10))}); err != nil {
			f.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(list) != 1 {
		f.Fatal(list, err)
	}
	b, err := os.ReadFile(list[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.TrimRight(b, "\x00"))
	f.Add(append(bytes.TrimRight(b, "\x00"), 3, 0, 0, 0, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		good, _, err := wholeBatches(bytes.NewReader(b))
		if err != nil || good > int64(len(b)) || good != 0 && good < walHead+frameHead {
			t.Fatalf("whole up to %d of %d: %v", good, len(b), err)
		}
		rest := b[good:]
		_ = notTorn(rest[:len(rest)/frameHead*frameHead], good)
	})
}

// TestCommittedEntriesAreNotCut: a leader whose log contradicts what is committed here has lost something. The node stops with all of its entries.
func TestCommittedEntriesAreNotCut(t *testing.T) {
	s, err := openLogStore(damageConfig(t.TempDir(), WAL))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := uint64(1); i <= 10; i++ {
		if err := s.StoreLog(entryOf(i)); err != nil {
			t.Fatal(err)
		}
	}
	d := newDisk(time.Now)
	g := &guardedLog{logStore: s, disk: d, committed: func() uint64 { return 7 }}
	if err := g.DeleteRange(8, 10); err != nil {
		t.Fatalf("entries that are not committed: %v", err)
	}
	ended := make(chan bool, 1)
	go func() {
		defer func() { ended <- false }()
		_ = g.DeleteRange(7, 7)
		ended <- true
	}()
	if <-ended {
		t.Fatal("a committed entry was cut")
	}
	if err := d.failure(); !errors.Is(err, ErrLogDamaged) || !strings.Contains(err.Error(), "entries up to 7 are committed here") {
		t.Errorf("the failure: %v", err)
	}
	if err := g.StoreLog(entryOf(8)); !errors.Is(err, ErrLogDamaged) {
		t.Errorf("it goes on writing: %v", err)
	}
	if _, last := s.bounds(); last != 7 {
		t.Errorf("last entry %d", last)
	}
	// Compaction cuts at the other end.
	d = newDisk(time.Now)
	g = &guardedLog{logStore: s, disk: d, committed: func() uint64 { return 7 }}
	if err := g.DeleteRange(1, 5); err != nil {
		t.Errorf("compaction: %v", err)
	}
}
