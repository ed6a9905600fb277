package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"raftmq/jepsen"
	"raftmq/jepsen/nemesis"
	"raftmq/jepsen/workload"
)

// runFlags are what run and matrix have in common.
type runFlags struct {
	cfg    jepsen.Config
	client string
	binary string
}

func (f *runFlags) register(fs *pflag.FlagSet) {
	fs.DurationVar(&f.cfg.Time, "time", time.Minute, "`duration` of load and faults; starting, healing and reading come on top")
	fs.IntVar(&f.cfg.Nodes, "nodes", 3, "`number` of nodes: 3 or 5")
	fs.Uint64Var(&f.cfg.Seed, "seed", 0, "`number` that repeats a run's plan (default random)")
	fs.Float64Var(&f.cfg.Workload.Rate, "rate", 0, "messages per `second`, negative for no limit (default the workload's own, 2000 for queue)")
	fs.StringVar(&f.client, "client", "", "`library`: stock (Apache's Go client), raw (plain protocol, looks for the leader at once), or mixed (default the workload's own)")
	fs.IntVar(&f.cfg.Workload.Producers, "producers", 8, "`number` of producers")
	fs.IntVar(&f.cfg.Workload.Consumers, "consumers", 2, "`number` of consumers in each of two groups")
	fs.StringVar(&f.binary, "binary", "", "raftmq `executable` (default: RAFTMQ_BIN, or built from this source)")
}

// check validates what is not a workload's or a nemesis's name, and draws a seed where none was given.
func (f *runFlags) check(cmd *cobra.Command, args []string) error {
	if !slices.Contains([]workload.Client{"", workload.Stock, workload.Raw, workload.Mixed}, workload.Client(f.client)) {
		return fmt.Errorf("--client %s: allowed are stock, raw and mixed", f.client)
	}
	f.cfg.Workload.Client = workload.Client(f.client)
	if f.cfg.Nodes < 3 || f.cfg.Nodes > 9 || f.cfg.Nodes%2 == 0 {
		return fmt.Errorf("--nodes %d: an odd number from 3 to 9", f.cfg.Nodes)
	}
	if !cmd.Flags().Changed("seed") {
		f.cfg.Seed = rand.Uint64N(1_000_000)
	}
	if f.cfg.Flags = args; len(args) == 0 {
		f.cfg.Flags = jepsen.DefaultFlags()
	}
	return nil
}

// want names the workload and the faults. Nothing ("" or none) is no fault.
func want(cfg *jepsen.Config, load, faults string) (err error) {
	kind, err := workload.KindOf(load)
	if err != nil {
		return fmt.Errorf("--workload %s: %w", load, err)
	}
	cfg.Workload.Kind, cfg.Nemesis, cfg.Faults = kind.Name, faults, nil
	if faults == "" || faults == none {
		cfg.Nemesis = none
		return nil
	}
	if cfg.Faults, err = nemesis.Parse(faults); err != nil {
		return fmt.Errorf("--nemesis: %w", err)
	}
	return nil
}

const none = "none"

func newRun() *cobra.Command {
	var (
		f      runFlags
		load   string
		faults string
		page   string
	)
	cmd := &cobra.Command{
		Use:   "run [flags] [-- SERVER FLAGS]",
		Short: "Run a workload under faults and check the history",
		Long: `run starts a cluster of real processes, puts load on it, hurts it, heals it, reads every queue from
every node and checks that nothing acknowledged is missing, nothing was made up, queues are in
order, an offset holds one value, and all logs are equal, and what else the workload promises
(chaos list). History, logs and data are kept when a check fails.`,
		Example: `  chaos run --nemesis kill,pause,isolate --time 60s --seed 7
  chaos run --workload transaction --nemesis halves+kill,wipe --nodes 5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(want(&f.cfg, load, faults), f.check(cmd, args)); err != nil {
				return err
			}
			f.cfg.Logf = timed(cmd.OutOrStdout())
			bin, done, err := binary(cmd.Context(), f.binary)
			if err != nil {
				return err
			}
			defer done()
			f.cfg.Binary = bin
			seamDone, err := withSeam(cmd.Context(), &f.cfg, f.cfg.Faults)
			if err != nil {
				return err
			}
			defer seamDone()
			if f.cfg.Dir == "" {
				if f.cfg.Dir, err = os.MkdirTemp("", "raftmq-chaos-"); err != nil {
					return err
				}
			}
			f.cfg.Keep = f.cfg.Keep || page != ""
			if err := workload.StockLog(stockLogPath(f.cfg.Dir)); err != nil {
				return err
			}
			report, err := jepsen.Run(cmd.Context(), f.cfg)
			if report != nil {
				err = errors.Join(err, report.Print(cmd.OutOrStdout()))
			}
			if page != "" && report != nil {
				err = errors.Join(err, writePage(historyPath(f.cfg.Dir), page))
			}
			if err == nil {
				_ = os.Remove(stockLogPath(f.cfg.Dir))
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&load, "workload", "queue", "`name` of the workload; chaos list shows all")
	fs.StringVar(&faults, "nemesis", "kill,pause,isolate", "`faults`, one after the other, separated by commas; A+B are at the same time; none")
	f.register(fs)
	fs.StringVar(&f.cfg.Dir, "dir", "", "`folder` for data, logs and history (default a temporary one)")
	fs.BoolVar(&f.cfg.Keep, "keep", false, "keep that folder even if all is well")
	fs.StringVar(&page, "html", "", "write a page of the run to this `file`, and keep its folder")
	return cmd
}

// timed writes lines with the seconds since now.
func timed(out io.Writer) func(string, ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// stockLogPath is beside the run's folder, which must be empty when the run begins.
func stockLogPath(dir string) string { return dir + ".stock-client.log" }

func newList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show workloads and nemeses",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "workload\tload and promises")
			for _, k := range workload.Kinds() {
				fmt.Fprintf(t, "%s\t%s\n", k.Name, k.About)
			}
			fmt.Fprintln(t, "\nnemesis\tfault\tneeds")
			for _, f := range nemesis.Faults() {
				fmt.Fprintf(t, "%s\t%s\t%s\n", f.Name, f.About, strings.Join(f.Needs.Names(), ", "))
			}
			return t.Flush()
		},
	}
}
