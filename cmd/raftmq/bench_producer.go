package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"raftmq/commitlog/record"
	"raftmq/transport/remoting"
)

// An opaque is a slot's number and its generation: an answer that comes after its request was
// given up finds another generation.
const (
	slotBits = 16
	maxSlots = 1<<slotBits - 1
)

const (
	benchBuffer   = 256 << 10              // bytes written or read with one call
	backOff       = 10 * time.Millisecond  // after SYSTEM_BUSY and other refusals
	connectPause  = 20 * time.Millisecond  // between tries to find and reach a leader
	silenceLimit  = 500 * time.Millisecond // without an answer, ask who leads
	lookUpTimeout = time.Second
)

// slot is one request in flight.
type slot struct {
	intended   int64 // when it was due, on the bench's clock
	sent       int64
	generation int32
	busy       bool
}

// producer is one connection that sends, to the leader of one broker group. In a closed loop one
// goroutine does all: it reads a burst of answers, and for each it writes a new request, with one
// call for all. In an open loop a second one sends on schedule.
type producer struct {
	b       *bench
	group   groupQueues
	rated   bool
	spacing float64 // open loop: nanoseconds between two requests
	first   int64   // open loop: when the first is due

	// What only the sending goroutine uses.
	spare []byte

	mu       sync.Mutex
	sock     net.Conn // nil while there is none
	addr     string
	header   remoting.SendHeader
	body     []byte
	keys     keyStamper
	queue    int32 // of the next request
	out      []byte
	slots    []slot
	free     []int32
	sequence int64 // open loop: requests sent so far
	pauseEnd int64 // nothing is sent before
	refused  bool  // this broker does not lead: drain, then look for the leader
	progress int64 // when something last was answered, or sent while nothing was in flight
	counts   produceCounts
}

// produceCounts is what is measured between two resets.
type produceCounts struct {
	acked      int64 // messages
	latency    *hdrhistogram.Histogram
	errors     map[int32]*codeCount
	reconnects int64
}

func newProduceCounts() produceCounts {
	// 1 µs to 10 min, three digits.
	return produceCounts{latency: hdrhistogram.New(1, 600_000_000, 3), errors: map[int32]*codeCount{}}
}

// codeCount counts messages that failed with a code.
type codeCount struct {
	n      int64
	remark string // the first one's
}

// Codes of our own for failures without an answer.
const (
	codeLost    int32 = -1
	codeTimeout int32 = -2
)

func newProducer(b *bench, i int, group groupQueues) *producer {
	p := &producer{b: b, group: group, rated: b.o.rate > 0, queue: int32(i % group.queues), slots: make([]slot, b.o.inFlight), counts: newProduceCounts()}
	for s := range p.slots {
		p.free = append(p.free, int32(s))
	}
	if p.rated {
		p.spacing = float64(b.o.connections*b.o.batch) / b.o.rate * 1e9
		p.first = int64(p.spacing * float64(i) / float64(b.o.connections))
	}
	p.header = remoting.SendHeader{
		ProducerGroup: []byte("raftmq-bench"), Topic: []byte(b.o.topic),
		DefaultTopic: []byte(autoCreateTopic), DefaultTopicQueueNums: 4, Batch: b.o.batch > 1, BrokerName: []byte(group.broker),
	}
	p.makeBody(b.o)
	return p
}

// makeBody makes the request's body of random bytes, which nothing on the way can compress.
func (p *producer) makeBody(o *benchOptions) {
	message := make([]byte, o.size)
	_, _ = rand.Read(message) // never fails
	properties := []byte{}
	if o.uniqueKeys {
		p.keys = newKeyStamper()
		properties = record.AppendProperty(properties, record.PropertyUniqKey, p.keys.prefix+"0000000000000000")
	}
	p.header.Properties = []byte{}
	if o.batch == 1 {
		p.body, p.header.Properties = message, properties
		p.keys.add(properties, 0, len(properties))
		return
	}
	for range o.batch {
		p.body = record.AppendBatchEntry(p.body, record.BatchEntry{Body: message, Properties: properties})
	}
	entry := len(p.body) / o.batch
	for i := range o.batch {
		p.keys.add(p.body, i*entry, (i+1)*entry)
	}
}

// keyStamper writes consecutive UNIQ_KEYs into prepared properties.
type keyStamper struct {
	prefix string
	next   uint64
	places [][]byte
}

func newKeyStamper() keyStamper {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return keyStamper{prefix: fmt.Sprintf("%X", b)}
}

