package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// JournalRecord is one record of RaftMQ's apply journal: which Raft entry produced which bytes. Layout,
// big-endian, 64 bytes, never across files (commitlog's DESIGN.md):
//
//	0   4  magic "RMQJ"
//	4   1  version, 1
//	5   1  kind: 0 Raft entry, 1 installed range
//	6   2  zero
//	8   8  raft index
//	16  8  raft term
//	24  8  start
//	32  8  end
//	40  8  store timestamp of the log's last record up to end, ms
//	48  8  zero
//	56  4  CRC-32C of the log bytes [start, end)
//	60  4  CRC-32C of the 60 bytes before
type JournalRecord struct {
	File   string // relative to the store's root
	Offset int64  // in the file

	Kind               uint8
	RaftIndex          uint64
	RaftTerm           uint64
	Start, End         int64 // of its bytes in the log
	LastStoreTimestamp int64 // ms
	Checksum           uint32
}

const (
	journalSize  = 64
	journalMagic = "RMQJ"
)

// castagnoli is the table of CRC-32C; it is never written.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errBlankRecord = errors.New("nothing written here")
	errRecord      = errors.New("damaged journal record")
)

func decodeJournal(b []byte) (r JournalRecord, err error) {
	if len(b) < journalSize {
		return r, fmt.Errorf("%w: %d bytes, must be %d", errRecord, len(b), journalSize)
	}
	b = b[:journalSize]
	if allZero(b) {
		return r, errBlankRecord
	}
	be := binary.BigEndian
	if want, got := be.Uint32(b[60:]), crc32.Checksum(b[:60], castagnoli); string(b[:4]) != journalMagic || want != got {
		return r, fmt.Errorf("%w: magic %q, checksum stored %#08x, computed %#08x", errRecord, b[:4], want, got)
	}
	if b[4] != 1 || b[5] > 1 || b[6] != 0 || b[7] != 0 || be.Uint64(b[48:]) != 0 {
		return r, fmt.Errorf("%w: version %d, kind %d are unknown", errRecord, b[4], b[5])
	}
	r = JournalRecord{Kind: b[5], RaftIndex: be.Uint64(b[8:]), RaftTerm: be.Uint64(b[16:]), Start: int64(be.Uint64(b[24:])),
		End: int64(be.Uint64(b[32:])), LastStoreTimestamp: int64(be.Uint64(b[40:])), Checksum: be.Uint32(b[56:])}
	if r.Start < 0 || r.End <= r.Start {
		return r, fmt.Errorf("%w: bytes %d to %d", errRecord, r.Start, r.End)
	}
	return r, nil
}

// recoveryPoint is RaftMQ's: everything up to raftIndex is durable in log and journal. Layout,
// big-endian, 64 bytes:
//
//	0   4  magic "RMQP"
//	4   2  version, 1
//	6   2  flags: 1 reset under way
//	8   8  raft index
//	16  8  raft term
//	24  8  log end
//	32  8  journal end
//	40  8  log base
//	48  12 zero
//	60  4  CRC-32C of the 60 bytes before
type recoveryPoint struct {
	raftIndex, raftTerm uint64
	logEnd, journalEnd  int64
	base                int64
	resetting           bool
}

const pointMagic = "RMQP"

var errPoint = errors.New("damaged recovery point")

func decodePoint(b []byte) (p recoveryPoint, err error) {
	if len(b) != 64 {
		return p, fmt.Errorf("%w: %d bytes, must be 64", errPoint, len(b))
	}
	be := binary.BigEndian
	if want, got := be.Uint32(b[60:]), crc32.Checksum(b[:60], castagnoli); string(b[:4]) != pointMagic || want != got {
		return p, fmt.Errorf("%w: magic %q, checksum stored %#08x, computed %#08x", errPoint, b[:4], want, got)
	}
	flags := be.Uint16(b[6:])
	if v := be.Uint16(b[4:]); v != 1 || flags&^1 != 0 {
		return p, fmt.Errorf("%w: version %d, flags %#x are unknown", errPoint, v, flags)
	}
	p = recoveryPoint{raftIndex: be.Uint64(b[8:]), raftTerm: be.Uint64(b[16:]), logEnd: int64(be.Uint64(b[24:])),
		journalEnd: int64(be.Uint64(b[32:])), base: int64(be.Uint64(b[40:])), resetting: flags&1 != 0}
	if p.base < 0 || p.logEnd < p.base || p.journalEnd < 0 || p.journalEnd%journalSize != 0 {
		return p, fmt.Errorf("%w: base %d, log end %d, journal end %d", errPoint, p.base, p.logEnd, p.journalEnd)
	}
	return p, nil
}

