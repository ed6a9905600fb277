package inspect

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"raftmq/commitlog/consumequeue"
)

// Stat is what a store holds.
type Stat struct {
	Dir           string  `json:"dir"`
	Node          string  `json:"node,omitempty"`
	Format        Format  `json:"format"`
	InUse         InUse   `json:"inUse"`
	Abort         bool    `json:"abort"`
	SegmentSize   int64   `json:"segmentSize"`
	QueueFileSize int64   `json:"queueFileSize"`
	Parts         []Part  `json:"parts"`
	Log           LogStat `json:"log"`

	Topics     []TopicStat    `json:"topics"`
	Index      *IndexStat     `json:"index,omitempty"`
	Checkpoint *Checkpoint    `json:"checkpoint,omitempty"`
	Journal    *JournalStat   `json:"journal,omitempty"`
	Recovery   *RecoveryPoint `json:"recoveryPoint,omitempty"`
	QueuePoint *QueuePoint    `json:"queuePoint,omitempty"`
	IndexPoint *IndexPoint    `json:"indexPoint,omitempty"`
	Config     []string       `json:"config,omitempty"`
}

// Part is the size of one part of the folder.
type Part struct {
	Name  string `json:"name"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`     // by file size
	Disk  int64  `json:"diskBytes"` // taken from the disk; less, since files are sparse
}

// LogStat counts the commit log. Not counted, only what names of files tell.
type LogStat struct {
	Segments    int   `json:"segments"`
	Min         int64 `json:"minOffset"`
	End         int64 `json:"endOffset"` // behind the last record; with quick the end of the last file
	Records     int64 `json:"records"`
	RecordBytes int64 `json:"recordBytes"`
	BodyBytes   int64 `json:"bodyBytes"`
	Fillers     int64 `json:"fillers"`
	FillerBytes int64 `json:"fillerBytes"`
	Damaged     int64 `json:"damaged"`
	FirstTime   int64 `json:"firstStoreTime"` // ms, of the first record
	LastTime    int64 `json:"lastStoreTime"`  // ms, the newest
	Counted     bool  `json:"counted"`
}

// TopicStat is one topic's.
type TopicStat struct {
	Topic   string      `json:"topic"`
	Records int64       `json:"records"`
	Bytes   int64       `json:"bytes"`
	Queues  []QueueStat `json:"queues"`
}

// QueueStat is one queue's: what the log has of it, and what its own files have.
type QueueStat struct {
	ID      int32 `json:"queueId"`
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// The log's records have queue offsets LogMin to LogMax−1, counting those that queues list.
	LogMin    int64 `json:"logMin"`
	LogMax    int64 `json:"logMax"`
	FirstTime int64 `json:"firstStoreTime"`
	LastTime  int64 `json:"lastStoreTime"`
	// The queue's files have units Min to Max−1.
	Files int   `json:"files"`
	Min   int64 `json:"min"`
	Max   int64 `json:"max"`
}

// IndexStat is the key index's.
type IndexStat struct {
	Files      int   `json:"files"`
	Entries    int64 `json:"entries"`
	Slots      int64 `json:"slots"`
	MaxEntries int64 `json:"maxEntries"`
	BeginTime  int64 `json:"beginTime"`
	EndTime    int64 `json:"endTime"`
}

// JournalStat is that of RaftMQ's journal.
type JournalStat struct {
	Files      int    `json:"files"`
	Records    int64  `json:"records"`
	Damaged    int64  `json:"damaged"`
	FirstIndex uint64 `json:"firstRaftIndex"`
	LastIndex  uint64 `json:"lastRaftIndex"`
	LastTerm   uint64 `json:"lastRaftTerm"`
	End        int64  `json:"logEnd"`
}

// Stat counts what is in the store. With quick it does not read the log: ranges come from names of
// files and from queue files then.
func (s *Store) Stat(quick bool) (*Stat, error) {
	st := &Stat{Dir: s.Dir, Node: s.Node, Format: s.Format, InUse: s.InUse, Abort: s.Abort, SegmentSize: s.SegmentSize, QueueFileSize: s.QueueFileSize}
	var err error
	if st.Parts, err = s.parts(); err != nil {
		return nil, err
	}
	queues := map[string]map[int32]*QueueStat{}
	at := func(topic []byte, id int32) *QueueStat {
		m := queues[string(topic)]
		if m == nil {
			m = map[int32]*QueueStat{}
			queues[string(topic)] = m
		}
		q := m[id]
		if q == nil {
			q = &QueueStat{ID: id, LogMin: -1}
			m[id] = q
		}
		return q
	}
	if err := s.statLog(st, quick, at); err != nil {
		return nil, err
	}
	if err := s.statQueues(at); err != nil {
		return nil, err
	}
	for _, topic := range slices.Sorted(maps.Keys(queues)) {
		t := TopicStat{Topic: topic}
		for _, id := range slices.Sorted(maps.Keys(queues[topic])) {
			q := queues[topic][id]
			q.LogMin = max(q.LogMin, 0)
			t.Records += q.Records
			t.Bytes += q.Bytes
			t.Queues = append(t.Queues, *q)
		}
		st.Topics = append(st.Topics, t)
	}
	return st, s.statSmall(st)
}

