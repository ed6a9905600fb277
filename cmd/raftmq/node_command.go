package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"raftmq/transport/remoting"
)

func newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Steer one node",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	leave, _ := adminCommand(&cobra.Command{
		Use:   "leave",
		Short: "Make a node leave its cluster for good and end",
		Long: `Asks the node at the first address to leave: it hands leadership over, is taken out of the configuration, says
good-bye and ends with status 0. Drain it first (raftmq node drain) if it leads and clients shall not notice. To stop
a node that shall come back use "raftmq node drain" and SIGTERM: it stays a member then.`,
		Example: "  raftmq node leave --name-servers 10.0.0.3:9876",
		Args:    cobra.NoArgs,
	}, time.Minute, func(ctx context.Context, addrs []string, out io.Writer, _ []string) error {
		status, err := fetchStatus(ctx, addrs[0])
		if err != nil {
			return err
		}
		if err := askAdmin(ctx, addrs[:1], remoting.RequestLeave, struct{}{}, nil); err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s has left and ends\n", status.NodeID)
		return err
	})
	cmd.AddCommand(leave, newNodeDrainCommand())
	return cmd
}

// routesLate is how much later than they should clients may come to ask for routes: their request may time out at one node first.
const routesLate = 4 * time.Second

func newNodeDrainCommand() *cobra.Command {
	var cancelIt, detach bool
	var routes time.Duration
	cmd, _ := adminCommand(&cobra.Command{
		Use:   "drain",
		Short: "Make a node ready to be stopped without a failed send",
		Long: `Asks the node at the first address to hand leadership over, if it leads, and waits until it can be stopped with SIGTERM
without a client noticing. RocketMQ's clients ask for routes every 30 s and send to the old leader until then; a
node that drains passes their writes on to the new one. The command returns when they have had the time to ask.
A node that has not led lately is ready at once.

The node stays a member, and drains until it ends or until --cancel.`,
		Example: `  raftmq node drain --name-servers 10.0.0.1:9876 && systemctl restart raftmq
  raftmq node drain --name-servers 10.0.0.1:9876 --cancel`,
		Args: cobra.NoArgs,
	}, 3*time.Minute, func(ctx context.Context, addrs []string, out io.Writer, _ []string) error {
		var s remoting.DrainStatus
		ask := func() error {
			return askAdmin(ctx, addrs[:1], remoting.RequestDrain, remoting.DrainRequest{Cancel: cancelIt}, &s)
		}
		if err := ask(); err != nil {
			return err
		}
		if cancelIt {
			_, err := fmt.Fprintf(out, "%s is not drained any more\n", s.NodeID)
			return err
		}
		for !detach && !drained(s, routes) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s may still be needed by clients: %s; it goes on draining", s.NodeID, describeDrain(s))
			case <-time.After(200 * time.Millisecond):
			}
			if err := ask(); err != nil { // again also because leadership may have come back
				return err
			}
		}
		_, err := fmt.Fprintf(out, "%s is drained: %s\n", s.NodeID, describeDrain(s))
		return err
	})
	cmd.Flags().BoolVar(&cancelIt, "cancel", false, "end draining: the node is not going to be stopped")
	cmd.Flags().BoolVar(&detach, "detach", false, "don't wait for the clients")
	cmd.Flags().DurationVar(&routes, "clients-ask-every", 30*time.Second, "how often clients ask for routes, `duration`")
	return cmd
}

// drained reports whether all clients have asked for routes since the node led. Whoever still sends to it then asks after a failure
// only, and follows at once.
func drained(s remoting.DrainStatus, routes time.Duration) bool {
	return !s.Leading && (s.LedMillis < 0 || s.LedMillis >= (routes+routesLate).Milliseconds())
}

func describeDrain(s remoting.DrainStatus) string {
	text := "it has not led since it started"
	if s.LedMillis >= 0 {
		text = fmt.Sprintf("it led until %v ago", (time.Duration(s.LedMillis) * time.Millisecond).Round(100*time.Millisecond))
	}
	if s.RelayedWrites > 0 {
		text += fmt.Sprintf(", and has passed %d writes on, the last %v ago", s.RelayedWrites, (time.Duration(s.RelayedMillis) * time.Millisecond).Round(100*time.Millisecond))
	}
	return text
}
