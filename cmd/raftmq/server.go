package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"raftmq/fsm/raftnode"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
)

// shutdownTimeout bounds a graceful stop: handing over leadership, answering what is parked, the
// last flush. Past it the process exits as if it had been killed, which loses nothing either.
const shutdownTimeout = 30 * time.Second

// signalRepeat: signals so soon after the first are the same wish. timeout(1), for one, signals a process and then
// its whole group.
const signalRepeat = time.Second

// errBusy: a node did not stop in time, so that its files and ports may still be in use.
var errBusy = errors.New("still busy")

func newServerCommand() *cobra.Command {
	var cfg Config
	var file string
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a node",
		Long: `Runs a node until SIGTERM or SIGINT, which stop it gracefully: it hands leadership over,
answers waiting clients and flushes. A second signal ends it at once.

Values come from flags, then from the environment (--node-id is RAFTMQ_NODE_ID), then
from the YAML file of --config, whose keys are the flags' names.

Sizes are bytes, or numbers with KiB, MiB or GiB.`,
		Example: `  # a cluster of one
  raftmq server --bootstrap-expect 1

  # each of three machines; any one of them is enough in --join
  raftmq server --node-id n1 --data-dir /var/lib/raftmq --bootstrap-expect 3 --join 10.0.0.1:9878,10.0.0.2:9878,10.0.0.3:9878

  # the same from a file
  raftmq server --config /etc/raftmq.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := loadConfig(cmd, &cfg, file); err != nil {
				return err
			}
			if err := cfg.checkOrigin(); err != nil {
				return err
			}
			logger := newLogger(&cfg, cmd.ErrOrStderr())
			for _, name := range unknownEnvironment(cmd.Flags()) {
				logger.Warn("environment variable has no effect: no flag has this name", "variable", name)
			}
			return runServer(cmd.Context(), cfg, logger, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&file, configFlag, "", "YAML `file` with these flags' names as keys")
	serverFlags(cmd.Flags(), &cfg)
	return cmd
}

func newLogger(c *Config, out io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name:       "raftmq",
		Level:      hclog.LevelFromString(c.LogLevel),
		Output:     out,
		JSONFormat: c.LogFormat == logJSON,
		TimeFormat: "2006-01-02T15:04:05.000Z07:00",
	})
}

// runServer runs the node until a signal, the end of ctx, or a fatal error. After an error of the disk it opens the node again.
func runServer(ctx context.Context, cfg Config, logger hclog.Logger, out io.Writer) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	if cfg.TestClockOffsetFile != "" {
		clock, err := openTestClock(cfg.TestClockOffsetFile)
		if err != nil {
			return fmt.Errorf("--test-clock-offset-file: %w", err)
		}
		defer clock.close()
		cfg.now = clock.now
		logger.Warn("this node's clock is off on purpose: for tests only", "test-clock-offset-file", cfg.TestClockOffsetFile)
	}
	announce(&cfg, logger, out)
	parking := parking{cfg: &cfg, logger: logger}
	for again := false; ; again = true {
		began := time.Now()
		err := runNode(ctx, cfg, logger, signals)
		if why := asRejoin(err); why != nil && !errors.Is(err, errBusy) {
			if err := orSignal(ctx, signals, logger, func(ctx context.Context) error { return rejoin(ctx, &cfg, logger, why) }); err != nil {
				return fmt.Errorf("node %s stopped: %w", cfg.NodeID, err)
			}
			continue
		}
		var bad *diskFailure
		if !errors.As(err, &bad) || bad.starting && !again {
			return err
		}
		if !parked(ctx, &parking, err, time.Since(began), signals) {
			return err
		}
	}
}

// parked waits for the disk; false when a signal or the end of ctx comes first.
func parked(ctx context.Context, p *parking, why error, ran time.Duration, signals <-chan os.Signal) bool {
	return orSignal(ctx, signals, p.logger, func(ctx context.Context) error { return p.wait(ctx, why, ran) }) == nil
}

// orSignal runs f, whose ctx ends at a signal.
func orSignal(ctx context.Context, signals <-chan os.Signal, logger hclog.Logger, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		return err
	case s := <-signals:
		logger.Info("stopping", "signal", s.String())
		cancel()
		return errors.Join(<-done, context.Canceled)
	}
}

// diskFailure ends a node that may be opened again when its disk is well.
type diskFailure struct {
	starting bool
	error
}

func (e *diskFailure) Unwrap() error { return e.error }

// runNode is one life of the node.
func runNode(ctx context.Context, cfg Config, logger hclog.Logger, signals <-chan os.Signal) error {
	n, err := startNode(cfg, logger)
	if err != nil {
		err = fmt.Errorf("node %s did not start: %w", cfg.NodeID, err)
		if isDiskError(err) {
			return &diskFailure{true, err}
		}
		return err
	}
	select {
	case err := <-n.Fatal():
		// The node can't be trusted to finish anything; what it holds is on its disk or at its peers.
		stopped := shutdown(n, signals, logger)
		fatal := fmt.Errorf("node %s stopped: %w", cfg.NodeID, err)
		if isDiskError(err) && !errors.Is(stopped, errBusy) && !errors.Is(stopped, raftnode.ErrHangs) {
			return &diskFailure{false, fatal}
		}
		return fatal
	case <-n.Left():
		logger.Info("stopping", "reason", "this node has left its cluster for good")
	case s := <-signals:
		logger.Info("stopping", "signal", s.String())
	case <-ctx.Done():
		logger.Info("stopping", "reason", ctx.Err())
	}
	if err := shutdown(n, signals, logger); err != nil {
		return fmt.Errorf("node %s did not stop cleanly: %w", cfg.NodeID, err)
	}
	logger.Info("stopped")
	return nil
}

// shutdown stops the node gracefully; another signal ends the process at once.
func shutdown(n *node, signals <-chan os.Signal, logger hclog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- n.Shutdown(ctx) }()
	began, late := time.Now(), time.After(shutdownTimeout+time.Second)
	for {
		select {
		case err := <-done:
			return err
		case s := <-signals:
			if time.Since(began) < signalRepeat {
				continue
			}
			logger.Warn("second signal, ending at once", "signal", s.String())
			os.Exit(130)
		case <-late:
			return fmt.Errorf("%w after %s", errBusy, shutdownTimeout)
		}
	}
}

// announce says who starts, where, and what an acknowledgement will mean: a block of lines
// for people on out, or one event where logs are JSON.
func announce(c *Config, logger hclog.Logger, out io.Writer) {
	if c.UnsafeRaftSyncInterval > 0 {
		logger.Warn("acknowledged messages can be lost when a majority loses power", "unsafe-raft-sync-interval", c.UnsafeRaftSyncInterval)
	}
	if c.LogFormat == logJSON {
		args := []any{"version", version, "node-id", c.NodeID, "cluster-name", c.ClusterName, "broker-name", c.BrokerName, "data-dir", c.DataDir,
			"durability", c.Durability(), "raft-log-store", c.RaftLogStore, "bootstrap-expect", c.BootstrapExpect, "join", c.Join}
		for _, p := range c.ports() {
			args = append(args, p.name+"-address", *p.listen, p.name+"-advertise", *p.advertise)
		}
		logger.Info("starting", args...)
		return
	}
	fmt.Fprintf(out, "%s\n", readBuildInfo())
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  node\t%s of cluster %s, broker group %s\n", c.NodeID, c.ClusterName, c.BrokerName)
	for _, p := range c.ports() {
		fmt.Fprintf(w, "  %s\t%s\n", p.name, listenAndAdvertise(*p.listen, *p.advertise))
	}
	fmt.Fprintf(w, "  data\t%s (segments of %s, Raft log %s)\n", c.DataDir, formatSize(c.MappedFileSizeCommitLog), c.RaftLogStore)
	fmt.Fprintf(w, "  durability\t%s\n", c.Durability())
	if c.BootstrapExpect > 0 || len(c.Join) > 0 {
		fmt.Fprintf(w, "  cluster\t%s\n", c.origin())
	}
	w.Flush()
}

func listenAndAdvertise(listen, advertise string) string {
	if listen == advertise {
		return listen
	}
	return listen + ", told to others as " + advertise
}

// origin says in words where the cluster comes from, if this node has no data.
func (c *Config) origin() string {
	join := "joins " + strings.Join(c.Join, ", ")
	switch {
	case c.BootstrapExpect == 0:
		return join
	case c.BootstrapExpect == 1:
		return "formed by this node alone if it has no data"
	case len(c.Join) == 0:
		return fmt.Sprintf("formed when %d nodes have met, if none has data", c.BootstrapExpect)
	default:
		return fmt.Sprintf("%s; formed when %d nodes have met, if none has data", join, c.BootstrapExpect)
	}
}
