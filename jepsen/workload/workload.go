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
	"errors"
	"fmt"
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
	UniqKey string             // set by the first attempt
	stock   *primitive.Message // of the stock client's attempts
}

// NewMessage makes a body of size bytes (more if the value needs it) that names the value.
func NewMessage(value string, size int) *Message {
	body := append([]byte(value), '|')
	if pad := size - len(body); pad > 0 {
		body = append(body, bytes.Repeat([]byte{'.'}, pad)...)
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
	// Send makes one attempt. A nil error is an acknowledgement.
	Send(ctx context.Context, m *Message) (Ack, error)
	Close()
}

// Delivery is one message as a consumer got it.
type Delivery struct {
	Value, UniqKey string
	Queue          int32
	Offset         int64
	Node           string // that was read, "" where the client can't tell
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
