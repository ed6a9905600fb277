package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

const (
	rawRouteTimeout = 500 * time.Millisecond
	rawSendTimeout  = 1500 * time.Millisecond
	rawPullSuspend  = 2 * time.Second
	rawPullTimeout  = 5 * time.Second
	rawCommitEvery  = time.Second
)

// rawSender sends to the leader that any node's route names, all to one queue.
type rawSender struct {
	cl       *client.Cluster // connections only
	addrs    []string
	asked    int // name server that was asked last
	topic    string
	name     string
	queue    int32
	queues   int // of the topic, for keys
	leader   string
	uniqueID int
	timeout  time.Duration // of one attempt
}

// NewRawSender returns a sender that asks for the leader again after each failed attempt.
func NewRawSender(addrs []string, name, topic string, queue int32) Sender {
	return newRawSender(addrs, name, topic, queue, 1)
}

func newRawSender(addrs []string, name, topic string, queue int32, queues int) *rawSender {
	return &rawSender{cl: client.NewCluster(nil), timeout: rawSendTimeout, addrs: slices.Clone(addrs), topic: topic, name: name, queue: queue, queues: queues}
}

func (s *rawSender) Send(ctx context.Context, batch ...*Message) (Ack, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for _, m := range batch {
		if m.UniqKey == "" {
			s.uniqueID++
			m.UniqKey = fmt.Sprintf("%s-%d", s.name, s.uniqueID)
		}
	}
	ack, err := s.attempt(ctx, batch)
	if err != nil {
		s.leader = ""
	}
	return ack, err
}

func (s *rawSender) attempt(ctx context.Context, batch []*Message) (Ack, error) {
	if s.leader == "" {
		if err := s.findLeader(ctx); err != nil {
			return Ack{}, fmt.Errorf("%w: route: %w", ErrRefused, err)
		}
	}
	c, err := s.cl.Client(ctx, s.leader)
	if err != nil {
		return Ack{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	addr := s.leader
	resp, err := c.Invoke(ctx, s.request(batch))
	if err != nil {
		// A fresh connection next time: this one may be to a paused or cut off node.
		_ = c.Close()
		return Ack{}, err
	}
	return sendAnswer(resp, addr)
}

// request puts a message, or a batch, to where it belongs.
func (s *rawSender) request(batch []*Message) *remoting.Command {
	m, queue := batch[0], s.queue
	if m.Key != "" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(m.Key))
		queue = int32(h.Sum32() % uint32(s.queues))
	}
	if len(batch) == 1 {
		return sendRequest(s.topic, s.name, queue, m)
	}
	cmd := sendRequest(s.topic, s.name, queue, &Message{UniqKey: m.UniqKey})
	cmd.Code, cmd.Body = remoting.RequestSendBatchMessage, nil
	cmd.Set("i", "")
	cmd.Set("m", "true")
	for _, m := range batch {
		cmd.Body = appendBatchEntry(cmd.Body, m)
	}
	return cmd
}

// appendBatchEntry appends a message as the body of a batch has it (RocketMQ's MessageDecoder.encodeMessage).
func appendBatchEntry(dst []byte, m *Message) []byte {
	props := properties(m)
	dst = binary.BigEndian.AppendUint32(dst, uint32(4+4+4+4+4+len(m.Body)+2+len(props)))
	dst = binary.BigEndian.AppendUint32(dst, 0) // magic
	dst = binary.BigEndian.AppendUint32(dst, 0) // checksum, the broker's
	dst = binary.BigEndian.AppendUint32(dst, 0) // flag
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Body)))
	dst = append(dst, m.Body...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(props)))
	return append(dst, props...)
}

// properties are the message's in the form of the wire.
func properties(m *Message) string {
	p := "UNIQ_KEY\x01" + m.UniqKey
	if m.Level > 0 {
		p += "\x02DELAY\x01" + strconv.Itoa(m.Level)
	}
	return p
}

// findLeader asks another name server each time, as stock clients do: the one that was asked last may be cut off from
// the others and name a leader that was.
func (s *rawSender) findLeader(ctx context.Context) (err error) {
	s.asked++
	s.leader, err = routeLeader(ctx, s.cl, s.addrs[s.asked%len(s.addrs)], s.topic)
	return err
}

// routeLeader asks one name server for the leader of a topic.
func routeLeader(ctx context.Context, cl *client.Cluster, addr, topic string) (leader string, err error) {
	ctx, cancel := context.WithTimeout(ctx, rawRouteTimeout)
	defer cancel()
	c, err := cl.Client(ctx, addr)
	if err != nil {
		return "", err
	}
	cmd := &remoting.Command{Code: remoting.RequestGetRouteInfoByTopic}
	cmd.Set("topic", topic)
	cmd.Set("acceptStandardJsonOnly", "true")
	cmd.Set(remoting.OwnToolField, "true")
	resp, err := c.Invoke(ctx, cmd)
	if err != nil {
		_ = c.Close()
		return "", err
	}
	if resp.Code != remoting.ResponseSuccess {
		return "", fmt.Errorf("code %d, %s", resp.Code, resp.Remark)
	}
	var route remoting.TopicRouteData
	if err := route.Decode(resp.Body); err != nil {
		return "", err
	}
	for _, b := range route.BrokerDatas {
		leader = b.BrokerAddrs[0]
	}
	if leader == "" {
		return "", errors.New("no leader in it")
	}
	return leader, nil
}