// add notes that a key ends at the end of b[from:to].
func (k *keyStamper) add(b []byte, from, to int) {
	if k.prefix != "" {
		k.places = append(k.places, b[max(from, to-16):to])
	}
}

func (k *keyStamper) stamp() {
	const digits = "0123456789ABCDEF"
	for _, place := range k.places {
		for i, n := len(place)-1, k.next; i >= 0; i, n = i-1, n>>4 {
			place[i] = digits[n&15]
		}
		k.next++
	}
}

// run sends until the bench stops and what is in flight has been answered.
func (p *producer) run(ctx context.Context) {
	var pacing sync.WaitGroup
	if p.rated {
		pacing.Go(func() { p.pace(ctx) })
	}
	defer pacing.Wait()
	for ctx.Err() == nil && !p.b.stopped() {
		if err := p.connect(ctx); err != nil {
			sleep(ctx, connectPause)
			continue
		}
		p.read()
		p.detach()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (p *producer) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	addr, err := p.b.target.leader(ctx, p.group.broker, p.addr)
	if err != nil {
		return err
	}
	var d net.Dialer
	sock, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sock, p.addr, p.refused, p.pauseEnd, p.progress = sock, addr, false, 0, p.b.now()
	return nil
}

// detach closes the connection; what was in flight on it has an unknown outcome.
func (p *producer) detach() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.sock.Close()
	p.sock = nil
	p.out = p.out[:0]
	for s := range p.slots {
		if p.slots[s].busy {
			p.releaseLocked(int32(s))
			p.failedLocked(codeLost, "")
		}
	}
	if !p.b.stopped() {
		p.counts.reconnects++
	}
}

func (p *producer) releaseLocked(s int32) {
	p.slots[s].busy = false
	p.slots[s].generation = (p.slots[s].generation + 1) & (1<<15 - 1)
	p.free = append(p.free, s)
}

func (p *producer) failedLocked(code int32, remark string) {
	c := p.counts.errors[code]
	if c == nil {
		c = &codeCount{remark: remark}
		p.counts.errors[code] = c
	}
	c.n += int64(p.b.o.batch)
}

func (p *producer) inFlightLocked() int { return len(p.slots) - len(p.free) }

// read handles answers until the connection ends, the broker turns out not to lead, or the bench
// has stopped and nothing is in flight.
func (p *producer) read() {
	r := frameReader{sock: p.sock, buf: make([]byte, benchBuffer)}
	if !p.pump() || p.finished() {
		return
	}
	for {
		err := r.fill()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			// A pause is over, or the bench stops.
			_ = p.sock.SetReadDeadline(time.Time{})
		} else if p.answers(&r) != nil {
			return
		}
		if p.finished() || !p.pump() {
			return
		}
	}
}

func (p *producer) finished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inFlightLocked() == 0 && (p.refused || p.b.stopped())
}

// answers handles all whole frames of a burst.
func (p *producer) answers(r *frameReader) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.b.now()
	acked := p.counts.acked
	for {
		cmd, err := r.next()
		if err != nil || cmd == nil {
			if p.counts.acked > acked {
				p.b.gap.acknowledged(now)
			}
			return err
		}
		if cmd.IsResponse() {
			p.answerLocked(cmd, now)
		}
	}
}

func (p *producer) answerLocked(cmd *remoting.Command, now int64) {
	s := cmd.Opaque & (1<<slotBits - 1)
	if int(s) >= len(p.slots) || !p.slots[s].busy || p.slots[s].generation != cmd.Opaque>>slotBits {
		return // it was given up
	}
	p.progress = now
	intended := p.slots[s].intended
	p.releaseLocked(s)
	switch cmd.Code {
	case remoting.ResponseSuccess:
		p.counts.acked += int64(p.b.o.batch)
		_ = p.counts.latency.RecordValue(max((now-intended)/1000, 1))
		return
	case remoting.ResponseServiceNotAvailable:
		p.refused = true
	default:
		p.pauseEnd = now + int64(backOff)
		if !p.rated {
			_ = p.sock.SetReadDeadline(time.Now().Add(backOff))
		}
	}
	p.failedLocked(cmd.Code, cmd.Remark)
}

// pump sends all that may be sent in a closed loop; false means that the connection is lost.
func (p *producer) pump() bool {
	if p.rated {
		return true
	}
	return p.send()
}

