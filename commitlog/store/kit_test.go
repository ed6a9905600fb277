package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

const (
	testSegment   = 64 << 10
	testQueueFile = 1000 // 50 units
	testSlots     = 101  // of an index file
	testEntries   = 400
)

var testHost = netip.MustParseAddrPort("127.0.0.1:10911")

// leakCheck fails the test when goroutines outlive it.
func leakCheck(t testing.TB) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		deadline := time.Now().Add(5 * time.Second)
		for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if n := runtime.NumGoroutine(); n > before {
			buf := make([]byte, 1<<16)
			t.Errorf("%d goroutines, before %d\n%s", n, before, buf[:runtime.Stack(buf, true)])
		}
	})
}

// testConfig binds log and failures to the test.
func testConfig(t testing.TB, dir string) Config {
	return Config{
		Dir: dir, SegmentSize: testSegment, QueueFileSize: testQueueFile,
		MessageIndexEnable: true, MaxHashSlotNum: testSlots, MaxIndexNum: testEntries,
		Logger:  hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: testWriter{t}}),
		OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
	}
}

// lazyFS makes nothing durable: for tests that kill processes, not machines, a sync is only
// time. Files are the operating system's all the same.
type lazyFS struct{ mappedfile.OS }

func (lazyFS) SyncDir(string) error { return nil }

func (l lazyFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o755) }

func (l lazyFS) Create(path string, size int64) (mappedfile.Handle, error) {
	h, err := l.OS.Create(path, size)
	return lazyHandle{h}, err
}

func (l lazyFS) Open(path string, readOnly bool) (mappedfile.Handle, error) {
	h, err := l.OS.Open(path, readOnly)
	return lazyHandle{h}, err
}

func (lazyFS) WriteFile(path string, b []byte) error { return os.WriteFile(path, b, 0o644) }

type lazyHandle struct{ mappedfile.Handle }

func (lazyHandle) Sync() error                  { return nil }
func (lazyHandle) SyncRange(off, n int64) error { return nil }

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// command is what one Raft entry appends: records of one queue, perhaps several.
type command struct {
	topic   string
	queueID int32
	bodies  [][]byte
	tag     string
	keys    string // of each record; it has a unique key then, too
	sysFlag int32
	stored  int64
}

// uniqKey is the unique key of the i-th record.
func (c *command) uniqKey(i int) string {
	if c.keys == "" {
		return ""
	}
	return fmt.Sprintf("U%d-%d-%d", c.queueID, c.stored, i)
}

func (c *command) records() []byte {
	var b []byte
	for i, body := range c.bodies {
		props := record.AppendProperty([]byte(nil), record.PropertyTags, c.tag)
		props = record.AppendProperty(props, record.PropertyKeys, c.keys)
		props = record.AppendProperty(props, record.PropertyUniqKey, c.uniqKey(i))
		b = record.Append(b, &record.Message{
			Topic: []byte(c.topic), QueueID: c.queueID, SysFlag: c.sysFlag, BornTimestamp: c.stored, BornHost: testHost,
			StoreTimestamp: c.stored, StoreHost: testHost, Body: body, Properties: props,
		})
	}
	return b
}

// apply runs one entry through the FSM's side.
func apply(t testing.TB, s *Store, index uint64, commands ...command) []Appended {
	t.Helper()
	if err := s.BeginEntry(index, 1); err != nil {
		t.Fatal(err)
	}
	var out []Appended
	for _, c := range commands {
		a, err := s.Append([]byte(c.topic), c.queueID, c.records(), len(c.bodies))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	if err := s.EndEntry(); err != nil {
		t.Fatal(err)
	}
	return out
}

// settle publishes and waits until dispatch has built everything.
func settle(t testing.TB, s *Store) {
	t.Helper()
	s.Publish()
	waitDispatched(t, s)
}

func waitDispatched(t testing.TB, s *Store) {
	t.Helper()
	done := make(chan struct{})
	_, end := s.LogRange()
	s.WaitDispatched(end, func() { close(done) })
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("dispatched to %d, not to %d", s.DispatchedTo(), end)
	}
	if s.DispatchedTo() < end {
		t.Fatalf("dispatched to %d, not to %d", s.DispatchedTo(), end)
	}
}

// randomEntries makes entries of 1 to 3 commands; equal seeds give equal entries.
func randomEntries(seed uint64, n int) [][]command {
	rnd := rand.New(rand.NewPCG(seed, 7))
	entries := make([][]command, n)
	for i := range entries {
		for range 1 + rnd.IntN(3) {
			c := command{
				topic: fmt.Sprintf("T%d", rnd.IntN(4)), queueID: int32(rnd.IntN(3)),
				tag:    []string{"", "TagA", "TagB"}[rnd.IntN(3)],
				stored: 1_600_000_000_000 + int64(i)*10 - int64(rnd.IntN(30)),
			}
			if n := len(entries[i]); n < 2 {
				// Equal hashes among them; on other commands none.
				c.keys = []string{"Aa", "BB Aa", fmt.Sprintf("k%d", i%5)}[(i+n)%3]
			}
			if rnd.IntN(20) == 0 {
				c.sysFlag = record.SysFlagPrepared
			}
			for range 1 + rnd.IntN(4) {
				size := rnd.IntN(400)
				if rnd.IntN(30) == 0 {
					size = rnd.IntN(14_000)
				}
				body := make([]byte, size)
				for k := range body {
					body[k] = byte(rnd.Uint32())
				}
				c.bodies = append(c.bodies, body)
			}
			entries[i] = append(entries[i], c)
		}
	}
	return entries
}

