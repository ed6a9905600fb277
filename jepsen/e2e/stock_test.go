package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"raftmq/jepsen/cluster"
)

func newProducer(t *testing.T, c *cluster.Cluster, opts ...producer.Option) rocketmq.Producer {
	t.Helper()
	p, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(c.ClientAddrs())),
		producer.WithGroupName("pg-" + topicName(t)),
		producer.WithInstanceName("p-" + topicName(t)),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Shutdown() })
	return p
}

// inbox collects what consumers get: how often each body came.
type inbox struct {
	mu  sync.Mutex
	got map[string]int
}

func (b *inbox) add(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.got == nil {
		b.got = map[string]int{}
	}
	for _, m := range msgs {
		b.got[string(m.Body)]++
	}
	return consumer.ConsumeSuccess, nil
}

func (b *inbox) bodies() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.got))
}

// await waits for exactly these bodies. What else came is an error.
func (b *inbox) await(t *testing.T, want []string) {
	t.Helper()
	slices.Sort(want)
	deadline := time.Now().Add(2 * time.Minute)
	for !slices.Equal(b.bodies(), want) && len(b.bodies()) <= len(want) && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if got := b.bodies(); !slices.Equal(got, want) {
		t.Errorf("got %d messages, want %d\ngot  %.500v\nwant %.500v", len(got), len(want), got, want)
	}
}

// startPush starts a push consumer, from the first offset unless told otherwise; stop ends it before the test does.
func startPush(t *testing.T, names primitive.NsResolver, group, instance, topic string, selector consumer.MessageSelector, f listener,
	opts ...consumer.Option) (pc rocketmq.PushConsumer, stop func()) {
	t.Helper()
	pc, err := rocketmq.NewPushConsumer(append([]consumer.Option{consumer.WithNsResolver(names), consumer.WithGroupName(group),
		consumer.WithInstance(instance), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}, opts...)...)
	if err == nil {
		err = pc.Subscribe(topic, selector, f)
	}
	if err == nil {
		err = pc.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { _ = pc.Shutdown() })
	t.Cleanup(stop)
	return pc, stop
}

// pushInstance is a name that no other consumer of this program has.
func pushInstance(group string) string { return fmt.Sprintf("c-%s-%d", group, time.Now().UnixNano()) }

// startConsumer starts a push consumer; the returned function ends it before the test does.
func startConsumer(t *testing.T, c *cluster.Cluster, group, topic, tags string, box *inbox) (stop func()) {
	t.Helper()
	selector := consumer.MessageSelector{}
	if tags != "" {
		selector = consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	}
	_, stop = startPush(t, primitive.NewPassthroughResolver(c.ClientAddrs()), group, pushInstance(group), topic, selector, box.add)
	return stop
}

// What an application does with an unmodified client, on one cluster.
func TestStockClient(t *testing.T) {
	parallel(t, 5)
	c := startCluster(t, cluster.Config{})
	t.Run("sync", func(t *testing.T) { testSync(t, c) })
	t.Run("async", func(t *testing.T) { testAsync(t, c) })
	t.Run("oneway", func(t *testing.T) { testOneWay(t, c) })
	t.Run("batch", func(t *testing.T) { testBatch(t, c) })
	t.Run("autocreate", func(t *testing.T) { testAutoCreate(t, c) })
	t.Run("tags", func(t *testing.T) { testTags(t, c) })
	t.Run("resume", func(t *testing.T) { testResume(t, c) })
	t.Run("two-consumers", func(t *testing.T) { testTwoConsumers(t, c) })
}

func testSync(t *testing.T, c *cluster.Cluster) {
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	p := newProducer(t, c)
	var sent []string
	offsets := map[int]int64{}
	for i := range 40 {
		body := fmt.Sprint("sync-", i)
		res, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte(body)).WithKeys([]string{"k" + body}))
		if err != nil || res.Status != primitive.SendOK {
			t.Fatalf("send: %v, %v", res, err)
		}
		// Offsets of a queue count up from 0, whatever order the queues come in.
		if want := offsets[res.MessageQueue.QueueId]; res.QueueOffset != want {
			t.Errorf("message %d: offset %d of queue %d, want %d", i, res.QueueOffset, res.MessageQueue.QueueId, want)
		}
		offsets[res.MessageQueue.QueueId]++
		if len(res.OffsetMsgID) != 32 || len(res.MsgID) != 32 {
			t.Errorf("ids %q, %q", res.OffsetMsgID, res.MsgID)
		}
		sent = append(sent, body)
	}
	if len(offsets) != 4 {
		t.Errorf("messages went to %d queues, want 4", len(offsets))
	}
	box := &inbox{}
	startConsumer(t, c, "g-"+topic, topic, "", box)
	box.await(t, sent)
}

