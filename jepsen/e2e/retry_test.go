package e2e

import (
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

// retryFlags make the levels of retries, 3 and up, short.
func retryFlags() []string {
	return append(jepsen.DefaultFlags(), "--message-delay-level", "1s 1s 1s 1s 2s 2s")
}

// A listener that fails gets the message again, with rising reconsume times, and in the end it is a dead letter.
func TestRetryAndDeadLetter(t *testing.T) {
	parallel(t, 7)
	c := startCluster(t, cluster.Config{Flags: retryFlags()})
	topic := topicName(t)
	createTopic(t, c, topic, 2)
	group := "g-" + topic
	j := &journal{verdict: func(d delivery) consumer.ConsumeResult {
		switch {
		case d.body == "never", d.body == "third time" && d.reconsumed < 2:
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	}}
	// The retry topic of a new group is made at its first heartbeat; a Go consumer that asked for its route just before
	// asks again after 30 s.
	createTopic(t, c, "%RETRY%"+group, 1)
	listen(t, c, group, topic, j, consumer.WithMaxReconsumeTimes(3))
	p := newProducer(t, c)
	for _, body := range []string{"at once", "third time", "never"} {
		if _, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte(body)).WithKeys([]string{"k"})); err != nil {
			t.Fatal(err)
		}
	}
	dead := &journal{}
	createTopic(t, c, "%DLQ%"+group, 1) // the consumer below wants a route before the first dead letter is there
	listen(t, c, "dead-"+topic, "%DLQ%"+group, dead)
	letters := dead.await(t, 1)
	j.await(t, 8)
	got := map[string][]int32{}
	last := map[string]time.Time{}
	for _, d := range j.all() {
		got[d.body] = append(got[d.body], d.reconsumed)
		if again := d.stored.Sub(last[d.body]); d.reconsumed > 0 && (again < time.Second || again > bound(10*time.Second)) {
			t.Errorf("%s came again after %v", d.body, again)
		}
		last[d.body] = d.stored
		if d.reconsumed > 0 && (d.properties["RETRY_TOPIC"] != topic || d.properties["ORIGIN_MESSAGE_ID"] == "" || d.properties["KEYS"] != "k") {
			t.Errorf("properties of a retry: %v", d.properties)
		}
	}
	for body, want := range map[string][]int32{"at once": {0}, "third time": {0, 1, 2}, "never": {0, 1, 2, 3}} {
		if !slices.Equal(got[body], want) {
			t.Errorf("%s was delivered with reconsume times %v, want %v", body, got[body], want)
		}
	}
	if len(letters) != 1 || letters[0].body != "never" || letters[0].reconsumed != 4 {
		t.Errorf("dead letters %+v", letters)
	}
}

// The leader is killed while messages are sent back: none is lost.
func TestRetryAndLeaderChange(t *testing.T) {
	long(t)
	parallel(t, 37)
	c := startCluster(t, cluster.Config{Flags: retryFlags()})
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	j := &journal{verdict: func(d delivery) consumer.ConsumeResult {
		if d.reconsumed == 0 {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	}}
	createTopic(t, c, "%RETRY%g-"+topic, 1)
	listen(t, c, "g-"+topic, topic, j)
	p := newProducer(t, c)
	const count = 300
	for i := range count {
		if i == count/2 {
			go func() { _ = leaderOf(t, c).Kill() }()
		}
		m := primitive.NewMessage(topic, []byte(strings.Repeat("x", i+1)))
		eventually(t, 2*time.Minute, "acknowledgement", func() bool {
			_, err := p.SendSync(t.Context(), m)
			return err == nil
		})
	}
	retried := func() int {
		bodies := map[int]bool{}
		for _, d := range j.all() {
			if d.reconsumed > 0 {
				bodies[len(d.body)] = true
			}
		}
		return len(bodies)
	}
	eventually(t, 120*time.Second, "a second delivery of each message", func() bool { return retried() == count })
}

// A message is sent back through a follower; a wrong one is refused there with the leader's words.
func TestSendBackThroughFollower(t *testing.T) {
	parallel(t, 3)
	c := startCluster(t, cluster.Config{Flags: retryFlags()})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	leader := dial(t, leaderOf(t, c).Addrs.Client)
	sent := invoke(t, leader, sendRequest(topic, 0, "x", ""))
	offset := offsetOf(t, sent.GetString("msgId"))
	back := func(offset string) *remoting.Command {
		return request(remoting.RequestConsumerSendMsgBack, nil, "group", "g-"+topic, "offset", offset, "delayLevel", "0", "originMsgId", "x", "originTopic", topic, "unitMode", "false")
	}
	follower := dial(t, followerOf(t, c).Addrs.Client)
	if resp := invoke(t, follower, back(offset)); resp.Code != 0 {
		t.Errorf("answered %d %q", resp.Code, resp.Remark)
	}
	if resp := invoke(t, follower, back("1000000000000")); resp.Code != 1 || resp.Remark != "look message by offset failed, 1000000000000" {
		t.Errorf("answered %d %q", resp.Code, resp.Remark)
	}
	eventually(t, 30*time.Second, "the retry", func() bool { return maxOffset(t, leader, "%RETRY%g-"+topic, 0) == 1 })
}