// model is the plain slice the store is compared with.
type model struct {
	queues map[string][]modelRecord
}

type modelRecord struct {
	phy    int64
	body   []byte
	tag    string
	keys   string
	uniq   string
	stored int64
}

func newModel() *model { return &model{queues: map[string][]modelRecord{}} }

// add takes what apply returned.
func (m *model) add(last int64, commands []command, got []Appended) (stored int64, err error) {
	for i, c := range commands {
		last = max(last, c.stored)
		if !record.AssignsQueueOffset(c.sysFlag) {
			continue
		}
		k := fmt.Sprintf("%s/%d", c.topic, c.queueID)
		if want := int64(len(m.queues[k])); got[i].QueueOffset != want {
			return last, fmt.Errorf("%s: queue offset %d, want %d", k, got[i].QueueOffset, want)
		}
		phy := got[i].PhyOffset
		size := 0
		for n, body := range c.bodies {
			m.queues[k] = append(m.queues[k], modelRecord{phy + int64(size), body, c.tag, c.keys, c.uniqKey(n), last})
			one := c
			one.bodies = c.bodies[:n+1]
			size = len(one.records())
		}
	}
	return last, nil
}

// check reads every queue from end to end and compares.
func (m *model) check(t testing.TB, s *Store) {
	t.Helper()
	var res GetResult
	defer res.Release()
	for _, k := range slices.Sorted(maps.Keys(m.queues)) {
		topic, id, _ := strings.Cut(k, "/")
		queueID := int32(id[0] - '0')
		want := m.queues[k]
		if low, end := s.MinOffset(topic, queueID), s.MaxOffset(topic, queueID); low != 0 || end != int64(len(want)) {
			t.Fatalf("%s: [%d, %d), want [0, %d)", k, low, end, len(want))
		}
		n := 0
		for n < len(want) {
			s.Get(&GetRequest{Topic: []byte(topic), QueueID: queueID, Offset: int64(n), MaxMsgs: 7}, &res)
			if res.Status != Found || res.Count == 0 || res.NextBeginOffset != int64(n+res.Count) {
				t.Fatalf("%s at %d: %v, %d messages, next %d", k, n, res.Status, res.Count, res.NextBeginOffset)
			}
			for _, v := range split(t, &res) {
				w := want[n]
				if v.QueueOffset() != int64(n) || v.PhyOffset() != w.phy || !bytes.Equal(v.Body(), w.body) || v.StoreTimestamp() != w.stored {
					t.Fatalf("%s at %d: offset %d at %d stored %d, want %d at %d stored %d", k, n, v.QueueOffset(), v.PhyOffset(), v.StoreTimestamp(), n, w.phy, w.stored)
				}
				n++
			}
		}
	}
	m.checkKeys(t, s)
}

// split cuts a result into its records.
func split(t testing.TB, res *GetResult) (records []record.View) {
	t.Helper()
	total := 0
	for _, b := range res.Buffers {
		for len(b) > 0 {
			n, err := record.Check(b, true)
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, record.View(b[:n]))
			b = b[n:]
			total += n
		}
	}
	if len(records) != res.Count || total != res.Bytes {
		t.Fatalf("%d records of %d bytes, result says %d of %d", len(records), total, res.Count, res.Bytes)
	}
	return records
}

// copyDir copies the folder of a running store, as a crash would leave it.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		err = copySparse(path, target)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // renamed meanwhile
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// copySparse copies what a file has data for. Segments and the journal are mostly holes.
func copySparse(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	st, err := src.Stat()
	if err != nil {
		return err
	}
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	if err := dst.Truncate(st.Size()); err != nil {
		return err
	}
	for end := int64(0); ; {
		data, err := src.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= st.Size() {
			return nil // no more data
		}
		if err != nil {
			return err
		}
		if end, err = src.Seek(data, unix.SEEK_HOLE); err != nil {
			return err
		}
		b := make([]byte, min(end, st.Size())-data)
		n, err := src.ReadAt(b, data)
		if err != nil && !errors.Is(err, io.EOF) { // it may have become shorter meanwhile
			return err
		}
		if _, err := dst.WriteAt(b[:n], data); err != nil {
			return err
		}
	}
}

// writeSparse leaves out pages of zeroes.
func writeSparse(path string, b []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(int64(len(b))); err != nil {
		return err
	}
	zero := make([]byte, 4096)
	for at := 0; at < len(b); at += len(zero) {
		page := b[at:min(at+len(zero), len(b))]
		if bytes.Equal(page, zero[:len(page)]) {
			continue
		}
		if _, err := f.WriteAt(page, int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// contents is what log, queues and key index of a closed store hold: file to bytes, trailing
// zeroes and files without content left out (a prepared segment is no content). Index files
// are numbered: their names are times.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	indexFiles := 0
	for _, sub := range []string{commitLogDir, queueDir, indexDir} {
		err := filepath.WalkDir(filepath.Join(dir, sub), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if b = bytes.TrimRight(b, "\x00"); len(b) > 0 {
				rel, _ := filepath.Rel(dir, path)
				if sub == indexDir {
					rel = fmt.Sprintf("%s/%d", indexDir, indexFiles)
					indexFiles++
				}
				files[rel] = string(b)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func sameContents(t testing.TB, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Fatalf("%s differs: %d bytes, want %d", name, len(got[name]), len(want[name]))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Fatalf("%s should not be there", name)
		}
	}
}
