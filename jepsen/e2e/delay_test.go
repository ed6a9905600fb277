package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"raftmq/commitlog/record"
	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// delivery is one call of a listener.
type delivery struct {
	topic, body string
	reconsumed  int32
	stored      time.Time
	properties  map[string]string
}

// journal notes every delivery and answers as verdict says.
type journal struct {
	mu      sync.Mutex
	got     []delivery
	verdict func(d delivery) consumer.ConsumeResult // nil: success
}

func (j *journal) add(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	result := consumer.ConsumeSuccess
	for _, m := range msgs {
		d := delivery{m.Topic, string(m.Body), m.ReconsumeTimes, time.UnixMilli(m.StoreTimestamp), m.GetProperties()}
		j.mu.Lock()
		j.got = append(j.got, d)
		j.mu.Unlock()
		if j.verdict != nil {
			result = j.verdict(d)
		}
	}
	return result, nil
}

func (j *journal) all() []delivery {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.got)
}

// await waits for n deliveries.
func (j *journal) await(t *testing.T, n int) []delivery {
	t.Helper()
	eventually(t, 2*time.Minute, fmt.Sprint(n, " deliveries"), func() bool { return len(j.all()) >= n })
	return j.all()
}

// listen starts a push consumer of a topic.
func listen(t *testing.T, c *cluster.Cluster, group, topic string, j *journal, opts ...consumer.Option) {
	t.Helper()
	startPush(t, primitive.NewPassthroughResolver(c.ClientAddrs()), group, pushInstance(group), topic, consumer.MessageSelector{}, j.add, opts...)
}

// Delay levels of the stock client: never early, and about a second late at most.
func TestDelayLevels(t *testing.T) {
	parallel(t, 12)
	c := startCluster(t, cluster.Config{})
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	j := &journal{}
	listen(t, c, "g-"+topic, topic, j)
	p := newProducer(t, c)
	levels := map[int]time.Duration{1: time.Second, 2: 5 * time.Second, 3: 10 * time.Second}
	sent := map[string]time.Time{}
	after := map[string]time.Duration{}
	for i := range 60 {
		level := 1 + i%3
		body := fmt.Sprintf("level-%d-%02d", level, i)
		sent[body], after[body] = time.Now(), levels[level]
		res, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte(body)).WithDelayTimeLevel(level))
		if err != nil || res.Status != primitive.SendOK {
			t.Fatalf("send: %v, %v", res, err)
		}
	}
	worst := time.Duration(0)
	for _, d := range j.await(t, 60) {
		took := d.stored.Sub(sent[d.body])
		// The clocks of sender and leader are the same; store times have milliseconds.
		late := took - after[d.body]
		if late < -5*time.Millisecond || late > bound(time.Second) {
			t.Errorf("%s was delivered after %v", d.body, took)
		}
		worst = max(worst, late)
		if d.properties["REAL_TOPIC"] != topic || d.properties["DELAY"] == "" {
			t.Errorf("properties %v", d.properties)
		}
	}
	if got := len(j.all()); got != 60 {
		t.Errorf("%d deliveries of 60 messages", got)
	}
	t.Logf("the latest message was %v late", worst)
}

// pullAll reads every message of a topic's queues at one node.
func pullAll(t *testing.T, n *cluster.Node, topic string, queues int) (out [][]record.Message) {
	t.Helper()
	c := dial(t, n.Addrs.Client)
	for q := range queues {
		var messages []record.Message
		for next := int64(0); ; {
			resp := invoke(t, c, pullRequest(topic, q, next, 0))
			if resp.Code != remoting.ResponseSuccess {
				break
			}
			for b := resp.Body; len(b) > 0; {
				var m record.Message
				size, err := record.Decode(b, &m)
				if err != nil {
					t.Fatal(err)
				}
				messages, b = append(messages, m), b[size:]
				next = m.QueueOffset + 1
			}
		}
		out = append(out, messages)
	}
	return out
}

// delayedLoad sends n messages of a delay level, in batches of requests on one connection per queue.
func delayedLoad(t *testing.T, n *cluster.Node, topic string, queues, count, level int) {
	t.Helper()
	var wg sync.WaitGroup
	for q := range queues {
		c := dial(t, n.Addrs.Client)
		wg.Go(func() {
			window := make(chan struct{}, 256)
			var failed sync.Once
			for i := q; i < count; i += queues {
				window <- struct{}{}
				c.Go(sendRequest(topic, q, strconv.Itoa(i), "DELAY\x01"+strconv.Itoa(level)), func(resp *remoting.Command, err error) {
					if err != nil || resp.Code != 0 {
						failed.Do(func() { t.Errorf("send: %+v, %v", resp, err) })
					}
					<-window
				})
			}
			for range cap(window) {
				window <- struct{}{}
			}
		})
	}
	wg.Wait()
}

