package workload

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"raftmq/jepsen/history"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// wishes are what applications want to become of their transactions. They never change their mind.
type wishes struct {
	rec *history.Recorder

	mu      sync.Mutex
	of      map[string]string
	asked   map[string]int // how often a value was asked for
	decided map[string]bool
}

func newWishes(rec *history.Recorder) *wishes {
	return &wishes{rec: rec, of: map[string]string{}, asked: map[string]int{}, decided: map[string]bool{}}
}

func (w *wishes) set(value, wish string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[value] = wish
}

// ask is what the application says about a value: every other one is not known yet when it is asked first. A value that it
// does not know it takes back.
func (w *wishes) ask(value string) primitive.LocalTransactionState {
	w.mu.Lock()
	defer w.mu.Unlock()
	wish := w.of[value]
	w.asked[value]++
	if w.asked[value] == 1 && len(value) > 0 && value[len(value)-1]%2 == 0 {
		return primitive.UnkonwnState
	}
	if wish != history.WishCommit {
		return primitive.RollbackMessageState
	}
	if !w.decided[value] {
		w.decided[value] = true
		w.rec.Add(history.Op{Kind: history.Decide, Process: "application", Outcome: history.OK, Value: value, Queue: -1, Offset: -1})
	}
	return primitive.CommitMessageState
}

// transactor is a sender that is asked about what it has sent, until end.
type transactor interface {
	Sender
	end()
}

// stockTransactor is a stock transaction producer.
type stockTransactor struct {
	topic string
	p     rocketmq.TransactionProducer
}

// listener answers the stock client.
type listener struct{ w *wishes }

func (l listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return l.w.ask(ValueOf(m.Body))
}

func (l listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	return l.w.ask(ValueOf(m.Body))
}

func newStockTransactor(addrs []string, name, topic string, w *wishes) (transactor, error) {
	p, err := rocketmq.NewTransactionProducer(listener{w}, producerOptions(addrs, name)...)
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("workload: stock transaction producer %s: %w", name, err)
	}
	return &stockTransactor{topic: topic, p: p}, nil
}

func (s *stockTransactor) Send(ctx context.Context, batch ...*Message) (Ack, error) {
	m := batch[0]
	stock := stockMessage(s.topic, m)
	res, err := s.p.SendMessageInTransaction(ctx, stock)
	m.UniqKey = stock.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)
	if err != nil {
		return Ack{}, err
	}
	if res.Status != primitive.SendOK {
		return Ack{}, fmt.Errorf("workload: send status %d", res.Status)
	}
	return Ack{Queue: -1, Offset: -1}, nil
}

// Close lets the producer live: what is not decided yet is asked for later.
func (s *stockTransactor) Close() {}

func (s *stockTransactor) end() { _ = s.p.Shutdown() }

// rawTransactor sends half messages and their ends itself and answers the broker's questions.
type rawTransactor struct {
	*rawSender
	w    *wishes
	stop context.CancelFunc
	wg   sync.WaitGroup
}

func newRawTransactor(addrs []string, name, topic string, queue int32, w *wishes) *rawTransactor {
	ctx, cancel := context.WithCancel(context.Background())
	t := &rawTransactor{rawSender: newRawSender(addrs, name, topic, queue, 1), w: w, stop: cancel}
	for _, addr := range addrs {
		t.wg.Go(func() { t.listen(ctx, addr) })
	}
	return t
}

func (t *rawTransactor) Send(ctx context.Context, batch ...*Message) (Ack, error) {
	ctx, cancel := context.WithTimeout(ctx, rawSendTimeout)
	defer cancel()
	m := batch[0]
	if m.UniqKey == "" {
		t.uniqueID++
		m.UniqKey = fmt.Sprintf("%s-%d", t.name, t.uniqueID)
	}
	err := t.half(ctx, m)
	if err != nil {
		t.leader = ""
	}
	return Ack{Queue: -1, Offset: -1}, err
}

