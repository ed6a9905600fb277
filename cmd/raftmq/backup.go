package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"raftmq/commitlog/mappedfile"
	"raftmq/fsm"
	"raftmq/fsm/command"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

func newClusterBackupCommand() *cobra.Command {
	var from string
	var rate sizeValue
	cmd, _ := adminCommand(&cobra.Command{
		Use:   "backup DIR",
		Short: "Copy the cluster's messages, offsets and settings into a folder",
		Long: `Copies the cluster into a folder while it runs: the topics, groups, consumer offsets and all other tables, and the commit
log, both as they were at one moment. Any node can be copied, leader or not; by default one that follows is. Bytes are
checked on their way and once more at the end against what the node applied.

A backup that was cut goes on when the command is given again. Into a folder that holds one already it copies what is
new; the old one stays valid until the new one is whole. Restore it with: raftmq cluster restore`,
		Example: `  raftmq cluster backup /backup/raftmq --name-servers 10.0.0.1:9876
  raftmq cluster backup /backup/raftmq --from n3 --rate 50MiB`,
		Args: cobra.ExactArgs(1),
	}, 0, func(ctx context.Context, addrs []string, out io.Writer, args []string) error {
		src, err := findSource(ctx, addrs, from)
		if err != nil {
			return err
		}
		defer src.close()
		b := &backup{dir: args[0], src: src, rate: int64(rate), out: out}
		return b.run(ctx)
	})
	cmd.Flags().StringVar(&from, "from", "", "the node to copy, by its `node id`")
	cmd.Flags().Var(&rate, "rate", "read at most so much in a second, `size`; 0 is no limit")
	return cmd
}

// source is the nodes that a backup is copied from. The tables come from one; log bytes, which are the same on all, from any.
type source struct {
	addrs []string // the one to ask first is the first
	conn  *client.Client
	at    int // of addrs, conn's
	peer  string
}

// findSource prefers a follower that has caught up.
func findSource(ctx context.Context, addrs []string, from string) (*source, error) {
	nodes := askNodes(ctx, addrs, 3*time.Second, true)
	if firstAnswer(nodes) == nil {
		return nil, nobodyAnswers(nodes)
	}
	id, err := randomID(4)
	if err != nil {
		return nil, err
	}
	s := &source{peer: "backup-" + id}
	rank := func(n nodeAnswer) int {
		switch {
		case n.Status.NodeID == from:
			return 0
		case n.Status.Ready:
			return 2
		}
		return 1
	}
	well := slices.DeleteFunc(nodes, func(n nodeAnswer) bool { return n.Status == nil || !n.Status.CaughtUp })
	slices.SortStableFunc(well, func(a, b nodeAnswer) int { return rank(a) - rank(b) })
	for _, n := range well {
		s.addrs = append(s.addrs, n.Address)
	}
	switch {
	case len(well) == 0:
		return nil, errors.New("no node has caught up with its cluster")
	case from != "" && well[0].Status.NodeID != from:
		return nil, fmt.Errorf("--from %s: there is no such node, or it has not caught up", from)
	}
	return s, nil
}

func (s *source) close() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn.Wait()
		s.conn = nil
	}
}

// sourceRounds is how often all nodes are tried before a request is given up.
const sourceRounds = 5

// ask runs f with a connection, on the next node when one fails.
func (s *source) ask(ctx context.Context, f func(c *client.Client) error) error {
	var errs []error
	for try := range sourceRounds * len(s.addrs) {
		if try > 0 && try%len(s.addrs) == 0 {
			select {
			case <-ctx.Done():
				return errors.Join(append(errs, ctx.Err())...)
			case <-time.After(time.Second):
			}
			errs = nil
		}
		err := s.askOne(ctx, f)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.addrs[s.at], err))
		s.close()
		s.at = (s.at + 1) % len(s.addrs)
	}
	return errors.Join(errs...)
}

