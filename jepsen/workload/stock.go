package workload

import (
	"context"
	"fmt"
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
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver(addrs)),
		producer.WithGroupName("jepsen-"+name),
		producer.WithInstanceName(name),
		producer.WithRetry(0),
		producer.WithSendMsgTimeout(3*time.Second),
	)
	if err != nil {
		return nil, fmt.Errorf("workload: stock producer %s: %w", name, err)
	}
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("workload: stock producer %s: %w", name, err)
	}
	return &stockSender{topic: topic, p: p}, nil
}

func (s *stockSender) Send(ctx context.Context, m *Message) (Ack, error) {
	if m.stock == nil {
		m.stock = primitive.NewMessage(s.topic, m.Body)
	}
	res, err := s.p.SendSync(ctx, m.stock)
	m.UniqKey = m.stock.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)
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

// NewStockConsumer starts a stock push consumer of a topic that exists; deliver is called from
// many goroutines.
func NewStockConsumer(addrs []string, name, group, topic string, deliver func(Delivery)) (Consumer, error) {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver(addrs)),
		consumer.WithGroupName(group),
		consumer.WithInstance(name),
		consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(32),
	)
	if err != nil {
		return nil, fmt.Errorf("workload: stock consumer %s: %w", name, err)
	}
	err = c.Subscribe(topic, consumer.MessageSelector{}, func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range msgs {
			deliver(Delivery{
				Value:   ValueOf(m.Body),
				UniqKey: m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex),
				Queue:   int32(m.Queue.QueueId),
				Offset:  m.QueueOffset,
			})
		}
		return consumer.ConsumeSuccess, nil
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
