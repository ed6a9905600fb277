package broker

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"raftmq/fsm/raftnode"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// reads are those whose answers must not be older than the question.
var reads = []int32{remoting.RequestQueryConsumerOffset, remoting.RequestGetMaxOffset, remoting.RequestGetMinOffset, remoting.RequestGetEarliestMsgStoreTime,
	remoting.RequestSearchOffsetByTimestamp, remoting.RequestGetTopicConfig}

func readFields() []string {
	return []string{"consumerGroup", "g", "topic", "T", "queueId", "0", "timestamp", "0", "setZeroIfNotFound", "false"}
}

// A node that was Ready when it was stopped may not answer from what it saw then: a majority has to say that it still leads.
func TestReadsWaitForAMajority(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.putTopic("T", 1)
	n.dial().commitOffset(t, "g", "T", 0, 7)
	for _, code := range reads {
		asked := make(chan struct{}, 1)
		verdict := make(chan error)
		confirm := func(ctx context.Context) error {
			select {
			case asked <- struct{}{}:
			default:
			}
			select {
			case err := <-verdict:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		n.raft.confirm.Store(&confirm)
		n.raft.stale.Store(true)
		answer := make(chan *remoting.Command, 1)
		c := n.dial()
		go func() { answer <- c.call(code, nil, readFields()...) }()
		<-asked
		select {
		case resp := <-answer:
			t.Fatalf("%s: answered %d without a majority", remoting.RequestCodeName(code), resp.Code)
		case <-time.After(20 * time.Millisecond):
		}
		verdict <- errors.New("not heard") // it asks again
		verdict <- nil
		want(t, <-answer, 0)
		n.raft.confirm.Store(nil)
		n.raft.stale.Store(false)
		want(t, c.call(code, nil, readFields()...), 0)
	}
}

// What a deposed leader read is not answered: it is asked after the reading, and reads again when it leads again.
func TestWhatWasReadBeforeIsNotAnswered(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	c.commitOffset(t, "g", "T", 0, 7)
	n.raft.stale.Store(true)
	asked, verdict := make(chan struct{}, 1), make(chan error)
	confirm := func(ctx context.Context) error {
		select {
		case asked <- struct{}{}:
		default:
		}
		return <-verdict
	}
	n.raft.confirm.Store(&confirm)
	answer := make(chan *remoting.Command, 1)
	go func() { answer <- c.queryOffset("g", "T", 0) }()
	<-asked
	n.raft.follow(2, "")
	verdict <- raftnode.ErrNotLeader
	n.raft.lead(3)
	n.dial().commitOffset(t, "g", "T", 0, 9)
	verdict <- raftnode.ErrNotLeader // whatever it had read by then
	verdict <- nil
	if got := want(t, <-answer, 0).GetString("offset"); got != "9" {
		t.Errorf("offset %s", got)
	}
	n.raft.stale.Store(false)
	n.raft.confirm.Store(nil)
	// And without a leader there is no answer at all.
	n.raft.follow(4, "")
	ctx, cancel := context.WithTimeout(context.Background(), waitLong)
	defer cancel()
	if _, err := n.dial().Invoke(ctx, request(remoting.RequestQueryConsumerOffset, nil, readFields()...)); !errors.Is(err, client.ErrConnClosed) {
		t.Errorf("%v", err)
	}
}

// A leader that is not certain goes on taking writes: what it proposes is not done if another one leads.
func TestWritesNeedNoCertainty(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.putTopic("T", 1)
	n.raft.stale.Store(true)
	confirm := func(context.Context) error { t.Error("a write asked a majority by itself"); return nil }
	n.raft.confirm.Store(&confirm)
	c := n.dial()
	want(t, c.send("T", 0, "", []byte("x")), 0)
	c.commitOffset(t, "g", "T", 0, 3)
	// A pull finds what is there, and moves nobody: the offset may be another leader's.
	n.waitReadable("T", 0, 1)
	want(t, c.call(remoting.RequestPullMessage, nil, pullFields("g", "T", 0, 0, 4, 0)...), 0)
	r := want(t, c.call(remoting.RequestPullMessage, nil, pullFields("g", "T", 0, 50, 4, 0)...), remoting.ResponsePullRetryImmediately)
	if got := r.GetString("nextBeginOffset"); got != "50" {
		t.Errorf("moved to %s", got)
	}
	n.raft.stale.Store(false)
	want(t, c.call(remoting.RequestPullMessage, nil, pullFields("g", "T", 0, 50, 4, 0)...), remoting.ResponsePullOffsetMoved)
}

func (c *conn) commitOffset(t testing.TB, group, topic string, queue int, offset int64) {
	t.Helper()
	want(t, c.call(remoting.RequestUpdateConsumerOffset, nil, "consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(queue), "commitOffset", strconv.FormatInt(offset, 10)), 0)
}
