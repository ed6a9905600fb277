package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

func newClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Show how a cluster is doing, and steer it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newClusterStatusCommand(), newClusterPeersCommand(), newClusterLeaderCommand(),
		newClusterTransferCommand(), newClusterRemoveCommand(), newClusterAddCommand(), newClusterSnapshotCommand(), newClusterWaitCommand(), newClusterVerifyCommand(), newClusterScrubCommand(), newClusterUpgradeCommand(),
		newClusterBackupCommand(), newClusterRestoreCommand(), newClusterRecoverCommand())
	return cmd
}

func newClusterStatusCommand() *cobra.Command {
	var flags toolFlags
	var asJSON, only bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show every node as it sees itself",
		Long: `Asks every node how it is doing: those named, and the peers they know. Prints two tables, the nodes and what they
store, and then what is wrong, a sentence each, with what to do. Ends with status 1 if a node does not answer or no
leader takes writes.

BEHIND is how much less than the leader a node has, in Raft entries and in bytes of commit log. CONTACT is how long ago
it last heard the leader. MODE is durable when SEND_OK means that a majority has fsynced the message. LOG is the range
of physical offsets that it holds, SCRUB how far the present check of all of it is, REPAIR what was found damaged,
CATCH-UP how much a node has of a log that it is still getting, or of what it fetches because it is far behind.`,
		Example: `  raftmq cluster status --name-servers 10.0.0.1:9876
  raftmq cluster status --json | jq '.[].status.appliedIndex'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, _, err := flags.ask(cmd, !only)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), nodes)
			} else {
				err = writeStatus(cmd.OutOrStdout(), nodes)
			}
			if err == nil && (!allAnswered(nodes) || !only && leaderOf(nodes) == nil) {
				err = errReported
			}
			return err
		},
	}
	flags.register(cmd, 3*time.Second, "how long to wait for a node")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&only, "only", false, "ask the named nodes only, and don't mind if there is no leader")
	return cmd
}

func newClusterPeersCommand() *cobra.Command {
	var flags toolFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "peers",
		Short:   "List the members as the leader sees them",
		Long:    `Lists the members of the cluster with their addresses, as the leader sees them, or the first node that answers if there is no leader.`,
		Example: "  raftmq cluster peers",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, _, err := flags.ask(cmd, true)
			if err != nil {
				return err
			}
			view := leaderOf(nodes)
			if view == nil {
				view = firstAnswer(nodes)
			}
			if view == nil {
				return nobodyAnswers(nodes)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), view.Peers)
			}
			return writePeers(cmd.OutOrStdout(), view)
		},
	}
	flags.register(cmd, 3*time.Second, "how long to wait for a node")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newClusterLeaderCommand() *cobra.Command {
	var flags toolFlags
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "leader",
		Short: "Print the leader's node id and client address",
		Long: `Prints the node id and the client address of the leader that takes writes. Ends with status 1 if
there is none.`,
		Example: "  raftmq cluster leader",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			nodes, addrs, err := flags.ask(cmd, true)
			if err != nil {
				return err
			}
			leader := leaderOf(nodes)
			switch {
			case firstAnswer(nodes) == nil:
				return nobodyAnswers(nodes)
			case leader == nil:
				return errors.New("there is no leader that takes writes")
			}
			if all {
				if err := checkAgreement(nodes, addrs, leader); err != nil {
					return err
				}
			}
			self := leader.self()
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), self)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\n", self.NodeID, self.ClientAddr)
			return err
		},
	}
	flags.register(cmd, 3*time.Second, "how long to wait for a node")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&all, "all", false, "each named node must answer and know this leader")
	return cmd
}

// ask asks the nodes that the flags name, and with peers those that they know; addrs are the named ones.
func (f *toolFlags) ask(cmd *cobra.Command, peers bool) (nodes []nodeAnswer, addrs []string, err error) {
	if addrs, err = f.addresses(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := untilSignal(cmd)
	defer cancel()
	return askNodes(ctx, addrs, f.timeout, peers), addrs, nil
}

// nodeAnswer is what one node said, or why it said nothing.
type nodeAnswer struct {
	Address string      `json:"address"`
	NodeID  string      `json:"nodeId,omitempty"` // also of a silent one, if a peer knows it by this address
	Status  *nodeStatus `json:"status,omitempty"`
	// Behind is how far it is behind the leader, nil without one.
	Behind *behindLeader `json:"behind,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// behindLeader is a node's lag. The nodes are asked one after the other under load, so small figures mean nothing.
type behindLeader struct {
	Entries uint64 `json:"entries"` // Raft entries
	Bytes   int64  `json:"bytes"`   // of commit log
}

// nodeStatus is the wire's NodeStatus with the questions that tools ask of it.
type nodeStatus struct{ remoting.NodeStatus }

// self is the node as a peer.
func (s *nodeStatus) self() remoting.PeerStatus {
	for _, p := range s.Peers {
		if p.NodeID == s.NodeID {
			return p
		}
	}
	return remoting.PeerStatus{NodeID: s.NodeID, Leader: s.Ready}
}

// suffrage is a member's as this node sees it.
func (s *nodeStatus) suffrage(nodeID string) string {
	for _, p := range s.Peers {
		if p.NodeID == nodeID {
			return p.Suffrage
		}
	}
	return "none"
}

// askNodes asks the named nodes and, with peers set, the nodes that those know of. A node
// that is reached under two addresses is listed once.
func askNodes(ctx context.Context, addrs []string, timeout time.Duration, peers bool) []nodeAnswer {
	nodes := askAll(ctx, addrs, timeout)
	if peers {
		known := slices.Clone(addrs)
		ids := map[string]bool{}
		for _, n := range nodes {
			if n.Status != nil {
				ids[n.Status.NodeID] = true
			}
		}
		var more []string
		for _, n := range nodes {
			if n.Status == nil {
				continue
			}
			for _, p := range n.Status.Peers {
				gone := p.Gossip == "left" && p.Suffrage == "none"
				if p.ClientAddr != "" && !gone && !ids[p.NodeID] && !slices.Contains(known, p.ClientAddr) {
					known, more = append(known, p.ClientAddr), append(more, p.ClientAddr)
				}
			}
		}
		nodes = append(nodes, askAll(ctx, more, timeout)...)
	}
	nodes = sortNodes(nodes)
	compareNodes(nodes)
	return nodes
}

// compareNodes fills in what takes the answers of several nodes.
func compareNodes(nodes []nodeAnswer) {
	leader := leaderOf(nodes)
	view := leader
	if view == nil {
		view = firstAnswer(nodes)
	}
	for i := range nodes {
		n := &nodes[i]
		if n.Status != nil {
			n.NodeID = n.Status.NodeID
			if leader != nil {
				n.Behind = &behindLeader{behind(leader.AppliedIndex, n.Status.AppliedIndex), int64(behind(uint64(leader.LogMax), uint64(n.Status.LogMax)))}
			}
			continue
		}
		if view != nil {
			for _, p := range view.Peers {
				if p.ClientAddr == n.Address {
					n.NodeID = p.NodeID
				}
			}
		}
	}
}

// sortNodes orders by node id, the silent ones last, and drops a node's second answer.
func sortNodes(nodes []nodeAnswer) []nodeAnswer {
	slices.SortStableFunc(nodes, func(a, b nodeAnswer) int {
		switch {
		case a.Status != nil && b.Status != nil:
			return strings.Compare(a.Status.NodeID, b.Status.NodeID)
		case a.Status != nil:
			return -1
		case b.Status != nil:
			return 1
		}
		return strings.Compare(a.Address, b.Address)
	})
	return slices.CompactFunc(nodes, func(a, b nodeAnswer) bool {
		return a.Status != nil && b.Status != nil && a.Status.NodeID == b.Status.NodeID && a.Status.ClusterID == b.Status.ClusterID
	})
}

func askAll(ctx context.Context, addrs []string, timeout time.Duration) []nodeAnswer {
	nodes := make([]nodeAnswer, len(addrs))
	done := make(chan struct{})
	for i, a := range addrs {
		go func() {
			nodes[i] = askNode(ctx, a, timeout)
			done <- struct{}{}
		}()
	}
	for range addrs {
		<-done
	}
	return nodes
}

func askNode(ctx context.Context, addr string, timeout time.Duration) nodeAnswer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	status, err := fetchStatus(ctx, addr)
	if err != nil {
		return nodeAnswer{Address: addr, Error: err.Error()}
	}
	return nodeAnswer{Address: addr, Status: status}
}

