package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"raftmq/jepsen/cluster"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// rawClient notes what the server asks of it.
type rawClient struct {
	*client.Client
	mu    sync.Mutex
	asked []*remoting.Command
}

// connect opens a connection to one node only.
func connect(t *testing.T, n *cluster.Node, answer func(cmd *remoting.Command) *remoting.Command) *rawClient {
	t.Helper()
	c := &rawClient{Client: dial(t, n.Addrs.Client)}
	c.OnRequest(func(cmd *remoting.Command) *remoting.Command {
		c.mu.Lock()
		c.asked = append(c.asked, cmd.Clone())
		c.mu.Unlock()
		if answer == nil {
			return nil
		}
		return answer(cmd)
	})
	return c
}

func (c *rawClient) count(code int32) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.asked {
		if r.Code == code {
			n++
		}
	}
	return n
}

func (c *rawClient) beat(t *testing.T, body string) {
	t.Helper()
	hb := request(remoting.RequestHeartBeat, []byte(body))
	hb.Language, hb.Version = remoting.LanguageJava, remoting.Version4_9_4
	if resp := invoke(t, c.Client, hb); resp.Code != 0 {
		t.Fatalf("heartbeat: %d %s", resp.Code, resp.Remark)
	}
}

// Clients are found whichever node they are connected to: by the leader's check-backs, also when the leader has just changed, and by what mqadmin asks any node.
func TestClientsOfAnyNode(t *testing.T) {
	parallel(t, 7)
	c := startCluster(t, cluster.Config{Flags: transactionFlags()})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	t.Run("stock-producer-of-the-old-leader", func(t *testing.T) { checkOfOldLeader(t, c, topic) })
	t.Run("raw-producer-of-a-follower", func(t *testing.T) { checkOfFollower(t, c, topic) })
	t.Run("consumer-of-one-node", func(t *testing.T) { consumerOfOneNode(t, c, topic) })
}

// transfer hands leadership over and returns the new leader.
func transfer(t *testing.T, c *cluster.Cluster) *cluster.Node {
	t.Helper()
	old := leaderOf(t, c)
	var to *cluster.Node
	for _, n := range c.Nodes() {
		if n != old {
			to = n
		}
	}
	eventually(t, 30*time.Second, "leadership handed over", func() bool {
		_ = old.Admin(withTimeout(t, 10*time.Second), remoting.RequestTransferLeadership, remoting.TransferRequest{To: to.ID}, nil)
		leader, err := c.WaitServing(withTimeout(t, 10*time.Second))
		return err == nil && leader == to
	})
	return to
}

// The leader moves between a half message and its check. Apache's producer hears of that half a minute later at the earliest.
func checkOfOldLeader(t *testing.T, c *cluster.Cluster, topic string) {
	moved := make(chan time.Time, 1)
	a := &application{
		execute: func(string) primitive.LocalTransactionState {
			transfer(t, c)
			moved <- time.Now()
			return primitive.UnkonwnState
		},
		check: func(string, int) primitive.LocalTransactionState { return primitive.CommitMessageState },
	}
	p := newTransactionProducer(t, c, a)
	before := maxOffset(t, dial(t, leaderOf(t, c).Addrs.Client), topic, 0)
	if res, err := p.SendMessageInTransaction(t.Context(), primitive.NewMessage(topic, []byte("moved"))); err != nil || res.Status != primitive.SendOK {
		t.Fatalf("%v, %v", res, err)
	}
	begin := <-moved
	lc := dial(t, leaderOf(t, c).Addrs.Client)
	eventually(t, 25*time.Second, "commit after a check of the new leader's", func() bool { return maxOffset(t, lc, topic, 0) == before+1 })
	t.Logf("committed %v after the new leader served", time.Since(begin))
}

// A producer that is connected to a follower only answers the leader's check, and is asked once a round.
func checkOfFollower(t *testing.T, c *cluster.Cluster, topic string) {
	producer := connect(t, followerOf(t, c), nil)
	producer.beat(t, `{"clientID":"raw@1","producerDataSet":[{"groupName":"raw-pg"}],"consumerDataSet":[]}`)
	sender := dial(t, leaderOf(t, c).Addrs.Client)
	half := sendRequest(topic, 0, "half", "TRAN_MSG\x01true\x02PGROUP\x01raw-pg\x02UNIQ_KEY\x01"+strings.Repeat("C", 32))
	half.Set("producerGroup", "raw-pg")
	half.Set("sysFlag", "4")
	if resp := invoke(t, sender, half); resp.Code != 0 {
		t.Fatalf("%d %s", resp.Code, resp.Remark)
	}
	_ = sender.Close()
	begin := time.Now()
	eventually(t, 25*time.Second, "a check", func() bool { return producer.count(remoting.RequestCheckTransactionState) > 0 })
	t.Logf("asked %v after the half message", time.Since(begin))
	producer.mu.Lock()
	var check remoting.CheckTransactionHeader
	for _, r := range producer.asked {
		if r.Code == remoting.RequestCheckTransactionState {
			if err := check.Decode(r); err != nil {
				t.Error(err)
			}
		}
	}
	producer.mu.Unlock()
	before := maxOffset(t, producer.Client, topic, 0)
	end := request(remoting.RequestEndTransaction, nil, "producerGroup", "raw-pg", "tranStateTableOffset", strconv.FormatInt(check.TranStateTableOffset, 10),
		"commitLogOffset", strconv.FormatInt(check.CommitLogOffset, 10), "commitOrRollback", strconv.Itoa(int(remoting.TransactionCommit)), "fromTransactionCheck", "true", "msgId", check.MsgID)
	if resp := invoke(t, producer.Client, end); resp.Code != 0 {
		t.Fatalf("%d %s", resp.Code, resp.Remark)
	}
	eventually(t, 25*time.Second, "the commit", func() bool { return maxOffset(t, producer.Client, topic, 0) == before+1 })
}

