// Command chaos runs jepsen's workloads and nemeses against real raftmq processes on this
// machine, and the quick start of the README. Nothing of it is part of the server.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"raftmq/jepsen/cluster"
)

func main() {
	// On an interrupt the runs end by themselves and take their processes with them.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: "+err.Error())
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
	root.AddCommand(newRun(), newList(), newMatrix(), newTotals(), newCheck(), newPage(), newQuickstart())
	return root
}

// binary returns the server to test: the given one, or one built into a folder of its own, which done removes.
func binary(ctx context.Context, path string) (bin string, done func(), err error) {
	if path != "" {
		bin, err = filepath.Abs(path)
		return bin, func() {}, err
	}
	dir, err := os.MkdirTemp("", "raftmq-bin-")
	if err != nil {
		return "", nil, err
	}
	done = func() { _ = os.RemoveAll(dir) }
	if bin, err = cluster.Build(ctx, dir); err != nil {
		done()
		return "", nil, err
	}
	return bin, done, nil
}