// half sends a half message and says what is to become of it. An end that does not arrive is asked for later.
func (t *rawTransactor) half(ctx context.Context, m *Message) error {
	if t.leader == "" {
		if err := t.findLeader(ctx); err != nil {
			return fmt.Errorf("%w: route: %w", ErrRefused, err)
		}
	}
	c, err := t.cl.Client(ctx, t.leader)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	// A connection that half messages come from is a producer's too, and is asked as well.
	c.OnRequest(func(asked *remoting.Command) *remoting.Command { t.answer(c, asked); return nil })
	cmd := sendRequest(t.topic, t.name, t.queue, m)
	cmd.Set("i", properties(m)+"\x02TRAN_MSG\x01true\x02PGROUP\x01"+t.name)
	cmd.Set("f", "4") // prepared
	resp, err := c.Invoke(ctx, cmd)
	if err != nil {
		_ = c.Close()
		return err
	}
	if _, err := sendAnswer(resp, t.leader); err != nil {
		return err
	}
	id, err := primitive.UnmarshalMsgID([]byte(resp.GetString("msgId")))
	if err != nil {
		return fmt.Errorf("workload: half message: %w", err)
	}
	_ = c.SendOneWay(t.ending(t.w.ask(m.Value), resp.GetString("queueOffset"), strconv.FormatInt(id.Offset, 10), m.UniqKey, false))
	return nil
}

// ending is an END_TRANSACTION.
func (t *rawTransactor) ending(state primitive.LocalTransactionState, half, phyOffset, uniq string, asked bool) *remoting.Command {
	kind := primitive.TransactionNotType
	switch state {
	case primitive.CommitMessageState:
		kind = primitive.TransactionCommitType
	case primitive.RollbackMessageState:
		kind = primitive.TransactionRollbackType
	}
	cmd := &remoting.Command{Code: remoting.RequestEndTransaction}
	for _, kv := range [][2]string{
		{"producerGroup", t.name}, {"tranStateTableOffset", half}, {"commitLogOffset", phyOffset},
		{"commitOrRollback", strconv.Itoa(kind)}, {"fromTransactionCheck", strconv.FormatBool(asked)}, {"msgId", uniq}, {"transactionId", uniq},
	} {
		cmd.Set(kv[0], kv[1])
	}
	return cmd
}

const beatEvery = time.Second

// listen keeps a connection to one node, on which it is known as a producer, and answers its questions.
func (t *rawTransactor) listen(ctx context.Context, addr string) {
	beat := remoting.HeartbeatData{ClientID: t.name + "@" + addr, ProducerDataSet: []remoting.ProducerData{{GroupName: t.name}}}
	var c *client.Client
	defer func() {
		if c != nil {
			_ = c.Close()
		}
	}()
	for ctx.Err() == nil {
		err := error(nil)
		if c == nil || c.Err() != nil {
			if c, err = client.Dial(ctx, addr); err == nil {
				conn := c
				conn.OnRequest(func(cmd *remoting.Command) *remoting.Command { t.answer(conn, cmd); return nil })
			} else {
				c = nil
			}
		}
		if err == nil {
			bctx, cancel := context.WithTimeout(ctx, rawSendTimeout)
			if _, err = c.Invoke(bctx, &remoting.Command{Code: remoting.RequestHeartBeat, Body: beat.Encode()}); err != nil {
				_ = c.Close()
			}
			cancel()
		}
		sleep(ctx, beatEvery)
	}
}

func (t *rawTransactor) answer(c *client.Client, cmd *remoting.Command) {
	if cmd.Code != remoting.RequestCheckTransactionState {
		return
	}
	messages := primitive.DecodeMessage(cmd.Body)
	if len(messages) != 1 {
		return // it will be asked again
	}
	_ = c.SendOneWay(t.ending(t.w.ask(ValueOf(messages[0].Body)), cmd.GetString("tranStateTableOffset"), cmd.GetString("commitLogOffset"),
		cmd.GetString("msgId"), true))
}

// Close is called when everything is sent; the broker's questions go on to be answered.
func (t *rawTransactor) Close() {}

func (t *rawTransactor) end() {
	t.stop()
	t.wg.Wait()
	t.rawSender.Close()
}