// F15: 10,000 messages of a level are pending; the leader is killed and the next one stopped while they fall due. Each
// is delivered once.
func TestF15_DelayAndLeaderChange(t *testing.T) {
	long(t)
	parallel(t, 14)
	c := startCluster(t, cluster.Config{Flags: append(jepsen.DefaultFlags(), "--message-delay-level", "1s 8s")})
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	const count = 10_000
	first := leaderOf(t, c)
	begin := time.Now()
	delayedLoad(t, first, topic, 4, count, 2)
	t.Logf("%d messages sent in %v", count, time.Since(begin))
	delivered := func() (n int64) {
		lc := dial(t, leaderOf(t, c).Addrs.Client)
		defer lc.Close()
		for q := range 4 {
			n += maxOffset(t, lc, topic, q)
		}
		return n
	}
	eventually(t, time.Minute, "the first delivery", func() bool { return delivered() > 0 })
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	second := leaderOf(t, c)
	serving(t, c)
	atSecond := delivered()
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if err := second.Stop(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
	eventually(t, 2*time.Minute, "delivery of all", func() bool { return delivered() >= count })
	t.Logf("%d of them were delivered when the second leader served", atSecond)
	checkOnceEach(t, pullAll(t, leaderOf(t, c), topic, 4), count)
}

// checkOnceEach makes sure that bodies 0…count-1 are there, each once and in order within its queue.
func checkOnceEach(t *testing.T, queues [][]record.Message, count int) {
	t.Helper()
	seen := make([]int, count)
	for q, messages := range queues {
		last := -1
		for _, m := range messages {
			i, err := strconv.Atoi(string(m.Body))
			if err != nil || i >= count || i <= last || i%len(queues) != q {
				t.Fatalf("queue %d has %q behind %d", q, m.Body, last)
			}
			last = i
			seen[i]++
		}
	}
	lost, twice := 0, 0
	for _, n := range seen {
		if n == 0 {
			lost++
		}
		if n > 1 {
			twice++
		}
	}
	if lost+twice > 0 {
		t.Errorf("%d messages were lost and %d delivered more than once, of %d", lost, twice, count)
	}
}

// 100,000 messages of one level that fall due together.
func TestDelayBacklog(t *testing.T) {
	long(t)
	parallelHeavy(t, 24, 2)
	const count = 100_000
	c := startCluster(t, cluster.Config{Flags: append(jepsen.DefaultFlags(), "--message-delay-level", "1s 20s")})
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	leader := leaderOf(t, c)
	begin := time.Now()
	delayedLoad(t, leader, topic, 4, count, 2)
	t.Logf("%d messages sent in %v", count, time.Since(begin))
	eventually(t, 90*time.Second, "delivery of all", func() bool {
		lc := dial(t, leader.Addrs.Client)
		defer lc.Close()
		n := int64(0)
		for q := range 4 {
			n += maxOffset(t, lc, topic, q)
		}
		return n >= count
	})
	queues := pullAll(t, leader, topic, 4)
	checkOnceEach(t, queues, count)
	var late []time.Duration
	for _, messages := range queues {
		for _, m := range messages {
			late = append(late, time.UnixMilli(m.StoreTimestamp).Sub(time.UnixMilli(m.BornTimestamp)))
		}
	}
	slices.Sort(late)
	t.Logf("from sending to delivery: %v to %v, median %v, of a level of 20 s", late[0], late[len(late)-1], late[len(late)/2])
	if late[0] < 20*time.Second-5*time.Millisecond {
		t.Errorf("a message came after %v", late[0])
	}
}

// A node that is started with other levels than its cluster's says so and ends.
func TestOtherDelayLevels(t *testing.T) {
	parallel(t, 4)
	c := startCluster(t, cluster.Config{})
	n := followerOf(t, c)
	if err := n.Stop(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	args := append(n.Args(), "--message-delay-level", "1s 2s")
	text, err := exec.CommandContext(withTimeout(t, time.Minute), serverBin(t), args...).CombinedOutput()
	out := string(text)
	if err == nil || !strings.Contains(out, "--message-delay-level") || !strings.Contains(out, "fixed at bootstrap") {
		t.Errorf("it wrote:\n%s", out)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
}
