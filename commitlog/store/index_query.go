package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"raftmq/commitlog/keyindex"
	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

const (
	// maxQueryMsgs bounds a query (RocketMQ's maxMsgsNumBatch), maxQueryBytes too, below what
	// clients take as one frame (16 MiB).
	maxQueryMsgs  = 64
	maxQueryBytes = 14 << 20
	// queryPatience is how much log the index may be behind for a query to wait for it.
	queryPatience = 64 << 20
)

// Errors of Query.
var (
	// ErrIndexOff: the store keeps no key index (messageIndexEnable).
	ErrIndexOff = errors.New("store: there is no key index")
	// ErrIndexBehind: the index has not come to what is published yet. It may be tried again.
	ErrIndexBehind = errors.New("store: key index is behind the log")
)

// QueryRequest asks for records by key.
type QueryRequest struct {
	Topic, Key string
	// Unique: Key is a UNIQ_KEY. Otherwise it is one of KEYS, or the UNIQ_KEY.
	Unique     bool
	Max        int   // at most 64
	Begin, End int64 // store time, ms; the seconds of End count to their end (RocketMQ's)
}

// QueryResult holds counted views. Release it.
type QueryResult struct {
	// Records are whole, the newest that match, in the log's order.
	Records [][]byte
	// Store time and physical offset of the newest key in the index; 0 without records.
	LastUpdateTimestamp, LastUpdatePhyOffset int64

	held []mappedfile.View
}

// Release gives the views back; Records are dead then.
func (r *QueryResult) Release() {
	for i := range r.held {
		r.held[i].Release()
	}
	*r = QueryResult{}
}

// Query finds records by topic, key and store time (RocketMQ's
// DefaultMessageStore.queryMessage). Each one is compared with topic and key, so that equal
// hashes don't matter (F41), and comes once. It answers of everything that was published at
// the call, and waits for the index to come there, as long as ctx allows. ErrIndexBehind when
// it doesn't, or at once when the index is being built again; ErrIndexOff.
func (s *Store) Query(ctx context.Context, q QueryRequest) (*QueryResult, error) {
	x := s.index
	if x == nil {
		return nil, ErrIndexOff
	}
	if err := s.alive(); err != nil {
		return nil, err
	}
	if err := s.commitNow(); err != nil { // what waits in write buffers is published too
		return nil, s.fatal(err)
	}
	if err := x.wait(ctx, s.log.MaxOffset()); err != nil {
		return nil, err
	}
	res := &QueryResult{}
	maxMsgs := min(q.Max, maxQueryMsgs)
	if maxMsgs <= 0 || q.Key == "" {
		return res, nil
	}
	var failed error
	size := 0
	err := x.ix.Find(ctx, q.Topic, q.Key, q.Begin, q.End, func(phyOffset int64) bool {
		n, err := res.add(s, &q, phyOffset, maxQueryBytes-size)
		failed = err
		size += n
		return err == nil && n >= 0 && len(res.Records) < maxMsgs
	})
	if err := x.queryFailed(errors.Join(err, failed)); err != nil {
		res.Release()
		return nil, err
	}
	slices.Reverse(res.Records)
	if len(res.Records) > 0 {
		res.LastUpdateTimestamp, res.LastUpdatePhyOffset = x.ix.Last()
	}
	return res, nil
}

// add appends the record at phyOffset if it is one that q wants. It returns its size; -1 when it
// doesn't fit room, unless it is the first.
func (r *QueryResult) add(s *Store, q *QueryRequest, phyOffset int64, room int) (int, error) {
	held, n, err := s.recordAt(phyOffset)
	if errors.Is(err, ErrNotFound) {
		s.index.noRecord(phyOffset, err)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	b := held.Bytes[:n:n]
	wanted, err := q.wants(b)
	if err != nil || !wanted || n > room && len(r.Records) > 0 {
		held.Release()
		if wanted && err == nil {
			n = -1
		} else {
			n = 0
		}
		return n, err
	}
	r.held = append(r.held, held)
	r.Records = append(r.Records, b)
	return n, nil
}

// wants compares what hashes and seconds can't.
func (q *QueryRequest) wants(b []byte) (ok bool, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v := record.View(b)
	if string(v.Topic()) != q.Topic || v.StoreTimestamp() < q.Begin {
		return false, nil
	}
	uniqKey, keys := indexKeys(v)
	if string(uniqKey) == q.Key {
		return true, nil
	}
	if q.Unique {
		return false, nil
	}
	for key := range bytes.SplitSeq(keys, []byte{' '}) {
		if string(key) == q.Key {
			return true, nil
		}
	}
	return false, nil
}

// wait waits until the keys of all records below end are in the index.
func (x *index) wait(ctx context.Context, end int64) error {
	for {
		turned := x.turn.next()
		d := x.dispatcher.Load()
		if d == nil {
			return fmt.Errorf("%w: the log is being replaced", ErrIndexBehind)
		}
		to := d.To()
		if to >= end {
			return nil
		}
		behind := fmt.Errorf("%w: at physical offset %d of %d", ErrIndexBehind, to, end)
		if end-to > queryPatience {
			return behind
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return behind
		case <-x.s.stop:
			return ErrClosed
		}
	}
}

// queryFailed sorts out why a query could not be answered.
func (x *index) queryFailed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, keyindex.ErrClosed), errors.Is(err, mappedfile.ErrClosed):
		return ErrClosed
	case errors.Is(err, keyindex.ErrDamaged):
		x.spoilt()
		return fmt.Errorf("%w: it is built again: %w", ErrIndexBehind, err)
	default:
		return x.s.fatal(fmt.Errorf("store: query: %w", err))
	}
}

// spoilt has what keyindex found damaged built again.
func (x *index) spoilt() {
	select {
	case x.damaged <- struct{}{}:
	default:
	}
}

// noRecord tells, now and then, of an entry that leads nowhere: its record went with the log's
// old segments, or the entry is damaged in a way that can't be seen in itself.
func (x *index) noRecord(phyOffset int64, err error) {
	if phyOffset < x.s.log.MinOffset() {
		return
	}
	if ok, unsaid := x.told.Allow(x.s.cfg.Now()); ok {
		x.s.logger.Warn("key index names a place without a record", "phy-offset", phyOffset, "error", err, "unsaid", unsaid)
	}
}
