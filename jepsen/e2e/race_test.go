package e2e

import (
	"testing"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/workload"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// A server built with the race detector, through send, consume, a leader's end, and restart.
func TestRaceDetectorBinary(t *testing.T) {
	long(t)
	parallelHeavy(t, 37, 2)
	bin, err := cluster.Build(t.Context(), binDir, "-race")
	if err != nil {
		t.Skipf("no server with the race detector: %v", err)
	}
	c := startCluster(t, cluster.Config{Binary: bin, Env: []string{"GORACE=halt_on_error=0"}})
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	box := &inbox{}
	startConsumer(t, c, "g-"+topic, topic, "", box)
	s := workload.NewRawSender(c.ClientAddrs(), "race", topic, 1)
	defer s.Close()
	var sent []string
	send := func(n int) {
		t.Helper()
		for range n {
			body := time.Now().Format(time.RFC3339Nano) + "|"
			m := workload.NewMessage(body, 0)
			m.Body = []byte(body)
			eventually(t, time.Minute, "acknowledgement", func() bool {
				_, err := s.Send(t.Context(), m)
				return err == nil
			})
			sent = append(sent, body)
		}
	}
	send(300)
	p := newProducer(t, c)
	for range 50 {
		body := "stock-" + time.Now().Format(time.RFC3339Nano)
		if _, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte(body))); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, body)
	}
	old := leaderOf(t, c)
	if err := old.Stop(withTimeout(t, 60*time.Second)); err != nil {
		t.Fatal(err)
	}
	send(100)
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
	follower := followerOf(t, c)
	if err := follower.Kill(); err != nil {
		t.Fatal(err)
	}
	send(100)
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
	sts, err := c.WaitConverged(withTimeout(t, 60*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	sameLogs(t, sts)
	box.await(t, sent)
}
