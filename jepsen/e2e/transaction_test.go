package e2e

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"raftmq/commitlog/record"
	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
)

// offsetOf is the physical offset in an offset message id.
func offsetOf(t *testing.T, id string) string {
	t.Helper()
	_, off, err := record.ParseMessageID(id)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatInt(off, 10)
}

// application is a transaction listener: execute and check say what becomes of a message with a body.
type application struct {
	mu      sync.Mutex
	execute func(body string) primitive.LocalTransactionState
	check   func(body string, times int) primitive.LocalTransactionState
	checked map[string]int
}

func (a *application) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return a.execute(string(m.Body))
}

func (a *application) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	a.mu.Lock()
	if a.checked == nil {
		a.checked = map[string]int{}
	}
	a.checked[string(m.Body)]++
	times := a.checked[string(m.Body)]
	a.mu.Unlock()
	return a.check(string(m.Body), times)
}

func (a *application) checks(body string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.checked[body]
}

func newTransactionProducer(t *testing.T, c *cluster.Cluster, a *application) rocketmq.TransactionProducer {
	t.Helper()
	p, err := rocketmq.NewTransactionProducer(a,
		producer.WithNsResolver(primitive.NewPassthroughResolver(c.ClientAddrs())),
		producer.WithGroupName("txpg-"+topicName(t)),
		producer.WithInstanceName("tx-"+topicName(t)),
		producer.WithRetry(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Shutdown() })
	return p
}

func transactionFlags(more ...string) []string {
	return append(append(jepsen.DefaultFlags(), "--transaction-timeout", "1s", "--transaction-check-interval", "1s"), more...)
}

