package store

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"raftmq/commitlog/mappedfile"
)

func awaitCleaned(t testing.TB, s *Store) {
	t.Helper()
	low, _ := s.LogRange()
	await(t, fmt.Sprint("old files below ", low, " to go"), func() bool { return s.CleanedTo() >= low })
}

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// applyAll applies entries from index 1 on and tells the model.
func applyAll(t testing.TB, s *Store, m *model, entries [][]command) {
	t.Helper()
	var stored int64
	for i, e := range entries {
		var err error
		if stored, err = m.add(stored, e, apply(t, s, uint64(i)+1, e...)); err != nil {
			t.Fatal(err)
		}
	}
}

func fillWith(t testing.TB, s *Store, m *model, entries [][]command) {
	t.Helper()
	applyAll(t, s, m, entries)
	settle(t, s)
}

// checkFrom is check of a store whose log begins at low: each queue begins with its first record from there on, and
// what is before it is too small.
func (m *model) checkFrom(t testing.TB, s *Store, low int64) {
	t.Helper()
	var res GetResult
	defer res.Release()
	if got, _ := s.LogRange(); got != low {
		t.Fatalf("log begins at %d, want %d", got, low)
	}
	for k, want := range m.queues {
		topic, id, _ := strings.Cut(k, "/")
		queueID := int32(id[0] - '0')
		first := 0
		for first < len(want) && want[first].phy < low {
			first++
		}
		if gotLow, gotEnd := s.MinOffset(topic, queueID), s.MaxOffset(topic, queueID); gotLow != int64(first) || gotEnd != int64(len(want)) {
			t.Fatalf("%s: [%d, %d), want [%d, %d)", k, gotLow, gotEnd, first, len(want))
		}
		if first > 0 {
			s.Get(&GetRequest{Topic: []byte(topic), QueueID: queueID, Offset: int64(first) - 1, MaxMsgs: 1}, &res)
			if res.Status != OffsetTooSmall || res.NextBeginOffset != int64(first) {
				t.Fatalf("%s at %d: %v next %d", k, first-1, res.Status, res.NextBeginOffset)
			}
			if _, _, err := s.RecordAt(want[first-1].phy); !errors.Is(err, ErrNotFound) {
				t.Fatalf("%s: the last record that is gone: %v", k, err)
			}
		}
		for n := first; n < len(want); {
			s.Get(&GetRequest{Topic: []byte(topic), QueueID: queueID, Offset: int64(n), MaxMsgs: 7}, &res)
			if res.Status != Found || res.Count == 0 {
				t.Fatalf("%s at %d: %v, %d messages", k, n, res.Status, res.Count)
			}
			for _, v := range split(t, &res) {
				if v.PhyOffset() != want[n].phy || !bytes.Equal(v.Body(), want[n].body) {
					t.Fatalf("%s at %d: another record", k, n)
				}
				n++
			}
		}
	}
}

