// Package workload puts load on a cluster the way applications do and records every operation:
// producers and consumers with Apache's own Go client or with raw protocol requests, and at the
// end a drain that reads every queue from every node separately.
//
// It judges nothing. A send that got no clear answer is recorded as unknown; one is recorded as
// failed only when it certainly was not stored.
package workload

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Client says which client library a workload uses.
type Client string

// The clients. Stock producers are silent for up to 30 s after each change of leader, so a run
// of stock clients alone puts little load on a cluster that is hurt often.
const (
	Stock Client = "stock" // apache/rocketmq-client-go
	Raw   Client = "raw"   // transport/client; looks for the leader at once
	Mixed Client = "mixed" // every other producer and every other group's consumers are stock
)

// ErrRefused: a send was certainly not stored. Any other error of a send leaves that open.
var ErrRefused = errors.New("workload: send refused")

// Message is one value on its way. All attempts to send it use the same Message, and so the same
// UNIQ_KEY.
type Message struct {
	Value   string
	Body    []byte
	UniqKey string // set by the first attempt
	Key     string // messages of one key go to one queue; "" for any queue
	Level   int    // of delay, 0 for none
	Delay   time.Duration
	Wish    string             // see package history
	stock   *primitive.Message // of the stock client's attempts
}

// NewMessage makes a body of size bytes (more if the value needs it) that names the value. What follows the name differs
// from value to value and from place to place, so that no exchange of pages goes unseen.
func NewMessage(value string, size int) *Message {
	body := make([]byte, 0, max(size, len(value)+1))
	body = append(append(body, value...), '|')
	h := fnv.New64a()
	_, _ = h.Write(body)
	for x := h.Sum64(); len(body) < size; x += 0x9e3779b97f4a7c15 {
		var word [8]byte
		binary.BigEndian.PutUint64(word[:], x*x^x>>29)
		body = append(body, word[:min(8, size-len(body))]...)
	}
	return &Message{Value: value, Body: body}
}

// ValueOf reads the value from a body; one that NewMessage did not make is its own value, shortened.
func ValueOf(body []byte) string {
	if value, _, ok := bytes.Cut(body, []byte{'|'}); ok {
		return string(value)
	}
	return fmt.Sprintf("foreign body %.60q", body)
}

// Ack is what an acknowledgement says.
type Ack struct {
	Queue  int32
	Offset int64
	Node   string // that answered, "" where the client can't tell
}

// Sender makes attempts to send messages. It is used by one goroutine.
type Sender interface {
	// Send makes one attempt to send one message, or several as a batch. A nil error is an acknowledgement: of the first message,
	// the others of a batch follow it.
	Send(ctx context.Context, batch ...*Message) (Ack, error)
	Close()
}

// Delivery is one message as a consumer got it.
type Delivery struct {
	Value, UniqKey string
	Topic          string
	Queue          int32
	Offset         int64
	Node           string // that was read, "" where the client can't tell
	Size           int    // of the body
	Sum            uint32 // CRC-32 of the body
	Stored         int64  // Unix milliseconds
	Tries          int    // how often it was sent back before
	// Began is when the consumer got it, zero for now.
	Began time.Duration
}

// Consumer delivers messages to the function it was made with, until Close.
type Consumer interface{ Close() }

// sleep waits d or until ctx ends, and reports whether it waited all of it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