// What the stock transaction producer does: commit, rollback, unknown and asked later, never known.
func TestTransactions(t *testing.T) {
	parallel(t, 7)
	c := startCluster(t, cluster.Config{Flags: transactionFlags("--transaction-check-max", "3")})
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	a := &application{
		execute: func(body string) primitive.LocalTransactionState {
			switch body {
			case "commit":
				return primitive.CommitMessageState
			case "rollback":
				return primitive.RollbackMessageState
			}
			return primitive.UnkonwnState
		},
		check: func(body string, times int) primitive.LocalTransactionState {
			switch {
			case body == "later" && times == 2:
				return primitive.CommitMessageState
			case body == "taken back":
				return primitive.RollbackMessageState
			}
			return primitive.UnkonwnState
		},
	}
	j, givenUp := &journal{}, &journal{}
	listen(t, c, "g-"+topic, topic, j)
	p := newTransactionProducer(t, c, a)
	for _, body := range []string{"commit", "rollback", "later", "taken back", "never"} {
		res, err := p.SendMessageInTransaction(t.Context(), primitive.NewMessage(topic, []byte(body)))
		if err != nil || res.Status != primitive.SendOK {
			t.Fatalf("%s: %v, %v", body, res, err)
		}
	}
	lc := dial(t, leaderOf(t, c).Addrs.Client)
	eventually(t, 2*time.Minute, "the last message is given up", func() bool { return maxOffset(t, lc, "TRANS_CHECK_MAX_TIME_TOPIC", 0) == 1 })
	listen(t, c, "given-up-"+topic, "TRANS_CHECK_MAX_TIME_TOPIC", givenUp)
	if d := givenUp.await(t, 1)[0]; d.body != "never" || d.properties["TRANSACTION_CHECK_TIMES"] != "3" || d.properties["REAL_TOPIC"] != topic {
		t.Errorf("given up %+v", d)
	}
	var bodies []string
	for _, d := range j.await(t, 2) {
		bodies = append(bodies, d.body)
		if d.properties["TRAN_MSG"] != "true" {
			t.Errorf("properties %v", d.properties)
		}
	}
	slices.Sort(bodies)
	if !slices.Equal(bodies, []string{"commit", "later"}) {
		t.Errorf("delivered %v", bodies)
	}
	for body, want := range map[string]int{"commit": 0, "rollback": 0, "later": 2, "taken back": 1, "never": 3} {
		if got := a.checks(body); got != want {
			t.Errorf("%s was checked %d times, want %d", body, got, want)
		}
	}
	// All have ended: one real message each for two, an op record for four, the copy for one.
	if half, op := maxOffset(t, lc, "RMQ_SYS_TRANS_HALF_TOPIC", 0), maxOffset(t, lc, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0); half != 5 || op != 4 {
		t.Errorf("%d half messages and %d op records, want 5 and 4", half, op)
	}
	sts, err := c.WaitConverged(withTimeout(t, 60*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	sameLogs(t, sts)
}

// The leader is killed between a half message and its commit. The commit goes to the dead node; the new leader asks, and the
// message is delivered once.
func TestTransactionAndLeaderChange(t *testing.T) {
	long(t)
	parallel(t, 39)
	c := startCluster(t, cluster.Config{Flags: transactionFlags()})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	var killed *cluster.Node
	a := &application{
		execute: func(body string) primitive.LocalTransactionState {
			if body == "killed" {
				killed = leaderOf(t, c)
				if err := killed.Kill(); err != nil {
					t.Error(err)
				}
			}
			return primitive.CommitMessageState
		},
		check: func(string, int) primitive.LocalTransactionState { return primitive.CommitMessageState },
	}
	p := newTransactionProducer(t, c, a)
	for _, body := range []string{"before", "killed"} {
		if res, err := p.SendMessageInTransaction(t.Context(), primitive.NewMessage(topic, []byte(body))); err != nil || res.Status != primitive.SendOK {
			t.Fatalf("%s: %v, %v", body, res, err)
		}
	}
	leader := serving(t, c)
	lc := dial(t, leader.Addrs.Client)
	begin := time.Now()
	// The producer finds the new leader when it asks for routes or sends a heartbeat, at most 30 s each.
	eventually(t, 3*time.Minute, "commit after a check", func() bool { return maxOffset(t, lc, topic, 0) == 2 })
	t.Logf("committed %v after the new leader served, %d checks", time.Since(begin), a.checks("killed"))
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
	time.Sleep(2 * time.Second) // two more rounds, which must find nothing
	messages := pullAll(t, leaderOf(t, c), topic, 1)[0]
	if len(messages) != 2 || string(messages[0].Body) != "before" || string(messages[1].Body) != "killed" {
		t.Errorf("%d messages", len(messages))
	}
	if n := a.checks("killed"); n < 1 || a.checks("before") != 0 {
		t.Errorf("checked %d and %d times", n, a.checks("before"))
	}
	sts, err := c.WaitConverged(withTimeout(t, 60*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	sameLogs(t, sts)
}

// F19: a thousand transactions a second around one whose check never gives an outcome.
func TestF19_TransactionsAroundABadOne(t *testing.T) {
	long(t)
	parallel(t, 15)
	c := startCluster(t, cluster.Config{Flags: transactionFlags("--transaction-check-max", "4")})
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	a := &application{
		execute: func(body string) primitive.LocalTransactionState {
			if body == "bad" {
				return primitive.UnkonwnState
			}
			return primitive.CommitMessageState
		},
		check: func(string, int) primitive.LocalTransactionState { panic("the check fails") },
	}
	p := newTransactionProducer(t, c, a)
	send := func(body string) {
		if res, err := p.SendMessageInTransaction(t.Context(), primitive.NewMessage(topic, []byte(body))); err != nil || res.Status != primitive.SendOK {
			t.Errorf("%s: %v, %v", body, res, err)
		}
	}
	send("bad")
	const count = 4000
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < count; i += 8 {
				send(strconv.Itoa(i))
			}
		})
	}
	wg.Wait()
	lc := dial(t, leaderOf(t, c).Addrs.Client)
	committed := func() (n int64) {
		for q := range 4 {
			n += maxOffset(t, lc, topic, q)
		}
		return n
	}
	eventually(t, 2*time.Minute, "commit of all others", func() bool { return committed() == count })
	eventually(t, 2*time.Minute, "the bad one is given up", func() bool { return maxOffset(t, lc, "TRANS_CHECK_MAX_TIME_TOPIC", 0) == 1 })
	if half, op := maxOffset(t, lc, "RMQ_SYS_TRANS_HALF_TOPIC", 0), maxOffset(t, lc, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0); half != count+1 || op != count {
		t.Errorf("%d half messages, %d op records", half, op)
	}
}
