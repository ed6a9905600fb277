package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/store"
	"raftmq/fsm"
	"raftmq/fsm/raftnode"
)

func newClusterRestoreCommand() *cobra.Command {
	var cfg Config
	var file, token string
	var members []string
	var check bool
	cmd := &cobra.Command{
		Use:   "restore DIR",
		Short: "Make a node's data folder from a backup",
		Long: `Makes the data folder of a node of a new cluster that begins with what a backup holds: messages at the same offsets, topics,
groups, consumer offsets and all else. It works on files only; start the node afterwards with the same flags. The new
cluster has an id of its own, so nodes of the former one and it never mix.

Without --members the node is a cluster of one; others join it empty and are filled by it. With --members and the same
--token, given on each of them, all members start with the data. The token is any text that no other restore has
had: never use the command to bring one node of a running cluster back, start that one empty.

It takes the server's flags, environment and configuration file; those that matter are --data-dir, --node-id,
--raft-advertise and the sizes of files.`,
		Example: `  raftmq cluster restore /backup/raftmq --check
  raftmq cluster restore /backup/raftmq --data-dir /var/lib/raftmq --node-id n1
  raftmq cluster restore /backup/raftmq --config /etc/raftmq.yaml --token may-7 \
    --members n1=10.0.0.1:9877,n2=10.0.0.2:9877,n3=10.0.0.3:9877`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if check {
				return checkBackup(args[0], cmd.OutOrStdout())
			}
			if err := loadConfig(cmd, &cfg, file); err != nil {
				return err
			}
			list, err := parseMembers(&cfg, members, token)
			if err != nil {
				return err
			}
			ctx, cancel := untilSignal(cmd)
			defer cancel()
			r := &restore{dir: args[0], cfg: &cfg, members: list, token: token, out: cmd.OutOrStdout(), logger: hclog.NewNullLogger()}
			return r.run(ctx)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only read the backup and say whether it is whole")
	cmd.Flags().StringSliceVar(&members, "members", nil, "all first members of the new cluster, `id=host:port,…` of their Raft ports (default: this node alone)")
	cmd.Flags().StringVar(&token, "token", "", "`text` that tells this restore from others; needed with --members, and the same on all of them")
	cmd.Flags().StringVar(&file, configFlag, "", "the server's YAML `file`")
	serverFlags(cmd.Flags(), &cfg)
	return cmd
}

// parseMembers reads --members; this node must be among them.
func parseMembers(cfg *Config, members []string, token string) ([]raftnode.Server, error) {
	if len(members) == 0 {
		return []raftnode.Server{{ID: cfg.NodeID, RaftAddr: cfg.RaftAdvertise, Voter: true}}, nil
	}
	if token == "" {
		return nil, flagError{"token", token, "is required with --members: any text, the same for all of them, and another one for each restore"}
	}
	var list []raftnode.Server
	for _, m := range members {
		id, addr, ok := strings.Cut(m, "=")
		if _, _, err := net.SplitHostPort(addr); !ok || id == "" || err != nil {
			return nil, flagError{"members", m, "allowed are id=host:port, joined by commas"}
		}
		if slices.ContainsFunc(list, func(s raftnode.Server) bool { return s.ID == id || s.RaftAddr == addr }) {
			return nil, flagError{"members", m, "names a node or an address twice"}
		}
		list = append(list, raftnode.Server{ID: id, RaftAddr: addr, Voter: true})
	}
	slices.SortFunc(list, func(a, b raftnode.Server) int { return strings.Compare(a.ID, b.ID) })
	if !slices.ContainsFunc(list, func(s raftnode.Server) bool { return s.ID == cfg.NodeID }) {
		return nil, flagError{"members", strings.Join(members, ","), "must name this node, --node-id " + cfg.NodeID}
	}
	return list, nil
}

// checkBackup reads all of a backup.
func checkBackup(dir string, out io.Writer) error {
	m, _, err := openBackup(dir)
	if err != nil {
		return err
	}
	if err := m.copyLog(dir, io.Discard); err != nil {
		return err
	}
	return wrote(fmt.Fprintf(out, "%s is whole: %s\n", dir, m.describe()))
}

func (m *manifest) describe() string {
	return fmt.Sprintf("cluster %s (%s), broker group %s, of %s by %s, Raft index %d, log [%d, %d), %s", m.ClusterName, m.ClusterID, m.BrokerName,
		m.Time.Format("2006-01-02 15:04:05 MST"), m.Node, m.RaftIndex, m.LogMin, m.LogEnd, formatBytes(m.LogEnd-m.LogMin))
}

// restoreMarker is in a data folder while a restore has not ended. The folder has no node.json then: no server starts with it.
const restoreMarker = "restoring"

// restore is one run.
type restore struct {
	dir     string // the backup
	cfg     *Config
	members []raftnode.Server
	token   string
	out     io.Writer
	logger  hclog.Logger
}

func (r *restore) run(ctx context.Context) error {
	m, head, err := openBackup(r.dir)
	if err != nil {
		return err
	}
	saved, err := fsm.ReadSaved(head)
	if err != nil {
		return err
	}
	if r.token == "" {
		if r.token, err = randomID(16); err != nil {
			return err
		}
	}
	r.identify(m)
	id := &identity{FormatVersion: plainFormat, NodeID: r.cfg.NodeID, ClusterName: m.ClusterName, BrokerName: m.BrokerName, ClusterID: r.clusterID(m), SegmentSize: m.SegmentSize}
	id.raise(saved.Level)
	for _, s := range r.members {
		if s.ID == id.NodeID {
			id.Incarnation = s.Incarnation
		}
	}
	settings := saved.Settings
	settings.ClusterID = id.ClusterID
	if err := (&brokerGroup{cfg: r.cfg, identity: id}).checkSettings(settings); err != nil {
		return err
	}
	if err := r.prepare(); err != nil {
		return err
	}
	if err := r.fillStore(ctx, m, saved.Position); err != nil {
		return err
	}
	if head, err = fsm.Detach(head, id.ClusterID); err != nil {
		return err
	}
	dir := filepath.Join(r.cfg.DataDir, "raft")
	snapshots, err := raftnode.OpenSnapshotFiles(dir, 2, r.logger)
	if err != nil {
		return err
	}
	if err := raftnode.Seed(raftnode.Config{Dir: dir, Snapshots: snapshots}, m.RaftIndex, m.RaftTerm, r.members, head); err != nil {
		return err
	}
	// Last: with it the folder is a node's.
	if err := errors.Join(mappedfile.OS{}.SyncDir(dir), id.save(r.cfg.DataDir), os.Remove(filepath.Join(r.cfg.DataDir, restoreMarker)), mappedfile.OS{}.SyncDir(r.cfg.DataDir)); err != nil {
		return err
	}
	return wrote(fmt.Fprintf(r.out, "%s holds %s\nas node %s of the new cluster %s, members: %s\n", r.cfg.DataDir, m.describe(), id.NodeID, id.ClusterID, describeServers(r.members)))
}

// identify gives the members the incarnations of the new cluster: the same on each of them.
func (r *restore) identify(m *manifest) {
	for i := range r.members {
		s := &r.members[i]
		s.Incarnation = r.derive(m, incarnationLen, "incarnation", s.ID)
	}
}

func (r *restore) clusterID(m *manifest) string { return r.derive(m, 8, "cluster") }

// derive makes an id of so many bytes from what all members of the new cluster were told alike.
func (r *restore) derive(m *manifest, size int, what ...string) string {
	parts := append(what, m.ID, r.token)
	for _, s := range r.members {
		parts = append(parts, s.ID, s.RaftAddr)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:size])
}

