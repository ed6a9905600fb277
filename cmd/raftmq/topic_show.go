package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// topicRow is a topic's queues in one broker group.
type topicRow struct {
	Topic       string `json:"topic"`
	Broker      string `json:"broker"`
	ReadQueues  int    `json:"readQueues"`
	WriteQueues int    `json:"writeQueues"`
	Perm        string `json:"perm"`
	Order       bool   `json:"order"`
	System      bool   `json:"system"` // RocketMQ's own, a retry or a dead-letter topic
}

func newTopicListCommand() *cobra.Command {
	var flags toolFlags
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List topics",
		Long:    "Lists the topics that people made; --all also shows RocketMQ's own, retry and dead-letter topics.",
		Example: "  raftmq topic list --all",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd, func(ctx context.Context, cluster *client.Cluster) error {
				rows, err := listTopics(ctx, cluster)
				if err != nil {
					return err
				}
				if !all {
					rows = slices.DeleteFunc(rows, func(r topicRow) bool { return r.System })
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), rows)
				}
				return writeTopics(cmd.OutOrStdout(), rows)
			})
		},
	}
	flags.register(cmd, 10*time.Second, "how long to try")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&all, "all", false, "also system, retry and dead-letter topics")
	return cmd
}

// listTopics asks each group's leader for its topic configuration (code 21).
func listTopics(ctx context.Context, cluster *client.Cluster) ([]topicRow, error) {
	route, err := routeWithRetry(ctx, cluster, autoCreateTopic)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	rows := []topicRow{}
	for _, b := range route.Brokers {
		addr := b.Addrs[0]
		if addr == "" {
			return nil, fmt.Errorf("list topics: no leader of %s is known", b.Name)
		}
		c, err := cluster.Client(ctx, addr)
		if err != nil {
			return nil, fmt.Errorf("list topics: %w", err)
		}
		resp, err := c.Invoke(ctx, &remoting.Command{Code: remoting.RequestGetAllTopicConfig})
		if resp, err = invoked("list topics", resp, err); err != nil {
			return nil, err
		}
		// RocketMQ's TopicConfigSerializeWrapper.
		var body struct {
			Topics map[string]struct {
				ReadQueues  int  `json:"readQueueNums"`
				WriteQueues int  `json:"writeQueueNums"`
				Perm        int  `json:"perm"`
				Order       bool `json:"order"`
			} `json:"topicConfigTable"`
		}
		if err := json.Unmarshal(resp.Body, &body); err != nil {
			return nil, fmt.Errorf("list topics: answer of %s: %w", addr, err)
		}
		for name, t := range body.Topics {
			rows = append(rows, topicRow{Topic: name, Broker: b.Name, ReadQueues: t.ReadQueues, WriteQueues: t.WriteQueues,
				Perm: permText(t.Perm), Order: t.Order, System: systemTopic(name, route)})
		}
	}
	slices.SortFunc(rows, func(a, b topicRow) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return strings.Compare(a.Broker, b.Broker)
	})
	return rows, nil
}

// systemTopic reports whether nobody made the topic by hand: the broker's own, those named after
// clusters and brokers, retry and dead-letter topics.
func systemTopic(name string, route *client.Route) bool {
	if strings.HasPrefix(name, "%RETRY%") || strings.HasPrefix(name, "%DLQ%") || strings.HasPrefix(name, "rmq_sys_") ||
		strings.HasSuffix(name, "_REPLY_TOPIC") || slices.Contains(reservedNames, name) {
		return true
	}
	return slices.ContainsFunc(route.Brokers, func(b client.RouteBroker) bool { return b.Name == name || b.Cluster == name })
}

func writeTopics(out io.Writer, rows []topicRow) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tBROKER\tWRITE QUEUES\tREAD QUEUES\tPERM")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", r.Topic, r.Broker, r.WriteQueues, r.ReadQueues, r.Perm)
	}
	return w.Flush()
}

// topicDescription is what "topic describe" prints.
type topicDescription struct {
	Topic   string       `json:"topic"`
	Brokers []brokerRow  `json:"brokers"`
	Queues  []queueRange `json:"queues"`
}

type brokerRow struct {
	Broker      string            `json:"broker"`
	Cluster     string            `json:"cluster"`
	ReadQueues  int               `json:"readQueues"`
	WriteQueues int               `json:"writeQueues"`
	Perm        string            `json:"perm"`
	Leader      string            `json:"leader"`
	Addresses   map[string]string `json:"addresses"` // by broker id, "0" the leader
}

// queueRange is what a queue holds: offsets Min to Max-1.
type queueRange struct {
	Broker string `json:"broker"`
	Queue  int    `json:"queue"`
	Min    int64  `json:"minOffset"`
	Max    int64  `json:"maxOffset"`
}