// send encodes and writes what is due until nothing is.
func (p *producer) send() bool {
	for {
		p.mu.Lock()
		sock := p.sock
		if sock == nil {
			p.mu.Unlock()
			return false
		}
		p.fillLocked()
		b := p.out
		if len(b) == 0 {
			p.mu.Unlock()
			return true
		}
		p.out = p.spare[:0]
		p.mu.Unlock()
		_, err := sock.Write(b)
		p.spare = b[:0]
		if err != nil {
			_ = sock.Close() // the reader tidies up
			return false
		}
	}
}

// fillLocked encodes requests that are due, up to a buffer full.
func (p *producer) fillLocked() {
	if p.refused || p.b.stopped() {
		return
	}
	now := p.b.now()
	if now < p.pauseEnd {
		return
	}
	p.header.BornTimestamp = time.Now().UnixMilli()
	for len(p.free) > 0 && len(p.out) < benchBuffer {
		intended := now
		if p.rated {
			if intended = p.due(p.sequence); intended > now {
				return
			}
		}
		p.sequence++
		if p.inFlightLocked() == 0 {
			p.progress = now
		}
		s := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		p.slots[s].busy, p.slots[s].intended, p.slots[s].sent = true, intended, now
		p.keys.stamp()
		p.header.QueueID = p.queue
		if p.queue++; int(p.queue) == p.group.queues {
			p.queue = 0
		}
		p.out = p.b.style.AppendSend(p.out, p.slots[s].generation<<slotBits|s, &p.header, p.body)
	}
}

// due is when request n of an open loop is to leave.
func (p *producer) due(n int64) int64 { return p.first + int64(float64(n)*p.spacing) }

// pace sends an open loop's requests on schedule.
func (p *producer) pace(ctx context.Context) {
	const shortest, longest = 200 * time.Microsecond, 10 * time.Millisecond
	for ctx.Err() == nil && !p.b.stopped() {
		p.send()
		p.mu.Lock()
		wait := time.Duration(p.due(p.sequence) - p.b.now())
		p.mu.Unlock()
		time.Sleep(min(max(wait, shortest), longest))
	}
}

// wake lets the reader see that the bench stops.
func (p *producer) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sock != nil {
		_ = p.sock.SetReadDeadline(time.Unix(1, 0))
	}
}

// check gives up requests without an answer, and reports whether the broker has been silent for
// long though there are requests in flight.
func (p *producer) check() (broker, addr string, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.b.now()
	gaveUp := false
	for s := range p.slots {
		if p.slots[s].busy && now-p.slots[s].sent > int64(p.b.timeout) {
			p.releaseLocked(int32(s))
			p.failedLocked(codeTimeout, "")
			gaveUp = true
		}
	}
	if gaveUp && p.sock != nil {
		if p.inFlightLocked() == 0 {
			// Nothing was answered: this connection is of no use.
			_ = p.sock.Close()
		} else if !p.rated {
			_ = p.sock.SetReadDeadline(time.Unix(1, 0)) // send again
		}
	}
	silent = p.sock != nil && p.inFlightLocked() > 0 && now-p.progress > int64(silenceLimit)
	return p.group.broker, p.addr, silent
}

// leave closes the connection to addr.
func (p *producer) leave(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sock != nil && p.addr == addr {
		_ = p.sock.Close()
	}
}

// frameReader cuts frames from a connection; what next returns is valid until the following call.
type frameReader struct {
	sock     net.Conn
	buf      []byte
	from, to int // what is not handled yet
	cmd      remoting.Command
	scratch  []byte
}

// fill reads what has come, and at least something.
func (r *frameReader) fill() error {
	if r.from > 0 {
		r.to = copy(r.buf, r.buf[r.from:r.to])
		r.from = 0
	}
	if r.to == len(r.buf) {
		bigger := make([]byte, min(2*len(r.buf), remoting.MaxFrameSize))
		copy(bigger, r.buf)
		r.buf = bigger
	}
	n, err := r.sock.Read(r.buf[r.to:])
	r.to += n
	if n > 0 {
		return nil
	}
	return err
}

// next decodes the next whole frame, nil when there is none.
func (r *frameReader) next() (*remoting.Command, error) {
	if r.to-r.from < remoting.LengthSize {
		return nil, nil
	}
	length := int(binary.BigEndian.Uint32(r.buf[r.from:]))
	if length > remoting.MaxFrameSize-remoting.LengthSize {
		return nil, errors.New("frame too large")
	}
	end := r.from + remoting.LengthSize + length
	if end > r.to {
		return nil, nil
	}
	r.scratch = r.scratch[:0]
	err := remoting.DecodeFrame(r.buf[r.from+remoting.LengthSize:end], &r.cmd, &r.scratch)
	r.from = end
	return &r.cmd, err
}