// requestTimeout is how long one node may take for one piece.
const requestTimeout = 30 * time.Second

func (s *source) askOne(ctx context.Context, f func(c *client.Client) error) (err error) {
	if s.conn == nil {
		if s.conn, err = client.Dial(ctx, s.addrs[s.at]); err != nil {
			s.conn = nil
			return err
		}
	}
	return f(s.conn)
}

// backup is one run.
type backup struct {
	dir  string
	src  *source
	rate int64
	out  io.Writer

	start           remoting.BackupStart
	fetched, reused int64
	began, told     time.Time
}

func (b *backup) run(ctx context.Context) error {
	b.began = time.Now()
	old, err := b.open()
	if err != nil {
		return err
	}
	m, err := b.copy(ctx, old)
	for try := 1; errors.Is(err, client.ErrLogOutside) && try < backupTries; try++ { // retention was faster: the next moment's log begins later
		m, err = b.copy(ctx, old)
	}
	if err != nil {
		return fmt.Errorf("%w\nthe backup is not whole; give the command again, it goes on", err)
	}
	if err := b.finish(m); err != nil {
		return err
	}
	_, err = fmt.Fprintf(b.out, "backup of cluster %s (%s) in %s: Raft index %d, log [%d, %d), %s copied and %s kept of before, in %v\n",
		m.ClusterName, m.ClusterID, b.dir, m.RaftIndex, m.LogMin, m.LogEnd, formatBytes(b.fetched), formatBytes(b.reused), time.Since(b.began).Round(100*time.Millisecond))
	return err
}

// backupTries is how many moments are tried when messages expire while they are copied.
const backupTries = 3

// copy fixes a moment and brings the folder there, but for the manifest.
func (b *backup) copy(ctx context.Context, old *manifest) (*manifest, error) {
	m, err := b.begin(ctx, old)
	if err != nil {
		return nil, err
	}
	for at := b.start.LogMin; at < b.start.LogEnd; {
		end := min(at-at%b.start.SegmentSize+b.start.SegmentSize, b.start.LogEnd)
		f, err := b.segment(ctx, at, end)
		if err != nil {
			return nil, err
		}
		m.Segments = append(m.Segments, f)
		at = end
	}
	return m, nil
}