// sendRequest is a SEND_MESSAGE_V2 (310).
func sendRequest(topic, group string, queue int32, m *Message) *remoting.Command {
	cmd := &remoting.Command{Code: remoting.RequestSendMessageV2, Body: m.Body}
	for _, kv := range [][2]string{
		{"a", group}, {"b", topic}, {"c", "TBW102"}, {"d", "4"}, {"e", strconv.Itoa(int(queue))}, {"f", "0"},
		{"g", strconv.FormatInt(time.Now().UnixMilli(), 10)}, {"h", "0"}, {"i", properties(m)},
		{"j", "0"}, {"k", "false"}, {"m", "false"},
	} {
		cmd.Set(kv[0], kv[1])
	}
	return cmd
}

// sendAnswer turns an answer into an acknowledgement. These codes are given before anything is
// proposed, so they are certain; 14 is not taken as such, since a leader that lost its quorum may give it too.
func sendAnswer(resp *remoting.Command, node string) (Ack, error) {
	switch resp.Code {
	case remoting.ResponseSuccess:
	case remoting.ResponseSystemBusy, remoting.ResponseMessageIllegal, remoting.ResponseNoPermission, remoting.ResponseTopicNotExist:
		return Ack{}, fmt.Errorf("%w: code %d, %s", ErrRefused, resp.Code, resp.Remark)
	default:
		return Ack{}, fmt.Errorf("workload: code %d, %s", resp.Code, resp.Remark)
	}
	queue, qerr := strconv.ParseInt(resp.GetString("queueId"), 10, 32)
	offset, oerr := strconv.ParseInt(resp.GetString("queueOffset"), 10, 64)
	if err := errors.Join(qerr, oerr); err != nil {
		return Ack{}, fmt.Errorf("workload: answer without place: %w", err)
	}
	return Ack{Queue: int32(queue), Offset: offset, Node: node}, nil
}

func (s *rawSender) Close() { _ = s.cl.Close() }

// rawConsumer pulls a fixed share of the queues, from any node: leader or follower, going on to
// the next one when a node fails. Its progress is its own; it commits offsets as a client would.
type rawConsumer struct {
	addrs   []string
	group   string
	topic   string
	deliver func(Delivery)
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// NewRawConsumer starts pulling queues from the node at addrs[first mod n] on; deliver is called from one goroutine per
// queue.
func NewRawConsumer(addrs []string, first int, group, topic string, queues []int32, deliver func(Delivery)) Consumer {
	ctx, cancel := context.WithCancel(context.Background())
	r := &rawConsumer{addrs: slices.Clone(addrs), group: group, topic: topic, deliver: deliver, stop: cancel}
	for i, q := range queues {
		r.wg.Go(func() { r.consume(ctx, first+i, q) })
	}
	return r
}

func (r *rawConsumer) Close() {
	r.stop()
	r.wg.Wait()
}

func (r *rawConsumer) consume(ctx context.Context, at int, queue int32) {
	cl := client.NewCluster(r.addrs)
	defer cl.Close()
	next, committed, commitAt := int64(0), int64(0), time.Now()
	moved := 0 // answers in a row that the offset is none of this queue
	for ctx.Err() == nil {
		addr := r.addrs[at%len(r.addrs)]
		c, err := cl.Client(ctx, addr)
		var p pulled
		if err == nil {
			p, err = pull(ctx, c, r.group, r.topic, queue, next, true)
			if err != nil {
				_ = c.Close()
			}
		}
		switch {
		case err != nil, p.code == remoting.ResponsePullOffsetMoved, p.code == remoting.ResponsePullRetryImmediately && p.min > next:
			// The node is down, or is behind what another one has shown: ask the next. If all say so, what was there has expired. Only
			// a leader says that outright.
			at++
			if moved++; err == nil && moved > 3*len(r.addrs) && max(p.next, p.min) > next {
				next = max(p.next, p.min)
			}
			sleep(ctx, 50*time.Millisecond)
		default:
			for _, d := range p.messages {
				d.Node = addr
				r.deliver(d)
			}
			if p.next > next {
				next, moved = p.next, 0
			} else if p.code == remoting.ResponsePullRetryImmediately {
				at++ // it is behind: another one has what is there
			}
		}
		if next > committed && time.Since(commitAt) > rawCommitEvery {
			r.commit(ctx, cl, queue, next)
			committed, commitAt = next, time.Now()
		}
	}
}

// commit is best effort, as with any client: what is not committed would be delivered again.
func (r *rawConsumer) commit(ctx context.Context, cl *client.Cluster, queue int32, offset int64) {
	ctx, cancel := context.WithTimeout(ctx, rawSendTimeout)
	defer cancel()
	cmd := &remoting.Command{Code: remoting.RequestUpdateConsumerOffset}
	cmd.Set("consumerGroup", r.group)
	cmd.Set("topic", r.topic)
	cmd.Set("queueId", strconv.Itoa(int(queue)))
	cmd.Set("commitOffset", strconv.FormatInt(offset, 10))
	_, _ = cl.InvokeLeader(ctx, cmd)
}
