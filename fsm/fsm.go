// Package fsm is the replicated state machine: it decodes Raft entries and applies their
// commands to the store (append) and to the tables. It is the only writer of both.
//
// Invariants: Deterministic-Apply (the result depends on state and entry only), Apply-Never-Waits (no
// fsync and no network; a local disk error stops the node), Index-With-Bytes (the store journals the Raft
// index with the bytes; replay is the store's), Flush-Before-Truncate (Persist flushes before Raft may
// drop entries).
package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/seam"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// ErrStopped is the answer to everything after a fatal error: this node must not answer and must not
// differ from its peers.
var ErrStopped = errors.New("fsm: stopped after a fatal error")

// Store is what the FSM needs of the store. All calls come from Raft's FSM goroutine, except FlushAll, LogRange and
// LogSum, which Persist, the snapshot store and CatchUp call from others.
type Store interface {
	BeginEntry(raftIndex, raftTerm uint64) error
	Append(topic []byte, queueID int32, records []byte, n int) (store.Appended, error)
	EndEntry() error
	// Trim moves the log's minimum; store.ErrTrim is a refusal.
	Trim(minOffset int64) error
	Publish()
	Position() store.Position
	Recovered() store.Position
	Restore(store.Position) error
	FlushAll() error
	LogRange() (min, max int64)
	// LogSum is a CRC-32C over log bytes as they were applied.
	LogSum(from, to int64) (uint32, error)
	Install(from, to int64) (store.Installer, error)
}

// Config of New.
type Config struct {
	Store  Store
	Tables *metadata.Tables
	// CatchUp has fetched what a snapshot needs that is ahead of the log. nil: there are none.
	CatchUp *CatchUp
	// CheckSettings is called when cluster settings are applied or restored: an error means that this node
	// is configured otherwise and must stop (Same-Bytes).
	CheckSettings func(command.Settings) error
	// OnTables is called after an entry changed tables, on the FSM goroutine; it must be quick.
	OnTables func()
	// OnMark is called when a Mark is applied, on the FSM goroutine; it must be quick. nil: marks are passed over.
	OnMark func(Mark)
	// OnFatal is called once when the node must stop.
	OnFatal func(error)
	Logger  hclog.Logger
}

// FSM implements raft.BatchingFSM.
type FSM struct {
	cfg     Config
	applied atomic.Uint64
	term    uint64 // of applied; FSM goroutine only
	tables  bool   // the current batch changed tables
	fatal   atomic.Pointer[error]
}

var _ raft.BatchingFSM = (*FSM)(nil)

// New returns an FSM at index 0.
func New(cfg Config) (*FSM, error) {
	if err := cfg.Store.Restore(store.Position{}); err != nil {
		return nil, fmt.Errorf("fsm: %w", err)
	}
	return &FSM{cfg: cfg}, nil
}

// Applied is the index of the last applied entry.
func (f *FSM) Applied() uint64 { return f.applied.Load() }

// Apply implements raft.FSM.
func (f *FSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM: one pass over the commands, then one publication.
func (f *FSM) ApplyBatch(logs []*raft.Log) []any {
	results := make([]any, len(logs))
	wrote := false
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		if f.fatal.Load() != nil {
			results[i] = stopped(l.Data)
			continue
		}
		r, appended, err := f.applyEntry(l)
		if err != nil {
			f.die(fmt.Errorf("fsm: apply entry %d of term %d: %w", l.Index, l.Term, err))
			results[i] = stopped(l.Data)
			continue
		}
		results[i] = r
		wrote = wrote || appended
		f.term = l.Term
		f.applied.Store(l.Index)
	}
	if wrote {
		f.cfg.Store.Publish()
	}
	if f.tables {
		f.tables = false
		if f.cfg.OnTables != nil {
			f.cfg.OnTables()
		}
	}
	return results
}

// stopped answers every command of an entry that this node could not apply.
func stopped(entry []byte) command.Results {
	r := make(command.Results, command.Count(entry))
	for i := range r {
		r[i].Err = ErrStopped
	}
	return r
}

func (f *FSM) die(err error) {
	if f.fatal.CompareAndSwap(nil, &err) && f.cfg.OnFatal != nil {
		f.cfg.OnFatal(err)
	}
}

func (f *FSM) applyEntry(l *raft.Log) (r command.Results, appended bool, err error) {
	reader, err := command.NewReader(l.Data)
	if err != nil {
		return nil, false, err
	}
	r = make(command.Results, 0, command.Count(l.Data))
	begin := func() error {
		if appended {
			return nil
		}
		appended = true
		return f.cfg.Store.BeginEntry(l.Index, l.Term)
	}
	for {
		c, ok, err := reader.Next()
		if err != nil {
			return nil, appended, err
		}
		if !ok {
			break
		}
		var result command.Result
		switch c.Kind {
		case command.KindAppend:
			if err = begin(); err == nil {
				result, err = f.applyAppend(c, l)
			}
		case command.KindMark:
			result.Err, err = f.mark(c, l)
		case command.KindDelayDeliver, command.KindTransactionEnd:
			result, err = f.relocate(c, begin)
		case command.KindLogTrim:
			result.Err, err = f.applyTrim(c)
		default:
			f.tables = true
			result.Err, err = f.applyTable(c)
		}
		if err != nil {
			return nil, appended, err
		}
		r = append(r, result)
	}
	if appended {
		if err := f.cfg.Store.EndEntry(); err != nil {
			return nil, appended, err
		}
	}
	return r, appended, nil
}

