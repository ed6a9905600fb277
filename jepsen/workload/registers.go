package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

const (
	registerClients = 6
	registerRate    = 240.0 // operations a second of all of them
	offsetGroups    = 3
	offsetQueues    = 4
	tableTopics     = 6
)

// Registers is the workload of the replicated tables: a few clients write and read the same entries, consumer offsets or topics, and every
// answer must fit one order of events.
type Registers struct {
	cfg     Config
	cluster *cluster.Cluster
	rec     *history.Recorder
	value   atomic.Int64 // every offset is committed once
}

func newRegisters(c *cluster.Cluster, rec *history.Recorder, cfg Config) *Registers {
	cfg.fillIn()
	return &Registers{cfg: cfg, cluster: c, rec: rec}
}

// Info tells the checkers what they need to know.
func (w *Registers) Info() history.RunInfo { return history.RunInfo{Workload: w.cfg.Kind} }

// SetUp creates the topic whose offsets are committed.
func (w *Registers) SetUp(ctx context.Context) error {
	if w.cfg.Kind != checker.Offsets {
		return nil
	}
	return CreateTopic(ctx, w.cluster.RunningAddrs(), w.cfg.Topic, offsetQueues)
}

// Produce writes and reads until ctx ends.
func (w *Registers) Produce(ctx context.Context) error {
	var wg sync.WaitGroup
	for i := range registerClients {
		wg.Go(func() {
			r := &registerClient{Registers: w, name: fmt.Sprintf("r%d", i+1), cl: client.NewCluster(nil), asked: i,
				rng: rand.New(rand.NewPCG(w.cfg.Seed, uint64(i)))}
			defer r.cl.Close()
			for ctx.Err() == nil {
				// What has begun is finished, for what is cut off is unknown without need.
				r.step(context.WithoutCancel(ctx))
				sleep(ctx, time.Duration(float64(time.Second)*registerClients/registerRate))
			}
		})
	}
	// And whoever asks one node only, whatever a route says, must not be told what was.
	for i, n := range w.cluster.Nodes() {
		if w.cfg.Kind != checker.Offsets {
			break // the topics that a follower lists may be a moment old
		}
		wg.Go(func() {
			r := &registerClient{Registers: w, name: "at-" + n.ID, cl: client.NewCluster(nil), only: n.Addrs.Client, rng: rand.New(rand.NewPCG(w.cfg.Seed, uint64(100+i)))}
			defer r.cl.Close()
			all := w.all()
			for ctx.Err() == nil {
				r.read(context.WithoutCancel(ctx), all[r.rng.IntN(len(all))])
				sleep(ctx, time.Duration(float64(time.Second)*registerClients/registerRate))
			}
		})
	}
	wg.Wait()
	return nil
}

// AwaitDelivered, Close and Drain have nothing to do: there are no messages.
func (w *Registers) AwaitDelivered(context.Context) {}

// Close has nothing to do.
func (w *Registers) Close() {}

// Drain reads every register once more, so that the last writes are seen by somebody.
func (w *Registers) Drain(ctx context.Context) {
	r := &registerClient{Registers: w, name: "last", cl: client.NewCluster(nil)}
	defer r.cl.Close()
	for _, op := range w.all() {
		for {
			if r.read(ctx, op) || !sleep(ctx, 50*time.Millisecond) {
				break
			}
		}
	}
}

// all are operations that read each register.
func (w *Registers) all() (ops []history.Op) {
	if w.cfg.Kind == checker.Topics {
		for i := range tableTopics {
			ops = append(ops, history.Op{Kind: history.Get, Topic: fmt.Sprintf("%s-%d", w.cfg.Topic, i)})
		}
		return ops
	}
	for g := range offsetGroups {
		for q := range int32(offsetQueues) {
			ops = append(ops, history.Op{Kind: history.Fetch, Group: fmt.Sprintf("%s-group-%d", w.cfg.Topic, g+1), Topic: w.cfg.Topic, Queue: q})
		}
	}
	return ops
}

// registerClient is one of the clients; it does one thing after the other.
type registerClient struct {
	*Registers
	name   string
	cl     *client.Cluster
	rng    *rand.Rand
	asked  int
	leader string
	only   string // the node that is asked, "" for the leader
}

func (r *registerClient) step(ctx context.Context) {
	all := r.all()
	op := all[r.rng.IntN(len(all))]
	if r.rng.IntN(2) == 0 {
		r.read(ctx, op)
		return
	}
	r.write(ctx, op)
}