// TestTrim: the range is hidden with the trim, readers in it are told what RocketMQ tells them, files go, and queues without a
// message go on where they were (F09), also after a restart.
func TestTrim(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	cfg.FS = lazyFS{}
	s := open(t, cfg)
	m := newModel()
	entries := append([][]command{{{topic: "Z", bodies: [][]byte{body(10), body(20)}}}}, randomEntries(31, 300)...)
	fillWith(t, s, m, entries)
	_, end := s.LogRange()
	last := (end - 1) / testSegment * testSegment
	if last < 4*testSegment {
		t.Fatalf("only %d bytes", end)
	}
	// The queues' minimum follows a moment later; until then the records are just not there any more.
	s.cleaner.mu.Lock()
	if err := s.Trim(2 * testSegment); err != nil {
		t.Fatal(err)
	}
	var res GetResult
	s.Get(&GetRequest{Topic: []byte("T0"), MaxMsgs: 1}, &res)
	if res.Status != MessageWasRemoving && res.Status != Found || res.Count > 0 && split(t, &res)[0].PhyOffset() < 2*testSegment {
		t.Errorf("at a removed message: %v, %d messages", res.Status, res.Count)
	}
	res.Release()
	if _, release, err := s.ReadLog(0, 1); err != nil {
		t.Errorf("the file is gone already: %v", err)
	} else {
		release()
	}
	s.cleaner.mu.Unlock()
	awaitCleaned(t, s)
	m.checkFrom(t, s, 2*testSegment)
	if st := s.Stats(); st.FileMin != 2*testSegment || st.MinOffset != 2*testSegment || s.Cleaning() {
		t.Errorf("%+v", st)
	}
	// All but the last segment, at once and over a restart.
	p := s.Position()
	if err := s.Trim(last); err != nil {
		t.Fatal(err)
	}
	if err := s.Trim(last + testSegment); !errors.Is(err, ErrTrim) {
		t.Errorf("the last segment: %v", err)
	}
	p.MinOffset = last
	if got := s.Position(); got.MinOffset != last {
		t.Errorf("position %+v", got)
	}
	s.Close()
	s = open(t, cfg)
	if err := s.Restore(p); err != nil {
		t.Fatal(err)
	}
	awaitCleaned(t, s)
	m.checkFrom(t, s, last)
	if files, _ := filepath.Glob(filepath.Join(cfg.Dir, commitLogDir, "0*")); len(files) == 0 || filepath.Base(files[0]) != fmt.Sprintf("%020d", last) {
		t.Errorf("log files %v", files)
	}
	files, _ := filepath.Glob(filepath.Join(cfg.Dir, queueDir, "*", "*", "*"))
	for _, f := range files {
		k := strings.TrimPrefix(filepath.Dir(f), filepath.Join(cfg.Dir, queueDir)+"/")
		if len(m.queues[k]) > 2*50 && filepath.Base(f) == fmt.Sprintf("%020d", 0) {
			t.Errorf("%s is still there", f)
		}
	}
	// A restart that has nothing but the Raft log: the queues' ends come from the entries. The units of empty queues
	// are lost on top.
	const topic, id, next = "Z", 0, 2
	s.Close()
	if err := (OSFolder{cfg.Dir}).remove(pointName, queueDir); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	fillWith(t, s, newModel(), entries)
	if err := s.Trim(last); err != nil {
		t.Fatal(err)
	}
	awaitCleaned(t, s)
	m.checkFrom(t, s, last)
	if low, end := s.MinOffset(topic, id), s.MaxOffset(topic, id); low != next || end != next {
		t.Errorf("empty queue %s/%d: [%d, %d), want %d", topic, id, low, end, next)
	}
	if a := apply(t, s, uint64(len(entries))+1, command{topic: topic, queueID: id, bodies: [][]byte{body(10)}}); a[0].QueueOffset != next {
		t.Errorf("the next message is %d, want %d", a[0].QueueOffset, next)
	}
	settle(t, s)
	s.Get(&GetRequest{Topic: []byte(topic), QueueID: id, Offset: next, MaxMsgs: 1}, &res)
	if res.Status != Found || res.MinOffset != next || res.MaxOffset != next+1 {
		t.Errorf("%v [%d, %d)", res.Status, res.MinOffset, res.MaxOffset)
	}
	res.Release()
	if st := s.Stats(); st.PutMessages != 1 { // of this process
		t.Errorf("%d messages put, a replay is none", st.PutMessages)
	}
}

// OSFolder is a folder by its path.
type OSFolder struct{ dir string }

func (f OSFolder) remove(names ...string) error { return (&folder{dir: f.dir}).remove(names...) }

// imageFS takes an image of the folder before each change of a name, and notes when segments went.
type imageFS struct {
	lazyFS
	mu      sync.Mutex
	take    func(op string)
	removed []time.Time
}

func (f *imageFS) note(op, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.take != nil {
		f.take(op + " " + path)
	}
	if op == "remove" && strings.Contains(path, commitLogDir) {
		f.removed = append(f.removed, time.Now())
	}
}

func (f *imageFS) Remove(path string) error {
	f.note("remove", path)
	return f.lazyFS.Remove(path)
}

func (f *imageFS) Rename(from, to string) error {
	f.note("rename", to)
	return f.lazyFS.Rename(from, to)
}

// TestCrashWhileCleaning: from a kill at every step of the removal the next start brings it to its end, and loses nothing.
func TestCrashWhileCleaning(t *testing.T) {
	leakCheck(t)
	root := t.TempDir()
	f := &imageFS{}
	cfg := testConfig(t, filepath.Join(root, "store"))
	cfg.FS, cfg.PointInterval, cfg.MessageIndexEnable = f, time.Hour, false
	s := open(t, cfg)
	m := newModel()
	fillWith(t, s, m, randomEntries(32, 120))
	_, end := s.LogRange()
	trims := []int64{testSegment, 3 * testSegment, (end - 1) / testSegment * testSegment}
	var images []string
	for _, low := range trims {
		f.mu.Lock()
		f.take = func(op string) {
			dir := filepath.Join(root, fmt.Sprintf("image%02d", len(images)))
			copyDir(t, cfg.Dir, dir)
			images = append(images, dir)
		}
		f.mu.Unlock()
		if err := s.Trim(low); err != nil {
			t.Fatal(err)
		}
		awaitCleaned(t, s)
		f.mu.Lock()
		f.take("done")
		f.take = nil
		f.mu.Unlock()
	}
	p := s.Position()
	s.Close()
	if len(images) < 12 {
		t.Fatalf("%d images", len(images))
	}
	for i, dir := range images {
		cfg.Dir, cfg.FS = dir, lazyFS{}
		s := open(t, cfg)
		if i%2 == 0 { // the last snapshot knows of all trims
			if err := s.Restore(p); err != nil {
				t.Fatalf("image %d: %v", i, err)
			}
		} else { // or there is none, and the Raft log brings everything again
			fillWith(t, s, newModel(), randomEntries(32, 120))
			if err := s.Trim(trims[2]); err != nil {
				t.Fatalf("image %d: %v", i, err)
			}
		}
		awaitCleaned(t, s)
		m.checkFrom(t, s, trims[2])
		s.Close()
	}
}

