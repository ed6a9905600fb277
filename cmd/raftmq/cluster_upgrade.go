package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"raftmq/transport/remoting"
)

func newClusterUpgradeCommand() *cobra.Command {
	var check bool
	cmd, _ := adminCommand(&cobra.Command{
		Use:   "upgrade",
		Short: "Let a cluster use what its upgraded nodes can do",
		Long: `The last step of an upgrade. First each node is restarted with the new raftmq, one after another (scripts/rolling-restart
does it for a cluster on one machine). Until this command the new nodes write and say nothing that the old raftmq
could not read, so any of them can go back to it. This command raises the cluster's feature level to what all nodes
can apply. From then on an older raftmq refuses to start; there is no way back.

It is refused while a member is down: nobody knows what that one can apply. A new cluster starts with the level of
its first nodes and needs no such step.`,
		Example: `  raftmq cluster upgrade --check
  raftmq cluster upgrade`,
		Args: cobra.NoArgs,
	}, 30*time.Second, func(ctx context.Context, addrs []string, out io.Writer, _ []string) error {
		var a remoting.UpgradeAnswer
		if err := askAdmin(ctx, addrs, remoting.RequestUpgrade, remoting.UpgradeRequest{Check: check}, &a); err != nil {
			return err
		}
		return writeUpgrade(out, a, check)
	})
	cmd.Flags().BoolVar(&check, "check", false, "only say what it would do")
	return cmd
}

func writeUpgrade(out io.Writer, a remoting.UpgradeAnswer, check bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tVERSION\tCAN APPLY LEVEL")
	for _, n := range a.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%d\n", n.NodeID, n.Version, n.Level)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	text := fmt.Sprintf("the cluster has feature level %d now, before it was %d; there is no way back to an older raftmq\n", a.To, a.From)
	switch {
	case a.To <= a.From && behindAny(a) != "":
		text = fmt.Sprintf("the cluster keeps feature level %d: %s can apply no more; start the new raftmq there, too\n", a.From, behindAny(a))
	case a.To <= a.From:
		text = fmt.Sprintf("the cluster has feature level %d already: nothing to do\n", a.From)
	case check:
		text = fmt.Sprintf("the cluster has feature level %d; raftmq cluster upgrade would raise it to %d, and older versions could not start any more\n", a.From, a.To)
	}
	_, err := io.WriteString(out, text)
	return err
}

// behindAny names the nodes that can apply less than others.
func behindAny(a remoting.UpgradeAnswer) string {
	newest := 0
	for _, n := range a.Nodes {
		newest = max(newest, n.Level)
	}
	var behind []string
	for _, n := range a.Nodes {
		if n.Level < newest {
			behind = append(behind, n.NodeID)
		}
	}
	return strings.Join(behind, " and ")
}
