package fsm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"raftmq/commitlog/store"
	"raftmq/seam"

	"github.com/hashicorp/go-hclog"
)

// LogSource is a peer's commit log. Its own checksums are verified before bytes are returned.
type LogSource interface {
	// Range returns bytes from off on, at most n, fewer at the log's end. ErrSourceOutside: the peer does not have them.
	Range(ctx context.Context, off, n int64) ([]byte, error)
	// Sum is the CRC-32C over [from, to) as the peer applied it, and the first offset that the peer has. ErrSourceOutside as above; low is
	// set then too.
	Sum(ctx context.Context, from, to int64) (sum uint32, low int64, err error)
	// Close lets go of what the peer keeps for this node.
	Close() error
}

// Errors of catching up.
var (
	// ErrSourceOutside is a LogSource's.
	ErrSourceOutside = errors.New("fsm: the peer's log does not have these bytes")
	// ErrNotYet: the snapshot can't be installed before the log bytes that belong to it are here. They are being fetched; ask again.
	ErrNotYet = errors.New("fsm: catching up")
	// ErrCatchUpClosed: this node is stopping.
	ErrCatchUpClosed = errors.New("fsm: catch-up is closed")

	errOtherBytes = errors.New("fsm: fetched bytes are not what the peer has applied")
)

// CatchUpConfig of NewCatchUp. Zero values take the defaults in parentheses.
type CatchUpConfig struct {
	Store   Store
	Staging *store.Staging
	// Dial reaches a node's commit log.
	Dial func(ctx context.Context, nodeID string) (LogSource, error)
	// Rate is how many bytes a second are fetched (0: as fast as it goes).
	Rate int64
	// Piece is how many bytes are asked for at once (1 MiB).
	Piece int64
	// Hold is how long Receive waits before it says ErrNotYet (2 s).
	Hold time.Duration
	// Retry is the pause after a failure (1 s); Interest how long a transfer goes on that nobody asks for any more (30 s).
	Retry, Interest time.Duration
	// ProgressEvery is how often the log tells how far it is (10 s).
	ProgressEvery time.Duration
	Logger        hclog.Logger
}

func (c *CatchUpConfig) fillIn() {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&c.Hold, 2*time.Second)
	def(&c.Retry, time.Second)
	def(&c.Interest, 30*time.Second)
	def(&c.ProgressEvery, 10*time.Second)
	if c.Piece == 0 {
		c.Piece = 1 << 20
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
}

// CatchUp fetches the log bytes that a snapshot needs and this node lacks, before the snapshot is given to Raft. Raft's main
// goroutine and the FSM's are not held up meanwhile: the node follows, votes and serves what it has.
//
//	leader's snapshot (a head) → Receive ──► transfer: plan, fetch into Staging, compare, seal
//	                               │ ErrNotYet while it runs
//	                               └ nil: the snapshot may be stored and restored (FSM.install takes the bytes)
//
// What the node has already is compared with the leader's sums before it is relied on; a log that differs is replaced as a whole.
// Staged bytes are kept over cuts, restarts and leader changes, and compared in the same way before they are continued.
type CatchUp struct {
	cfg    CatchUpConfig
	cancel context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup

	staging sync.Mutex // held by who changes Staging: a transfer, or an installation

	mu         sync.Mutex
	transfer   *transfer // guarded by mu, as what follows
	installing chan struct{}
	total      int64 // bytes fetched since start
	closed     bool
}

// NewCatchUp returns one without a transfer. Close it.
func NewCatchUp(cfg CatchUpConfig) *CatchUp {
	cfg.fillIn()
	c := &CatchUp{cfg: cfg}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends a transfer, or an installation. What is staged stays. Call it before Raft is closed, which waits for the FSM.
func (c *CatchUp) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	c.staging.Lock()
	defer c.staging.Unlock()
	return c.cfg.Staging.Close()
}

// Receive takes a leader's snapshot. nil: all that belongs to it is here. ErrNotYet: its log bytes are being fetched; the caller comes
// again with the snapshot, or a newer one. It returns within Hold.
func (c *CatchUp) Receive(ctx context.Context, leader string, snapshot []byte) error {
	h, _, err := readHead(bytes.NewReader(snapshot))
	if err != nil {
		return err
	}
	if seam.On(seam.SkipInstall) {
		return nil
	}
	hold := time.NewTimer(c.cfg.Hold)
	defer hold.Stop()
	var t *transfer
	for t == nil {
		var wait <-chan struct{}
		if t, wait, err = c.transferFor(leader, h); err != nil {
			return err
		}
		if t != nil {
			wait = t.done
		}
		select {
		case <-wait:
		case <-hold.C:
			return ErrNotYet
		case <-ctx.Done():
			return ErrNotYet
		}
	}
	if t.err != nil {
		return fmt.Errorf("%w: %w", ErrNotYet, t.err)
	}
	return nil
}

// transferFor is the transfer for a snapshot; a new one if there is another or none. nil: wait first.
func (c *CatchUp) transferFor(leader string, h *head) (t *transfer, wait <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch t := c.transfer; {
	case c.closed:
		return nil, nil, ErrCatchUpClosed
	case c.installing != nil:
		return nil, c.installing, nil
	case t != nil && t.leader == leader && t.head.Applied == h.Applied && t.head.Term == h.Term && !t.failed():
		t.asked = time.Now()
		return t, nil, nil
	case t != nil && !t.ended():
		t.cancel()
		return nil, t.done, nil
	}
	t = &transfer{owner: c, piece: c.cfg.Piece, leader: leader, head: h, began: time.Now(), asked: time.Now(), done: make(chan struct{})}
	var ctx context.Context
	ctx, t.cancel = context.WithCancel(c.ctx)
	c.transfer = t
	c.wg.Go(func() {
		defer close(t.done)
		defer t.cancel()
		t.err = t.run(ctx)
	})
	return t, nil, nil
}

// beginInstall gives the staged bytes to the FSM until end is called.
func (c *CatchUp) beginInstall() (end func()) {
	c.mu.Lock()
	t, done := c.transfer, make(chan struct{})
	c.installing = done
	c.mu.Unlock()
	if t != nil {
		t.cancel()
		<-t.done
	}
	c.staging.Lock()
	return func() {
		c.staging.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.installing = nil
		c.transfer = nil
		close(done)
	}
}

// CatchUpStatus says how far a transfer is.
type CatchUpStatus struct {
	// State is "" when nothing is under way, else comparing, fetching, waiting (after a failure), fetched (to be installed), installing.
	State    string
	Leader   string // node id of who is asked
	Began    time.Time
	From, To int64 // log bytes that this node lacks, or gives up and takes anew (Replaces)
	At       int64 // up to here they are here
	Replaces bool
	// Fetched are bytes of this transfer, without those that were staged before; BytesPerSecond is the pace lately.
	Fetched        int64
	BytesPerSecond float64
	Problem        string // of the last failure, "" when it goes on
	Total          int64  // bytes fetched since the start of the process
}

// Status may be called from any goroutine.
func (c *CatchUp) Status() CatchUpStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := CatchUpStatus{Total: c.total}
	if t := c.transfer; t != nil {
		s = t.progress
		s.Leader, s.Began, s.Total = t.leader, t.began, c.total
		if t.ended() && t.err != nil {
			s.State, s.Problem = "waiting", t.err.Error()
		}
	}
	if c.installing != nil {
		s.State = "installing"
	}
	return s
}
