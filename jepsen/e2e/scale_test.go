package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// TestF73_SixtyThousandTopics: they are made, survive a restart of all nodes, and are answered for: routes at once, lists within a frame.
func TestF73_SixtyThousandTopics(t *testing.T) {
	long(t)
	parallelHeavy(t, 28, 2)
	const topics = 60_000
	c := startCluster(t, cluster.Config{})
	name := func(i int) string { return fmt.Sprintf("F73-%05d", i) }
	leader := leaderOf(t, c)
	lc := dial(t, leader.Addrs.Client)
	began := time.Now()
	flood(t, lc, topics, 512, func(i int) *remoting.Command {
		return request(remoting.RequestUpdateAndCreateTopic, nil, "topic", name(i), "defaultTopic", "TBW102", "readQueueNums", "8", "writeQueueNums", "8", "perm", "6",
			"topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false")
	})
	created := time.Since(began)
	for _, n := range c.Nodes() {
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	began = time.Now()
	if err := c.StartAll(); err != nil {
		t.Fatal(err)
	}
	leader = serving(t, c)
	for _, n := range c.Nodes() {
		if err := caughtUp(withTimeout(t, 2*time.Minute), c, n); err != nil {
			t.Fatal(err)
		}
	}
	started := time.Since(began)
	if started > bound(30*time.Second) {
		t.Errorf("all nodes served %v after their start", started)
	}

	// Clients ask any node for routes; lists are what tools ask for.
	var took []time.Duration
	for _, n := range c.Nodes() {
		nc := dial(t, n.Addrs.Client)
		for range 300 {
			topic := name(rand.IntN(topics))
			at := time.Now()
			resp := invoke(t, nc, request(remoting.RequestGetRouteInfoByTopic, nil, "topic", topic))
			took = append(took, time.Since(at))
			var route remoting.TopicRouteData
			if err := route.Decode(resp.Body); resp.Code != 0 || err != nil || len(route.QueueDatas) != 1 || route.QueueDatas[0].ReadQueueNums != 8 {
				t.Fatalf("route of %s from %s: %d %s, %v", topic, n.ID, resp.Code, resp.Remark, err)
			}
		}
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	if p99 > bound(time.Second) {
		t.Errorf("p99 of a route is %v", p99)
	}
	sizes := map[string]int{}
	for what, cmd := range map[string]*remoting.Command{
		"topic list": request(remoting.RequestGetAllTopicListFromNameServer, nil), "topics of the cluster": request(remoting.RequestGetTopicsByCluster, nil, "cluster", "DefaultCluster"),
		"topic configurations": request(remoting.RequestGetAllTopicConfig, nil),
	} {
		for _, n := range c.Nodes() {
			resp := invoke(t, dial(t, n.Addrs.Client), cmd.Clone())
			if resp.Code != 0 || strings.Count(string(resp.Body), `"F73-`) < topics {
				t.Errorf("%s from %s: %d %s, %d bytes with %d topics", what, n.ID, resp.Code, resp.Remark, len(resp.Body), strings.Count(string(resp.Body), `"F73-`))
			}
			if sizes[what] = len(resp.Body); sizes[what] >= 16<<20-1024 {
				t.Errorf("%s has %d bytes", what, sizes[what])
			}
		}
	}
	if resp := invoke(t, dial(t, leader.Addrs.Client), sendRequest(name(0), 0, "x", "")); resp.Code != 0 {
		t.Errorf("send: %d %s", resp.Code, resp.Remark)
	}
	t.Logf("%d topics made in %.1f s; all nodes served %.1f s after SIGKILL; route p50 %v, p99 %v; bytes %v; resident %d MB", topics, created.Seconds(), started.Seconds(),
		took[len(took)/2], p99, sizes, residentMB(t, leader))
}

// flood sends n requests over one connection, inFlight at a time, and wants 0 for each.
func flood(t *testing.T, c *client.Client, n, inFlight int, cmd func(i int) *remoting.Command) {
	t.Helper()
	var failed atomic.Pointer[string]
	slots := make(chan struct{}, inFlight)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Add(1)
		c.Go(cmd(i), func(resp *remoting.Command, err error) {
			if err != nil || resp.Code != 0 {
				text := fmt.Sprintf("request %d: %v, %+v", i, err, resp)
				failed.CompareAndSwap(nil, &text)
			}
			<-slots
			wg.Done()
		})
	}
	wg.Wait()
	if text := failed.Load(); text != nil {
		t.Fatal(*text)
	}
}

// residentMB is a node's resident memory.
func residentMB(t *testing.T, n *cluster.Node) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb / 1024
}