func (f *FSM) applyAppend(c command.Command, l *raft.Log) (command.Result, error) {
	records, n, err := c.Records()
	if err != nil {
		return command.Result{}, err
	}
	first := record.View(records)
	at, err := f.cfg.Store.Append(first.Topic(), first.QueueID(), records, n)
	if err != nil {
		return command.Result{}, err
	}
	if seam.On(seam.ApplyTwice) && f.again(l) {
		if _, err := f.cfg.Store.Append(first.Topic(), first.QueueID(), records, n); err != nil {
			return command.Result{}, err
		}
	}
	return command.Result{QueueOffset: at.QueueOffset, PhyOffset: at.PhyOffset}, nil
}

// applyTrim returns a refusal (an answer) and an error (this node must stop). The store removes the files later.
func (f *FSM) applyTrim(c command.Command) (refusal, err error) {
	return decodeAnd(c, func(t command.LogTrim) error {
		err := f.cfg.Store.Trim(t.MinOffset)
		if err != nil && !errors.Is(err, store.ErrTrim) {
			return fatalError{err}
		}
		if err == nil {
			f.cfg.Tables.TrimSegments(t.MinOffset)
		}
		return err
	})
}

// applyTable returns a refusal (an answer) and an error (this node must stop).
func (f *FSM) applyTable(c command.Command) (refusal, err error) {
	t := f.cfg.Tables
	switch c.Kind {
	case command.KindSettings:
		return decodeAnd(c, func(s command.Settings) error {
			if err := f.checkSettings(s); err != nil {
				return fatalError{err}
			}
			return t.PutSettings(s)
		})
	case command.KindNodePut:
		return decodeAnd(c, func(n command.NodePut) error { _, err := t.PutNode(n); return err })
	case command.KindNodeDelete:
		return decodeAnd(c, t.DeleteNode)
	case command.KindTopicPut:
		return decodeAnd(c, t.PutTopic)
	case command.KindTopicDelete:
		return decodeAnd(c, func(d command.TopicDelete) error { return t.DeleteTopic(d, f.nextOffsets(d.Topic)) })
	case command.KindGroupPut:
		return decodeAnd(c, t.PutGroup)
	case command.KindGroupDelete:
		return decodeAnd(c, t.DeleteGroup)
	case command.KindOffsetsCommit:
		return decodeAnd(c, t.CommitOffsets)
	case command.KindKVPut:
		return decodeAnd(c, t.PutKV)
	case command.KindKVDelete:
		return decodeAnd(c, t.DeleteKV)
	case command.KindTransactionCheck:
		return decodeAnd(c, t.NoteChecks)
	case command.KindSegmentSum:
		return decodeAnd(c, func(s command.SegmentSum) error {
			at := f.cfg.Store.Position() // the replicated one: readers may be elsewhere
			return t.PutSegmentSum(s, at.MinOffset, at.LogEnd)
		})
	case command.KindQueueLock:
		return decodeAnd(c, t.LockQueues)
	case command.KindQueueUnlock:
		return decodeAnd(c, t.UnlockQueues)
	case command.KindQueueLocksAdopt:
		return decodeAnd(c, t.AdoptQueueLocks)
	case command.KindLevel:
		return decodeAnd(c, func(r command.Raise) error {
			if r.Level > command.Newest {
				return fatalError{command.TooNew(r.Level)}
			}
			return t.RaiseLevel(r)
		})
	}
	return nil, fmt.Errorf("%w: kind %d", command.ErrUnknown, c.Kind)
}

// fatalError marks an error of a table command that must stop the node instead of being answered.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

func decodeAnd[T any](c command.Command, apply func(T) error) (refusal, err error) {
	var v T
	if err := json.Unmarshal(c.Payload, &v); err != nil {
		return nil, fmt.Errorf("%w: kind %d: %w", command.ErrMalformed, c.Kind, err)
	}
	if err := apply(v); err != nil {
		var fatal fatalError
		if errors.As(err, &fatal) {
			return nil, fatal.error
		}
		return err, nil
	}
	return nil, nil
}

// nextOffsets are the next offsets of a topic's queues.
func (f *FSM) nextOffsets(topic string) map[int32]int64 {
	next := map[int32]int64{}
	for _, q := range f.cfg.Store.Position().QueueOffsets {
		if q.Topic == topic {
			next[q.QueueID] = q.Next
		}
	}
	return next
}

func (f *FSM) checkSettings(s command.Settings) error {
	if f.cfg.CheckSettings == nil {
		return nil
	}
	return f.cfg.CheckSettings(s)
}
