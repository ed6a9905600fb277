package workload

import (
	"context"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// StockLog sends the stock client's own log, of warnings and worse, to a file. The library has one
// logger for the whole process.
func StockLog(path string) error {
	rlog.SetLogLevel("warn")
	if err := rlog.SetOutputPath(path); err != nil {
		return fmt.Errorf("workload: log of the stock client: %w", err)
	}
	return nil
}

// stockSender is a stock producer with an instance of its own, so that each has its own
// connections and route cache, as separate applications have.
type stockSender struct {
	topic string
	p     rocketmq.Producer
}

// NewStockSender starts a stock producer. One Send is one attempt: retries are the caller's, who
// counts them.
func NewStockSender(addrs []string, name, topic string) (Sender, error) {
	p, err := rocketmq.NewProducer(producerOptions(addrs, name)...)
	if err != nil {
		return nil, fmt.Errorf("workload: stock producer %s: %w", name, err)
	}
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("workload: stock producer %s: %w", name, err)
	}
	return &stockSender{topic: topic, p: p}, nil
}

func producerOptions(addrs []string, name string) []producer.Option {
	return []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(addrs)),
		producer.WithGroupName("jepsen-" + name),
		producer.WithInstanceName(name),
		producer.WithRetry(0),
		producer.WithSendMsgTimeout(3 * time.Second),
		producer.WithQueueSelector(keySelector{producer.NewRoundRobinQueueSelector(), producer.NewHashQueueSelector()}),
	}
}

// keySelector keeps messages of one key in one queue and deals the others out in turn, which is what the library does by itself.
type keySelector struct{ turn, key producer.QueueSelector }

func (k keySelector) Select(m *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if m.GetShardingKey() != "" {
		return k.key.Select(m, queues, last)
	}
	return k.turn.Select(m, queues, last)
}

// stockMessage is what the library sends for m, the same at each attempt.
func stockMessage(topic string, m *Message) *primitive.Message {
	if m.stock == nil {
		m.stock = primitive.NewMessage(topic, m.Body)
		if m.Key != "" {
			m.stock.WithShardingKey(m.Key)
		}
		if m.Level > 0 {
			m.stock.WithDelayTimeLevel(m.Level)
		}
	}
	return m.stock
}

func (s *stockSender) Send(ctx context.Context, batch ...*Message) (Ack, error) {
	messages := make([]*primitive.Message, len(batch))
	for i, m := range batch {
		messages[i] = stockMessage(s.topic, m)
	}
	res, err := s.p.SendSync(ctx, messages...)
	for i, m := range batch {
		m.UniqKey = messages[i].GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)
	}
	if err != nil {
		return Ack{}, err
	}
	if res.Status != primitive.SendOK {
		return Ack{}, fmt.Errorf("workload: send status %d", res.Status)
	}
	return Ack{Queue: int32(res.MessageQueue.QueueId), Offset: res.QueueOffset}, nil
}

func (s *stockSender) Close() { _ = s.p.Shutdown() }

type stockConsumer struct{ c rocketmq.PushConsumer }

// stockConsumption says how a stock consumer is to work.
type stockConsumption struct {
	ordered bool  // one queue's messages one after the other, under the broker's lock
	tries   int32 // how often a message may be sent back (16)
	now     func() time.Duration
	work    time.Duration // before the messages of a call count as delivered
	// deliver gets each message; false sends it back.
	deliver func(Delivery) bool
}

// NewStockConsumer starts a stock push consumer of a topic that exists; deliver is called from
// many goroutines.
func NewStockConsumer(addrs []string, name, group, topic string, deliver func(Delivery)) (Consumer, error) {
	return newStockConsumer(addrs, name, group, topic, stockConsumption{deliver: func(d Delivery) bool { deliver(d); return true }})
}

func newStockConsumer(addrs []string, name, group, topic string, how stockConsumption) (Consumer, error) {
	options := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver(addrs)),
		consumer.WithGroupName(group),
		consumer.WithInstance(name),
		consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(how.ordered),
	}
	if how.tries > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(how.tries)) // and one message a call, so that each has its own verdict
	} else {
		options = append(options, consumer.WithConsumeMessageBatchMaxSize(32))
	}
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, fmt.Errorf("workload: stock consumer %s: %w", name, err)
	}
	err = c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		var began time.Duration
		if how.now != nil {
			began = how.now()
		}
		time.Sleep(how.work)
		for _, m := range msgs {
			at := topic
			if m.ReconsumeTimes > 0 {
				at = retryPrefix + group // that is where its queue and offset are
			}
			if !how.deliver(Delivery{
				Value:   ValueOf(m.Body),
				UniqKey: m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex),
				Topic:   at,
				Queue:   int32(m.Queue.QueueId),
				Offset:  m.QueueOffset,
				Size:    len(m.Body),
				Sum:     crc32.ChecksumIEEE(m.Body),
				Stored:  m.StoreTimestamp,
				Tries:   int(m.ReconsumeTimes),
				Began:   began,
			}) {
				result = consumer.ConsumeRetryLater
			}
		}
		return result, nil
	})
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("workload: stock consumer %s: %w", name, err)
	}
	return &stockConsumer{c}, nil
}

func (s *stockConsumer) Close() { _ = s.c.Shutdown() }
