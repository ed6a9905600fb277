package main

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"raftmq/commitlog/record"
	"raftmq/transport/remoting"
)

const (
	// pullPark is how long a pull of "consume" may be parked: short, so that a leader that hangs is noticed.
	pullPark    = 5 * time.Second
	pullTimeout = pullPark + 3*time.Second
	pullMax     = 32
)

// queueReader reads one queue.
type queueReader struct {
	p      *printer
	broker string
	id     int
	offset int64 // next to pull; only run's goroutine uses it

	mu      sync.Mutex // guards what follows
	printed int64      // next to commit
	stored  int64      // committed
}

// request is a command about this queue.
func (r *queueReader) request(code int32, ext ...string) *remoting.Command {
	cmd := &remoting.Command{Code: code}
	cmd.Set("consumerGroup", r.p.o.group)
	cmd.Set("topic", r.p.o.topic)
	cmd.Set("queueId", strconv.Itoa(r.id))
	for i := 0; i < len(ext); i += 2 {
		cmd.Set(ext[i], ext[i+1])
	}
	cmd.Set("bname", r.broker)
	return cmd
}

// findOffset asks for the group's offset, and for an end of the queue when it has none.
func (r *queueReader) findOffset(ctx context.Context) error {
	offset, err := r.askOffset(ctx, remoting.RequestQueryConsumerOffset)
	if answeredWith(err, remoting.ResponseQueryNotFound) {
		code := remoting.RequestGetMinOffset
		if r.p.o.from == fromLast {
			code = remoting.RequestGetMaxOffset
		}
		offset, err = r.askOffset(ctx, code)
	}
	if err != nil {
		return err
	}
	r.offset, r.printed, r.stored = offset, offset, offset
	return nil
}