func (s *Store) statLog(st *Stat, quick bool, at func([]byte, int32) *QueueStat) error {
	log := &st.Log
	log.Segments = len(s.Segments)
	if log.Segments == 0 || s.Format == DLedger {
		return nil
	}
	last := &s.Segments[len(s.Segments)-1]
	log.Min, log.End = max(s.Segments[0].From, s.base()), last.From+last.Size
	if quick {
		return nil
	}
	log.Counted, log.End = true, log.Min
	walk := logWalk{s: s, visit: func(seg *Segment, it *item) error {
		if it.kind != "" {
			log.Damaged++
		}
		switch it.itemType {
		case itemFiller:
			log.Fillers++
			log.FillerBytes += it.size
			log.End = seg.From + s.SegmentSize
		case itemRecord:
			log.End = seg.From + it.pos + it.size
			log.count(at(it.rec.Topic(), it.rec.QueueID()), it)
		}
		return nil
	}}
	return walk.run(0)
}

func (log *LogStat) count(q *QueueStat, it *item) {
	t := it.rec.StoreTimestamp()
	if log.Records == 0 {
		log.FirstTime = t
	}
	log.Records++
	log.RecordBytes += it.size
	log.BodyBytes += int64(len(it.rec.Body()))
	log.LastTime = max(log.LastTime, t)
	if q.Records == 0 {
		q.FirstTime = t
	}
	q.Records++
	q.Bytes += it.size
	q.LastTime = max(q.LastTime, t)
	if listed(it.rec) {
		n := it.rec.QueueOffset()
		if q.LogMin < 0 || n < q.LogMin {
			q.LogMin = n
		}
		q.LogMax = max(q.LogMax, n+1)
	}
}

// statQueues finds the ends of each queue's files: what is before the first record's unit is filler, what
// is behind the last zero.
func (s *Store) statQueues(at func([]byte, int32) *QueueStat) error {
	for i := range s.Queues {
		d := &s.Queues[i]
		q := at([]byte(d.Topic), d.ID)
		q.Files = len(d.Files)
		if len(d.Files) == 0 {
			continue
		}
		q.Min = d.Files[0].From / consumequeue.UnitSize
		found := false
		visit := func(f *QueueFile, pos int64, u consumequeue.Unit) error {
			n := (f.From + pos) / consumequeue.UnitSize
			if u.Size <= 0 {
				return errEndOfFile
			}
			if !found && !u.IsFiller() {
				q.Min, found = n, true
			}
			q.Max = n + 1
			return nil
		}
		ends := *d
		if len(d.Files) > 2 { // those between are full
			ends.Files = []QueueFile{d.Files[0], d.Files[len(d.Files)-1]}
		}
		if err := s.units(&ends, visit); err != nil {
			return err
		}
		q.Max = max(q.Max, q.Min)
	}
	return nil
}

func (s *Store) statSmall(st *Stat) error {
	files, err := s.IndexFiles()
	if err != nil {
		return err
	}
	if len(files) > 0 {
		x := &IndexStat{Files: len(files), Slots: files[0].Slots, MaxEntries: files[0].MaxEntries, BeginTime: files[0].BeginTimestamp,
			EndTime: files[len(files)-1].EndTimestamp}
		for _, f := range files {
			x.Entries += f.entries()
		}
		st.Index = x
	}
	if st.Checkpoint, err = s.Checkpoint(); err != nil {
		return err
	}
	st.Recovery, st.QueuePoint, st.IndexPoint = s.Points()
	config, err := s.Config(true)
	if err != nil {
		return err
	}
	for _, f := range config {
		st.Config = append(st.Config, f.Name)
	}
	if s.Format != RaftMQ {
		return nil
	}
	j := &JournalStat{}
	journal, err := s.journalFiles(nil)
	if err != nil {
		return err
	}
	j.Files = len(journal)
	err = s.Journal(func(r JournalRecord, damage error) error {
		if damage != nil {
			j.Damaged++
			return nil
		}
		if j.Records == 0 {
			j.FirstIndex = r.RaftIndex
		}
		j.Records++
		j.LastIndex, j.LastTerm, j.End = r.RaftIndex, r.RaftTerm, r.End
		return nil
	})
	st.Journal = j
	return err
}

// parts sums up the entries of the root folder.
func (s *Store) parts() ([]Part, error) {
	root := s.Dir
	if s.Node != "" {
		root = s.Node
	}
	sums := map[string]*Part{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil // vanished meanwhile
			}
			return err
		}
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		name := partName(root, s.Node, path)
		p := sums[name]
		if p == nil {
			p = &Part{Name: name}
			sums[name] = p
		}
		p.Files++
		p.Bytes += info.Size()
		p.Disk += diskBytes(info)
		return nil
	})
	if err != nil {
		return nil, err
	}
	parts := make([]Part, 0, len(sums))
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		parts = append(parts, *sums[name])
	}
	return parts, nil
}

// partName is the first element of a path below the root; of a node's store the first two.
func partName(root, node, path string) string {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return path
	}
	elements := strings.SplitN(filepath.ToSlash(rel), "/", 3)
	if node != "" && elements[0] == nodeStoreDir && len(elements) > 1 {
		return elements[0] + "/" + elements[1]
	}
	return elements[0]
}
