package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"

	"raftmq/commitlog/mappedfile"
)

// Layout of a journal record, big-endian, 64 bytes, never across files:
//
//	0   4  magic "RMQJ"
//	4   1  version, 1
//	5   1  kind: 0 Raft entry, 1 installed range
//	6   2  zero
//	8   8  raft index
//	16  8  raft term
//	24  8  start: physical offset of the first byte, the end of the record before
//	32  8  end: physical offset behind the last byte
//	40  8  store timestamp of the log's last record up to end, ms
//	48  8  zero
//	56  4  CRC-32C of the log bytes [start, end), blank fillers included
//	60  4  CRC-32C of the 60 bytes before
const (
	journalRecordSize = 64
	journalMagic      = "RMQJ"
	journalVersion    = 1
)

// Kinds of journal records.
const (
	kindEntry   = 0 // a Raft entry
	kindInstall = 1 // a range of bytes that came with a snapshot
)

// Errors of decodeJournalRecord.
var (
	errJournalBlank  = errors.New("no journal record")
	errJournalRecord = errors.New("damaged journal record")
)

// journalRecord is one decoded record.
type journalRecord struct {
	kind               uint8
	index, term        uint64
	start, end         int64
	lastStoreTimestamp int64
	crc                uint32
}

func putJournalRecord(b []byte, r *journalRecord) {
	_ = b[journalRecordSize-1]
	be := binary.BigEndian
	copy(b, journalMagic)
	b[4], b[5], b[6], b[7] = journalVersion, r.kind, 0, 0
	be.PutUint64(b[8:], r.index)
	be.PutUint64(b[16:], r.term)
	be.PutUint64(b[24:], uint64(r.start))
	be.PutUint64(b[32:], uint64(r.end))
	be.PutUint64(b[40:], uint64(r.lastStoreTimestamp))
	be.PutUint64(b[48:], 0)
	be.PutUint32(b[56:], r.crc)
	be.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
}

// decodeJournalRecord reads 64 bytes. All zero, where nothing was written yet, is errJournalBlank.
func decodeJournalRecord(b []byte) (r journalRecord, err error) {
	if len(b) < journalRecordSize {
		return r, fmt.Errorf("%w: %d bytes, must be %d", errJournalRecord, len(b), journalRecordSize)
	}
	b = b[:journalRecordSize]
	be := binary.BigEndian
	if [journalRecordSize]byte(b) == ([journalRecordSize]byte{}) {
		return r, errJournalBlank
	}
	if want, got := be.Uint32(b[60:]), crc32.Checksum(b[:60], castagnoli); string(b[:4]) != journalMagic || want != got {
		return r, fmt.Errorf("%w: magic %q, checksum %#08x, computed %#08x", errJournalRecord, b[:4], want, got)
	}
	if b[4] != journalVersion || b[5] > kindInstall || b[6] != 0 || b[7] != 0 || be.Uint64(b[48:]) != 0 {
		return r, fmt.Errorf("%w: journal record of version %d, kind %d, this program reads version %d", ErrVersion, b[4], b[5], journalVersion)
	}
	r = journalRecord{
		kind: b[5], index: be.Uint64(b[8:]), term: be.Uint64(b[16:]),
		start: int64(be.Uint64(b[24:])), end: int64(be.Uint64(b[32:])),
		lastStoreTimestamp: int64(be.Uint64(b[40:])), crc: be.Uint32(b[56:]),
	}
	if r.start < 0 || r.end <= r.start {
		return r, fmt.Errorf("%w: bytes %d to %d", errJournalRecord, r.start, r.end)
	}
	return r, nil
}

// follows tells whether r may stand behind a record of index and term that ended at end.
func (r *journalRecord) follows(t tail) error {
	switch {
	case r.start != t.end:
		return fmt.Errorf("%w: starts at %d, the one before ended at %d", errJournalRecord, r.start, t.end)
	case r.index <= t.index || r.term < t.term:
		return fmt.Errorf("%w: index %d term %d after index %d term %d", errJournalRecord, r.index, r.term, t.index, t.term)
	}
	return nil
}

// journal is the queue of journal records. Positions are bytes in its own address space.
type journal struct{ *mappedfile.Queue }

// read returns the readable record at pos.
func (j journal) read(pos int64) (r journalRecord, err error) {
	v, err := j.View(pos, journalRecordSize)
	if err != nil {
		return r, err
	}
	defer v.Release()
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	return decodeJournalRecord(v.Bytes)
}

// writeJournal puts r behind the last record; readable after Commit.
func (l *Log) writeJournal(r *journalRecord) error {
	b, err := l.reserve(l.journal.Queue, journalRecordSize)
	if err != nil {
		return err
	}
	return guardedPut(b, r)
}

func guardedPut(b []byte, r *journalRecord) (err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	putJournalRecord(b, r)
	return nil
}

// search returns the position of the first record in [min, end) that satisfies f, which must
// be false for some prefix and true for the rest; end if there is none.
func (j journal) search(end int64, f func(*journalRecord) bool) (int64, error) {
	var err error
	first := j.MinOffset()
	n := int((end - first) / journalRecordSize)
	i := sort.Search(n, func(i int) bool {
		r, e := j.read(first + int64(i)*journalRecordSize)
		if e != nil {
			err = j.corrupt(first+int64(i)*journalRecordSize, e)
			return true
		}
		return f(&r)
	})
	return first + int64(i)*journalRecordSize, err
}

// corrupt names the file and offset of a damaged journal record. An error of the device stays one.
func (j journal) corrupt(pos int64, err error) error {
	if !isDamage(err) {
		return fmt.Errorf("commitlog: journal %s offset %d: %w", j.Path(pos), pos%j.FileSize(), err)
	}
	return fmt.Errorf("%w: journal %s offset %d: %w", ErrCorrupt, j.Path(pos), pos%j.FileSize(), err)
}

// isDamage tells bytes that are wrong from bytes that could not be read. A whole record of another
// version (ErrVersion) is neither: taking it for a torn tail would cut a newer program's log.
func isDamage(err error) bool {
	return errors.Is(err, errJournalBlank) || errors.Is(err, errJournalRecord) ||
		errors.Is(err, errBytes) || errors.Is(err, mappedfile.ErrOutOfRange)
}