// A consumer is connected to one node, whichever that is; every node answers what mqadmin asks about it.
func consumerOfOneNode(t *testing.T, c *cluster.Cluster, topic string) {
	lc := dial(t, leaderOf(t, c).Addrs.Client)
	sent := invoke(t, lc, sendRequest(topic, 0, "direct", ""))
	if sent.Code != 0 {
		t.Fatalf("%d %s", sent.Code, sent.Remark)
	}
	for i, n := range c.Nodes() {
		group, id := fmt.Sprintf("g%d-%s", i, topic), fmt.Sprintf("raw%d@1", i)
		consumer := connect(t, n, func(cmd *remoting.Command) *remoting.Command {
			switch cmd.Code {
			case remoting.RequestGetConsumerRunningInfo, remoting.RequestConsumeMessageDirectly:
				return &remoting.Command{Body: []byte(`{"of":"` + id + `"}`)}
			case remoting.RequestGetConsumerStatusFromClient:
				return &remoting.Command{Body: []byte(`{"consumerTable":{},"messageQueueTable":{{"brokerName":"raftmq-a","queueId":0,"topic":"` + topic + `"}:3}}`)}
			}
			return nil
		})
		consumer.beat(t, `{"clientID":"`+id+`","producerDataSet":[],"consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"`+group+
			`","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1,"tagsSet":[],"topic":"`+topic+`"}],"unitMode":false}]}`)
		commit := request(remoting.RequestUpdateConsumerOffset, nil, "consumerGroup", group, "topic", topic, "queueId", "0", "commitOffset", "1")
		eventually(t, 20*time.Second, "offset committed", func() bool { // the group is created without waiting
			return invoke(t, lc, commit).Code == 0 && invoke(t, lc, request(remoting.RequestQueryConsumerOffset, nil, "consumerGroup", group, "topic", topic, "queueId", "0")).GetString("offset") == "1"
		})
		for _, asked := range c.Nodes() {
			tool := dial(t, asked.Addrs.Client)
			for _, q := range []struct {
				cmd  *remoting.Command
				want string
			}{
				{request(remoting.RequestGetConsumerRunningInfo, nil, "consumerGroup", group, "clientId", id, "jstackEnable", "false"), `{"of":"` + id + `"}`},
				{request(remoting.RequestConsumeMessageDirectly, nil, "consumerGroup", group, "clientId", id, "msgId", sent.GetString("msgId")), `{"of":"` + id + `"}`},
				{request(remoting.RequestGetConsumerConnectionList, nil, "consumerGroup", group), `"clientId":"` + id + `"`},
				{request(remoting.RequestGetConsumerListByGroup, nil, "consumerGroup", group), `["` + id + `"]`},
				{request(remoting.RequestInvokeBrokerToGetConsumerStatus, nil, "topic", topic, "group", group), `"` + id + `":{{`},
				{request(remoting.RequestQuerySubscriptionByConsumer, nil, "group", group, "topic", topic), `"subString":"*"`},
			} {
				if resp := invoke(t, tool, q.cmd); resp.Code != 0 || !strings.Contains(string(resp.Body), q.want) {
					t.Errorf("consumer of %s, request %d to %s: %d %s %s", n.ID, q.cmd.Code, asked.ID, resp.Code, resp.Remark, resp.Body)
				}
			}
			before := consumer.count(remoting.RequestResetConsumerClientOffset)
			resp := invoke(t, tool, request(remoting.RequestInvokeBrokerToResetOffset, nil, "topic", topic, "group", group, "timestamp", "0", "isForce", "true"))
			if resp.Code != 0 {
				t.Errorf("consumer of %s, reset by %s: %d %s", n.ID, asked.ID, resp.Code, resp.Remark)
				continue
			}
			eventually(t, 25*time.Second, "the consumer is told", func() bool { return consumer.count(remoting.RequestResetConsumerClientOffset) == before+1 })
		}
		// A consumer that sends heartbeats to all nodes, as Apache's do, joins the group: whoever is connected to one of them hears of it.
		before := consumer.count(remoting.RequestNotifyConsumerIDsChanged)
		startConsumer(t, c, group, topic, "", &inbox{})
		eventually(t, 60*time.Second, "the consumer hears of the other one", func() bool { return consumer.count(remoting.RequestNotifyConsumerIDsChanged) > before })
	}
}
