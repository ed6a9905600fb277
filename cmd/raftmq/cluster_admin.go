package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// askAdmin sends an operator's request to the first of the nodes that can be reached, and decodes the answer.
func askAdmin(ctx context.Context, addrs []string, code int32, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var errs []error
	for _, addr := range addrs {
		c, err := client.Dial(ctx, addr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		resp, err := c.Invoke(ctx, &remoting.Command{Code: code, Body: body})
		c.Close()
		if err == nil && resp.Code == remoting.ResponseRequestCodeNotSupported {
			err = fmt.Errorf("%s is no RaftMQ node, or an older one: it does not know request %s", addr, remoting.RequestCodeName(code))
		} else if err == nil && resp.Code != remoting.ResponseSuccess {
			return errors.New(resp.Remark)
		}
		if err != nil { // it may have been carried out: asking another node would do it twice
			return fmt.Errorf("%s: %w", addr, err)
		}
		if answer == nil {
			return nil
		}
		if err := json.Unmarshal(resp.Body, answer); err != nil {
			return fmt.Errorf("%s: answer: %w", addr, err)
		}
		return nil
	}
	return errors.Join(errs...)
}

// adminCommand is a command that asks one node for one thing.
func adminCommand(cmd *cobra.Command, timeout time.Duration, run func(ctx context.Context, addrs []string, out io.Writer, args []string) error) (*cobra.Command, *toolFlags) {
	flags := new(toolFlags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		addrs, err := flags.addresses()
		if err != nil {
			return err
		}
		ctx, cancel := untilSignal(cmd)
		defer cancel()
		if flags.timeout > 0 {
			var end context.CancelFunc
			ctx, end = context.WithTimeout(ctx, flags.timeout)
			defer end()
		}
		return run(ctx, addrs, cmd.OutOrStdout(), args)
	}
	flags.register(cmd, timeout, "how long to wait for the answer; 0 for ever")
	return cmd, flags
}

func newClusterTransferCommand() *cobra.Command {
	var to string
	cmd, _ := adminCommand(&cobra.Command{
		Use:   "transfer",
		Short: "Hand leadership to another node",
		Long: `Hands leadership to the named node, or to the voter that is most caught up, and prints the new leader.
Writes pause for the time of an election that is won at once, usually some ten milliseconds. RocketMQ's clients, which ask
for routes every 30 s, are refused by the old leader until then, unless the servers run with --forward-writes. "raftmq
node drain" on the leader hands over without that.`,
		Example: "  raftmq cluster transfer --to n2",
		Args:    cobra.NoArgs,
	}, 30*time.Second, func(ctx context.Context, addrs []string, out io.Writer, _ []string) error {
		var a remoting.TransferAnswer
		if err := askAdmin(ctx, addrs, remoting.RequestTransferLeadership, remoting.TransferRequest{To: to}, &a); err != nil {
			return err
		}
		if a.From == a.Leader {
			return wrote(fmt.Fprintf(out, "%s leads already\n", a.Leader))
		}
		return wrote(fmt.Fprintf(out, "%s leads now, before it was %s\n", a.Leader, a.From))
	})
	cmd.Flags().StringVar(&to, "to", "", "the voter that shall lead, by its `node id`")
	return cmd
}

func newClusterRemoveCommand() *cobra.Command {
	var force bool
	cmd, _ := adminCommand(&cobra.Command{
		Use:   "remove NODE",
		Short: "Take a node that is gone out of the cluster",
		Long: `Takes a node out of the cluster's configuration: one whose machine is gone. A failed node stays a member until
then, and counts for the majority. It is refused while the node is alive, and when too few of those that stay
answer the leader. A node that comes back later joins again as a newcomer.

--force removes a node that is alive. It is then kept out until "raftmq cluster add NODE", or until it comes
without its data. A node that can be reached should rather leave: raftmq node leave.`,
		Example: "  raftmq cluster remove n3",
		Args:    cobra.ExactArgs(1),
	}, 30*time.Second, func(ctx context.Context, addrs []string, out io.Writer, args []string) error {
		if err := askAdmin(ctx, addrs, remoting.RequestRemoveNode, remoting.RemoveRequest{NodeID: args[0], Force: force}, nil); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%s is removed\n", args[0])
		return err
	})
	cmd.Flags().BoolVar(&force, "force", false, "also if the node is alive")
	return cmd
}

func newClusterSnapshotCommand() *cobra.Command {
	cmd, _ := adminCommand(&cobra.Command{
		Use:   "snapshot",
		Short: "Take a Raft snapshot on every node now",
		Long: `Takes a Raft snapshot on every node and compacts its Raft log. Nodes do that by themselves, by the size
of the log; there is no need for it in daily work.`,
		Example: "  raftmq cluster snapshot",
		Args:    cobra.NoArgs,
	}, time.Minute, func(ctx context.Context, addrs []string, out io.Writer, _ []string) error {
		nodes := askNodes(ctx, addrs, 3*time.Second, true)
		if firstAnswer(nodes) == nil {
			return nobodyAnswers(nodes)
		}
		failed := false
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NODE\tSNAPSHOT AT")
		for _, n := range nodes {
			if n.Status == nil {
				failed = true
				fmt.Fprintf(w, "?\tno answer: %s\n", n.Error)
				continue
			}
			var a remoting.SnapshotAnswer
			if err := askAdmin(ctx, []string{n.Address}, remoting.RequestSnapshot, struct{}{}, &a); err != nil {
				failed = true
				fmt.Fprintf(w, "%s\tfailed: %v\n", n.Status.NodeID, err)
				continue
			}
			fmt.Fprintf(w, "%s\t%d\n", a.NodeID, a.Index)
		}
		return reported(w.Flush(), failed)
	})
	return cmd
}

// reported is err, or errReported when a command has said itself what failed.
func reported(err error, failed bool) error {
	if err == nil && failed {
		return errReported
	}
	return err
}
