package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// nearEntries is how far behind a node may be and count as caught up: the newest entries are on their way.
const nearEntries = 64

func newClusterWaitCommand() *cobra.Command {
	var want []string
	cmd, _ := adminCommand(&cobra.Command{
		Use:   "wait",
		Short: "Wait until every node serves and has caught up",
		Long: `Waits until a leader takes writes and every member answers, follows that leader, votes, and has applied what the leader has:
the moment at which the next node may be restarted. It tells what it waits for. Ends with status 1 when --timeout is over.`,
		Example: `  raftmq cluster wait --timeout 5m
  raftmq cluster wait --nodes n3`,
		Args: cobra.NoArgs,
	}, time.Minute, func(ctx context.Context, addrs []string, out io.Writer, _ []string) error {
		told := ""
		for began := time.Now(); ; {
			asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			missing := notReady(askNodes(asking, addrs, 2*time.Second, true), want)
			cancel()
			if missing == "" {
				return wrote(fmt.Fprintf(out, "%s with all that the leader has, after %v\n", waitedFor(want), time.Since(began).Round(100*time.Millisecond)))
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("not ready after %v: %s", time.Since(began).Round(time.Second), missing)
			case <-time.After(200 * time.Millisecond):
			}
			if missing != told && time.Since(began) > time.Second {
				told = missing
				fmt.Fprintf(out, "waiting: %s\n", missing)
			}
		}
	})
	cmd.Flags().StringSliceVar(&want, "nodes", nil, "look at these nodes only, `ids` joined by commas")
	return cmd
}

func wrote(_ int, err error) error { return err }

func waitedFor(want []string) string {
	switch len(want) {
	case 0:
		return "all nodes serve"
	case 1:
		return want[0] + " serves"
	}
	return strings.Join(want, ", ") + " serve"
}

// notReady says what is missing for all nodes to be well, "" when nothing is.
func notReady(nodes []nodeAnswer, want []string) string {
	leader := leaderOf(nodes)
	if leader == nil {
		if firstAnswer(nodes) == nil {
			return "no node answers"
		}
		return "there is no leader that takes writes"
	}
	var missing []string
	members := map[string]bool{}
	for _, p := range leader.Peers {
		if p.Suffrage == "none" {
			continue
		}
		members[p.NodeID] = true
		if len(want) > 0 && !slices.Contains(want, p.NodeID) {
			continue
		}
		if text := nodeNotReady(leader, statusOf(nodes, p.NodeID), p.Suffrage); text != "" {
			missing = append(missing, p.NodeID+" "+text)
		}
	}
	for _, id := range want {
		if !members[id] {
			missing = append(missing, id+" is no member")
		}
	}
	return strings.Join(missing, ", ")
}

func statusOf(nodes []nodeAnswer, nodeID string) *nodeStatus {
	for _, n := range nodes {
		if n.Status != nil && n.Status.NodeID == nodeID {
			return n.Status
		}
	}
	return nil
}

// nodeNotReady says what one member lacks.
func nodeNotReady(leader, s *nodeStatus, suffrage string) string {
	switch {
	case s == nil:
		return "does not answer"
	case s.DiskProblem != "":
		return "stands aside because of its disk"
	case s.LeaderID != leader.NodeID:
		return "does not follow " + leader.NodeID
	case !s.CaughtUp || behind(leader.AppliedIndex, s.AppliedIndex) > nearEntries:
		return fmt.Sprintf("is catching up (entry %d of %d, %s of log to come)", s.AppliedIndex, leader.AppliedIndex, formatBytes(int64(behind(uint64(leader.LogMax), uint64(s.LogMax)))))
	case suffrage == "nonvoter":
		return "has no vote yet"
	}
	return ""
}
