package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftmq/commitlog/record"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// produceOptions are produce's flags.
type produceOptions struct {
	topic      string
	tag, key   string
	properties []string
	verbose    bool
}

func newProduceCommand() *cobra.Command {
	var flags toolFlags
	var o produceOptions
	cmd := &cobra.Command{
		Use:   "produce",
		Short: "Send the lines of standard input, one message each",
		Long: `Sends each line of standard input as a message, one after the other, to the topic's queues by turns.
A send without a clear answer is repeated under the same UNIQ_KEY, as RocketMQ clients do: such a message
may be stored twice.`,
		Example: `  echo hello | raftmq produce --topic greetings --tag en
  raftmq produce --topic lines --verbose < file.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			properties, err := o.propertiesText()
			if err != nil {
				return err
			}
			cluster, err := flags.connect()
			if err != nil {
				return err
			}
			defer cluster.Close()
			ctx, cancel := untilSignal(cmd)
			defer cancel()
			p := &lineProducer{cluster: cluster, o: &o, properties: properties, timeout: flags.timeout, out: cmd.OutOrStdout()}
			err = p.run(ctx, cmd.InOrStdin())
			fmt.Fprintf(cmd.ErrOrStderr(), "%d messages sent to %s\n", p.sent, o.topic)
			return err
		},
	}
	flags.register(cmd, 30*time.Second, "how long to try to send a message")
	fs := cmd.Flags()
	fs.StringVar(&o.topic, "topic", "", "`topic` to send to")
	fs.StringVar(&o.tag, "tag", "", "`tag` of the messages")
	fs.StringVar(&o.key, "key", "", "`keys` of the messages, separated by blanks")
	fs.StringSliceVar(&o.properties, "property", nil, "further `name=value` properties of the messages")
	fs.BoolVarP(&o.verbose, "verbose", "v", false, "print where each message went: queue, offset, message id")
	return cmd
}

// propertiesText puts the flags into the wire's form.
func (o *produceOptions) propertiesText() ([]byte, error) {
	if o.topic == "" {
		return nil, flagError{"topic", o.topic, "is required"}
	}
	if err := checkName(o.topic, remoting.MaxTopicLen); err != nil {
		return nil, flagError{"topic", o.topic, err.Error()}
	}
	var text []byte
	add := func(flag, name, value string) error {
		if strings.ContainsAny(name+value, "\x01\x02") {
			return flagError{flag, value, "allowed is text without the separators \\x01 and \\x02"}
		}
		text = record.AppendProperty(text, name, value)
		return nil
	}
	if o.tag != "" {
		if err := add("tag", record.PropertyTags, o.tag); err != nil {
			return nil, err
		}
	}
	if o.key != "" {
		if err := add("key", record.PropertyKeys, o.key); err != nil {
			return nil, err
		}
	}
	for _, p := range o.properties {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" || value == "" {
			return nil, flagError{"property", p, "allowed is name=value"}
		}
		if err := add("property", name, value); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// lineProducer sends lines.
type lineProducer struct {
	cluster    *client.Cluster
	o          *produceOptions
	properties []byte
	timeout    time.Duration
	out        io.Writer

	sent   int
	queues []brokerQueue
}

// brokerQueue is one queue that can be written.
type brokerQueue struct {
	broker string
	id     int
}

func (p *lineProducer) run(ctx context.Context, in io.Reader) error {
	r := bufio.NewReader(in)
	for ctx.Err() == nil {
		line, err := r.ReadString('\n')
		if line != "" {
			if err := p.send(ctx, strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")); err != nil {
				return fmt.Errorf("line %d: %w", p.sent+1, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("standard input: %w", err)
		}
	}
	return ctx.Err()
}

func (p *lineProducer) send(ctx context.Context, body string) error {
	if p.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.timeout)
		defer cancel()
	}
	if err := p.findQueues(ctx); err != nil {
		return err
	}
	queue := p.queues[p.sent%len(p.queues)]
	resp, err := p.cluster.InvokeRepeated(ctx, p.request(queue, body))
	if resp, err = invoked("send to "+p.o.topic, resp, err); err != nil {
		return err
	}
	p.sent++
	if p.o.verbose {
		_, err = fmt.Fprintf(p.out, "%s/%s offset %s id %s\n", queue.broker, resp.GetString("queueId"), resp.GetString("queueOffset"), resp.GetString("msgId"))
	}
	return err
}

// request is a SEND_MESSAGE_V2.
func (p *lineProducer) request(queue brokerQueue, body string) *remoting.Command {
	var id [16]byte
	_, _ = rand.Read(id[:])
	properties := record.AppendProperty(append([]byte(nil), p.properties...), record.PropertyUniqKey, fmt.Sprintf("%X", id))
	cmd := &remoting.Command{Code: remoting.RequestSendMessageV2, Body: []byte(body)}
	for _, f := range []struct{ key, value string }{
		{"a", "raftmq-produce"}, {"b", p.o.topic}, {"c", autoCreateTopic}, {"d", "4"}, {"e", strconv.Itoa(queue.id)}, {"f", "0"},
		{"g", strconv.FormatInt(time.Now().UnixMilli(), 10)}, {"h", "0"}, {"i", string(properties)}, {"j", "0"}, {"k", "false"}, {"m", "false"},
		{"n", queue.broker},
	} {
		cmd.Set(f.key, f.value)
	}
	return cmd
}

// findQueues looks the topic's queues up once. A topic that does not exist yet is created by the
// first send, with at most four queues, if the brokers allow it.
func (p *lineProducer) findQueues(ctx context.Context) error {
	if len(p.queues) > 0 {
		return nil
	}
	most := maxTopicQueues
	route, err := routeWithRetry(ctx, p.cluster, p.o.topic)
	if answeredWith(err, remoting.ResponseTopicNotExist) {
		missing := err
		most = 4
		if route, err = routeWithRetry(ctx, p.cluster, autoCreateTopic); answeredWith(err, remoting.ResponseTopicNotExist) {
			return missing
		}
	}
	if err != nil {
		return err
	}
	for _, q := range route.Queues {
		if q.Perm&permWrite != 0 {
			for id := range min(q.WriteQueues, most) {
				p.queues = append(p.queues, brokerQueue{q.Broker, id})
			}
		}
	}
	if len(p.queues) == 0 {
		return fmt.Errorf("topic %s has no queue that may be written", p.o.topic)
	}
	return nil
}