// TestCleaningPace: at most ten segments a batch, and a pause of 100 ms between batches.
func TestCleaningPace(t *testing.T) {
	leakCheck(t)
	f := &imageFS{}
	cfg := testConfig(t, t.TempDir())
	cfg.FS, cfg.SegmentSize, cfg.MessageIndexEnable = f, 4096, false
	s := open(t, cfg)
	for i := range uint64(75) {
		apply(t, s, i+1, command{topic: "A", bodies: [][]byte{body(1500)}})
	}
	settle(t, s)
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	if err := s.Trim(32 * 4096); err != nil {
		t.Fatal(err)
	}
	awaitCleaned(t, s)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.removed) != 32 {
		t.Fatalf("%d segments went", len(f.removed))
	}
	batch := 1
	for i := 1; i < len(f.removed); i++ {
		if f.removed[i].Sub(f.removed[i-1]) >= cleanPause {
			batch = 0
		}
		if batch++; batch > cleanBatch {
			t.Fatalf("segment %d went without a pause after %d others", i, batch-1)
		}
	}
}

// TestHangedSegments: a segment whose view is out is removed and counted; its bytes stay until the view is released.
func TestHangedSegments(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	cfg.FS = lazyFS{}
	s := open(t, cfg)
	m := fill(t, s, 33, 200)
	b, release, err := s.ReadLog(100, 1000)
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(b)
	if err := s.Trim(2 * testSegment); err != nil {
		t.Fatal(err)
	}
	awaitCleaned(t, s)
	if st := s.Stats(); st.HangedSegments != 1 || !s.Cleaning() || st.FileMin != 2*testSegment {
		t.Errorf("%+v", st)
	}
	if !bytes.Equal(b, before) {
		t.Error("the view changed")
	}
	release()
	if st := s.Stats(); st.HangedSegments != 0 || s.Cleaning() {
		t.Errorf("after the release: %+v", st)
	}
	m.checkFrom(t, s, 2*testSegment)
}

// TestPins: pinned segments stay, hidden as they are, until the pin moves on, is released, or hangs.
func TestPins(t *testing.T) {
	leakCheck(t)
	var mu sync.Mutex
	now := time.Unix(1_700_000_000, 0)
	cfg := quiet(t, t.TempDir())
	cfg.FS = lazyFS{}
	cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	s := open(t, cfg)
	fill(t, s, 34, 200)
	low := func() int64 { return s.Stats().FileMin }
	s.Pin("a", testSegment+5)
	if err := s.Trim(4 * testSegment); err != nil {
		t.Fatal(err)
	}
	await(t, "what is not pinned to go", func() bool { return low() == testSegment })
	if _, release, err := s.ReadLog(testSegment+5, 10); err != nil {
		t.Errorf("pinned: %v", err)
	} else {
		release()
	}
	if got, _ := s.LogRange(); got != 4*testSegment {
		t.Errorf("log begins at %d", got)
	}
	s.Pin("a", 2*testSegment+1)
	s.cleaner.kick()
	await(t, "what the pin has left to go", func() bool { return low() == 2*testSegment })
	s.Pin("b", 3*testSegment)
	s.Unpin("a")
	s.Unpin("a")
	await(t, "what nobody pins to go", func() bool { return low() == 3*testSegment })
	mu.Lock()
	now = now.Add(cfgPinTimeout + time.Second)
	mu.Unlock()
	s.cleaner.kick()
	awaitCleaned(t, s)
	if _, _, err := s.ReadLog(3*testSegment, 10); !errors.Is(err, mappedfile.ErrOutOfRange) {
		t.Errorf("a hanging reader's next read: %v", err)
	}
	s.Unpin("b")
}

const cfgPinTimeout = 2 * time.Minute // the default

// TestTrimBehindDispatch: a trim that dispatch has not come to waits for it: no unit is skipped.
func TestTrimBehindDispatch(t *testing.T) {
	leakCheck(t)
	f := &failingFS{fail: func(op, path string) error {
		if op == "create" && strings.Contains(path, queueDir) {
			return mappedfile.ErrNoSpace
		}
		return nil
	}}
	cfg := quiet(t, t.TempDir())
	cfg.FS = f
	s := open(t, cfg)
	f.armed.Store(true) // dispatch waits for space
	m := newModel()
	applyAll(t, s, m, randomEntries(35, 200))
	s.Publish()
	_, end := s.LogRange()
	last := (end - 1) / testSegment * testSegment
	if err := s.Trim(last); err != nil {
		t.Fatal(err)
	}
	await(t, "the flag", func() bool { return s.Flags() == FlagQueueError })
	time.Sleep(5 * time.Millisecond) // let it go wrong
	if st := s.Stats(); st.FileMin != 0 || s.DispatchedTo() >= last {
		t.Fatalf("files from %d, dispatched to %d", st.FileMin, s.DispatchedTo())
	}
	f.armed.Store(false)
	waitDispatched(t, s)
	await(t, "the flag to go", func() bool { return s.Flags() == 0 })
	awaitCleaned(t, s)
	m.checkFrom(t, s, last)
}