// invoke sends a request to the leader as a route names it. ErrRefused: it was not sent at all.
func (r *registerClient) invoke(ctx context.Context, op *history.Op, cmd *remoting.Command) (*remoting.Command, error) {
	ctx, cancel := context.WithTimeout(ctx, rawPullTimeout)
	defer cancel()
	if r.only != "" {
		r.leader = r.only
	}
	if r.leader == "" {
		addrs := r.cluster.ClientAddrs()
		r.asked++
		var err error
		// A topic that everybody has.
		if r.leader, err = routeLeader(ctx, r.cl, addrs[r.asked%len(addrs)], "TBW102"); err != nil {
			return nil, fmt.Errorf("%w: route: %w", ErrRefused, err)
		}
	}
	op.Node = r.leader
	c, err := r.cl.Client(ctx, r.leader)
	if err != nil {
		r.leader = ""
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	resp, err := c.Invoke(ctx, cmd)
	if err != nil {
		_ = c.Close()
		r.leader = ""
		return nil, err
	}
	if resp.Code == remoting.ResponseServiceNotAvailable {
		r.leader = ""
	}
	return resp, nil
}

func (r *registerClient) write(ctx context.Context, op history.Op) {
	cmd := &remoting.Command{}
	switch {
	case op.Kind == history.Fetch:
		op.Kind, op.Offset = history.Commit, r.value.Add(1)
		cmd.Code = remoting.RequestUpdateConsumerOffset
		set(cmd, "consumerGroup", op.Group, "topic", op.Topic, "queueId", strconv.Itoa(int(op.Queue)), "commitOffset", strconv.FormatInt(op.Offset, 10))
	case r.rng.IntN(3) == 0:
		op.Kind = history.Delete
		cmd.Code = remoting.RequestDeleteTopicInBroker
		set(cmd, "topic", op.Topic)
	default:
		op.Kind, op.Count = history.Put, 1+r.rng.IntN(16)
		n := strconv.Itoa(op.Count)
		cmd.Code = remoting.RequestUpdateAndCreateTopic
		set(cmd, "topic", op.Topic, "defaultTopic", "TBW102", "readQueueNums", n, "writeQueueNums", n, "perm", "6",
			"topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false")
	}
	op.Process = r.name
	p := r.rec.Begin(op)
	defer r.rec.End(p)
	resp, err := r.invoke(ctx, p, cmd)
	switch {
	case errors.Is(err, ErrRefused):
		p.Outcome, p.Error = history.Fail, err.Error()
	case err != nil:
		p.Error = err.Error()
	case resp.Code == remoting.ResponseSuccess:
		p.Outcome = history.OK
	default:
		p.Error = fmt.Sprintf("code %d, %s", resp.Code, resp.Remark)
	}
}

// read reports whether there was an answer.
func (r *registerClient) read(ctx context.Context, op history.Op) bool {
	// Only the leader answers this; GET_ALL_TOPIC_CONFIG is answered by any node with what it has.
	cmd := &remoting.Command{Code: remoting.RequestGetTopicConfig}
	set(cmd, "topic", op.Topic)
	if op.Kind == history.Fetch {
		op.Offset = -1
		cmd.Code = remoting.RequestQueryConsumerOffset
		set(cmd, "consumerGroup", op.Group, "topic", op.Topic, "queueId", strconv.Itoa(int(op.Queue)), "setZeroIfNotFound", "false")
	}
	op.Process = r.name
	p := r.rec.Begin(op)
	defer r.rec.End(p)
	resp, err := r.invoke(ctx, p, cmd)
	if err == nil {
		err = answerOf(p, resp)
	}
	if err != nil {
		p.Error = err.Error()
		return false
	}
	p.Outcome = history.OK
	return true
}

// answerOf fills in what was read.
func answerOf(op *history.Op, resp *remoting.Command) error {
	switch {
	case op.Kind == history.Fetch && resp.Code == remoting.ResponseQueryNotFound, op.Kind == history.Get && resp.Code == remoting.ResponseTopicNotExist:
		return nil // none
	case resp.Code != remoting.ResponseSuccess:
		return fmt.Errorf("workload: code %d, %s", resp.Code, resp.Remark)
	case op.Kind == history.Fetch:
		offset, err := strconv.ParseInt(resp.GetString("offset"), 10, 64)
		op.Offset = offset
		return err
	}
	var topic struct {
		TopicName     string `json:"topicName"`
		ReadQueueNums int    `json:"readQueueNums"`
	}
	if err := json.Unmarshal(resp.Body, &topic); err != nil {
		return fmt.Errorf("workload: topic: %w", err)
	}
	if topic.TopicName != op.Topic {
		return fmt.Errorf("workload: asked for %s and got %q", op.Topic, topic.TopicName)
	}
	op.Count = topic.ReadQueueNums
	return nil
}

func set(cmd *remoting.Command, kv ...string) {
	for i := 0; i < len(kv); i += 2 {
		cmd.Set(kv[i], kv[i+1])
	}
}