func fetchStatus(ctx context.Context, addr string) (*nodeStatus, error) {
	c, err := client.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	resp, err := c.Invoke(ctx, &remoting.Command{Code: remoting.RequestNodeStatus})
	if err != nil {
		return nil, err
	}
	switch resp.Code {
	case remoting.ResponseSuccess:
	case remoting.ResponseRequestCodeNotSupported:
		return nil, errors.New("this is no RaftMQ node: it does not know the status request")
	default:
		return nil, plainError(&client.ResponseError{Code: resp.Code, Remark: resp.Remark})
	}
	status := new(nodeStatus)
	if err := json.Unmarshal(resp.Body, status); err != nil {
		return nil, fmt.Errorf("status answer: %w", err)
	}
	return status, nil
}

func firstAnswer(nodes []nodeAnswer) *nodeStatus {
	for _, n := range nodes {
		if n.Status != nil {
			return n.Status
		}
	}
	return nil
}

// leaderOf is the node that says it takes writes; of two, which a cut network allows for a
// moment, the one of the higher term.
func leaderOf(nodes []nodeAnswer) *nodeStatus {
	var leader *nodeStatus
	for _, n := range nodes {
		if s := n.Status; s != nil && s.Ready && (leader == nil || s.Term > leader.Term) {
			leader = s
		}
	}
	return leader
}