// queuePoint is the queues' recovery point: all units of records that begin below phyOffset are
// durable. The file has two slots on different pages, written in turn:
//
//	0   4  magic "CQPT"
//	4   4  version, 1
//	8   8  sequence; the valid slot with the higher one counts
//	16  8  physical offset
//	24  8  the log's first byte
//	32  8  units
//	40  8  firsts
//	48  8  queues
//	56  4  CRC-32C of the 56 bytes before
type queuePoint struct {
	sequence                                uint64
	phyOffset, begin, units, firsts, queues int64
}

const (
	queuePointMagic = "CQPT"
	queuePointSlot  = 4096
	queuePointSize  = 60
)

// decodeQueuePoint returns the point that counts; ok is false when neither slot is whole. A slot that was never
// written is no damage, nor is one that a crash tore while the other one holds.
func decodeQueuePoint(b []byte) (p queuePoint, ok bool) {
	be := binary.BigEndian
	for at := 0; at <= queuePointSlot && at+queuePointSize <= len(b); at += queuePointSlot {
		s := b[at : at+queuePointSize]
		if string(s[:4]) != queuePointMagic || be.Uint32(s[4:]) != 1 || be.Uint32(s[56:]) != crc32.Checksum(s[:56], castagnoli) {
			continue
		}
		q := queuePoint{sequence: be.Uint64(s[8:])}
		for i, field := range []*int64{&q.phyOffset, &q.begin, &q.units, &q.firsts, &q.queues} {
			*field = int64(be.Uint64(s[16+8*i:]))
		}
		if !ok || q.sequence >= p.sequence {
			p, ok = q, true
		}
	}
	return p, ok
}

// pointErrors is what the point files told when the store was opened.
type pointErrors struct {
	recovery    error // fs.ErrNotExist when it is missing
	queues      error
	queuePoint  queuePoint
	queuePoints bool
	index       error
	indexPoint  *indexPoint
}

func (s *Store) readPoints() {
	if s.Format != RaftMQ {
		return
	}
	b, err := os.ReadFile(filepath.Join(s.Dir, recoveryPointName))
	if err == nil {
		s.point, err = decodePoint(b)
	}
	if err != nil {
		s.point = recoveryPoint{}
	}
	s.points.recovery = err
	b, s.points.queues = os.ReadFile(filepath.Join(s.Dir, queuePointName))
	if s.points.queues == nil && allZero(b) {
		s.points.queues = fs.ErrNotExist // made, and no point written yet
	}
	if s.points.queues == nil {
		s.points.queuePoint, s.points.queuePoints = decodeQueuePoint(b)
	}
	s.points.indexPoint, s.points.index = readIndexPoint(s.Dir)
}

// Points is what RaftMQ's point files say; nil where there is none, or none that verifies.
func (s *Store) Points() (log *RecoveryPoint, queues *QueuePoint, index *IndexPoint) {
	if s.Format != RaftMQ {
		return nil, nil, nil
	}
	if p := s.point; s.points.recovery == nil {
		log = &RecoveryPoint{p.raftIndex, p.raftTerm, p.logEnd, p.journalEnd, p.base, p.resetting}
	}
	if p := s.points.queuePoint; s.points.queuePoints {
		queues = &QueuePoint{p.phyOffset, p.units, p.queues}
	}
	if p := s.points.indexPoint; p != nil {
		index = &IndexPoint{PhysicalOffset: p.phyOffset, Slots: p.slots, MaxEntries: p.entries, Files: len(p.files)}
	}
	return log, queues, index
}

// RecoveryPoint is RaftMQ's: everything up to RaftIndex is durable in log and journal.
type RecoveryPoint struct {
	RaftIndex  uint64 `json:"raftIndex"`
	RaftTerm   uint64 `json:"raftTerm"`
	LogEnd     int64  `json:"logEnd"`
	JournalEnd int64  `json:"journalEnd"`
	Base       int64  `json:"base"`
	Resetting  bool   `json:"resetting,omitempty"`
}

// QueuePoint is that of RaftMQ's consume queues.
type QueuePoint struct {
	PhysicalOffset int64 `json:"physicalOffset"`
	Units          int64 `json:"units"`
	Queues         int64 `json:"queues"`
}

// IndexPoint is that of RaftMQ's key index: the keys of records below PhysicalOffset are durable in it.
type IndexPoint struct {
	PhysicalOffset int64 `json:"physicalOffset"`
	Slots          int64 `json:"slots"`
	MaxEntries     int64 `json:"maxEntries"`
	Files          int   `json:"files"`
}