func newTopicDescribeCommand() *cobra.Command {
	var flags toolFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "describe TOPIC",
		Short:   "Show a topic's brokers, queues and offsets",
		Example: "  raftmq topic describe orders",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.run(cmd, func(ctx context.Context, cluster *client.Cluster) error {
				d, err := describeTopic(ctx, cluster, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd.OutOrStdout(), d)
				}
				return writeDescription(cmd.OutOrStdout(), d)
			})
		},
	}
	flags.register(cmd, 10*time.Second, "how long to try")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func describeTopic(ctx context.Context, cluster *client.Cluster, topic string) (*topicDescription, error) {
	route, err := routeWithRetry(ctx, cluster, topic)
	if err != nil {
		return nil, err
	}
	d := &topicDescription{Topic: topic}
	for _, q := range route.Queues {
		row := brokerRow{Broker: q.Broker, ReadQueues: q.ReadQueues, WriteQueues: q.WriteQueues, Perm: permText(q.Perm), Addresses: map[string]string{}}
		row.Leader, _ = route.Leader(q.Broker)
		for _, b := range route.Brokers {
			if b.Name != q.Broker {
				continue
			}
			row.Cluster = b.Cluster
			for id, addr := range b.Addrs {
				row.Addresses[strconv.FormatInt(id, 10)] = addr
			}
		}
		d.Brokers = append(d.Brokers, row)
		if row.Leader == "" {
			continue
		}
		for id := range max(q.ReadQueues, q.WriteQueues) {
			r, err := rangeOf(ctx, cluster, row.Leader, topic, q.Broker, id)
			if err != nil {
				return nil, err
			}
			d.Queues = append(d.Queues, r)
		}
	}
	return d, nil
}

// rangeOf asks a broker for a queue's min and max offset.
func rangeOf(ctx context.Context, cluster *client.Cluster, addr, topic, broker string, queue int) (queueRange, error) {
	r := queueRange{Broker: broker, Queue: queue}
	c, err := cluster.Client(ctx, addr)
	if err != nil {
		return r, err
	}
	if r.Max, err = queueOffset(ctx, c, remoting.RequestGetMaxOffset, topic, queue, nil); err != nil {
		return r, err
	}
	r.Min, err = queueOffset(ctx, c, remoting.RequestGetMinOffset, topic, queue, nil)
	return r, err
}

// queueOffset sends one of the requests that are answered with an ext "offset" (14, 29, 30, 31).
func queueOffset(ctx context.Context, c *client.Client, code int32, topic string, queue int, ext map[string]string) (int64, error) {
	cmd := &remoting.Command{Code: code}
	cmd.Set("topic", topic)
	cmd.Set("queueId", strconv.Itoa(queue))
	for k, v := range ext {
		cmd.Set(k, v)
	}
	resp, err := c.Invoke(ctx, cmd)
	what := fmt.Sprintf("%s of queue %d of %s", remoting.RequestCodeName(code), queue, topic)
	if resp, err = invoked(what, resp, err); err != nil {
		return 0, err
	}
	offset, err := strconv.ParseInt(resp.GetString("offset"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: answer without an offset: %w", what, err)
	}
	return offset, nil
}

func writeDescription(out io.Writer, d *topicDescription) error {
	for _, b := range d.Brokers {
		fmt.Fprintf(out, "%s on %s: %d write and %d read queues, %s; leader %s", d.Topic, b.Broker, b.WriteQueues, b.ReadQueues, b.Perm, orDash(b.Leader))
		replicas := []string{}
		for id, addr := range b.Addresses {
			if id != "0" {
				replicas = append(replicas, addr+" (id "+id+")")
			}
		}
		if slices.Sort(replicas); len(replicas) > 0 {
			fmt.Fprintf(out, ", replicas %s", strings.Join(replicas, ", "))
		}
		fmt.Fprintln(out)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "QUEUE\tMIN\tMAX\tMESSAGES\t")
	var total int64
	for _, q := range d.Queues {
		name := strconv.Itoa(q.Queue)
		if len(d.Brokers) > 1 {
			name = q.Broker + "/" + name
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", name, q.Min, q.Max, q.Max-q.Min)
		total += q.Max - q.Min
	}
	fmt.Fprintf(w, "all\t\t\t%d\t\n", total)
	return w.Flush()
}

func newTopicDeleteCommand() *cobra.Command {
	var flags toolFlags
	cmd := &cobra.Command{
		Use:     "delete TOPIC",
		Short:   "Delete a topic and its messages",
		Example: "  raftmq topic delete orders",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.run(cmd, func(ctx context.Context, cluster *client.Cluster) error {
				if err := deleteTopic(ctx, cluster, args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "topic %s deleted\n", args[0])
				return err
			})
		},
	}
	flags.register(cmd, 10*time.Second, "how long to try")
	return cmd
}

// deleteTopic deletes on the brokers first, so that none of them registers the topic again with a
// name server that has forgotten it. (In RaftMQ both are one.)
func deleteTopic(ctx context.Context, cluster *client.Cluster, topic string) error {
	what := "delete topic " + topic
	cmd := &remoting.Command{Code: remoting.RequestDeleteTopicInBroker}
	cmd.Set("topic", topic)
	route, err := routeWithRetry(ctx, cluster, topic)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, b := range route.Brokers {
		// TBW102's route knows the leader also after the topic is gone.
		if err := onGroup(ctx, cluster, autoCreateTopic, b.Name, what, cmd); err != nil {
			return err
		}
	}
	cmd.Code = remoting.RequestDeleteTopicInNameServer
	for _, addr := range cluster.NameServers() {
		c, err := cluster.Client(ctx, addr)
		if err != nil {
			continue // it has forgotten the topic with its life, or hears of it from its brokers
		}
		resp, err := c.Invoke(ctx, cmd)
		if _, err := invoked(what+" at name server "+addr, resp, err); err != nil {
			return err
		}
	}
	return nil
}
