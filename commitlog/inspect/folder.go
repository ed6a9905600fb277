package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Folders and files of a store. The first group is RocketMQ's (StorePathConfigHelper), the
// second RaftMQ's.
const (
	commitLogDir   = "commitlog"
	queueDir       = "consumequeue"
	extDir         = "consumequeue_ext"
	indexDir       = "index"
	configDir      = "config"
	checkpointName = "checkpoint"
	abortName      = "abort"
	lockName       = "lock"

	journalDir        = "journal/records"
	recoveryPointName = "journal/recovery-point"
	queuePointName    = "queuepoint"
	metaName          = "store.json"
	nodeName          = "node.json"
	nodeStoreDir      = "store"
	installingName    = "installing"
)

// Format is who wrote a store.
type Format string

// Formats.
const (
	RocketMQ Format = "rocketmq"
	RaftMQ   Format = "raftmq"
	DLedger  Format = "rocketmq-dledger"
)

// Options of Open. The zero value finds everything out by itself.
type Options struct {
	// CommitLogDirs are where the segments are, if not in DIR/commitlog (storePathCommitLog).
	CommitLogDirs []string
	// SegmentSize and QueueFileSize in bytes, if the files are too damaged to tell.
	SegmentSize, QueueFileSize int64
	// IndexSlots is the slot count of an index file (maxHashSlotNum), if it can't be found out.
	IndexSlots int
	// DelayLevels decide the tags codes of the schedule topic's units (messageDelayLevel); RocketMQ's eighteen by default.
	DelayLevels []time.Duration
	// NoIndex says that the store was kept without a key index (messageIndexEnable=false): its absence is no damage.
	NoIndex bool
	// Progress is called now and then with how many bytes of the log and of index files were read.
	Progress func(done, total int64)
}

// Store is an inspected folder. It holds no file open.
type Store struct {
	Dir    string // the store's root; below the folder that was opened if that is a node's
	Node   string // the node's data folder if Open was given one, else ""
	Format Format
	InUse  InUse
	Meta   Meta // RaftMQ's store.json; zero when there is none

	SegmentSize   int64 // bytes; 0 without segments
	QueueFileSize int64 // bytes; 0 without queue files
	Segments      []Segment
	Queues        []Queue // by topic and id
	Abort         bool    // the file abort is there: running, or not stopped cleanly

	opts    Options
	layout  []Finding     // what the folder listings told
	metaErr error         // of store.json
	point   recoveryPoint // RaftMQ's; zero when there is none
	points  pointErrors
	done    int64 // bytes read, for Progress
	total   int64
}

// Meta is RaftMQ's store.json.
type Meta struct {
	FormatVersion int   `json:"formatVersion"`
	SegmentSize   int64 `json:"segmentSize"`
	QueueFileSize int64 `json:"queueFileSize"`
}

// Segment is one file of the commit log.
type Segment struct {
	Path string // relative to the store's root if it is below it
	From int64  // physical offset of its first byte, from its name
	Size int64  // bytes in the file
	path string
}

// Open lists a store's folder. ErrNoStore when it is none; other errors are the file system's.
func Open(dir string, o Options) (*Store, error) {
	s := &Store{Dir: filepath.Clean(dir), opts: o}
	if s.opts.DelayLevels == nil {
		s.opts.DelayLevels = delayLevels()
	}
	fi, err := os.Stat(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("%w: %s is a file", ErrNoStore, s.Dir)
	}
	inner := filepath.Join(s.Dir, nodeStoreDir)
	if !looksLikeStore(s.Dir) && (exists(s.Dir, nodeName) || looksLikeStore(inner)) {
		s.Node, s.Dir = s.Dir, inner
	}
	s.Format = format(s.Dir)
	if s.Format == "" && len(o.CommitLogDirs) > 0 {
		s.Format = RocketMQ
	}
	if s.Format == "" {
		return nil, fmt.Errorf("%w: %s holds none of %s, %s, %s", ErrNoStore, s.Dir, commitLogDir, queueDir, metaName)
	}
	s.InUse = inUse(s.Dir)
	s.Abort = exists(s.Dir, abortName)
	s.readMeta()
	s.readPoints()
	if err := s.listSegments(); err != nil {
		return nil, err
	}
	if err := s.listQueues(); err != nil {
		return nil, err
	}
	for _, seg := range s.Segments {
		s.total += seg.Size
	}
	return s, nil
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

func looksLikeStore(dir string) bool { return format(dir) != "" }

func format(dir string) Format {
	if exists(dir, metaName) || exists(dir, "journal") {
		return RaftMQ
	}
	if exists(dir, commitLogDir) {
		return RocketMQ
	}
	if logs, _ := filepath.Glob(filepath.Join(dir, "dledger-*", "data")); len(logs) > 0 {
		return DLedger
	}
	if exists(dir, queueDir) {
		return RocketMQ
	}
	return ""
}

func (s *Store) readMeta() {
	b, err := os.ReadFile(filepath.Join(s.Dir, metaName))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(b, &s.Meta)
	}
	s.metaErr = err
}