// journalFile is one file of the journal.
type journalFile struct {
	path string
	from int64 // journal position of its first byte
	size int64
}

// journalFiles lists them; what does not belong there goes to note, which may be nil.
func (s *Store) journalFiles(note func(Finding)) ([]journalFile, error) {
	dir := filepath.Join(s.Dir, filepath.FromSlash(journalDir))
	list, err := listDir(dir)
	if err != nil {
		return nil, err
	}
	if note == nil {
		note = func(Finding) {}
	}
	var files []journalFile
	var sizes []int64
	for _, fi := range list {
		path := filepath.Join(dir, fi.Name())
		from := nameOffset(fi.Name())
		if from < 0 || fi.IsDir() {
			note(Finding{Kind: KindFileName, File: s.rel(path), Detail: "not a journal file: the name is no 20-digit offset"})
			continue
		}
		files = append(files, journalFile{path, from, fi.Size()})
		sizes = append(sizes, fi.Size())
	}
	slices.SortFunc(files, func(a, b journalFile) int { return cmpInt(a.from, b.from) })
	usual := usualSize(sizes, 0)
	for i, f := range files {
		switch {
		case f.size == 0:
			note(Finding{Kind: KindFileEmpty, File: s.rel(f.path), Detail: "0 bytes"})
		case f.size != usual || f.size%journalSize != 0:
			note(Finding{Kind: KindFileSize, File: s.rel(f.path), Offset: f.size, Detail: fmt.Sprintf("%d bytes, journal files have %d", f.size, usual)})
		}
		if i > 0 && f.from > files[i-1].from+usual {
			note(Finding{Kind: KindFileGap, File: s.rel(f.path), Length: f.from - files[i-1].from - usual,
				Detail: fmt.Sprintf("journal positions %d to %d are missing", files[i-1].from+usual, f.from)})
		}
	}
	return files, nil
}

// Journal visits the journal's records in order. visit gets an error with a record that does not
// verify, and decides: to return it ends the walk, nil goes on. Space that was not written yet ends it.
func (s *Store) Journal(visit func(JournalRecord, error) error) error {
	files, err := s.journalFiles(nil)
	if err != nil {
		return err
	}
	c := journalCursor{s: s, files: files}
	defer c.close()
	for {
		r, damage, ok, err := c.next()
		if err != nil || !ok {
			return err
		}
		if err := visit(r, damage); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
	}
}

// journalCursor reads one record after the other.
type journalCursor struct {
	s     *Store
	files []journalFile
	i     int
	src   *fileSource
	w     *window
	pos   int64
}

func (c *journalCursor) close() {
	if c.src != nil {
		_ = c.src.Close()
		c.src = nil
	}
}

// next returns the next record, or with damage the place of one that does not verify. ok is false at the
// end: nothing but zeroes follows.
func (c *journalCursor) next() (r JournalRecord, damage error, ok bool, err error) {
	for {
		if c.src == nil {
			if c.i == len(c.files) {
				return r, nil, false, nil
			}
			c.src, err = openSource(c.files[c.i].path)
			if errors.Is(err, fs.ErrNotExist) {
				c.src, c.i = nil, c.i+1
				continue
			}
			if err != nil {
				return r, nil, false, err
			}
			if c.w == nil {
				c.w = newWindow(c.src)
			} else {
				c.w.reset(c.src)
			}
			c.pos = 0
		}
		b, err := c.w.at(c.pos, journalSize)
		if err != nil {
			return r, nil, false, err
		}
		if len(b) == 0 {
			c.close()
			c.i++
			continue
		}
		r, damage = decodeJournal(b)
		if errors.Is(damage, errBlankRecord) {
			// Zeroes end the journal, unless something follows them.
			more, err := c.anything()
			if err != nil || !more {
				return r, nil, false, err
			}
			damage = fmt.Errorf("%w: zeroes, and records behind them", errRecord)
		}
		r.File, r.Offset = c.s.rel(c.files[c.i].path), c.pos
		c.pos += journalSize
		return r, damage, true, nil
	}
}

// anything tells whether a byte behind the cursor is not zero, in this file or a later one.
func (c *journalCursor) anything() (bool, error) {
	first, err := c.w.firstByte(c.pos, c.w.size)
	if err != nil || first < c.w.size {
		return err == nil, err
	}
	for _, f := range c.files[c.i+1:] {
		src, err := openSource(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		w := newWindow(src)
		first, err := w.firstByte(0, src.size)
		_ = src.Close()
		if err != nil || first < src.size {
			return err == nil, err
		}
	}
	return false, nil
}
