package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"raftmq/transport/remoting"
)

func newClusterScrubCommand() *cobra.Command {
	var node string
	cmd, _ := adminCommand(&cobra.Command{
		Use:   "scrub",
		Short: "Have nodes verify all that they hold, from now on",
		Long: `Each node reads what it holds again and again, slowly (--scrub-rate of the server), and compares it with its checksums: commit
log, consume queues, key index, Raft log, snapshots. This command has all nodes, or one, begin a pass now: after a disk
has shown errors, say. It does not wait for the end: "raftmq cluster status" shows how far it is, and what was found and repaired.`,
		Example: `  raftmq cluster scrub
  raftmq cluster scrub --node n2`,
		Args: cobra.NoArgs,
	}, 30*time.Second, func(ctx context.Context, addrs []string, out io.Writer, _ []string) error {
		nodes := askNodes(ctx, addrs, 3*time.Second, true)
		if firstAnswer(nodes) == nil {
			return nobodyAnswers(nodes)
		}
		return scrubNodes(ctx, out, nodes, node)
	})
	cmd.Flags().StringVar(&node, "node", "", "only this one, by its `node id`")
	return cmd
}

// scrubNodes has all nodes, or the one of an id, begin a pass. One that does not holds up no other.
func scrubNodes(ctx context.Context, out io.Writer, nodes []nodeAnswer, id string) error {
	var errs []error
	found := false
	for _, n := range nodes {
		if id != "" && (n.Status == nil || n.Status.NodeID != id) {
			continue
		}
		found = true
		if n.Status == nil {
			errs = append(errs, fmt.Errorf("%s: %s", n.Address, n.Error))
			continue
		}
		var a remoting.ScrubAnswer
		if err := askAdmin(ctx, []string{n.Address}, remoting.RequestScrub, struct{}{}, &a); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n.Status.NodeID, err))
			continue
		}
		took := (time.Duration(float64(a.Bytes)/float64(max(a.Rate, 1))) * time.Second).Round(time.Second)
		if _, err := fmt.Fprintf(out, "%s verifies %.1f MiB of commit log at %s a second, in %v or so\n", a.NodeID, float64(a.Bytes)/mib, formatSize(a.Rate), took); err != nil {
			return err
		}
	}
	if !found {
		errs = append(errs, fmt.Errorf("no node %s answers", id))
	}
	return errors.Join(errs...)
}

// scrub has a pass over all that this node holds begin now.
func (n *node) scrub(context.Context, struct{}) (any, error) {
	if n.cfg.ScrubRate <= 0 {
		return nil, fmt.Errorf("%w: the scrub of %s is switched off (--scrub-rate 0)", errRefused, n.cfg.NodeID)
	}
	n.group.store.ScrubNow()
	select {
	case n.raftHealth.wake <- struct{}{}:
	default:
	}
	low, end := n.group.store.LogRange()
	return remoting.ScrubAnswer{NodeID: n.cfg.NodeID, Bytes: end - low, Rate: n.cfg.ScrubRate}, nil
}
