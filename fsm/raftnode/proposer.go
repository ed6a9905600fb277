package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Proposal is one command on its way into an entry.
type Proposal interface {
	// AppendCommand appends exactly one encoded command to dst. It is called once, before Propose
	// returns, under the proposer's lock: it must be quick and must not call back. storeMillis is the
	// leader's stamp in Unix milliseconds; it never decreases.
	AppendCommand(dst []byte, storeMillis int64) []byte
	// Done is called exactly once if Propose returned nil: with what the FSM returned for the
	// whole entry and the command's position in it, or with an error. Calls come from one goroutine
	// in log order and must not block.
	Done(entryResult any, i int, err error)
}

// Stats are counters since start and gauges now.
type Stats struct {
	Entries, Commands, Bytes uint64
	BusyRefusals             uint64
	InFlightBytes            int64
	Snapshots                uint64 // taken by this node
}

// proposer gathers commands into entries. Commands that arrive while entries are in flight
// share the next entry; on an idle line a command leaves at once. There is no timer.
type proposer struct {
	cfg  Config
	raft *raft.Raft
	head int // bytes of an entry's head, which are no command's

	mu struct {
		sync.Mutex
		accepting  error // nil: open; else why not
		building   *batch
		full       []*batch
		bytes      int64 // of all commands waiting or in flight
		lastMillis int64
		capacity   int // of the next buffer: what recent entries needed
	}
	wake     chan struct{} // something is in building
	slots    chan struct{} // one token per entry in flight
	inFlight chan flight
	stop     chan struct{}
	wg       sync.WaitGroup

	entries, commands, bytes, busy atomic.Uint64
}

type batch struct {
	buf       []byte
	proposals []Proposal
}

type flight struct {
	*batch
	future raft.ApplyFuture
}

func newProposer(cfg Config, r *raft.Raft) *proposer {
	p := &proposer{cfg: cfg, raft: r, head: len(cfg.EntryHead(nil)), wake: make(chan struct{}, 1), slots: make(chan struct{}, cfg.InFlightEntries),
		inFlight: make(chan flight, cfg.InFlightEntries), stop: make(chan struct{})}
	p.mu.accepting = ErrNotLeader
	p.wg.Add(2)
	go p.send()
	go p.complete()
	return p
}

