package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"raftmq/transport/remoting"
)

const (
	// askTimeout bounds one try at one name server, so that an address that drops packets
	// doesn't use up the caller's time.
	askTimeout = time.Second
	// repeatTimeout bounds one try of InvokeRepeated.
	repeatTimeout = 2 * time.Second
	firstPause    = 10 * time.Millisecond
	longestPause  = 200 * time.Millisecond

	leaderID = 0
	// autoCreateTopic is the topic whose route RocketMQ clients use for topics that do not exist yet.
	autoCreateTopic = "TBW102"
)

// ErrNoLeader is returned when no broker of a topic's route has an address under id 0.
var ErrNoLeader = errors.New("client: no leader is known")

// ResponseError is an answer with a code other than 0 where the caller wanted the content.
type ResponseError struct {
	Request int32 // code of the request
	Code    int32
	Remark  string
}

func (e *ResponseError) Error() string {
	return fmt.Sprintf("client: request %d answered %d: %s", e.Request, e.Code, e.Remark)
}

// Route says where a topic lives, in the form that this package's callers need.
type Route struct {
	OrderTopicConf string
	Brokers        []RouteBroker
	Queues         []RouteQueue
}

// RouteBroker is one broker group. Id 0 is the leader.
type RouteBroker struct {
	Name, Cluster string
	Addrs         map[int64]string
}

// RouteQueue is a topic's queues in one broker group.
type RouteQueue struct {
	Broker                  string
	ReadQueues, WriteQueues int
	Perm, SysFlag           int
}

func routeOf(data *remoting.TopicRouteData) *Route {
	r := &Route{OrderTopicConf: data.OrderTopicConf}
	for _, b := range data.BrokerDatas {
		r.Brokers = append(r.Brokers, RouteBroker{Name: b.BrokerName, Cluster: b.Cluster, Addrs: b.BrokerAddrs})
	}
	for _, q := range data.QueueDatas {
		r.Queues = append(r.Queues, RouteQueue{
			Broker: q.BrokerName, ReadQueues: int(q.ReadQueueNums), WriteQueues: int(q.WriteQueueNums),
			Perm: int(q.Perm), SysFlag: int(q.TopicSysFlag),
		})
	}
	return r
}

// Leader returns the leader's address of the named broker group, of the first group that has one when name is "".
func (r *Route) Leader(name string) (string, bool) {
	for _, b := range r.Brokers {
		if addr := b.Addrs[leaderID]; addr != "" && (name == "" || b.Name == name) {
			return addr, true
		}
	}
	return "", false
}

// Cluster finds topics and leaders through name servers and caches one connection per
// address. Safe for concurrent use.
type Cluster struct {
	nameServers []string

	mu      sync.Mutex // guards what follows
	asked   int        // the name server to ask first
	leaders map[group]string
	conns   map[string]*dialled
	closed  bool
}

// group is the broker group that a request goes to; brokerName "" is any group of the topic.
type group struct{ topic, brokerName string }

// dialled is a connection that is being made (until ready is closed), or was.
type dialled struct {
	ready  chan struct{}
	client *Client
	err    error
}

// NewCluster returns a cluster without contacting it. An element of nameServers may be
// several addresses joined by ';'. In RaftMQ any node's client address is one.
func NewCluster(nameServers []string) *Cluster {
	c := &Cluster{leaders: make(map[group]string), conns: make(map[string]*dialled)}
	for _, joined := range nameServers {
		for addr := range strings.SplitSeq(joined, ";") {
			if addr = strings.TrimSpace(addr); addr != "" && !slices.Contains(c.nameServers, addr) {
				c.nameServers = append(c.nameServers, addr)
			}
		}
	}
	return c
}

// NameServers lists the addresses that are asked for routes.
func (c *Cluster) NameServers() []string { return slices.Clone(c.nameServers) }