func (r *queueReader) askOffset(ctx context.Context, code int32) (int64, error) {
	resp, err := r.p.cluster.InvokeRepeated(ctx, r.request(code))
	what := fmt.Sprintf("%s of queue %d of %s", remoting.RequestCodeName(code), r.id, r.p.o.topic)
	if resp, err = invoked(what, resp, err); err != nil {
		return 0, err
	}
	offset, err := strconv.ParseInt(resp.GetString("offset"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: answer without an offset: %w", what, err)
	}
	return offset, nil
}

// commit stores the offset after the last printed message.
func (r *queueReader) commit(ctx context.Context) error {
	r.mu.Lock()
	printed := r.printed
	due := printed != r.stored && !r.p.o.noCommit
	r.mu.Unlock()
	if !due {
		return nil
	}
	resp, err := r.p.cluster.InvokeRepeated(ctx, r.request(remoting.RequestUpdateConsumerOffset, "commitOffset", strconv.FormatInt(printed, 10)))
	if _, err := invoked(fmt.Sprintf("commit the offset of queue %d of %s", r.id, r.p.o.topic), resp, err); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = printed
	return nil
}

// run pulls and prints until ctx ends.
func (r *queueReader) run(ctx context.Context) {
	warned := ""
	for ctx.Err() == nil {
		err := r.pull(ctx)
		var refused *answerError
		switch {
		case err == nil:
			warned = ""
			continue
		case ctx.Err() != nil:
			return
		case errors.Is(err, errOutput):
			r.p.fail(err)
			return
		case errors.As(err, &refused) && refused.code != remoting.ResponseServiceNotAvailable && refused.code != remoting.ResponseSystemBusy &&
			refused.code != remoting.ResponseSystemError:
			r.p.fail(err)
			return
		}
		// A leader change, most likely; each reason is told once.
		if text := err.Error(); text != warned {
			r.p.warn("%s; trying again", text)
			warned = text
		}
		sleep(ctx, retryPause)
	}
}

// errOutput: printing failed, which trying again does not mend.
var errOutput = errors.New("print")

func (r *queueReader) pull(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	resp, err := r.p.cluster.InvokeLeader(ctx, r.request(remoting.RequestPullMessage,
		"queueOffset", strconv.FormatInt(r.offset, 10), "maxMsgNums", strconv.Itoa(pullMax),
		"sysFlag", strconv.Itoa(pullSuspend|pullSubscription), "commitOffset", "0",
		"suspendTimeoutMillis", strconv.FormatInt(pullPark.Milliseconds(), 10),
		"subscription", r.p.o.tag, "subVersion", "0", "expressionType", "TAG"))
	what := fmt.Sprintf("pull queue %d of %s", r.id, r.p.o.topic)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	switch resp.Code {
	case remoting.ResponseSuccess, remoting.ResponsePullNotFound, remoting.ResponsePullRetryImmediately, remoting.ResponsePullOffsetMoved:
	default:
		_, err := invoked(what, resp, nil)
		return err
	}
	next, err := strconv.ParseInt(resp.GetString("nextBeginOffset"), 10, 64)
	if err != nil {
		return fmt.Errorf("%s: answer without nextBeginOffset: %w", what, err)
	}
	if resp.Code == remoting.ResponsePullOffsetMoved {
		r.p.warn("queue %d of %s: offset %d is outside of the queue, going on at %d", r.id, r.p.o.topic, r.offset, next)
	}
	printed := next
	if resp.Code == remoting.ResponseSuccess {
		messages, err := decodeMessages(resp.Body, r.p.o.tag)
		if err != nil {
			return fmt.Errorf("%s at offset %d: %w", what, r.offset, err)
		}
		n, err := r.p.print(messages)
		if err != nil {
			return fmt.Errorf("%w: %w", errOutput, err)
		}
		if n < len(messages) {
			printed = messages[n].Offset
		}
	}
	r.offset = next
	r.mu.Lock()
	defer r.mu.Unlock()
	r.printed = printed
	return nil
}

// message is what consume prints.
type message struct {
	Topic      string            `json:"topic"`
	Queue      int32             `json:"queue"`
	Offset     int64             `json:"offset"`
	Born       time.Time         `json:"born"`
	Stored     time.Time         `json:"stored"`
	Tag        string            `json:"tag,omitempty"`
	Keys       string            `json:"keys,omitempty"`
	Properties map[string]string `json:"properties"`
	Body       string            `json:"body"`
}

// decodeMessages decodes the records of a pull and leaves out those whose tag was not asked for:
// brokers compare hash codes.
func decodeMessages(body []byte, tags string) ([]message, error) {
	var messages []message
	for len(body) > 0 {
		var m record.Message
		n, err := record.Decode(body, &m)
		if err != nil {
			return nil, err
		}
		body = body[n:]
		properties := map[string]string{}
		record.RangeProperties(m.Properties, func(name, value []byte) bool {
			properties[string(name)] = string(value)
			return true
		})
		tag := properties[record.PropertyTags]
		if !tagMatches(tags, tag) {
			continue
		}
		text, err := plainBody(&m)
		if err != nil {
			return nil, fmt.Errorf("message at offset %d: %w", m.QueueOffset, err)
		}
		messages = append(messages, message{
			Topic: string(m.Topic), Queue: m.QueueID, Offset: m.QueueOffset, Born: time.UnixMilli(m.BornTimestamp), Stored: time.UnixMilli(m.StoreTimestamp),
			Tag: tag, Keys: properties[record.PropertyKeys], Properties: properties, Body: text,
		})
	}
	return messages, nil
}

// tagMatches applies a TAG expression: "*", or tags joined by "||".
func tagMatches(expression, tag string) bool {
	if expression = strings.TrimSpace(expression); expression == "" || expression == "*" {
		return true
	}
	return slices.ContainsFunc(strings.Split(expression, "||"), func(t string) bool { return strings.TrimSpace(t) == tag })
}

// Bits of sysFlag about compression: whether, and with what (0 and 3 are zlib).
const (
	sysFlagCompressed  = 0x1
	compressionShift   = 8
	compressionMask    = 7
	compressionDefault = 0
	compressionZlib    = 3
)

// plainBody decompresses a body that a client has compressed.
func plainBody(m *record.Message) (string, error) {
	if m.SysFlag&sysFlagCompressed == 0 {
		return string(m.Body), nil
	}
	if kind := m.SysFlag >> compressionShift & compressionMask; kind != compressionDefault && kind != compressionZlib {
		return "", fmt.Errorf("body compressed in a way that is not known here (type %d)", kind)
	}
	z, err := zlib.NewReader(bytes.NewReader(m.Body))
	if err != nil {
		return "", fmt.Errorf("compressed body: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, remoting.MaxFrameSize*8))
	if err != nil {
		return "", fmt.Errorf("compressed body: %w", err)
	}
	return string(text), nil
}

// write prints a message as the options say.
func (m *message) write(w io.Writer, o *consumeOptions) error {
	if o.asJSON {
		return json.NewEncoder(w).Encode(m)
	}
	if o.verbose {
		head := fmt.Sprintf("queue %d offset %d %s", m.Queue, m.Offset, m.Stored.Format("2006-01-02T15:04:05.000"))
		for _, name := range slices.Sorted(maps.Keys(m.Properties)) {
			if name == record.PropertyTags || name == record.PropertyKeys {
				head += fmt.Sprintf(" %s=%s", strings.ToLower(name), m.Properties[name])
			}
		}
		if _, err := io.WriteString(w, head+": "); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, m.Body+"\n")
	return err
}