// open makes the folder, and returns what is known of the cluster that it is for: nil when it is new.
func (b *backup) open() (*manifest, error) {
	if err := os.MkdirAll(filepath.Join(b.dir, backupLogDir), 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{backupManifest, backupCluster} {
		m, err := readManifest(b.dir, name)
		if err == nil {
			return m, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	names, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, err
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("%s is not empty and holds no backup: name a new folder", b.dir)
	}
	return nil, nil
}

// begin fixes the moment that is saved, and saves the tables of it.
func (b *backup) begin(ctx context.Context, old *manifest) (*manifest, error) {
	var state []byte
	err := b.src.ask(ctx, func(c *client.Client) (err error) {
		if err := invokeJSON(ctx, c, remoting.RequestBackupStart, struct{}{}, &b.start); err != nil {
			return err
		}
		state, err = b.state(ctx, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	s := &b.start
	saved, err := fsm.ReadSaved(state)
	if err != nil {
		return nil, err
	}
	if saved.LogMin != s.LogMin || saved.Position.LogEnd != s.LogEnd || s.SegmentSize <= 0 || saved.Settings.SegmentSize != s.SegmentSize {
		return nil, fmt.Errorf("%s names log [%d, %d) in segments of %d, and its tables [%d, %d) in segments of %d", s.NodeID, s.LogMin, s.LogEnd, s.SegmentSize,
			saved.LogMin, saved.Position.LogEnd, saved.Settings.SegmentSize)
	}
	id, err := randomID(8)
	if err != nil {
		return nil, err
	}
	m := &manifest{Format: backupFormat, Version: backupVersion, ClusterID: s.ClusterID, ClusterName: s.ClusterName, BrokerName: s.BrokerName, SegmentSize: s.SegmentSize}
	if old == nil {
		err = b.write(m, backupCluster)
	} else if old.ClusterID != s.ClusterID || old.SegmentSize != s.SegmentSize {
		err = fmt.Errorf("%s holds a backup of cluster %s (%s), this is %s (%s): name another folder", b.dir, old.ClusterName, old.ClusterID, s.ClusterName, s.ClusterID)
	} else if old.RaftIndex > s.Index {
		err = fmt.Errorf("%s holds a backup of Raft index %d, and %s is at %d: copy another node (--from)", b.dir, old.RaftIndex, s.NodeID, s.Index)
	}
	if err != nil {
		return nil, err
	}
	m.ID, m.Time, m.Node, m.RaftmqVersion, m.Level = id, time.Now().UTC().Truncate(time.Second), s.NodeID, s.Version, command.Level(s.Level)
	m.RaftIndex, m.RaftTerm, m.LogMin, m.LogEnd = s.Index, s.Term, s.LogMin, s.LogEnd
	m.Snapshot = backupFile{Name: snapshotName(s.Index), Length: int64(len(state)), CRC32C: s.StateCRC}
	return m, replaceFile(filepath.Join(b.dir, m.Snapshot.Name), state)
}

// state copies the tables.
func (b *backup) state(ctx context.Context, c *client.Client) ([]byte, error) {
	var state []byte
	for int64(len(state)) < b.start.StateBytes {
		body, err := json.Marshal(remoting.BackupState{Snapshot: b.start.Snapshot, Offset: int64(len(state))})
		if err != nil {
			return nil, err
		}
		resp, err := c.Invoke(ctx, &remoting.Command{Code: remoting.RequestBackupState, Body: body})
		if resp, err = invoked("copy the tables", resp, err); err != nil {
			return nil, err
		}
		if len(resp.Body) == 0 {
			break
		}
		state = append(state, resp.Body...)
	}
	if got := hexSum(state); int64(len(state)) != b.start.StateBytes || got != b.start.StateCRC {
		return nil, fmt.Errorf("tables of %d bytes with checksum %s, expected %d with %s", len(state), got, b.start.StateBytes, b.start.StateCRC)
	}
	return state, nil
}

func invokeJSON(ctx context.Context, c *client.Client, code int32, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	resp, err := c.Invoke(ctx, &remoting.Command{Code: code, Body: body})
	switch {
	case err != nil:
		return err
	case resp.Code == remoting.ResponseRequestCodeNotSupported:
		return fmt.Errorf("an older raftmq runs there: it does not know request %s", remoting.RequestCodeName(code))
	case resp.Code != remoting.ResponseSuccess:
		return errors.New(resp.Remark)
	}
	return json.Unmarshal(resp.Body, answer)
}

// segment brings one file to the log bytes [from, to), and checks it against what the cluster applied.
func (b *backup) segment(ctx context.Context, from, to int64) (backupFile, error) {
	f := backupFile{Name: segmentName(from), Offset: from, Length: to - from}
	path := filepath.Join(b.dir, f.Name)
	have, sum, err := b.kept(ctx, path, from, to)
	if err != nil {
		return f, err
	}
	if have < f.Length {
		if sum, err = b.fetch(ctx, path, from, from+have, to, sum); err != nil {
			return f, err
		}
	}
	f.CRC32C = fmt.Sprintf("%08x", sum)
	want, err := b.sumOf(ctx, from, to)
	if err == nil && sum != want {
		err = fmt.Errorf("%s has checksum %08x, the cluster applied %08x", f.Name, sum, want)
	}
	return f, err
}

// kept is how much of a file of before is right, with its checksum: all of it, or nothing.
func (b *backup) kept(ctx context.Context, path string, from, to int64) (have int64, sum uint32, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	hash := crc32.New(castagnoli)
	if have, err = io.CopyBuffer(onlyWriter{hash}, io.LimitReader(file, to-from), make([]byte, mib)); err != nil {
		return 0, 0, err
	}
	want, err := b.sumOf(ctx, from, from+have)
	if err != nil {
		return 0, 0, err
	}
	if hash.Sum32() != want {
		fmt.Fprintf(b.out, "%s is not what the cluster has, it is copied again\n", path)
		return 0, 0, nil
	}
	b.reused += have
	return have, want, nil
}

func (b *backup) sumOf(ctx context.Context, from, to int64) (sum uint32, err error) {
	err = b.src.ask(ctx, func(c *client.Client) (err error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		sum, _, err = c.LogSum(ctx, remoting.LogRange{Offset: from, Length: to - from, Peer: b.src.peer})
		return err
	})
	return sum, err
}

// fetch copies [at, to) behind what the file has; one that is begun anew replaces the former when it is whole.
func (b *backup) fetch(ctx context.Context, path string, from, at, to int64, sum uint32) (uint32, error) {
	target := path
	if at == from {
		target = path + ".tmp"
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if err := file.Truncate(at - from); err != nil {
		return 0, err
	}
	if target != path {
		// A first copy grows under its own name, so that a run that is cut leaves something to go on with.
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			if err := os.Rename(target, path); err != nil {
				return 0, err
			}
			target = path
		}
	}
	for at < to {
		var part []byte
		err := b.src.ask(ctx, func(c *client.Client) (err error) {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			part, _, err = c.LogRange(ctx, remoting.LogRange{Offset: at, Length: min(to-at, remoting.MaxLogRange), Peer: b.src.peer})
			if err == nil && len(part) == 0 {
				err = fmt.Errorf("%w: nothing at %d", client.ErrLogOutside, at)
			}
			return err
		})
		if err != nil {
			return 0, errors.Join(err, file.Sync())
		}
		if _, err := file.WriteAt(part, at-from); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, part)
		at += int64(len(part))
		b.fetched += int64(len(part))
		if err := b.pace(ctx, at); err != nil {
			return 0, errors.Join(err, file.Sync())
		}
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	if target != path {
		if err := os.Rename(target, path); err != nil {
			return 0, err
		}
	}
	return sum, mappedfile.OS{}.SyncDir(filepath.Dir(path))
}

// pace keeps to the rate, and tells how far the copy is.
func (b *backup) pace(ctx context.Context, at int64) error {
	if time.Since(b.began) > 2*time.Second && time.Since(b.told) > 5*time.Second {
		b.told = time.Now()
		fmt.Fprintf(b.out, "copied %s, %s to come\n", formatBytes(b.fetched), formatBytes(b.start.LogEnd-at))
	}
	if b.rate <= 0 {
		return ctx.Err()
	}
	ahead := time.Duration(float64(b.fetched)/float64(b.rate)*float64(time.Second)) - time.Since(b.began)
	if ahead <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(ahead):
		return nil
	}
}

// finish makes the new backup the valid one, and removes what only the former needed.
func (b *backup) finish(m *manifest) error {
	if err := m.check(); err != nil {
		return err
	}
	if err := b.write(m, backupManifest); err != nil {
		return err
	}
	needed := map[string]bool{m.Snapshot.Name: true}
	for _, f := range m.Segments {
		needed[f.Name] = true
	}
	for _, pattern := range []string{"snapshot-*", filepath.Join(backupLogDir, "*")} {
		paths, err := filepath.Glob(filepath.Join(b.dir, pattern))
		if err != nil {
			return err
		}
		for _, p := range paths {
			name, err := filepath.Rel(b.dir, p)
			if err == nil && !needed[name] {
				err = os.Remove(p)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *backup) write(m *manifest, name string) error {
	text, err := encodeManifest(m)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(b.dir, name), append(text, '\n'))
}
