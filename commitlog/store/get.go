package store

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
	"raftmq/seam"
)

// minScanUnits is how many units Get looks at (16,000 bytes, as RocketMQ's DefaultMessageStore).
const minScanUnits = 800

// GetStatus is RocketMQ's GetMessageStatus.
type GetStatus uint8

// Statuses of Get, named as in RocketMQ.
const (
	Found GetStatus = iota
	NoMatchedMessage
	MessageWasRemoving
	OffsetFoundNull
	OffsetOverflowBadly
	OffsetOverflowOne
	OffsetTooSmall
	NoMatchedLogicQueue
	NoMessageInQueue
)

// String is the name RocketMQ puts into remarks.
func (s GetStatus) String() string {
	names := [...]string{"FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL",
		"OFFSET_OVERFLOW_BADLY", "OFFSET_OVERFLOW_ONE", "OFFSET_TOO_SMALL", "NO_MATCHED_LOGIC_QUEUE",
		"NO_MESSAGE_IN_QUEUE"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("GetStatus(%d)", s)
}

// GetRequest asks for records of a queue.
type GetRequest struct {
	Topic    []byte
	QueueID  int32
	Offset   int64
	MaxMsgs  int // below 1 counts as 1
	MaxBytes int // 0: the store's Transfer limits, of bytes and of messages; else this is the only limit beside MaxMsgs
	// MinFloor hides offsets below it (deleted and re-created topics).
	MinFloor int64
	// Match decides by tags code; nil matches all.
	Match func(tagsCode int64) bool
	// MatchProperties decides by the properties text, a view, after Match; nil matches all.
	MatchProperties func(properties []byte) bool
}

// GetResult holds counted views. Reuse it; Release before reuse.
type GetResult struct {
	Status                                GetStatus
	NextBeginOffset, MinOffset, MaxOffset int64
	Buffers                               [][]byte // whole records, in order; adjacent ones may share a buffer
	Count, Bytes                          int
	// ColdCount and ColdBytes are the part of them that counts as read from disk.
	ColdCount, ColdBytes int
	// Lagging (RocketMQ's suggestPullingFromSlave): the last unit that was looked at counts as on disk, so who reads here had better read from
	// a replica. Of a scan only.
	Lagging bool
	// BehindBytes is how far the last unit that was looked at is behind the end of the log; LastStored the store time of
	// the last message, ms. Of a scan only.
	BehindBytes, LastStored int64

	held []heldView
	// The last buffer's place in the last held view.
	bufferAt, bufferEnd int
}

// heldView is a view of a stretch of log, and where it begins.
type heldView struct {
	mappedfile.View
	from int64
}

// Release gives the views back; Buffers are dead then. Releasing an empty result is harmless.
func (r *GetResult) Release() {
	for i := range r.held {
		r.held[i].Release()
	}
	clear(r.held)
	clear(r.Buffers)
	*r = GetResult{Buffers: r.Buffers[:0], held: r.held[:0], bufferEnd: -1}
}

// empty sets a result without messages.
func (r *GetResult) empty(status GetStatus, next int64) {
	r.Status, r.NextBeginOffset = status, next
}

// bounds is what there is of a queue at one moment: min ≤ readable ≤ max.
type bounds struct {
	queue    *consumequeue.Queue // nil without units
	known    bool                // had a message once
	min      int64
	readable int64 // end of the dispatched units
	max      int64 // end of what is published and so may have been acknowledged
}

func (s *Store) bounds(topic []byte, queueID int32) bounds {
	return s.boundsIn(s.queues.Queue(topic, queueID), s.tails.find(topic, queueID))
}

func (s *Store) boundsIn(q *consumequeue.Queue, t *tail) bounds {
	b := bounds{queue: q, known: q != nil || t != nil}
	switch {
	case q != nil:
		b.min, b.readable = q.Min(), q.Max()
	case t != nil:
		// Its units may lie behind damage that dispatch waits for: where it begins is not known then, and nobody must be moved to its end.
		if !s.dispatcher.Load().Blocked() {
			b.min = t.first.Load()
		}
		b.readable = b.min
	}
	b.max = b.readable
	if t != nil {
		b.max = max(b.max, t.published.Load())
	}
	return b
}

// Get reads by queue offset, as RocketMQ's DefaultMessageStore.getMessage does (the format
// notes' §8.1), with these differences: reading makes no queue; offsets that are published but
// not yet dispatched are "nothing yet" (OffsetOverflowOne), as an acknowledged message is
// never out of range (F94). No allocation with a reused result.
func (s *Store) Get(req *GetRequest, res *GetResult) {
	if len(res.held) > 0 {
		res.Release()
	}
	b := s.bounds(req.Topic, req.QueueID)
	low := min(max(b.min, req.MinFloor), b.max)
	res.MinOffset, res.MaxOffset = low, b.max
	switch {
	case s.replacing.Load():
		res.MinOffset, res.MaxOffset = req.Offset, req.Offset
		res.empty(OffsetFoundNull, req.Offset)
	case !b.known:
		res.empty(NoMatchedLogicQueue, 0)
	case b.max == 0:
		res.empty(NoMessageInQueue, 0)
	case req.Offset < low:
		res.empty(OffsetTooSmall, low)
	case req.Offset > b.max:
		res.empty(OffsetOverflowBadly, b.max)
	case req.Offset >= b.readable:
		res.empty(OffsetOverflowOne, req.Offset)
	default:
		if err := s.scan(b.queue, req, res); err != nil {
			res.dropMessages()
			res.empty(OffsetFoundNull, req.Offset)
			if !s.mend(b.queue, err) {
				s.readFailed(err)
			}
		}
	}
}

func (r *GetResult) dropMessages() {
	low, max := r.MinOffset, r.MaxOffset
	r.Release()
	r.MinOffset, r.MaxOffset = low, max
}

// errDamagedUnit: a unit and the record it names contradict each other.
var errDamagedUnit = errors.New("store: consume queue unit and record differ")

// unitError is errDamagedUnit with the unit and its place.
type unitError struct {
	queue *consumequeue.Queue
	n     int64
	unit  consumequeue.Unit
}

func damagedUnit(q *consumequeue.Queue, n int64, u consumequeue.Unit) error {
	return &unitError{q, n, u}
}

func (e *unitError) Error() string {
	return fmt.Sprintf("%v: %s/%d unit %d says physical offset %d, size %d", errDamagedUnit, e.queue.Topic(), e.queue.ID(), e.n, e.unit.PhyOffset, e.unit.Size)
}

func (e *unitError) Unwrap() error { return errDamagedUnit }

// scan collects messages from req.Offset on, within one file of the queue. An error other than
// those of a closing store is damage or a failing disk.
func (s *Store) scan(q *consumequeue.Queue, req *GetRequest, res *GetResult) (err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	maxMsgs := max(req.MaxMsgs, 1)
	view, err := q.View(req.Offset, max(minScanUnits, maxMsgs))
	if err != nil {
		return err
	}
	defer view.Release()
	res.empty(NoMatchedMessage, req.Offset)
	end := s.log.MaxOffset()
	removed := int64(math.MinInt64) // units of records below it are skipped
	for i := range view.Units.Len() {
		u := view.Units.At(i)
		behind := end - u.PhyOffset
		onDisk := behind > s.cfg.HotBytes
		if res.Count > 0 {
			limit := s.limit(req, onDisk)
			if res.Count >= min(maxMsgs, limit.Msgs) || res.Bytes+int(u.Size) > limit.Bytes {
				break
			}
		}
		n := req.Offset + int64(i)
		res.NextBeginOffset, res.BehindBytes, res.Lagging = n+1, behind, onDisk
		if u.PhyOffset < removed || req.Match != nil && !req.Match(u.TagsCode) {
			continue
		}
		if err := res.add(s, q, n, u, req.MatchProperties); err != nil {
			if err == errNotWanted {
				continue
			}
			if errors.Is(err, mappedfile.ErrOutOfRange) && u.PhyOffset < s.log.MinOffset() {
				if u.PhyOffset < s.queues.Begin() && n >= q.Min() { // in this order: Min is raised first
					return damagedUnit(q, n, u)
				}
				removed = s.log.MinOffset()
				if res.Count == 0 {
					res.Status = MessageWasRemoving
				}
				continue
			}
			if res.Count == 0 || !errors.Is(err, errDamagedUnit) && !errors.Is(err, ErrQuarantined) {
				return err
			}
			s.readFailed(err)
			res.NextBeginOffset = n // what is whole before it is given out
			break
		}
		res.Status = Found
		if onDisk {
			res.ColdCount++
			res.ColdBytes += int(u.Size)
		}
	}
	s.cold.count(res)
	return nil
}

// limit is what bounds a result before a message that is in memory or on disk.
func (s *Store) limit(req *GetRequest, onDisk bool) Transfer {
	switch {
	case req.MaxBytes > 0:
		return Transfer{Bytes: req.MaxBytes, Msgs: math.MaxInt}
	case onDisk:
		return s.cfg.TransferOnDisk
	default:
		return s.cfg.TransferInMemory
	}
}

// errNotWanted: MatchProperties let a record not through.
var errNotWanted = errors.New("store: not wanted")

// add appends the record of unit n, if match wants it.
func (r *GetResult) add(s *Store, q *consumequeue.Queue, n int64, u consumequeue.Unit, match func(properties []byte) bool) error {
	if !u.IsRecord() || u.End() > s.log.MaxOffset() {
		return damagedUnit(q, n, u)
	}
	// A view reaches to the end of its segment: the records of one segment need one view.
	k := len(r.held) - 1
	if k < 0 || u.PhyOffset < r.held[k].from || u.PhyOffset >= r.held[k].from+int64(len(r.held[k].Bytes)) {
		v, err := s.log.View(u.PhyOffset, int(s.cfg.SegmentSize))
		if err != nil {
			return err
		}
		r.held = append(r.held, heldView{v, u.PhyOffset})
		r.bufferEnd = -1
		k++
	}
	h := &r.held[k]
	at := int(u.PhyOffset - h.from)
	end := at + int(u.Size)
	if end > len(h.Bytes) {
		return damagedUnit(q, n, u)
	}
	touch(h.Bytes[at:end]) // before anything else looks at it
	if !names(u, h.Bytes[at:end], q, n) {
		return damagedUnit(q, n, u)
	}
	if _, err := record.Check(h.Bytes[at:end], !seam.On(seam.ServeDamage)); err != nil {
		// Damage, if the journal says so too. Otherwise it was stored like this, on every node: the client judges.
		if damage := s.log.VerifyRange(u.PhyOffset, u.End()); damage != nil {
			return damage
		}
	} else if string(record.View(h.Bytes[at:end]).Topic()) != q.Topic() {
		return damagedUnit(q, n, u) // of another queue, as a misdirected write would have it
	} else if match != nil && !match(record.View(h.Bytes[at:end]).Properties()) {
		return errNotWanted
	}
	if at == r.bufferEnd {
		r.Buffers[len(r.Buffers)-1] = h.Bytes[r.bufferAt:end:end]
	} else {
		r.Buffers = append(r.Buffers, h.Bytes[at:end:end])
		r.bufferAt = at
	}
	r.bufferEnd = end
	r.Count++
	r.Bytes += int(u.Size)
	r.LastStored = record.View(h.Bytes[at:end]).StoreTimestamp()
	return nil
}

// names tells whether the record at the start of b is the one that unit u of offset n of queue q
// stands for. A few header fields, and not the topic: the rest of the record is the log's business.
func names(u consumequeue.Unit, b []byte, q *consumequeue.Queue, n int64) bool {
	if len(b) < record.MinSize || int(u.Size) < record.MinSize {
		return false
	}
	v := record.View(b)
	magic := v.Magic()
	return v.Size() == int(u.Size) && (magic == record.MagicV1 || magic == record.MagicV2) &&
		v.PhyOffset() == u.PhyOffset && v.QueueOffset() == n && v.QueueID() == q.ID()
}

// readFailed sorts out why a queue could not be read. Damage and a failing disk stop the node; a
// want of descriptors or memory is told, and the reader comes again.
func (s *Store) readFailed(err error) {
	switch {
	case errors.Is(err, ErrQuarantined), s.quarantine(err):
		// It is being repaired; the reader comes again.
	case errors.Is(err, mappedfile.ErrClosed), errors.Is(err, consumequeue.ErrClosed), errors.Is(err, consumequeue.ErrRange),
		errors.Is(err, mappedfile.ErrOutOfRange):
		// The store closes, or its log is being replaced.
	case errors.Is(err, errDamagedUnit):
		var unit *unitError
		if errors.As(err, &unit) {
			s.unitFailed(unit)
		}
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		// It can be mapped when others are unmapped.
		if ok, unsaid := s.slow.Allow(s.cfg.Now()); ok {
			s.logger.Warn("could not read for want of descriptors or memory", "error", err, "unsaid", unsaid)
		}
	default: // a fault, EIO, a file that is not there any more
		s.fatal(fmt.Errorf("store: read: %w", err))
	}
}
