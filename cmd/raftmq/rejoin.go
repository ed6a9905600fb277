package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/membership"
	"raftmq/transport/metrics"
	"raftmq/transport/remoting"

	"github.com/hashicorp/go-hclog"
)

// A node whose Raft log is damaged has forgotten what it acknowledged and how it voted; one that has applied something else than its peers holds another log. Neither may go on as it
// is, nor may it cut what does not fit (Never-Clean-Up). It stops, makes sure that the others can do without it (a majority of the group commits an entry while it is away, so that
// all that was ever acknowledged is with them), puts its data aside, and starts again under a new incarnation: to Raft a newcomer without a vote, which the leader fills and then gives
// the vote back. When no such majority is there, its copy may be the last one: it changes nothing, and ends with what a person must do.

// rejoinError ends a node that is to join again as a newcomer.
type rejoinError struct {
	reason error
	// log: the commit log is not to be believed either. Without it only raft/ is put aside, and what the log holds need not be sent again.
	log bool
}

func (e *rejoinError) Error() string { return e.reason.Error() }
func (e *rejoinError) Unwrap() error { return e.reason }

// asRejoin says whether err ends a node that can be healed by its peers, and how.
func asRejoin(err error) *rejoinError {
	var r *rejoinError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return r
	case errors.Is(err, store.ErrDiverged):
		return &rejoinError{reason: err, log: true}
	case errors.Is(err, raftnode.ErrLogDamaged):
		return &rejoinError{reason: err}
	}
	return nil
}

const (
	// rejoinWaitAlone is --rejoin-wait at most without --join: only those can come who look for this node.
	rejoinWaitAlone = 10 * time.Second
	// rejoinRest: a node whose data was put aside that lately and is bad again has worse than a flipped bit.
	rejoinRest  = time.Hour
	rejoinRetry = 500 * time.Millisecond
)

var errCannotRejoin = errors.New("it cannot be filled again from the others now")

// rejoining brings a stopped node to where it can be started as a newcomer.
type rejoining struct {
	cfg    *Config
	logger hclog.Logger
	wait   time.Duration
	now    func() time.Time
	// proof returns nil when a majority of the group has committed an entry without this node.
	proof func(ctx context.Context) error
}

// run returns nil when the data is aside. Else nothing has been changed, and the error says what a person must do.
func (r *rejoining) run(ctx context.Context, why *rejoinError) error {
	dir := r.cfg.DataDir
	if _, at := asideFolders(dir); r.now().Sub(at) < rejoinRest {
		return fmt.Errorf("%w; %w: its data was put aside at %s already. Check its disk and memory, then start it again after %s, or wipe it",
			why, errCannotRejoin, at.Format(time.RFC3339), at.Add(rejoinRest).Format(time.RFC3339))
	}
	parts := []string{"raft"}
	if why.log {
		parts = append(parts, "store")
		if need, have := folderBytes(filepath.Join(dir, "store")), store.StatDisk(dir).Usable; have < need {
			return fmt.Errorf("%w; %w: its old log of %s stays and %s has only %s free. Make room, or wipe the node", why, errCannotRejoin, formatSize(need), dir, formatSize(have))
		}
	}
	r.logger.Error("this node's data is not to be believed, it will join again as a newcomer when a majority of the others is there", "reason", why, "log-too", why.log)
	waiting, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	var err error
	for {
		if err = r.proof(waiting); err == nil {
			break
		}
		select {
		case <-waiting.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("%w; %w", why, ctx.Err())
			}
			return fmt.Errorf("%w; %w, as no majority of them takes writes (%w), and this may be the last copy. Nothing was changed. Start the other nodes, then this one again; "+
				"if they are lost for good, restore a backup; what this node's commit log holds can be read with raftmq store", why, errCannotRejoin, err)
		case <-time.After(rejoinRetry):
		}
	}
	to, err := putAside(dir, parts, why.Error(), r.now())
	if err != nil {
		return fmt.Errorf("%w; put its data aside: %w", why, err)
	}
	r.logger.Warn("the others have all that was acknowledged: this node's old data is aside, it joins again as a newcomer", "old-data", to, "reason", why)
	return nil
}

// othersCommit returns nil when a majority of the group has committed an entry after the call. This node takes no part in Raft meanwhile, so all that it ever
// helped to acknowledge is with them too.
func othersCommit(ctx context.Context, id *identity, members func() []membership.Member) error {
	err := errors.New("no other member is in reach by gossip")
	for _, m := range members() {
		if m.NodeID == id.NodeID || m.ClusterName != id.ClusterName || m.Group != id.BrokerName || m.State != membership.Alive || m.ClientAddr == "" {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, 10*time.Second)
		err = confirm(asking, id, m)
		cancel()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", m.NodeID, err)
	}
	return err
}

