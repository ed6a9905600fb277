package broker

import (
	"context"
	"testing"
	"time"

	"raftmq/transport/remoting"
)

// TestSQL92: carried and by heartbeat; only what matches is given, and the consumer goes on behind the rest.
func TestSQL92(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	for _, props := range []string{"a\x015", "a\x0115", "b\x01x", "a\x0125\x02b\x01x"} {
		want(t, c.send("T", 0, props, []byte(props)), 0)
	}
	n.waitReadable("T", 0, 4)
	carried := []string{"subscription", "a > 10", "expressionType", "SQL92"}
	c.call(remoting.RequestHeartBeat, (&remoting.HeartbeatData{ClientID: "c@1", ConsumerDataSet: []remoting.ConsumerData{{GroupName: "sql", ConsumeType: remoting.ConsumePassively,
		MessageModel: remoting.Clustering, SubscriptionDataSet: []remoting.SubscriptionData{{Topic: "T", SubString: "a > 10", SubVersion: 1, ExpressionType: "SQL92"}}}}}).Encode())
	for what, r := range map[string]*remoting.Command{
		"carried":      c.pull("g", "T", 0, 0, flagCarried, 0, carried...),
		"by heartbeat": c.pull("sql", "T", 0, 0, 0, 0, "expressionType", "TAG"), // as Go clients say
	} {
		if got := records(t, want(t, r, 0).Body); len(got) != 2 || got[0].QueueOffset != 1 || got[1].QueueOffset != 3 || r.GetString("nextBeginOffset") != "4" {
			t.Errorf("%s: %d records, next %s", what, len(got), r.GetString("nextBeginOffset"))
		}
	}
	if r := want(t, c.pull("g", "T", 0, 2, flagCarried, 0, "subscription", "a > 100", "expressionType", "SQL92"), 20); r.GetString("nextBeginOffset") != "4" {
		t.Errorf("next %s", r.GetString("nextBeginOffset"))
	}
	// A parked pull sleeps through what it does not want, and wakes for what it does.
	answer := make(chan *remoting.Command, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLong)
		defer cancel()
		resp, _ := n.dial().Invoke(ctx, request(remoting.RequestPullMessage, nil, pullFields("g", "T", 0, 4, flagPark, 9*time.Second, carried...)...))
		answer <- resp
	}()
	eventually(t, "it is parked", func() bool { return n.broker.polls.parked.Load() == 1 })
	want(t, c.send("T", 0, "a\x012", nil), 0)
	n.waitReadable("T", 0, 5)
	want(t, c.send("T", 0, "a\x0199", nil), 0)
	r := <-answer
	if r == nil {
		t.Fatal("no answer")
	}
	if got := records(t, want(t, r, 0).Body); len(got) != 1 || got[0].QueueOffset != 5 {
		t.Errorf("%d records, next %s", len(got), r.GetString("nextBeginOffset"))
	}
	// It goes on behind what it passed over when its time is up.
	go func() {
		answer <- c.pull("g", "T", 0, 6, flagPark, 300*time.Millisecond, carried...)
	}()
	eventually(t, "it is parked", func() bool { return n.broker.polls.parked.Load() == 1 })
	other := n.dial()
	want(t, other.send("T", 0, "a\x012", nil), 0)
	if r := <-answer; r.Code != remoting.ResponsePullNotFound && r.Code != remoting.ResponsePullRetryImmediately || r.GetString("nextBeginOffset") != "7" {
		t.Errorf("%d, next %s", r.Code, r.GetString("nextBeginOffset"))
	}
}
