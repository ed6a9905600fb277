// Package history records what clients and nemeses did to a cluster: every operation with
// start, end and outcome, as JSON lines on disk and in memory for the checkers.
//
// An operation that got no answer has the outcome unknown; none is ever dropped. The package
// judges nothing.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Kind of an operation.
type Kind string

// Kinds.
const (
	Send    Kind = "send"    // a producer's message, with all its attempts
	Receive Kind = "receive" // a consumer got a message
	Drain   Kind = "drain"   // a message read from one node at the end
	Drained Kind = "drained" // one queue of one node was read to its end; Count messages
	Fault   Kind = "fault"   // a nemesis at work: from injection to healing
	Leader  Kind = "leader"  // Node was first seen to take writes, in Term
	Commit  Kind = "commit"  // a consumer offset was written: Group, Topic, Queue, Offset
	Fetch   Kind = "fetch"   // a consumer offset was read; Offset -1 is "none"
	Put     Kind = "put"     // a topic was created or changed to Count queues
	Delete  Kind = "delete"  // a topic was deleted
	Get     Kind = "get"     // a topic was looked up; Count is its number of queues, 0 is "none"
	Decide  Kind = "decide"  // an application said commit for the transaction of Value
	Load    Kind = "load"    // the time in which clients began new operations
	State   Kind = "state"   // a node's log at the end, in Log
	Header  Kind = "run"     // what the run was, in Run; the first operation of a history
)

// Outcome of an operation.
type Outcome string

// Outcomes. Fail means that it certainly did not and will not happen.
const (
	OK      Outcome = "ok"
	Fail    Outcome = "fail"
	Unknown Outcome = "unknown"
)