// Close closes all connections; requests in flight fail.
func (c *Cluster) Close() error {
	c.mu.Lock()
	c.closed = true
	conns := c.conns
	c.conns = nil
	c.mu.Unlock()
	for _, d := range conns {
		<-d.ready // bounded by the dial timeout
		if d.client != nil {
			_ = d.client.Close()
		}
	}
	return nil
}

// Client returns the cached connection to addr, or makes one. It stays the cluster's: don't close it
// unless it is to be replaced.
func (c *Cluster) Client(ctx context.Context, addr string) (*Client, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, ErrConnClosed
		}
		d := c.conns[addr]
		if d == nil {
			d = &dialled{ready: make(chan struct{})}
			c.conns[addr] = d
			c.mu.Unlock()
			return c.dial(ctx, addr, d)
		}
		c.mu.Unlock()
		select {
		case <-d.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if d.err == nil && d.client.Err() == nil {
			return d.client, nil
		}
		c.drop(addr, d)
	}
}

func (c *Cluster) dial(ctx context.Context, addr string, d *dialled) (*Client, error) {
	d.client, d.err = Dial(ctx, addr)
	if d.err != nil {
		c.drop(addr, d)
	}
	close(d.ready)
	return d.client, d.err
}

// drop forgets a connection that failed, unless another has taken its place.
func (c *Cluster) drop(addr string, d *dialled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns[addr] == d {
		delete(c.conns, addr)
	}
}

// Route asks one name server after the other for a topic's route. An answer such as 17 (topic does not exist)
// is returned as a ResponseError when no name server knows better.
func (c *Cluster) Route(ctx context.Context, topic string) (*Route, error) {
	cmd := &remoting.Command{Code: remoting.RequestGetRouteInfoByTopic}
	cmd.Set("topic", topic)
	cmd.Set("acceptStandardJsonOnly", "true")
	cmd.Set(remoting.OwnToolField, "true")
	resp, err := c.InvokeAny(ctx, cmd)
	if err != nil {
		return nil, err
	}
	var data remoting.TopicRouteData
	if err := data.Decode(resp.Body); err != nil {
		return nil, fmt.Errorf("client: route of topic %q: %w", topic, err)
	}
	return routeOf(&data), nil
}