// rel shortens a path below the store's root.
func (s *Store) rel(path string) string {
	if r, err := filepath.Rel(s.Dir, path); err == nil && !strings.HasPrefix(r, "..") {
		return r
	}
	return path
}

// listDir is os.ReadDir with sizes; a missing folder is empty. A file that vanishes meanwhile is left out.
func listDir(dir string) ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	list := make([]fs.FileInfo, 0, len(entries))
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		list = append(list, info)
	}
	return list, nil
}

// nameOffset is the offset that a file is named by (RocketMQ's UtilAll.offset2FileName), -1 if it is no such name.
func nameOffset(name string) int64 {
	if len(name) != 20 || strings.Trim(name, "0123456789") != "" {
		return -1
	}
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func (s *Store) listSegments() error {
	dirs := s.opts.CommitLogDirs
	if len(dirs) == 0 {
		dirs = []string{filepath.Join(s.Dir, commitLogDir)}
	}
	for _, dir := range dirs {
		list, err := listDir(dir)
		if err != nil {
			return err
		}
		for _, fi := range list {
			path := filepath.Join(dir, fi.Name())
			from := nameOffset(fi.Name())
			if from < 0 || fi.IsDir() {
				s.note(Finding{Kind: KindFileName, File: s.rel(path), Detail: "not a segment: the name is no 20-digit offset"})
				continue
			}
			s.Segments = append(s.Segments, Segment{Path: s.rel(path), From: from, Size: fi.Size(), path: path})
		}
	}
	slices.SortFunc(s.Segments, func(a, b Segment) int { return cmpInt(a.From, b.From) })
	return s.sizeSegments()
}

// sizeSegments finds out the segment size: given, store.json's, or what most files have; among equals
// the one that the names' distance confirms.
func (s *Store) sizeSegments() error {
	switch {
	case s.opts.SegmentSize > 0:
		s.SegmentSize = s.opts.SegmentSize
	case s.Meta.SegmentSize > 0:
		s.SegmentSize = s.Meta.SegmentSize
	default:
		var sizes []int64
		var distance int64
		for i, seg := range s.Segments {
			sizes = append(sizes, seg.Size)
			if i > 0 {
				if d := seg.From - s.Segments[i-1].From; distance == 0 || d < distance {
					distance = d
				}
			}
		}
		s.SegmentSize = usualSize(sizes, distance)
	}
	if s.SegmentSize <= 0 && len(s.Segments) > 0 {
		return fmt.Errorf("%w: %d files in %s", ErrLayout, len(s.Segments), commitLogDir)
	}
	s.Segments = slices.DeleteFunc(s.Segments, func(seg Segment) bool {
		wrong := seg.From%s.SegmentSize != 0
		if wrong {
			s.note(Finding{Kind: KindFileName, File: seg.Path, Detail: fmt.Sprintf("the offset is no multiple of the segment size %d", s.SegmentSize)})
		}
		return wrong
	})
	for i, seg := range s.Segments {
		switch {
		case seg.Size == 0:
			s.note(Finding{Kind: KindFileEmpty, File: seg.Path, PhyOffset: seg.From, Detail: fmt.Sprintf("0 bytes, segments have %d", s.SegmentSize)})
		case seg.Size != s.SegmentSize:
			s.note(Finding{Kind: KindFileSize, File: seg.Path, Offset: seg.Size, PhyOffset: seg.From + seg.Size,
				Detail: fmt.Sprintf("%d bytes, segments have %d", seg.Size, s.SegmentSize)})
		}
		if i == 0 {
			continue
		}
		before := s.Segments[i-1]
		if end := before.From + s.SegmentSize; seg.From > end {
			s.note(Finding{Kind: KindSegmentGap, File: seg.Path, PhyOffset: end, Length: seg.From - end, Count: (seg.From - end) / s.SegmentSize,
				Detail: fmt.Sprintf("bytes %d to %d are missing: the segment before is %s", end, seg.From, filepath.Base(before.Path))})
		} else if seg.From < end {
			s.note(Finding{Kind: KindFileName, File: seg.Path, Detail: fmt.Sprintf("%s has the same offset", before.Path)})
		}
	}
	return nil
}

// usualSize is the most frequent size above 0; among equally frequent ones preferred, then the largest.
func usualSize(sizes []int64, preferred int64) int64 {
	count := map[int64]int{}
	var best int64
	for _, n := range sizes {
		if n > 0 {
			count[n]++
		}
	}
	for n, c := range count {
		b := count[best]
		if c > b || c == b && (n == preferred || best != preferred && n > best) {
			best = n
		}
	}
	if best == 0 {
		best = preferred
	}
	return best
}

func cmpInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// note keeps a finding of the listings for Verify. Phy offsets count as unknown when they are 0 there.
func (s *Store) note(f Finding) { s.layout = append(s.layout, f) }

func (s *Store) progress(n int64) {
	s.done += n
	if s.opts.Progress != nil {
		s.opts.Progress(s.done, s.total)
	}
}
