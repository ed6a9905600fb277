// Command raftmq is RaftMQ in one binary: the server, and the tools that operators and
// people trying it out need. Flags, environment and configuration file are read here and
// nowhere else; node.go builds a server's parts from the resulting Config.
//
// The tools speak the ordinary wire protocol through transport/client. Applications don't
// use them: they use Apache's RocketMQ clients.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() {
	root := newRoot()
	if err := root.ExecuteContext(context.Background()); err != nil {
		if !errors.Is(err, errReported) {
			for line := range strings.Lines(err.Error()) {
				fmt.Fprintln(os.Stderr, "raftmq: "+strings.TrimSuffix(line, "\n"))
			}
		}
		os.Exit(exitStatus(err))
	}
}

// errReported ends a command with status 1 after it has said itself what went wrong.
var errReported = errors.New("reported")

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "raftmq",
		Short: "A RocketMQ-compatible message broker that replicates itself with Raft",
		Long: `RaftMQ is a message broker in one binary. It keeps RocketMQ's message store, speaks
RocketMQ's protocol, so that existing RocketMQ clients connect unchanged, and replicates
the store with Raft inside the broker. Each node is also a name server: give clients any or
all of the nodes' client addresses.

Every flag can also be set in the environment: --name-servers is RAFTMQ_NAME_SERVERS.`,
		Example: `  # a cluster of one, to try things out
  raftmq server --bootstrap-expect 1 --data-dir /tmp/raftmq

  # in another terminal
  raftmq topic create hello --queues 4
  echo "first message" | raftmq produce --topic hello
  raftmq consume --topic hello --group readers --from first --max 1
  raftmq cluster status

  # how fast is it?
  raftmq bench --create --topic speed --size 1KiB --duration 10s`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return plainFlagError(err) })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newServerCommand(), newClusterCommand(), newNodeCommand(), newTopicCommand(), newProduceCommand(), newConsumeCommand(), newBenchCommand(), newStoreCommand(), newVersionCommand())
	return root
}