func (p *proposer) propose(pr Proposal) error {
	p.mu.Lock()
	if err := p.mu.accepting; err != nil {
		p.mu.Unlock()
		return err
	}
	if p.mu.bytes >= p.cfg.InFlightBytes {
		p.mu.Unlock()
		p.busy.Add(1)
		return ErrBusy
	}
	b := p.mu.building
	if b != nil && (len(b.buf) >= p.cfg.MaxEntryBytes || len(b.proposals) >= p.cfg.MaxEntryCommands) {
		p.mu.full = append(p.mu.full, b)
		b = nil
	}
	if b == nil {
		b = &batch{buf: p.cfg.EntryHead(make([]byte, 0, max(p.mu.capacity, 4096)))}
		p.mu.building = b
	}
	start := len(b.buf)
	b.buf = pr.AppendCommand(b.buf, p.stampLocked())
	size := len(b.buf) - start
	if size > p.cfg.MaxCommandBytes {
		b.buf = b.buf[:start]
		p.mu.Unlock()
		return fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, size, p.cfg.MaxCommandBytes)
	}
	if p.cfg.Admit != nil {
		if err := p.cfg.Admit(b.buf[start:]); err != nil {
			b.buf = b.buf[:start]
			p.mu.Unlock()
			return err
		}
	}
	b.proposals = append(b.proposals, pr)
	p.mu.bytes += int64(size)
	first := len(b.proposals) == 1 && len(p.mu.full) == 0
	p.mu.Unlock()
	if first {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// stampLocked is the clock, never going back (F67: a clock step must not refuse or reorder anything).
func (p *proposer) stampLocked() int64 {
	p.mu.lastMillis = max(p.mu.lastMillis, p.cfg.Now().UnixMilli())
	return p.mu.lastMillis
}

func (p *proposer) accept() {
	p.mu.Lock()
	p.mu.accepting = nil
	p.mu.Unlock()
}

// stopAccepting refuses new commands and fails those that were not handed to Raft yet.
func (p *proposer) stopAccepting(why error) {
	p.mu.Lock()
	p.mu.accepting = why
	p.mu.Unlock()
	select { // the sender drains what waits: Raft refuses it, or takes it if we still lead
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *proposer) take() *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b *batch
	if len(p.mu.full) > 0 {
		b = p.mu.full[0]
		p.mu.full = append(p.mu.full[:0], p.mu.full[1:]...)
	} else {
		b, p.mu.building = p.mu.building, nil
	}
	if b == nil || len(b.proposals) == 0 {
		return nil
	}
	// Raft's log cache keeps entries for long and counts their bytes, not what their buffers have to spare.
	if cap(b.buf) > len(b.buf)+len(b.buf)/4 {
		b.buf = bytes.Clone(b.buf)
	}
	p.mu.capacity = min(max(len(b.buf), p.mu.capacity-p.mu.capacity/8), p.cfg.MaxEntryBytes+p.cfg.MaxEntryBytes/8)
	return b
}

// send hands entries to Raft, in order, at most InFlightEntries at a time.
func (p *proposer) send() {
	defer p.wg.Done()
	defer close(p.inFlight)
	for {
		select {
		case <-p.wake:
		case <-p.stop:
			for b := p.take(); b != nil; b = p.take() {
				p.finish(b, nil, ErrClosed)
			}
			return
		}
		for {
			p.slots <- struct{}{} // complete never waits for us, so this ends
			b := p.take()
			if b == nil {
				<-p.slots
				break
			}
			p.entries.Add(1)
			p.commands.Add(uint64(len(b.proposals)))
			p.bytes.Add(uint64(len(b.buf)))
			p.inFlight <- flight{b, p.raft.Apply(b.buf, 0)}
		}
	}
}

// complete answers proposals in log order.
func (p *proposer) complete() {
	defer p.wg.Done()
	for f := range p.inFlight {
		err := await(f.future, p.stop)
		var result any
		if err == nil {
			result = f.future.Response()
		}
		<-p.slots
		p.finish(f.batch, result, outcome(err))
	}
}

// await is the future's error. Raft never answers what it had not looked at when it was shut down, so nobody waits for that
// after the end of Raft, which stop tells.
func await(f raft.Future, stop <-chan struct{}) error {
	answer := make(chan error, 1)
	go func() { answer <- f.Error() }()
	select {
	case err := <-answer:
		return err
	case <-stop:
	}
	select {
	case err := <-answer:
		return err
	case <-time.After(unansweredAfter):
		return raft.ErrRaftShutdown
	}
}

// unansweredAfter is how long an answer that Raft has given may take to arrive here.
const unansweredAfter = time.Second

func (p *proposer) finish(b *batch, result any, err error) {
	p.mu.Lock()
	p.mu.bytes -= int64(len(b.buf) - p.head)
	p.mu.Unlock()
	for i, pr := range b.proposals {
		pr.Done(result, i, err)
	}
}

// outcome maps Raft's errors: only those that Raft gives before it stores anything mean "not proposed".
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	default:
		return fmt.Errorf("%w: %w", ErrLeadershipLost, err)
	}
}

func (p *proposer) stats() Stats {
	p.mu.Lock()
	inFlight := p.mu.bytes
	p.mu.Unlock()
	return Stats{Entries: p.entries.Load(), Commands: p.commands.Load(), Bytes: p.bytes.Load(), BusyRefusals: p.busy.Load(), InFlightBytes: inFlight}
}

// close ends both goroutines; Raft is shut down, so futures end by themselves.
func (p *proposer) close() {
	close(p.stop)
	p.wg.Wait()
}
