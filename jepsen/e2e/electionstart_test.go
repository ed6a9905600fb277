package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"

	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// TestConsumersStartWhileTheLeaderHasNoMajority: the leader's followers stand still, so it leads no more and nobody else does. Apache's consumers that start meanwhile take
// the first answer to their route query for final: they get none before there is a leader again, and start.
func TestConsumersStartWhileTheLeaderHasNoMajority(t *testing.T) {
	long(t)
	parallel(t, 11)
	s := &stage{c: startCluster(t, cluster.Config{}), moving: true}
	topic := s.topic(t, 2)
	leader := leaderOf(t, s.c)
	var followers []*cluster.Node
	for _, n := range s.c.Nodes() {
		if n != leader {
			followers = append(followers, n)
			if err := n.Pause(); err != nil {
				t.Fatal(err)
			}
		}
	}
	own := request(remoting.RequestGetRouteInfoByTopic, nil, "topic", topic, remoting.OwnToolField, "true")
	eventually(t, time.Minute, "the end of its leadership", func() bool {
		c, err := leader.Dial(t.Context())
		if err != nil {
			return false
		}
		defer c.Close()
		resp, err := c.Invoke(withTimeout(t, 5*time.Second), own)
		return err == nil && resp.Code == remoting.ResponseSystemError
	})
	var wg sync.WaitGroup
	for i := range 10 {
		box := &inbox{}
		wg.Go(func() {
			t.Run("start", func(t *testing.T) {
				s.consume(t, "g-"+topic+string(rune('a'+i)), topic, consumer.MessageSelector{}, box.add)
			})
		})
		_ = sleep(t.Context(), 250*time.Millisecond)
	}
	for _, n := range followers {
		if err := n.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	serving(t, s.c)
}