func allAnswered(nodes []nodeAnswer) bool {
	return !slices.ContainsFunc(nodes, func(n nodeAnswer) bool { return n.Status == nil })
}

func nobodyAnswers(nodes []nodeAnswer) error {
	var reasons []string
	for _, n := range nodes {
		reasons = append(reasons, n.Address+": "+n.Error)
	}
	return fmt.Errorf("no node answers: %s", strings.Join(reasons, "; "))
}

// checkAgreement tests that each named node answers and knows the leader.
func checkAgreement(nodes []nodeAnswer, named []string, leader *nodeStatus) error {
	for _, n := range nodes {
		switch {
		case !slices.Contains(named, n.Address):
		case n.Status == nil:
			return fmt.Errorf("%s does not answer: %s", n.Address, n.Error)
		case n.Status.LeaderID != leader.NodeID:
			return fmt.Errorf("%s knows %q as the leader, not %q", n.Status.NodeID, n.Status.LeaderID, leader.NodeID)
		}
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// writeRemarks prints what does not fit the tables: what the cluster is, and what is wrong, a line each.
func writeRemarks(out io.Writer, nodes []nodeAnswer) error {
	var b strings.Builder
	b.WriteString("\n")
	leader := leaderOf(nodes)
	view := leader
	if view == nil {
		view = firstAnswer(nodes)
	}
	if view != nil {
		fmt.Fprintf(&b, "cluster %s (%s), broker group %s, version %s, feature level %d\n", view.ClusterName, orDash(view.ClusterID), view.Group, view.Version, max(view.ClusterLevel, 1))
		fmt.Fprintf(&b, "durability: %s\n", view.Durability)
	}
	head := b.Len()
	if leader == nil {
		b.WriteString("no leader takes writes" + whyNoLeader(nodes, view) + "\n")
	}
	for _, n := range nodes {
		if n.Status == nil {
			b.WriteString(silentText(n))
			continue
		}
		s := n.Status
		switch member := leader == nil || leader.suffrage(s.NodeID) != "none"; {
		case !member:
			fmt.Fprintf(&b, "%s: not a member of the group: removed, or not added yet; raftmq cluster add %s says why, and lets it in again if it was removed by force\n", s.NodeID, s.NodeID)
			continue
		case s.CatchUp != nil:
			fmt.Fprintf(&b, "%s: is far behind and is %s\n", s.NodeID, describeCatchUp(s.CatchUp))
		case leader != nil && s.AppliedIndex < leader.AppliedIndex && (!s.CaughtUp || leader.suffrage(s.NodeID) == "nonvoter"):
			fmt.Fprintf(&b, "%s: catching up, it has %s of %s of the log and has applied entry %d of %d\n", s.NodeID,
				formatBytes(s.LogMax-s.LogMin), formatBytes(leader.LogMax-leader.LogMin), s.AppliedIndex, leader.AppliedIndex)
		}
		if s.Problem != "" {
			fmt.Fprintf(&b, "%s: %s\n", s.NodeID, s.Problem)
		}
		if !strings.Contains(s.Problem, "are damaged") {
			if text := damageText(s.Repair); text != "" {
				fmt.Fprintf(&b, "%s: %s\n", s.NodeID, text)
			}
		}
		b.WriteString(replicaText(s))
		if s.Drain != nil {
			fmt.Fprintf(&b, "%s: is being drained: %s; stop it, or end that: raftmq node drain --cancel --name-servers %s\n", s.NodeID, describeDrain(*s.Drain), n.Address)
		}
	}
	b.WriteString(differences(nodes))
	if b.Len() == head {
		b.WriteString("nothing is known to be wrong\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// writePeers prints the table of "cluster peers".
func writePeers(out io.Writer, view *nodeStatus) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tBROKER ID\tRAFT ROLE\tGOSSIP\tCLIENT\tRAFT\tGOSSIP ADDRESS\tHTTP")
	for _, p := range view.Peers {
		role := p.Suffrage
		if p.Leader {
			role += ", leader"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", p.NodeID, p.BrokerID, role, p.Gossip,
			orDash(p.ClientAddr), orDash(p.RaftAddr), orDash(p.GossipAddr), orDash(p.HTTPAddr))
	}
	return w.Flush()
}
