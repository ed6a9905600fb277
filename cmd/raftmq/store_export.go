package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/spf13/cobra"

	"raftmq/commitlog/inspect"
	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/fsm/raftnode"
)

func newStoreExportConfigCommand() *cobra.Command {
	var flags storeFlags
	var out string
	cmd := &cobra.Command{
		Use:   "export-config DIR",
		Short: "Write a stopped node's tables as RocketMQ's configuration files",
		Long: `Reads the tables of a stopped node from its data folder (the newest Raft snapshot, and the entries behind
it that the node has in its commit log) and writes topics.json, subscriptionGroup.json, consumerOffset.json and
delayOffset.json as a RocketMQ broker keeps them in its config folder. With these, the folders commitlog, consumequeue
and index of the node's store are a RocketMQ store.`,
		Example: "  raftmq store export-config /var/lib/raftmq --out /root/store/config",
		Args:    oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := flags.open(cmd, args[0], "export")
			if err != nil {
				return unreadable(err)
			}
			return unreadable(exportConfig(cmd.OutOrStdout(), s, out))
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`folder` to write to; it is made (required)")
	cmd.Flags().BoolVarP(&flags.quiet, "quiet", "q", false, "no notes on standard error")
	if err := cmd.MarkFlagRequired("out"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func exportConfig(out io.Writer, s *inspect.Store, dir string) error {
	if s.Node == "" {
		return fmt.Errorf("%s is not a node's data folder: its tables are in the Raft snapshot and log, beside the store", s.Dir)
	}
	if s.InUse.Running {
		return fmt.Errorf("process %d is running on %s: stop the node first", s.InUse.PID, s.Dir)
	}
	t, err := readTables(s)
	if err != nil {
		return err
	}
	files, err := configFiles(t.tables, s.Queues)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o644); err != nil {
			return err
		}
	}
	topics, _ := t.tables.Topics()
	groups, _ := t.tables.Groups()
	_, err = fmt.Fprintf(out, "%s: %d topics, %d groups, as of raft index %d\n", dir, len(topics), len(groups), t.applied)
	return err
}

// nodeTables are a stopped node's tables.
type nodeTables struct {
	tables  *metadata.Tables
	applied uint64
}

// errBehindLog ends the replay at the first entry whose records the commit log does not have.
var errBehindLog = errors.New("the commit log ends before this entry")

// readTables restores the newest snapshot and replays the Raft log, up to the first entry that stores records which
// the commit log does not have: whether that and what follows was committed, a node alone can't know. It works on a copy
// of the Raft folder, since log stores write when they open.
func readTables(s *inspect.Store) (t *nodeTables, err error) {
	tmp, err := os.MkdirTemp("", "raftmq-export-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	dir := filepath.Join(tmp, "raft")
	if err := copyRaft(filepath.Join(s.Node, "raft"), dir); err != nil {
		return nil, fmt.Errorf("copy the Raft folder: %w", err)
	}
	journalled, err := lastJournalled(s)
	if err != nil {
		return nil, err
	}
	t = &nodeTables{tables: metadata.New()}
	var fatal error
	shadow := &shadowStore{next: map[store.QueueOffset]int64{}}
	machine, err := fsm.New(fsm.Config{Store: shadow, Tables: t.tables, OnFatal: func(err error) { fatal = err }, Logger: hclog.NewNullLogger()})
	if err != nil {
		return nil, err
	}
	if err := restoreNewest(dir, machine); err != nil {
		return nil, err
	}
	err = raftnode.ReadLog(dir, machine.Applied()+1, hclog.NewNullLogger(), func(l *raft.Log) error {
		if l.Type == raft.LogCommand && l.Index > journalled && storesRecords(l.Data) {
			return errBehindLog
		}
		machine.Apply(l)
		return fatal
	})
	if err != nil && !errors.Is(err, errBehindLog) {
		return nil, err
	}
	t.applied = machine.Applied()
	return t, nil
}

// copyRaft copies snapshots, log and stable store, without the staged log bytes of received snapshots.
func copyRaft(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel == "staging" {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		return copyFile(path, filepath.Join(to, rel))
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// lastJournalled is the raft index of the last entry that the commit log holds.
func lastJournalled(s *inspect.Store) (last uint64, err error) {
	err = s.Journal(func(r inspect.JournalRecord, damage error) error {
		if damage != nil {
			return fmt.Errorf("journal %s at %d: %w", r.File, r.Offset, damage)
		}
		last = r.RaftIndex
		return nil
	})
	return last, err
}

// restoreNewest restores the newest snapshot that is whole; a node without any starts empty.
func restoreNewest(dir string, machine *fsm.FSM) error {
	snapshots, err := raftnode.OpenSnapshotFiles(dir, 2, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	list, err := snapshots.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	var errs []error
	for _, meta := range list {
		_, r, err := snapshots.Open(meta.ID)
		if err == nil {
			err = machine.Restore(r)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("snapshot %s: %w", meta.ID, err))
	}
	return errors.Join(errs...)
}

// storesRecords tells whether an entry has a command that writes to the commit log. An entry that can't be
// read is for the FSM to refuse.
func storesRecords(entry []byte) bool {
	r, err := command.NewReader(entry)
	for err == nil {
		var c command.Command
		var ok bool
		if c, ok, err = r.Next(); err != nil || !ok {
			break
		}
		switch c.Kind {
		case command.KindAppend, command.KindDelayDeliver, command.KindTransactionEnd:
			return true
		}
	}
	return false
}

// shadowStore takes the FSM's appends and keeps nothing of them but the queues' next offsets, which some tables
// depend on.
type shadowStore struct {
	next map[store.QueueOffset]int64 // by topic and queue, Next 0
}

var _ fsm.Store = (*shadowStore)(nil)

func (s *shadowStore) Append(topic []byte, queueID int32, records []byte, n int) (store.Appended, error) {
	k := store.QueueOffset{Topic: string(topic), QueueID: queueID}
	a := store.Appended{QueueOffset: s.next[k]}
	for range n {
		size, err := record.Check(records, false)
		if err != nil {
			return a, err
		}
		if record.AssignsQueueOffset(record.View(records).SysFlag()) {
			s.next[k]++
		}
		records = records[size:]
	}
	return a, nil
}

func (s *shadowStore) Position() (p store.Position) {
	for k, next := range s.next {
		k.Next = next
		p.QueueOffsets = append(p.QueueOffsets, k)
	}
	return p
}

func (s *shadowStore) Restore(p store.Position) error {
	clear(s.next)
	for _, q := range p.QueueOffsets {
		s.next[store.QueueOffset{Topic: q.Topic, QueueID: q.QueueID}] = q.Next
	}
	return nil
}

// LogRange claims that all log bytes are there, so that a snapshot installs none.
func (s *shadowStore) LogRange() (min, max int64)          { return 0, math.MaxInt64 }
func (s *shadowStore) BeginEntry(uint64, uint64) error     { return nil }
func (s *shadowStore) EndEntry() error                     { return nil }
func (s *shadowStore) Trim(int64) error                    { return nil }
func (s *shadowStore) Publish()                            {}
func (s *shadowStore) Recovered() store.Position           { return store.Position{} }
func (s *shadowStore) FlushAll() error                     { return nil }
func (s *shadowStore) LogSum(int64, int64) (uint32, error) { return 0, errShadow }

var errShadow = errors.New("only tables are read")

func (s *shadowStore) Install(int64, int64) (store.Installer, error) { return nil, errShadow }
