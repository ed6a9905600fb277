// Command chaos runs jepsen's workloads and nemeses against real raftmq processes on this
// machine, and the quick start of the README. Nothing of it is part of the server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/nemesis"
	"raftmq/seam"
)

func main() {
	// On an interrupt the runs end by themselves and take their processes with them.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: "+err.Error())
		if errors.Is(err, errVoid) {
			os.Exit(3)
		}
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "chaos",
		Short:         "Hurt a RaftMQ cluster on purpose and check that it keeps its promises",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRun(), newList(), newMatrix(), newTotals(), newCheck(), newPage(), newProve(), newQuickstart())
	return root
}

// binary returns the server to test: the given one, or one built into a folder of its own, which done removes.
func binary(ctx context.Context, path string) (bin string, done func(), err error) {
	if path != "" {
		bin, err = filepath.Abs(path)
		return bin, func() {}, err
	}
	return build(ctx)
}

// seamBinary returns a server with the seam: the given one, or one that is built, as binary does.
func seamBinary(ctx context.Context, path string) (bin string, done func(), err error) {
	if path != "" {
		bin, err = filepath.Abs(path)
		return bin, func() {}, err
	}
	return build(ctx, "-tags="+seam.Tag)
}

// withSeam gives a run a server with the seam, if one of the faults needs it.
func withSeam(ctx context.Context, cfg *jepsen.Config, faults []nemesis.Fault) (done func(), err error) {
	if !slices.ContainsFunc(faults, func(f nemesis.Fault) bool { return f.Needs&nemesis.NeedsSeam != 0 }) {
		return func() {}, nil
	}
	cfg.SeamBinary, done, err = seamBinary(ctx, "")
	return done, err
}

func build(ctx context.Context, flags ...string) (bin string, done func(), err error) {
	dir, err := os.MkdirTemp("", "raftmq-bin-")
	if err != nil {
		return "", nil, err
	}
	done = func() { _ = os.RemoveAll(dir) }
	if bin, err = cluster.Build(ctx, dir, flags...); err != nil {
		done()
		return "", nil, err
	}
	return bin, done, nil
}