func testAsync(t *testing.T, c *cluster.Cluster) {
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	p := newProducer(t, c)
	box := &inbox{}
	startConsumer(t, c, "g-"+topic, topic, "", box)
	var sent []string
	var wg sync.WaitGroup
	for i := range 200 {
		body := fmt.Sprint("async-", i)
		sent = append(sent, body)
		wg.Add(1)
		err := p.SendAsync(t.Context(), func(_ context.Context, res *primitive.SendResult, err error) {
			defer wg.Done()
			if err != nil || res.Status != primitive.SendOK {
				t.Errorf("%s: %v, %v", body, res, err)
			}
		}, primitive.NewMessage(topic, []byte(body)))
		if err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	box.await(t, sent)
}

func testOneWay(t *testing.T, c *cluster.Cluster) {
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	p := newProducer(t, c)
	box := &inbox{}
	startConsumer(t, c, "g-"+topic, topic, "", box)
	var sent []string
	for i := range 50 {
		body := fmt.Sprint("oneway-", i)
		if err := p.SendOneWay(t.Context(), primitive.NewMessage(topic, []byte(body))); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, body)
	}
	box.await(t, sent)
}

func testBatch(t *testing.T, c *cluster.Cluster) {
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	p := newProducer(t, c)
	var sent []string
	for b := range 5 {
		var batch []*primitive.Message
		for i := range 20 {
			body := fmt.Sprintf("batch-%d-%d", b, i)
			batch = append(batch, primitive.NewMessage(topic, []byte(body)).WithTag("T"))
			sent = append(sent, body)
		}
		res, err := p.SendSync(t.Context(), batch...)
		if err != nil || res.Status != primitive.SendOK {
			t.Fatalf("batch: %v, %v", res, err)
		}
		if ids := strings.Count(res.OffsetMsgID, ",") + 1; ids != 20 {
			t.Errorf("%d ids for 20 messages: %s", ids, res.OffsetMsgID)
		}
	}
	box := &inbox{}
	startConsumer(t, c, "g-"+topic, topic, "T", box)
	box.await(t, sent)
}

func testAutoCreate(t *testing.T, c *cluster.Cluster) {
	topic := topicName(t)
	p := newProducer(t, c)
	res, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte("first")))
	if err != nil || res.Status != primitive.SendOK {
		t.Fatalf("send to a new topic: %v, %v", res, err)
	}
	box := &inbox{}
	startConsumer(t, c, "g-"+topic, topic, "", box)
	box.await(t, []string{"first"})
}

func testTags(t *testing.T, c *cluster.Cluster) {
	topic := topicName(t)
	createTopic(t, c, topic, 2)
	p := newProducer(t, c)
	want := map[string][]string{}
	for i := range 60 {
		tag := []string{"red", "green", "blue"}[i%3]
		body := fmt.Sprint(tag, "-", i)
		if _, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte(body)).WithTag(tag)); err != nil {
			t.Fatal(err)
		}
		want[tag] = append(want[tag], body)
	}
	boxes := map[string]*inbox{"red": {}, "green || blue": {}, "*": {}}
	for expression, box := range boxes {
		group := fmt.Sprintf("g-%s-%d", topic, len(expression))
		startConsumer(t, c, group, topic, expression, box)
	}
	boxes["red"].await(t, want["red"])
	boxes["green || blue"].await(t, slices.Concat(want["green"], want["blue"]))
	boxes["*"].await(t, slices.Concat(want["red"], want["green"], want["blue"]))
}

// A group goes on where it stopped; with a new consumer, and a new leader in between.
func testResume(t *testing.T, c *cluster.Cluster) {
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	send := func(p rocketmq.Producer, name string) (bodies []string) {
		for i := range 30 {
			body := fmt.Sprintf("%s-%d", name, i)
			if _, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte(body))); err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, body)
		}
		return bodies
	}
	first, second := &inbox{}, &inbox{}
	before := send(newProducer(t, c), "before")
	stop := startConsumer(t, c, "g-"+topic, topic, "", first)
	first.await(t, before)
	stop() // commits offsets, without waiting for an answer
	old := leaderOf(t, c)
	lc := dial(t, old.Addrs.Client)
	eventually(t, 30*time.Second, "the offsets' commit", func() bool {
		committed := int64(0)
		for q := range 4 {
			committed += max(0, consumerOffset(t, lc, "g-"+topic, topic, q))
		}
		return committed == int64(len(before))
	})
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	leaderOf(t, c)
	// A producer of its own, which learns of the new leader at once.
	between := send(newProducer(t, c, producer.WithInstanceName("p2-"+topic), producer.WithGroupName("pg2-"+topic)), "between")
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
	stop = startConsumer(t, c, "g-"+topic, topic, "", second)
	second.await(t, between)
	stop()
}

// Two consumers of a group share the queues; each message comes to one of them.
func testTwoConsumers(t *testing.T, c *cluster.Cluster) {
	topic := topicName(t)
	createTopic(t, c, topic, 8)
	p := newProducer(t, c)
	a, b := &inbox{}, &inbox{}
	startConsumer(t, c, "g-"+topic, topic, "", a)
	startConsumer(t, c, "g-"+topic, topic, "", b)
	var sent []string
	union := func() []string {
		return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.bodies(), b.bodies()))))
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		atA, atB := len(a.bodies()), len(b.bodies())
		for range 16 {
			body := fmt.Sprint("m-", len(sent))
			if _, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte(body))); err != nil {
				t.Fatal(err)
			}
			sent = append(sent, body)
		}
		slices.Sort(sent)
		eventually(t, 2*time.Minute, "delivery to one of the two", func() bool { return slices.Equal(union(), sent) })
		if len(a.bodies()) > atA && len(b.bodies()) > atB {
			return // both own queues
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %d messages to 8 queues one consumer got %d, the other %d", len(sent), len(a.bodies()), len(b.bodies()))
		}
	}
}