// prepare makes the folder, and takes away what a restore left there that did not end.
func (r *restore) prepare() error {
	dir := r.cfg.DataDir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--data-dir %s: %w", dir, err)
	}
	marker := filepath.Join(dir, restoreMarker)
	if _, err := os.Stat(marker); err == nil {
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, "store")), os.RemoveAll(filepath.Join(dir, "raft"))); err != nil {
			return fmt.Errorf("--data-dir %s: %w", dir, err)
		}
	}
	for _, name := range []string{identityFile, "store", "raft"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			return errors.Join(fmt.Errorf("--data-dir %s has %s: it is a node's folder; name another one, or remove it", dir, name), err)
		}
	}
	return replaceFile(marker, nil)
}

// fillStore brings the log into a new store, which checks each message and builds the queues and the key index.
func (r *restore) fillStore(ctx context.Context, m *manifest, at store.Position) (err error) {
	var failed error
	s, err := store.Open(store.Config{Dir: filepath.Join(r.cfg.DataDir, "store"), SegmentSize: m.SegmentSize, QueueFileSize: r.cfg.MappedFileSizeConsumeQueue,
		MessageIndexEnable: r.cfg.MessageIndexEnable, MaxHashSlotNum: r.cfg.MaxHashSlotNum, MaxIndexNum: r.cfg.MaxIndexNum, MaxMessageSize: int(r.cfg.MaxMessageSize),
		DelayLevels: r.cfg.delayLevels(), OnFatal: func(err error) { failed = err }, Logger: r.logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(), failed) }()
	if err := s.Restore(store.Position{}); err != nil {
		return err
	}
	if m.LogEnd == 0 {
		return nil
	}
	in, err := s.Install(m.LogMin, m.LogEnd)
	if err != nil {
		return err
	}
	if err := m.copyLog(r.dir, cancelled{ctx, in}); err != nil {
		return errors.Join(err, in.Abort())
	}
	return in.Commit(at)
}

// cancelled is a writer that ends with a context.
type cancelled struct {
	ctx context.Context
	io.Writer
}

func (c cancelled) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Writer.Write(p)
}
