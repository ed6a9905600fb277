package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"raftmq/jepsen"
	"raftmq/jepsen/workload"
)

func newQuickstart() *cobra.Command {
	var cfg jepsen.QuickConfig
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "Three nodes, 20,000 messages, a killed leader, and what became of the messages",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tmp, err := os.MkdirTemp("", "raftmq-quickstart-")
			if err != nil {
				return err
			}
			defer func() { _ = os.Remove(tmp) }() // unless something was left in it to look at
			switch {
			case cfg.Dir != "":
			case cfg.Keep:
				cfg.Dir = "cluster-data" // scripts/cluster's default
			default:
				cfg.Dir = filepath.Join(tmp, "cluster")
			}
			if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
				return err
			}
			cfg.Out = cmd.OutOrStdout()
			if cfg.Binary == "" {
				fmt.Fprintln(cfg.Out, "building raftmq")
			}
			bin, done, err := binary(cmd.Context(), cfg.Binary)
			if err != nil {
				return err
			}
			defer done()
			cfg.Binary = bin
			clientLog := filepath.Join(tmp, "stock-client.log")
			if err := workload.StockLog(clientLog); err != nil {
				return err
			}
			err = jepsen.Quickstart(cmd.Context(), cfg)
			if err == nil || cmd.Context().Err() != nil {
				_ = os.Remove(clientLog)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&cfg.Keep, "keep", false, "leave the cluster running, for scripts/cluster")
	f.IntVar(&cfg.Messages, "messages", 20000, "`number` of messages")
	f.IntVar(&cfg.Port, "port", 0, "first `port` (default 9876, or the next hundred if that is taken)")
	f.StringVar(&cfg.Dir, "dir", "", "`folder` for data and logs (default a temporary one, with --keep cluster-data)")
	f.StringVar(&cfg.Binary, "binary", "", "raftmq `executable` (default: RAFTMQ_BIN, or built from this source)")
	return cmd
}