// InvokeAny sends cmd to one name server after the other until one answers with code 0. For
// requests that any node answers and that may be repeated.
func (c *Cluster) InvokeAny(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	c.mu.Lock()
	first := c.asked
	c.mu.Unlock()
	err := fmt.Errorf("client: no name servers")
	for i := range c.nameServers {
		n := (first + i) % len(c.nameServers)
		var resp *remoting.Command
		resp, askErr := c.ask(ctx, c.nameServers[n], cmd)
		if askErr == nil {
			c.mu.Lock()
			c.asked = n
			c.mu.Unlock()
			return resp, nil
		}
		// An answer tells more than a name server that is down.
		if response := (*ResponseError)(nil); !errors.As(err, &response) {
			err = askErr
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

func (c *Cluster) ask(ctx context.Context, addr string, cmd *remoting.Command) (*remoting.Command, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client, err := c.Client(ctx, addr)
	if err != nil {
		return nil, err
	}
	resp, err := client.Invoke(ctx, cmd)
	if err == nil && resp.Code != remoting.ResponseSuccess {
		err = &ResponseError{Request: cmd.Code, Code: resp.Code, Remark: resp.Remark}
	}
	return resp, err
}

// InvokeLeader sends cmd to the leader of its topic and broker group, read from the ext fields (the route of TBW102 is used
// where the request has no topic or the topic does not exist). As long as ctx lasts it resolves the leader anew and repeats when
// nothing was done: no leader known, no connection, answer 14. When ctx ends, the last answer 14 is returned
// if there was one. A request whose outcome is unknown, because the connection was lost or
// ctx ended meanwhile, is not repeated: the error wraps ErrConnClosed or ctx's, and the next call resolves anew.
func (c *Cluster) InvokeLeader(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	return c.invokeLeader(ctx, cmd, false)
}

// InvokeRepeated is InvokeLeader for requests that may be done twice: it also
// repeats when a connection was lost or an answer takes longer than two seconds.
func (c *Cluster) InvokeRepeated(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	return c.invokeLeader(ctx, cmd, true)
}

func (c *Cluster) invokeLeader(ctx context.Context, cmd *remoting.Command, repeat bool) (*remoting.Command, error) {
	to := groupOf(cmd)
	var refused *remoting.Command
	var cause error // of the last try that ctx did not end
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		resp, sent, err := c.tryLeader(ctx, to, cmd, repeat)
		switch {
		case err == nil && resp.Code != remoting.ResponseServiceNotAvailable:
			return resp, nil
		case err == nil:
			refused = resp
		case sent && !repeat:
			return nil, err
		}
		if cause == nil || err != nil && ctx.Err() == nil {
			cause = err
		}
		select {
		case <-ctx.Done():
			if refused != nil {
				return refused, nil
			}
			return nil, fmt.Errorf("client: request %d: %w, after: %w", cmd.Code, ctx.Err(), cause)
		case <-time.After(pause):
		}
	}
}

// tryLeader tries once. sent tells whether the leader may have seen the request.
func (c *Cluster) tryLeader(ctx context.Context, to group, cmd *remoting.Command, repeat bool) (resp *remoting.Command, sent bool, err error) {
	addr, err := c.leader(ctx, to)
	if err != nil {
		return nil, false, err
	}
	client, err := c.Client(ctx, addr)
	if err != nil {
		c.forget(to, addr)
		return nil, false, err
	}
	if repeat {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, repeatTimeout)
		defer cancel()
	}
	resp, err = client.Invoke(ctx, cmd)
	if err != nil || resp.Code == remoting.ResponseServiceNotAvailable {
		c.forget(to, addr)
	}
	return resp, true, err
}

// leader returns the cached leader of a group, or asks for it.
func (c *Cluster) leader(ctx context.Context, to group) (string, error) {
	c.mu.Lock()
	addr := c.leaders[to]
	c.mu.Unlock()
	if addr != "" {
		return addr, nil
	}
	route, err := c.Route(ctx, to.topic)
	if response := (*ResponseError)(nil); errors.As(err, &response) && response.Code == remoting.ResponseTopicNotExist {
		route, err = c.Route(ctx, autoCreateTopic)
	}
	if err != nil {
		return "", err
	}
	addr, ok := route.Leader(to.brokerName)
	if !ok {
		c.rotate()
		return "", fmt.Errorf("%w: topic %q, broker %q", ErrNoLeader, to.topic, to.brokerName)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaders[to] = addr
	return addr, nil
}

// forget makes the next call ask for the leader again, and another name server than last time.
func (c *Cluster) forget(to group, addr string) {
	c.mu.Lock()
	if c.leaders[to] == addr {
		delete(c.leaders, to)
	}
	c.mu.Unlock()
	c.rotate()
}

// rotate lets another name server be asked next: this one may not know yet.
func (c *Cluster) rotate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.nameServers) > 0 {
		c.asked = (c.asked + 1) % len(c.nameServers)
	}
}

// groupOf reads where a request belongs. The v2 send headers use one-letter keys.
func groupOf(cmd *remoting.Command) group {
	topic, brokerName := "topic", "brokerName"
	switch cmd.Code {
	case remoting.RequestSendMessageV2, remoting.RequestSendBatchMessage, remoting.RequestSendReplyMessageV2:
		topic, brokerName = "b", "n"
	}
	to := group{cmd.GetString(topic), cmd.GetString(brokerName)}
	if to.topic == "" {
		to.topic = autoCreateTopic
	}
	if to.brokerName == "" {
		to.brokerName = cmd.GetString("bname")
	}
	return to
}
