package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"raftmq/jepsen"
	"raftmq/jepsen/nemesis"
	"raftmq/jepsen/workload"
)

func newRun() *cobra.Command {
	var (
		cfg       jepsen.Config
		load      string
		faults    string
		client    string
		binaryArg string
	)
	cmd := &cobra.Command{
		Use:   "run [flags] [-- SERVER FLAGS]",
		Short: "Run a workload under faults and check the history",
		Long: `run starts a cluster of real processes, puts load on it, hurts it, heals it, reads every queue from
every node and checks that nothing acknowledged is missing, nothing was made up, queues are in
order, an offset holds one value, and all logs are equal. History, logs and data are kept when a check fails.`,
		Example: "  chaos run --nemesis kill,pause,isolate --time 60s --seed 7",
		RunE: func(cmd *cobra.Command, args []string) error {
			began := time.Now()
			var err error
			if load != "queue" {
				return fmt.Errorf("--workload %s: allowed is queue", load)
			}
			if cfg.Faults, err = nemesis.Parse(faults); err != nil {
				return fmt.Errorf("--nemesis: %w", err)
			}
			cfg.Workload.Client = workload.Client(client)
			if !slices.Contains([]workload.Client{workload.Stock, workload.Raw, workload.Mixed}, cfg.Workload.Client) {
				return fmt.Errorf("--client %s: allowed are stock, raw and mixed", client)
			}
			if !cmd.Flags().Changed("seed") {
				cfg.Seed = rand.Uint64N(1_000_000)
			}
			if cfg.Dir == "" {
				if cfg.Dir, err = os.MkdirTemp("", "raftmq-chaos-"); err != nil {
					return err
				}
			}
			if cfg.Flags = args; len(cfg.Flags) == 0 {
				cfg.Flags = jepsen.DefaultFlags()
			}
			cfg.Logf = func(format string, args ...any) {
				fmt.Fprintf(cmd.OutOrStdout(), "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
			}
			bin, done, err := binary(cmd.Context(), binaryArg)
			if err != nil {
				return err
			}
			defer done()
			cfg.Binary = bin
			if err := workload.StockLog(stockLogPath(cfg.Dir)); err != nil {
				return err
			}
			report, err := jepsen.Run(cmd.Context(), cfg)
			if report != nil {
				err = errors.Join(err, report.Print(cmd.OutOrStdout()))
			}
			if err == nil {
				_ = os.Remove(stockLogPath(cfg.Dir))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&load, "workload", "queue", "`name` of the workload: queue")
	f.StringVar(&faults, "nemesis", "kill,pause,isolate", "`faults`: kill, stop, pause, isolate, separated by commas")
	f.DurationVar(&cfg.Time, "time", time.Minute, "`duration` of load and faults")
	f.IntVar(&cfg.Nodes, "nodes", 3, "`number` of nodes")
	f.Uint64Var(&cfg.Seed, "seed", 0, "`number` that repeats a run's plan (default random)")
	f.Float64Var(&cfg.Workload.Rate, "rate", 2000, "messages per `second`; negative for no limit")
	f.StringVar(&client, "client", string(workload.Mixed), "`library`: stock (Apache's Go client), raw (plain protocol, looks for the leader at once), or mixed")
	f.IntVar(&cfg.Workload.Producers, "producers", 8, "`number` of producers")
	f.IntVar(&cfg.Workload.Consumers, "consumers", 2, "`number` of consumers in each of two groups")
	f.StringVar(&cfg.Dir, "dir", "", "`folder` for data, logs and history (default a temporary one)")
	f.BoolVar(&cfg.Keep, "keep", false, "keep that folder even if all is well")
	f.StringVar(&binaryArg, "binary", "", "raftmq `executable` (default: RAFTMQ_BIN, or built from this source)")
	return cmd
}

// stockLogPath is beside the run's folder, which must be empty when the run begins.
func stockLogPath(dir string) string { return dir + ".stock-client.log" }
