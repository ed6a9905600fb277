package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// autoCreateTopic is the topic through which RocketMQ creates others; every broker has it
// unless creation on first use is switched off.
const autoCreateTopic = "TBW102"

// Permission bits of a topic (RocketMQ's PermName).
const (
	permWrite = 2
	permRead  = 4
)

func newTopicCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "Create, list, describe and delete topics",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTopicCreateCommand(), newTopicListCommand(), newTopicDescribeCommand(), newTopicDeleteCommand())
	return cmd
}

// topicSpec is a topic to create or change.
type topicSpec struct {
	name   string
	queues int
	perm   int
	order  bool
}

func newTopicCreateCommand() *cobra.Command {
	var flags toolFlags
	spec := topicSpec{}
	perm := "rw"
	cmd := &cobra.Command{
		Use:   "create TOPIC",
		Short: "Create a topic, or change its queues and permissions",
		Example: `  raftmq topic create orders --queues 16
  raftmq topic create orders --queues 16 --perm r      # no more sends, what is there can be read`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.name = args[0]
			var err error
			if spec.perm, err = parsePerm(perm); err != nil {
				return err
			}
			if spec.queues < 1 || spec.queues > maxTopicQueues {
				return flagError{"queues", spec.queues, fmt.Sprintf("allowed are 1 to %d", maxTopicQueues)}
			}
			return flags.run(cmd, func(ctx context.Context, cluster *client.Cluster) error {
				if err := createTopic(ctx, cluster, spec); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "topic %s: %d queues, %s\n", spec.name, spec.queues, permText(spec.perm))
				return err
			})
		},
	}
	flags.register(cmd, 10*time.Second, "how long to try")
	cmd.Flags().IntVar(&spec.queues, "queues", 8, "`number` of queues to write and read")
	cmd.Flags().StringVar(&perm, "perm", perm, "`permission`: rw, r or w")
	cmd.Flags().BoolVar(&spec.order, "order", false, "mark the topic as ordered")
	return cmd
}

// run connects, bounds the command's time by --timeout (0: none) and closes.
func (f *toolFlags) run(cmd *cobra.Command, do func(ctx context.Context, cluster *client.Cluster) error) error {
	cluster, err := f.connect()
	if err != nil {
		return err
	}
	defer cluster.Close()
	ctx, cancel := untilSignal(cmd)
	defer cancel()
	if f.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	return do(ctx, cluster)
}

func parsePerm(s string) (int, error) {
	switch s {
	case "rw":
		return permRead | permWrite, nil
	case "r":
		return permRead, nil
	case "w":
		return permWrite, nil
	}
	return 0, flagError{"perm", s, "allowed are rw, r and w"}
}

func permText(perm int) string {
	text := ""
	if perm&permRead != 0 {
		text += "r"
	}
	if perm&permWrite != 0 {
		text += "w"
	}
	return orDash(text)
}

// createTopic creates or changes a topic on all broker groups and waits until routes show it.
func createTopic(ctx context.Context, cluster *client.Cluster, spec topicSpec) error {
	cmd := &remoting.Command{Code: remoting.RequestUpdateAndCreateTopic}
	queues := strconv.Itoa(spec.queues)
	cmd.Set("topic", spec.name)
	cmd.Set("defaultTopic", autoCreateTopic)
	cmd.Set("readQueueNums", queues)
	cmd.Set("writeQueueNums", queues)
	cmd.Set("perm", strconv.Itoa(spec.perm))
	cmd.Set("topicFilterType", "SINGLE_TAG")
	cmd.Set("topicSysFlag", "0")
	cmd.Set("order", strconv.FormatBool(spec.order))
	if err := onEachGroup(ctx, cluster, autoCreateTopic, "create topic "+spec.name, cmd); err != nil {
		return err
	}
	return awaitRoute(ctx, cluster, spec)
}

// onEachGroup sends a request that may be repeated to the leader of each broker group that has the topic.
func onEachGroup(ctx context.Context, cluster *client.Cluster, topic, what string, cmd *remoting.Command) error {
	route, err := routeWithRetry(ctx, cluster, topic)
	if err != nil {
		return fmt.Errorf("%s: %w", what, plainError(err))
	}
	for _, b := range route.Brokers {
		if err := onGroup(ctx, cluster, topic, b.Name, what, cmd); err != nil {
			return err
		}
	}
	return nil
}

// onGroup sends a request that may be repeated to a group's leader until it is answered with
// another code than 14, or ctx ends.
func onGroup(ctx context.Context, cluster *client.Cluster, topic, broker, what string, cmd *remoting.Command) error {
	for {
		err := tryGroup(ctx, cluster, topic, broker, what, cmd)
		var answer *answerError
		if err == nil || errors.As(err, &answer) && answer.code != remoting.ResponseServiceNotAvailable {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (gave up: %w)", err, ctx.Err())
		case <-time.After(retryPause):
		}
	}
}

// retryPause is between two tries of a tool: a leader change takes about ten of them.
const retryPause = 100 * time.Millisecond

// onceTimeout bounds one try, so that a leader that hangs doesn't use up all the time.
const onceTimeout = 3 * time.Second

func tryGroup(ctx context.Context, cluster *client.Cluster, topic, broker, what string, cmd *remoting.Command) error {
	ctx, cancel := context.WithTimeout(ctx, onceTimeout)
	defer cancel()
	route, err := cluster.Route(ctx, topic)
	if err != nil {
		return fmt.Errorf("%s: %w", what, plainError(err))
	}
	addr, ok := route.Leader(broker)
	if !ok {
		return fmt.Errorf("%s: no leader of %s is known", what, broker)
	}
	c, err := cluster.Client(ctx, addr)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	resp, err := c.Invoke(ctx, cmd)
	_, err = invoked(what, resp, err)
	return err
}

// routeWithRetry asks for a route until there is an answer with a leader, or the topic is unknown, or ctx ends.
func routeWithRetry(ctx context.Context, cluster *client.Cluster, topic string) (*client.Route, error) {
	for {
		route, err := cluster.Route(ctx, topic)
		if err == nil {
			if _, ok := route.Leader(""); ok {
				return route, nil
			}
			err = fmt.Errorf("no leader of topic %s is known", topic)
		} else if answeredWith(err, remoting.ResponseTopicNotExist) {
			return nil, fmt.Errorf("topic %s does not exist: %w", topic, plainError(err))
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retryPause):
		}
	}
}

// awaitRoute waits until a name server tells clients of the topic.
func awaitRoute(ctx context.Context, cluster *client.Cluster, spec topicSpec) error {
	for {
		route, err := cluster.Route(ctx, spec.name)
		if err == nil {
			shown := slices.ContainsFunc(route.Queues, func(q client.RouteQueue) bool { return q.WriteQueues == spec.queues && q.Perm == spec.perm })
			if _, ok := route.Leader(""); ok && shown {
				return nil
			}
			err = errors.New("the route does not show it yet")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("topic %s was created, but clients can't see it: %w", spec.name, plainError(err))
		case <-time.After(retryPause / 2):
		}
	}
}