func confirm(ctx context.Context, id *identity, m membership.Member) error {
	st, err := fetchStatus(ctx, m.ClientAddr)
	switch {
	case err != nil:
		return err
	case st.ClusterID == "" || st.LeaderID == "":
		return errors.New("it knows no leader")
	case st.NodeID != m.NodeID || id.ClusterID != "" && st.ClusterID != id.ClusterID:
		return fmt.Errorf("%s of cluster %s answers there", st.NodeID, st.ClusterID)
	}
	return askAdmin(ctx, []string{m.ClientAddr}, remoting.RequestMark, remoting.MarkRequest{}, nil)
}

// rejoin gets a stopped node ready to be started as a newcomer.
func rejoin(ctx context.Context, cfg *Config, logger hclog.Logger, why *rejoinError) error {
	id, err := readIdentity(cfg.DataDir)
	if err != nil {
		return fmt.Errorf("%w; %w", why, err)
	}
	members, err := membership.Open(membership.Config{BindAddr: cfg.GossipAddress, AdvertiseAddr: cfg.GossipAdvertise, Logger: logger,
		Tags: membership.Tags{NodeID: cfg.NodeID, ClusterName: cfg.ClusterName, ClusterID: id.ClusterID, Group: cfg.BrokerName,
			ClientAddr: cfg.ClientAdvertise, RaftAddr: cfg.RaftAdvertise, HTTPAddr: cfg.HTTPAdvertise, Version: version,
			Incarnation: id.Incarnation, HasData: true, Level: int(command.Newest), ClusterLevel: int(id.Level)}})
	if err != nil {
		return fmt.Errorf("%w; --gossip-address %s: %w", why, cfg.GossipAddress, err)
	}
	defer members.Close()
	if len(cfg.Join) > 0 {
		members.KeepJoining(cfg.Join)
	}
	began := time.Now()
	end := downPage(cfg, logger, func() error {
		return fmt.Errorf("down for %v, joins again as a newcomer when a majority of the others is there: %w", time.Since(began).Round(time.Second), why)
	})
	defer end()
	r := rejoining{cfg: cfg, logger: logger.Named("rejoin"), wait: cfg.RejoinWait, now: time.Now, proof: func(ctx context.Context) error { return othersCommit(ctx, id, members.Members) }}
	if len(cfg.Join) == 0 {
		r.wait = min(r.wait, rejoinWaitAlone)
	}
	return r.run(ctx, why)
}

// downPage serves the HTTP page of a node that is down, and returns what ends it.
func downPage(cfg *Config, logger hclog.Logger, problem func() error) (end func()) {
	s, err := metrics.New(metrics.Config{Listen: cfg.HTTPAddress, Logger: logger.Named("http"), Ready: problem, Leader: problem,
		Status: func() any {
			return remoting.NodeStatus{NodeID: cfg.NodeID, Version: version, ClusterName: cfg.ClusterName, Group: cfg.BrokerName,
				Role: string(raftnode.Stopped), Problem: problem().Error(), Durability: cfg.Durability(), FlushDiskType: cfg.FlushDiskType, RaftLogStore: cfg.RaftLogStore}
		}})
	if err != nil {
		logger.Warn("no http page while the node is down", "error", err)
		return func() {}
	}
	s.Serve()
	return func() {
		if err := s.Close(); err != nil {
			logger.Warn("http page did not end cleanly", "error", err)
		}
	}
}

// rejoin is the leader's order: a majority holds something else than this node.
func (n *node) rejoin(_ context.Context, req remoting.RejoinRequest) (any, error) {
	if req.NodeID != n.cfg.NodeID {
		return nil, fmt.Errorf("%w: this is %s, meant is %s", errRefused, n.cfg.NodeID, req.NodeID)
	}
	if n.group.raft.State().Role == raftnode.Leader {
		return nil, fmt.Errorf("%w: this node leads", errRefused)
	}
	n.die(&rejoinError{reason: fmt.Errorf("this node holds something else than the majority: %s", req.Reason), log: true})
	return struct{}{}, nil
}

// rejoined notes that a node which has joined again has caught up: from now on its Raft log must reach what its store holds.
func (n *node) rejoined() {
	if !n.group.caughtUp() {
		return
	}
	if err := n.folder.change(func(id *identity) { id.Rejoined = "" }); err != nil {
		n.die(fmt.Errorf("--data-dir %s: note that the node has joined again: %w", n.cfg.DataDir, err))
	}
}

// diverged is the scrub's finding that a log segment is whole and not what the replicas have agreed on.
func (n *node) diverged(from, to int64, err error) {
	n.die(&rejoinError{reason: fmt.Errorf("log bytes %d to %d are not what the replicas have agreed on: %w", from, to, err), log: true})
}

// tellAside says that data which was put aside is still there.
func tellAside(dir string, logger hclog.Logger) {
	if folders, _ := asideFolders(dir); len(folders) > 0 {
		logger.Info("data that was put aside is still there, remove it when nobody needs it", "folders", folders)
	}
}
