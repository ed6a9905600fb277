package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"raftmq/transport/remoting"
)

func (s *stage) puller(t *testing.T, group string) rocketmq.PullConsumer {
	t.Helper()
	c, err := rocketmq.NewPullConsumer(consumer.WithGroupName(group), consumer.WithNsResolver(s.resolver()), consumer.WithInstance(s.name(t)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithMaxReconsumeTimes(2))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func started(t *testing.T, c rocketmq.PullConsumer) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Shutdown() })
}

// scenePull is examples/consumer/pull/pull and pull_from: pulls from queues in turn and offsets told by hand, then pulls from given offsets.
func scenePull(t *testing.T, s *stage) {
	const queues = 1 // each pull from one that is empty waits for 20 s
	topic := s.topic(t, queues)
	group := "g-" + topic
	want := numbered("m", 40)
	s.sendAll(t, s.producer(t), topic, want...)
	c := s.puller(t, group)
	if err := c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
		t.Fatal(err)
	}
	started(t, c)
	box := &inbox{}
	next := map[int]int64{}
	pull := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		res, err := c.Pull(ctx, 20) // after a rebalance every other one is from the retry topic, and waits
		if err != nil || res.Status != primitive.PullFound {
			return // and again
		}
		msgs := res.GetMessageExts()
		_, _ = box.add(ctx, msgs...)
		if len(msgs) == 0 {
			return
		}
		if err := c.UpdateOffset(msgs[0].Queue, res.NextBeginOffset); err != nil {
			t.Error(err)
		}
		next[msgs[0].Queue.QueueId] = res.NextBeginOffset
		if err := c.PersistOffset(ctx, topic); err != nil && !s.moving {
			t.Errorf("persist: %v", err)
		}
	}
	eventually(t, 90*time.Second, "all pulled", func() bool { pull(); return len(box.bodies()) == len(want) })
	box.await(t, want)
	queue := func(q int) *primitive.MessageQueue {
		return &primitive.MessageQueue{Topic: topic, BrokerName: brokerName(t, s.c.Nodes()[2]), QueueId: q}
	}
	if at, err := c.CurrentOffset(queue(0)); err != nil || at != next[0] {
		t.Errorf("offset %d, %v; want %d", at, err, next[0])
	}

	from := &inbox{}
	for q := range queues {
		for offset := int64(0); offset < next[q]; {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			res, err := c.PullFrom(ctx, queue(q), offset, 5)
			cancel()
			if err != nil || res.Status != primitive.PullFound {
				if !s.moving {
					t.Fatalf("pull from %d: %+v, %v", offset, res, err)
				}
				if sleep(t.Context(), 50*time.Millisecond) != nil {
					return
				}
				continue
			}
			_, _ = from.add(t.Context(), res.GetMessageExts()...)
			offset = res.NextBeginOffset
		}
	}
	from.await(t, want)
}

// poll polls and acknowledges until enough is there.
func poll(t *testing.T, c rocketmq.PullConsumer, box *inbox, want []string) {
	t.Helper()
	eventually(t, 100*time.Second, fmt.Sprintf("%d messages polled", len(want)), func() bool {
		cr, err := c.Poll(t.Context(), 500*time.Millisecond)
		if err == nil {
			_, _ = box.add(t.Context(), cr.GetMsgList()...)
			c.ACK(t.Context(), cr, consumer.ConsumeSuccess)
		} else if !consumer.IsNoNewMsgError(err) {
			t.Errorf("poll: %v", err)
		}
		return slices.Equal(box.bodies(), slices.Sorted(slices.Values(want)))
	})
}

// scenePoll is examples/consumer/pull/poll: the group's queues are divided by rebalance, and what was acknowledged is committed: the next consumer of the
// group goes on behind it.
func scenePoll(t *testing.T, s *stage) {
	topic := s.topic(t, 4)
	p := s.producer(t)
	first, second := numbered("first", 20), numbered("second", 20)
	s.sendAll(t, p, topic, first...)
	open := func() rocketmq.PullConsumer {
		c := s.puller(t, "g-"+topic)
		if err := c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
			t.Fatal(err)
		}
		started(t, c)
		return c
	}
	a, box := open(), &inbox{}
	poll(t, a, box, first)
	// It persists every 5 s, and at its end, both without looking at the answer: only then it is known to be told.
	eventually(t, 60*time.Second, "the commit", func() bool {
		_ = a.PersistOffset(t.Context(), topic)
		committed := int64(0)
		for q := range 4 {
			committed += max(0, s.committed(t, "g-"+topic, topic, q))
		}
		return committed == int64(len(first))
	})
	_ = a.Shutdown()
	s.sendAll(t, p, topic, second...)
	box = &inbox{}
	poll(t, open(), box, second)
}

// committed is what the leader says of a group's offset, -1 if it cannot be asked now.
func (s *stage) committed(t *testing.T, group, topic string, q int) int64 {
	t.Helper()
	resp := s.ask(t, request(remoting.RequestQueryConsumerOffset, nil, "consumerGroup", group, "topic", topic, "queueId", fmt.Sprint(q)))
	if resp == nil || resp.Code != 0 {
		return -1
	}
	return number(t, resp, "offset")
}

// sceneAssign is examples/consumer/pull/poll_assign: queues taken by hand, at the offset of a time.
func sceneAssign(t *testing.T, s *stage) {
	topic := s.topic(t, 4)
	p := s.producer(t)
	s.sendAll(t, p, topic, numbered("early", 12)...)
	time.Sleep(1100 * time.Millisecond) // so that a time is between the two, for the clocks of different leaders too
	between := time.Now()
	time.Sleep(1100 * time.Millisecond)
	late := numbered("late", 12)
	s.sendAll(t, p, topic, late...)

	c := s.puller(t, "g-"+topic)
	if err := c.Assign(topic, nil); err != nil {
		t.Fatal(err)
	}
	started(t, c)
	queues, err := c.GetTopicRouteInfo(topic)
	if err != nil || len(queues) != 4 {
		t.Fatalf("queues %v, %v", queues, err)
	}
	for _, q := range queues {
		eventually(t, 60*time.Second, "the offset of a time", func() bool {
			offset, err := c.OffsetForTimestamp(q, between.UnixMilli())
			if err == nil {
				c.SeekOffset(q, offset)
			} else if !s.moving {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	if err := c.Assign(topic, queues); err != nil {
		t.Fatal(err)
	}
	poll(t, c, &inbox{}, late)
	// Back to the beginning of one queue, while it runs.
	box := &inbox{}
	c.SeekOffset(queues[0], 0)
	eventually(t, 100*time.Second, "messages from before", func() bool {
		cr, err := c.Poll(t.Context(), 500*time.Millisecond)
		if err == nil {
			_, _ = box.add(t.Context(), cr.GetMsgList()...)
			c.ACK(t.Context(), cr, consumer.ConsumeSuccess)
		}
		return slices.ContainsFunc(box.bodies(), func(b string) bool { return b[:5] == "early" })
	})
}
