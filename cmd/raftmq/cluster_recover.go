package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
)

func newClusterRecoverCommand() *cobra.Command {
	var dir, logStore string
	var yes bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Form a cluster again from one node when a majority is gone for good",
		Long: `For the worst day: a majority of the voters is lost with its disks, so that no leader can be elected. On a node that is
left, stopped, this makes it the only voter of its group. Started then, it leads and serves what it holds; other
machines join it as newcomers.

It works on the folder of a stopped node and asks nobody. Choose the node whose Raft log reaches furthest. Without --yes
it only says what it would do. What the lost nodes had acknowledged and this one does not hold is lost, so don't use it
while a majority may come back: a node that is only stopped, cut off, or without disk space is not lost.`,
		Example: "  raftmq cluster recover --data-dir /var/lib/raftmq --yes",
		Args:    cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return fillFlags(cmd.Flags(), "") },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return flagError{"data-dir", dir, "is required: the folder of the stopped node that is left"}
			}
			return recoverFolder(cmd.OutOrStdout(), dir, logStore, yes)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "`folder` of the stopped node")
	cmd.Flags().StringVar(&logStore, "raft-log-store", raftLogWAL, "the node's Raft log `store`: "+raftLogWAL+" or "+raftLogBolt)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func recoverFolder(out io.Writer, dir, logStore string, yes bool) error {
	id, err := readIdentity(dir)
	if err != nil {
		return err
	}
	// Only what the snapshots say of themselves is needed; whether their log is complete shows at the start.
	snapshots, err := raftnode.OpenSnapshotFiles(filepath.Join(dir, "raft"), 2, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	cfg := raftnode.Config{NodeID: id.NodeID, Incarnation: id.Incarnation, Dir: filepath.Join(dir, "raft"), LogStore: raftnode.LogStoreKind(logStore), Snapshots: snapshots}
	folder, err := raftnode.Inspect(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: node %s of cluster %s (%s), broker group %s\n", dir, id.NodeID, id.ClusterName, orDash(id.ClusterID), id.BrokerName)
	fmt.Fprintf(out, "Raft log: entries %d to %d, term %d, snapshot at entry %d\n", folder.FirstIndex, folder.LastIndex, folder.Term, folder.SnapshotIndex)
	fmt.Fprintf(out, "members: %s\n", describeServers(folder.Servers))
	var lost []string
	for _, s := range folder.Servers {
		if s.ID != id.NodeID || s.Incarnation != id.Incarnation {
			lost = append(lost, s.ID)
		}
	}
	if len(folder.Servers) == 1 && len(lost) == 0 {
		fmt.Fprintf(out, "%s is the only member already: start it, it needs nobody\n", id.NodeID)
		return nil
	}
	if !yes {
		fmt.Fprintf(out, "\nWith --yes %s becomes the only member, and all of its log counts as committed. What only %s held is lost.\n"+
			"They must never be started again with the data that they have: wipe them, and they join as newcomers.\n"+
			"Nothing has been changed.\n", id.NodeID, strings.Join(lost, " and "))
		return nil
	}
	entry, err := recoveryEntry(id, folder.Servers)
	if err != nil {
		return err
	}
	if folder, err = raftnode.Recover(cfg, entry); err != nil {
		return err
	}
	fmt.Fprintf(out, "\ndone: members: %s, Raft log up to entry %d of term %d\nNow start %s. Wipe the data of %s before they are started again.\n",
		describeServers(folder.Servers), folder.LastIndex, folder.Term, id.NodeID, strings.Join(lost, " and "))
	return nil
}

// recoveryEntry keeps the lost members out if they come back with their old data, and forgets their addresses.
func recoveryEntry(id *identity, servers []raftnode.Server) ([]byte, error) {
	entry := command.AppendEntryHead(nil)
	var err error
	for _, s := range servers {
		if s.ID == id.NodeID {
			continue
		}
		bar := command.KVPut{Namespace: removedNamespace, Key: barKey(s.ID, s.Incarnation), Value: "recovered without it " + time.Now().UTC().Format(time.RFC3339)}
		if entry, err = command.AppendJSON(entry, command.KindKVPut, bar); err != nil {
			return nil, err
		}
		if entry, err = command.AppendJSON(entry, command.KindNodeDelete, command.NodeDelete{ID: s.ID}); err != nil {
			return nil, err
		}
	}
	return entry, nil
}

func describeServers(servers []raftnode.Server) string {
	if len(servers) == 0 {
		return "none"
	}
	var list []string
	for _, s := range servers {
		role := "no vote"
		if s.Voter {
			role = "voter"
		}
		list = append(list, fmt.Sprintf("%s (%s, %s)", s.ID, s.RaftAddr, role))
	}
	return strings.Join(list, ", ")
}

// readIdentity reads a folder's identity without a configuration to compare it with.
func readIdentity(dir string) (*identity, error) {
	path := filepath.Join(dir, identityFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--data-dir %s is no node's folder: it has no %s", dir, identityFile)
	}
	if err != nil {
		return nil, fmt.Errorf("--data-dir %s: %w", dir, err)
	}
	id := new(identity)
	if err := json.Unmarshal(b, id); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return id, nil
}