// Op is one operation. Times are nanoseconds since the history's start, from a clock that never
// steps.
type Op struct {
	Kind    Kind          `json:"kind"`
	Process string        `json:"process"` // producer, consumer, drain or nemesis
	Start   time.Duration `json:"start"`
	End     time.Duration `json:"end"`
	Outcome Outcome       `json:"outcome"`
	// Value is the body's name for the message, "producer-seq".
	Value string `json:"value,omitempty"`
	// UniqKey is RocketMQ's client-made message id; copies that a client's retry made share it.
	UniqKey string `json:"uniqKey,omitempty"`
	Topic   string `json:"topic,omitempty"`
	Group   string `json:"group,omitempty"`
	// Node that answered or was read or was hit, "" where the client can't tell.
	Node string `json:"node,omitempty"`
	// Queue and Offset are where the message is; -1 for unknown.
	Queue  int32 `json:"queue"`
	Offset int64 `json:"offset"`
	// Attempts is how often a send went out. A value with more copies than that was multiplied
	// by the server.
	Attempts int `json:"attempts,omitempty"`
	// Refused is how many of them were answered in a way that says that they were certainly not stored.
	Refused int `json:"refused,omitempty"`
	// Count is the number of messages in a drained queue.
	Count int `json:"count,omitempty"`
	// Fault is the nemesis's name, Detail what it did and how it is known to have worked.
	Fault  string `json:"fault,omitempty"`
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`
	// Size and Sum (CRC-32 of it) are the body's; 0, 0 where nobody looked.
	Size int    `json:"size,omitempty"`
	Sum  uint32 `json:"sum,omitempty"`
	// Key is the ordering key of a send; a batch's messages share Batch.
	Key   string `json:"key,omitempty"`
	Batch string `json:"batch,omitempty"`
	// Wish is what the application wants to become of a message: see the Wish constants.
	Wish string `json:"wish,omitempty"`
	// Delay is how long after its sending a message is to be delivered.
	Delay time.Duration `json:"delay,omitempty"`
	// Stored is when the broker stored a message that was read, Unix milliseconds.
	Stored int64 `json:"stored,omitempty"`
	// Tries is how often a message that was received had been sent back before.
	Tries int `json:"tries,omitempty"`
	// First is the first offset of a drained queue; what was before it has been removed.
	First int64  `json:"first,omitempty"`
	Term  uint64 `json:"term,omitempty"`
	// Nodes are all nodes that a fault hit; Spares is set if it left the leader alone.
	Nodes  []string  `json:"nodes,omitempty"`
	Spares bool      `json:"spares,omitempty"`
	Run    *RunInfo  `json:"run,omitempty"`
	Log    *LogState `json:"log,omitempty"`
}

// Wishes.
const (
	WishCommit   = "commit"   // a transaction that is to be visible
	WishRollback = "rollback" // one that is never to be
	WishRetry    = "retry"    // fails at the first deliveries and is to come again
	WishDead     = "dead"     // fails always and is to end as a dead letter
)

// RunInfo tells what is needed to check a history without the program that made it.
type RunInfo struct {
	Workload string   `json:"workload"`
	Nemesis  string   `json:"nemesis,omitempty"`
	Seed     uint64   `json:"seed"`
	Nodes    []string `json:"nodes"`
	Groups   []string `json:"groups,omitempty"`
	Checks   []string `json:"checks"` // by name; see package checker
	// Began is the wall clock at the history's start, Unix milliseconds.
	Began int64 `json:"began"`
	// Trimmed is set when messages expire during the run.
	Trimmed bool `json:"trimmed,omitempty"`
	// Kept is how long messages are kept at least, where they expire.
	Kept time.Duration `json:"kept,omitempty"`
	// Dead is the topic of dead letters, Tries how often a message is sent back before it becomes one.
	Dead  string `json:"dead,omitempty"`
	Tries int    `json:"tries,omitempty"`
}

// LogState is what a node says of its log.
type LogState struct {
	Min, Max   int64
	ChecksumTo int64
	Checksum   string
}

// Recorder collects operations from any number of goroutines.
type Recorder struct {
	began time.Time

	mu struct {
		sync.Mutex
		ops    []Op
		open   map[*Op]Op // as they were at Begin
		file   *os.File
		out    *bufio.Writer
		err    error
		closed bool
	}
}

// Create starts a history that is written to path; an empty path keeps it in memory only.
func Create(path string) (*Recorder, error) {
	r := &Recorder{began: time.Now()}
	r.mu.open = map[*Op]Op{}
	if path == "" {
		return r, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	r.mu.file, r.mu.out = f, bufio.NewWriterSize(f, 1<<18)
	return r, nil
}

// Began is the wall clock at the history's start.
func (r *Recorder) Began() time.Time { return r.began }

// Now is the time since the history's start.
func (r *Recorder) Now() time.Duration { return time.Since(r.began) }

// Begin notes that an operation starts. The returned Op belongs to the caller until End; Close
// takes what has not ended as unknown.
func (r *Recorder) Begin(op Op) *Op {
	p := &op
	p.Outcome = Unknown
	r.mu.Lock()
	defer r.mu.Unlock()
	p.Start = r.Now()
	r.mu.open[p] = *p
	return p
}

// End notes that an operation has ended, with what the caller has filled in. After Close it does
// nothing: the operation is in the history as unknown.
func (r *Recorder) End(op *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.mu.open[op]; !ok {
		return
	}
	delete(r.mu.open, op)
	op.End = r.Now()
	r.addLocked(*op)
}

// Add notes an operation that took no time to speak of; Start and End are set to now unless
// End is set already.
func (r *Recorder) Add(op Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return
	}
	if op.End == 0 {
		op.Start = r.Now()
		op.End = op.Start
	}
	r.addLocked(op)
}

func (r *Recorder) addLocked(op Op) {
	r.mu.ops = append(r.mu.ops, op)
	if r.mu.out == nil || r.mu.err != nil {
		return
	}
	line, err := json.Marshal(&op)
	if err == nil {
		_, err = r.mu.out.Write(append(line, '\n'))
	}
	r.mu.err = err
}

// Close ends open operations as unknown, writes everything out and returns the whole history
// in the order in which operations ended, and the first error of writing. A second call returns the same.
func (r *Recorder) Close() ([]Op, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return r.mu.ops, r.mu.err
	}
	for _, op := range r.mu.open {
		// The owner may still be filling in its Op, so what Begin got is taken.
		op.End, op.Error = r.Now(), "no answer when the history was closed"
		r.addLocked(op)
	}
	clear(r.mu.open)
	r.mu.closed = true
	if r.mu.file != nil {
		r.mu.err = errors.Join(r.mu.err, r.mu.out.Flush(), r.mu.file.Close())
	}
	return r.mu.ops, r.mu.err
}

// Read reads a history that Create wrote.
func Read(src io.Reader) ([]Op, error) {
	var ops []Op
	dec := json.NewDecoder(src)
	dec.DisallowUnknownFields()
	for {
		var op Op
		err := dec.Decode(&op)
		if errors.Is(err, io.EOF) {
			return ops, nil
		}
		if err != nil {
			return nil, fmt.Errorf("history: operation %d: %w", len(ops), err)
		}
		ops = append(ops, op)
	}
}
