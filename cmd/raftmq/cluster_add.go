package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftmq/fsm/command"
	"raftmq/membership"
	"raftmq/transport/remoting"
)

func newClusterAddCommand() *cobra.Command {
	var gossip string
	var promote, detach bool
	cmd, _ := adminCommand(&cobra.Command{
		Use:   "add [NODE]",
		Short: "Add a node that does not join by itself",
		Long: `Nodes are added by themselves: start one with --join and the gossip address of any member. It becomes a non-voter,
gets the data, and becomes a voter when it has caught up. This command is for the others:

  - one that reaches nobody of those in its --join: give its own gossip address with --gossip, and the cluster
    goes to meet it;
  - one that was removed with --force while it was alive, which is kept out since;
  - a non-voter that is to vote now although it has not caught up: --promote. Writes may then wait for it: use it
    to get a majority again when other voters are about to go.

It says why a node is not added, and waits until it votes, or for --timeout.`,
		Example: `  raftmq cluster add --gossip 10.0.0.4:9878
  raftmq cluster add n3
  raftmq cluster add n3 --promote`,
		Args: cobra.MaximumNArgs(1),
	}, time.Minute, func(ctx context.Context, addrs []string, out io.Writer, args []string) error {
		req := remoting.ReadmitRequest{Gossip: gossip, Promote: promote}
		if len(args) > 0 {
			req.NodeID = args[0]
		}
		if req.NodeID == "" && gossip == "" {
			return errors.New("name the node by its id, or by its gossip address with --gossip")
		}
		if gossip != "" {
			if _, err := checkAddress(gossip); err != nil {
				return flagError{"gossip", gossip, err.Error()}
			}
		}
		return addNode(ctx, addrs, req, detach, out)
	})
	cmd.Flags().StringVar(&gossip, "gossip", "", "gossip `host:port` of a node that the cluster shall meet")
	cmd.Flags().BoolVar(&promote, "promote", false, "make it a voter at once, caught up or not")
	cmd.Flags().BoolVar(&detach, "detach", false, "don't wait until it votes")
	return cmd
}

// addNode asks until the node votes. What is refused is not asked again.
func addNode(ctx context.Context, addrs []string, req remoting.ReadmitRequest, detach bool, out io.Writer) error {
	told := ""
	tell := func(text string) error {
		if text == told {
			return nil
		}
		told = text
		return wrote(fmt.Fprintln(out, text))
	}
	for {
		var a remoting.ReadmitAnswer
		if err := askAdmin(ctx, addrs, remoting.RequestReadmitNode, req, &a); err != nil {
			return err
		}
		req.NodeID, req.Gossip = a.NodeID, ""
		if a.Readmitted {
			if err := tell(a.NodeID + " may join again"); err != nil {
				return err
			}
		}
		switch a.Suffrage {
		case "voter":
			return tell(a.NodeID + " is a voter")
		case "nonvoter":
			if err := tell(a.NodeID + " is a non-voter and is filled with the data; it votes when it has caught up"); err != nil || detach {
				return err
			}
		default:
			if err := tell(a.NodeID + " is known and about to be added"); err != nil || detach {
				return err
			}
		}
		select {
		case <-ctx.Done():
			if a.Suffrage == "nonvoter" {
				return tell(a.NodeID + " still catches up and becomes a voter by itself; see raftmq cluster status")
			}
			return fmt.Errorf("%s was not added in time: see raftmq cluster status", a.NodeID)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// readmit helps a node to become a member. Leader.
func (n *node) readmit(ctx context.Context, req remoting.ReadmitRequest) (any, error) {
	if req.Gossip != "" {
		if _, err := n.members.Join([]string{req.Gossip}); err != nil {
			return nil, fmt.Errorf("%w: %s", errRefused, strings.Join(strings.Fields(err.Error()), " ")) // memberlist's has several lines
		}
	}
	m, err := n.candidate(req)
	if err != nil {
		return nil, err
	}
	answer := remoting.ReadmitAnswer{NodeID: m.NodeID, Suffrage: "none", ClientAddr: m.ClientAddr}
	key := barKey(m.NodeID, m.Incarnation)
	if _, barred := n.group.tables.KV(removedNamespace, key); barred {
		if err := n.group.proposeJSON(ctx, command.KindKVDelete, command.KVDelete{Namespace: removedNamespace, Key: key}); err != nil {
			return nil, err
		}
		answer.Readmitted = true
	}
	v := voters{n.group}
	list, err := v.List()
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		if s.NodeID != m.NodeID || s.Incarnation != m.Incarnation {
			continue
		}
		answer.Suffrage = "voter"
		if s.Votes {
			break
		}
		answer.Suffrage = "nonvoter"
		if req.Promote {
			n.logger.Info("an operator makes a non-voter a voter before it has caught up", "node", m.NodeID)
			if err := v.AddVoter(membership.Voter{NodeID: m.NodeID, Incarnation: m.Incarnation, RaftAddr: m.RaftAddr}); err != nil {
				return nil, err
			}
			answer.Suffrage = "voter"
		}
	}
	return answer, nil
}

// candidate finds the node in gossip, and says why it could not be added.
func (n *node) candidate(req remoting.ReadmitRequest) (membership.Member, error) {
	for _, m := range n.members.Members() {
		if m.NodeID != req.NodeID && (req.NodeID != "" || m.GossipAddr != req.Gossip) {
			continue
		}
		switch {
		case m.ClusterName != n.cfg.ClusterName || m.Group != n.cfg.BrokerName:
			return m, fmt.Errorf("%w: %s belongs to broker group %s of cluster %s, this is %s of %s", errRefused, m.NodeID, m.Group, m.ClusterName, n.cfg.BrokerName, n.cfg.ClusterName)
		case levelOf(m) < n.group.tables.Level():
			return m, fmt.Errorf("%w: the raftmq %s of %s can apply feature level %d, this cluster has %d: start a newer raftmq there", errRefused, m.Version, m.NodeID, levelOf(m), n.group.tables.Level())
		case m.Leaving || m.State == membership.Left:
			return m, fmt.Errorf("%w: %s has left; wipe its data folder and start it, then it joins as a new one", errRefused, m.NodeID)
		case m.State == membership.Failed:
			return m, fmt.Errorf("%w: %s is down since %v; start it, the rest happens by itself", errRefused, m.NodeID, time.Since(m.Since).Round(time.Second))
		}
		return m, nil
	}
	if req.NodeID == "" {
		return membership.Member{}, fmt.Errorf("%w: a node answers at %s, but gossip does not list it; its log says why", errRefused, req.Gossip)
	}
	return membership.Member{}, fmt.Errorf("%w: gossip does not know %s; start it with --join and the gossip address of any member, or name its own one: raftmq cluster add --gossip HOST:PORT", errRefused, req.NodeID)
}
