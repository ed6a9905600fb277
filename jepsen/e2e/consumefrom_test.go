package e2e

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// TestConsumeFrom: where new groups begin in a queue whose beginning is gone: at what is there, at a time, at the end. In calm and while the leader moves.
func TestConsumeFrom(t *testing.T) {
	long(t)
	parallel(t, 70)
	flags := append(jepsen.DefaultFlags(), "--mapped-file-size-commit-log", "1MiB", "--file-reserved-time", "1s", "--forward-writes")
	s := &stage{c: startCluster(t, cluster.Config{Flags: flags})}
	t.Run("calm", func(t *testing.T) { testConsumeFrom(t, s) })
	s.moving = true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.move(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}()
	t.Run("moving", func(t *testing.T) { testConsumeFrom(t, s) })
	cancel()
	<-done
}

func testConsumeFrom(t *testing.T, s *stage) {
	topic := s.topic(t, 1)
	p := s.producer(t)
	for range 40 { // more than two segments, of what the library cannot compress
		filling := make([]byte, 64<<10)
		_, _ = rand.Read(filling)
		s.send(t, p, primitive.NewMessage(topic, append([]byte("filling"), filling...)))
	}
	offset := func(code int32) (n int64) {
		t.Helper()
		eventually(t, 60*time.Second, "an offset", func() bool {
			resp := s.ask(t, request(code, nil, "topic", topic, "queueId", "0"))
			if resp != nil && resp.Code == 0 {
				n = number(t, resp, "offset")
			}
			return resp != nil && resp.Code == 0
		})
		return n
	}
	eventually(t, 60*time.Second, "old segments go", func() bool {
		s.ask(t, request(remoting.RequestDeleteExpiredCommitLog, nil))
		return offset(remoting.RequestGetMinOffset) > 0
	})
	early, late, newest := numbered("early", 10), numbered("late", 10), numbered("newest", 10)
	s.sendAll(t, p, topic, early...)
	_ = sleep(t.Context(), 2100*time.Millisecond) // a time is given in whole seconds
	between := time.Now().Truncate(time.Second)
	_ = sleep(t.Context(), 1100*time.Millisecond)
	s.sendAll(t, p, topic, late...)

	begin := func(name string, from consumer.ConsumeFromWhere) *journal {
		j := &journal{}
		s.consume(t, name+"-"+topic, topic, consumer.MessageSelector{}, j.add, consumer.WithConsumeFromWhere(from), consumer.WithConsumeTimestamp(between.UTC().Format("20060102150405")))
		return j
	}
	first, at, last := begin("first", consumer.ConsumeFromFirstOffset), begin("time", consumer.ConsumeFromTimestamp), begin("last", consumer.ConsumeFromLastOffset)
	end := offset(remoting.RequestGetMaxOffset)
	eventually(t, 100*time.Second, "the end as the first offset", func() bool { return s.committed(t, "last-"+topic, topic, 0) == end })
	s.sendAll(t, p, topic, newest...)
	first.awaitBodies(t, 0, slices.Concat(early, late, newest))
	at.awaitBodies(t, 0, slices.Concat(late, newest))
	last.awaitBodies(t, 0, newest)
	for who, not := range map[*journal][]string{at: early, last: slices.Concat(early, late)} {
		for _, d := range who.all() {
			if slices.Contains(not, d.body) || strings.HasPrefix(d.body, "filling") {
				t.Errorf("a group that begins later got %.20s", d.body)
			}
		}
	}
}

// ask sends a request to the leader; nil if it cannot be asked now.
func (s *stage) ask(t *testing.T, cmd *remoting.Command) *remoting.Command {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	leader, err := s.c.Leader(ctx)
	if err != nil {
		return nil
	}
	c, err := leader.Dial(ctx)
	if err != nil {
		return nil
	}
	defer c.Close()
	resp, err := c.Invoke(ctx, cmd)
	if err != nil {
		return nil
	}
	return resp
}