// TestManyQueuesAndConnections: clients with a connection and a queue each, which wait for its messages, all on one node: 2,000 of both, 10,000 with RAFTMQ_E2E_EXTENDED.
// Each gets its message when it comes, commits, and the node starts again with all queues.
func TestManyQueuesAndConnections(t *testing.T) {
	long(t)
	parallelHeavy(t, 10, 2)
	many := 2_000
	if extended() {
		many = 10_000
	}
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur < uint64(many)+1000 {
		t.Skipf("%d connections need a limit of open files above %d, it is %d (%v)", many, many+1000, l.Cur, err)
	}
	c := startCluster(t, cluster.Config{Nodes: 1})
	node := c.Nodes()[0]
	const perTopic = 500
	name := func(i int) (topic string, queue int) { return fmt.Sprintf("many-%03d", i/perTopic), i % perTopic }
	for i := 0; i < many; i += perTopic {
		topic, _ := name(i)
		createTopic(t, c, topic, perTopic)
	}
	empty := residentMB(t, node)

	conns := make([]*client.Client, many)
	t.Cleanup(func() {
		for _, k := range conns {
			if k != nil {
				_ = k.Close()
			}
		}
	})
	began := time.Now()
	inParallel(many, 32, func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		k, err := client.Dial(ctx, node.Addrs.Client)
		if err != nil {
			t.Error(err)
			return
		}
		conns[i] = k
		topic, _ := name(i)
		body, _ := json.Marshal(map[string]any{"clientID": fmt.Sprint("c-", i), "producerDataSet": []any{}, "consumerDataSet": []any{map[string]any{
			"groupName": fmt.Sprintf("g-%d", i/100), "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
			"subscriptionDataSet": []any{map[string]any{"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}}}}})
		if resp, err := k.Invoke(ctx, request(remoting.RequestHeartBeat, body)); err != nil || resp.Code != 0 {
			t.Errorf("heartbeat %d: %v, %+v", i, err, resp)
		}
	})
	if t.Failed() {
		return
	}
	connected := time.Since(began)

	sender := dial(t, node.Addrs.Client)
	first := passRound(t, conns, sender, name, 0)
	waiting := residentMB(t, node)
	second := passRound(t, conns, sender, name, 1)
	if t.Failed() {
		return
	}
	inParallel(many, 512, func(i int) {
		topic, queue := name(i)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		resp, err := conns[i].Invoke(ctx, request(remoting.RequestUpdateConsumerOffset, nil, "consumerGroup", fmt.Sprintf("g-%d", i/100), "topic", topic, "queueId", strconv.Itoa(queue), "commitOffset", "2"))
		if err != nil || resp.Code != 0 {
			t.Errorf("commit %d: %v, %+v", i, err, resp)
		}
	})
	used := residentMB(t, node)

	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
	restarted := time.Since(began)
	lc := dial(t, node.Addrs.Client)
	for range 200 {
		i := rand.IntN(many)
		topic, queue := name(i)
		if n := maxOffset(t, lc, topic, queue); n != 2 {
			t.Errorf("%s/%d ends at %d after a restart", topic, queue, n)
		}
		if n := consumerOffset(t, lc, fmt.Sprintf("g-%d", i/100), topic, queue); n != 2 {
			t.Errorf("offset in %s/%d is %d after a restart", topic, queue, n)
		}
	}
	t.Logf("%d connections with a queue each: connected in %.1f s; resident %d MB without, %d MB when all have waited, %d MB in the end; first message of each queue: %v; second: %v; %.1f s from SIGKILL to serving",
		many, connected.Seconds(), empty, waiting, used, first, second, restarted.Seconds())
}

// passing says how long a message to each of many queues took, each from its sending.
type passing struct{ all, answered50, answered99, arrived50, arrived99 time.Duration }

func (p passing) String() string {
	return fmt.Sprintf("all in %.1f s, answered after p50 %v, p99 %v, with its consumer after p50 %v, p99 %v", p.all.Seconds(), p.answered50, p.answered99, p.arrived50, p.arrived99)
}

// passRound has all connections wait for the message at an offset of their queues, and sends it to each.
func passRound(t *testing.T, conns []*client.Client, sender *client.Client, name func(int) (string, int), offset int64) (p passing) {
	t.Helper()
	many := len(conns)
	var got, sends sync.WaitGroup
	sent, answered, arrived := make([]int64, many), make([]atomic.Int64, many), make([]atomic.Int64, many)
	for i := range many {
		topic, queue := name(i)
		got.Add(1)
		conns[i].Go(pullRequest(topic, queue, offset, 60*time.Second), func(resp *remoting.Command, err error) {
			defer got.Done()
			if err != nil || resp.Code != 0 {
				t.Errorf("pull %d: %v, %+v", i, err, resp)
			}
			arrived[i].Store(time.Now().UnixNano())
		})
	}
	inParallel(many, 64, func(i int) { // a connection's requests are taken in order: when this is answered, its pull waits
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		topic, queue := name(i)
		if resp, err := conns[i].Invoke(ctx, request(remoting.RequestGetMaxOffset, nil, "topic", topic, "queueId", strconv.Itoa(queue))); err != nil || resp.Code != 0 {
			t.Errorf("max offset %d: %v, %+v", i, err, resp)
		}
	})
	began := time.Now()
	slots := make(chan struct{}, 64)
	for i := range many {
		topic, queue := name(i)
		slots <- struct{}{}
		sends.Add(1)
		sent[i] = time.Now().UnixNano()
		sender.Go(sendRequest(topic, queue, "m", ""), func(resp *remoting.Command, err error) {
			if err != nil || resp.Code != 0 {
				t.Errorf("send %d: %v, %+v", i, err, resp)
			}
			answered[i].Store(time.Now().UnixNano())
			<-slots
			sends.Done()
		})
	}
	sends.Wait()
	got.Wait()
	p.all = time.Since(began)
	percentiles := func(to []atomic.Int64) (p50, p99 time.Duration) {
		took := make([]time.Duration, many)
		for i := range took {
			took[i] = time.Duration(to[i].Load() - sent[i]).Round(10 * time.Microsecond)
		}
		slices.Sort(took)
		return took[many/2], took[many*99/100]
	}
	p.answered50, p.answered99 = percentiles(answered)
	p.arrived50, p.arrived99 = percentiles(arrived)
	return p
}

// inParallel calls f for 0 to n−1 on some goroutines.
func inParallel(n, goroutines int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}
