package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftmq/jepsen"
	"raftmq/jepsen/nemesis"
	"raftmq/jepsen/workload"
)

// allNemeses is what "all" stands for in a matrix: each fault alone, and some together.
func allNemeses() (list []string) {
	for _, f := range nemesis.Faults() {
		list = append(list, f.Name)
	}
	return append(list, "pause+kill", "partial+slow", "halves+disk-full", "loss+transfer")
}

// runCell makes one run; a test replaces it.
type runCell func(ctx context.Context, cell jepsen.Cell, dir string) (*jepsen.Report, error)

func newMatrix() *cobra.Command {
	var (
		f             runFlags
		loads, faults string
		results, dir  string
		limit         time.Duration
		again         bool
	)
	cmd := &cobra.Command{
		Use:   "matrix [flags] [-- SERVER FLAGS]",
		Short: "Run every workload under every nemesis, one after the other",
		Long: `matrix runs its cells one after the other and writes one line for each, and a table in the end.
Results go to a file, one JSON object a line. Cells that are in it already are not run again, so a
matrix that was interrupted goes on where it was. History and logs of failed cells are kept.`,
		Example: `  chaos matrix --time 60s --results night.jsonl
  chaos matrix --workloads queue,delay --nemeses kill,wipe,halves+disk-full`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			cells, err := plan(loads, faults, &f.cfg)
			if err != nil {
				return err
			}
			if dir == "" {
				dir = strings.TrimSuffix(results, ".jsonl") + "-failed"
			}
			if err := workload.StockLog(filepath.Join(os.TempDir(), fmt.Sprintf("raftmq-chaos-%d.stock-client.log", os.Getpid()))); err != nil {
				return err
			}
			bin, done, err := binary(cmd.Context(), f.binary)
			if err != nil {
				return err
			}
			defer done()
			run := func(ctx context.Context, cell jepsen.Cell, dir string) (*jepsen.Report, error) {
				cfg := f.cfg
				if err := want(&cfg, cell.Workload, cell.Nemesis); err != nil {
					return nil, err
				}
				cfg.Binary, cfg.Dir, cfg.Seed = bin, dir, cell.Seed
				return jepsen.Run(ctx, cfg)
			}
			return runMatrix(cmd.Context(), cells, matrixConfig{results: results, dir: dir, limit: limit, again: again, out: cmd.OutOrStdout(), run: run})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&loads, "workloads", "all", "`names` of workloads, separated by commas")
	fs.StringVar(&faults, "nemeses", "all", "`names` of nemeses, separated by commas; A+B is one of both at the same time")
	f.register(fs)
	fs.StringVar(&results, "results", "chaos-results.jsonl", "`file` of results; cells that are in it are not run again")
	fs.StringVar(&dir, "dir", "", "`folder` for what is kept of failed cells (default beside the results)")
	fs.DurationVar(&limit, "limit", 0, "begin no cell after this `duration`; 0 for none")
	fs.BoolVar(&again, "again", false, "run cells again that failed before")
	return cmd
}

// plan lists the cells. A cell's seed follows from the matrix's, so that one can be repeated alone.
func plan(loads, faults string, cfg *jepsen.Config) (cells []jepsen.Cell, err error) {
	var names []string
	if loads == "all" {
		for _, k := range workload.Kinds() {
			names = append(names, k.Name)
		}
	} else {
		names = strings.Split(loads, ",")
	}
	nemeses := allNemeses()
	if faults != "all" {
		nemeses = strings.Split(faults, ",")
	}
	for _, n := range nemeses {
		for _, l := range names {
			var probe jepsen.Config
			if err := want(&probe, l, n); err != nil {
				return nil, err
			}
			h := fnv.New64a()
			fmt.Fprint(h, cfg.Seed, l, n, cfg.Nodes)
			cells = append(cells, jepsen.Cell{Workload: l, Nemesis: n, Nodes: cfg.Nodes, Seconds: cfg.Time.Seconds(), Seed: h.Sum64() % 1_000_000})
		}
	}
	return cells, nil
}

type matrixConfig struct {
	results, dir string
	limit        time.Duration
	again        bool
	out          io.Writer
	run          runCell
}

func runMatrix(ctx context.Context, cells []jepsen.Cell, cfg matrixConfig) error {
	began := time.Now()
	known, err := readResults(cfg.results)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(cfg.results, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	var out []jepsen.CellResult
	left := 0
	for i, cell := range cells {
		old, ok := known[cell.Name()]
		switch {
		case ok && (old.Verdict != jepsen.Failed || !cfg.again):
			out = append(out, old)
			continue
		case ctx.Err() != nil, cfg.limit > 0 && time.Since(began) > cfg.limit:
			left++
			continue
		}
		fmt.Fprintf(cfg.out, "%3d/%d %-12s %-16s ", i+1, len(cells), cell.Workload, cell.Nemesis)
		result := oneCell(ctx, cell, &cfg)
		if ctx.Err() != nil {
			fmt.Fprintln(cfg.out, "interrupted")
			left++
			continue
		}
		fmt.Fprintln(cfg.out, result.Line())
		out = append(out, result)
		line, err := json.Marshal(result)
		if err != nil {
			return err
		}
		if _, err := file.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	if err := jepsen.PrintMatrix(cfg.out, out); err != nil {
		return err
	}
	if left > 0 {
		fmt.Fprintf(cfg.out, "%d cells are left; the same command goes on with them\n", left)
	}
	if slices.ContainsFunc(out, func(r jepsen.CellResult) bool { return r.Verdict == jepsen.Failed }) {
		return fmt.Errorf("cells have failed; their histories are in %s", cfg.dir)
	}
	return ctx.Err()
}

// oneCell runs a cell in a folder of its own, which stays if it fails.
func oneCell(ctx context.Context, cell jepsen.Cell, cfg *matrixConfig) jepsen.CellResult {
	dir := filepath.Join(cfg.dir, cell.Name())
	_ = os.RemoveAll(dir) // of an earlier try
	report, err := cfg.run(ctx, cell, dir)
	result := jepsen.NewCellResult(cell, report, err)
	switch {
	case result.Verdict != jepsen.Failed:
		_ = os.RemoveAll(dir)
	default:
		result.Kept = dir
		// Data can be gigabytes; history and logs are what tells.
		data, _ := filepath.Glob(filepath.Join(dir, "n*", "data"))
		for _, d := range data {
			_ = os.RemoveAll(d)
		}
		if _, err := os.Stat(historyPath(dir)); err == nil {
			_ = writePage(historyPath(dir), filepath.Join(dir, "report.html"))
		}
	}
	_ = os.Remove(cfg.dir) // if nothing is in it
	return result
}

// readResults returns the newest result of each cell.
func readResults(path string) (map[string]jepsen.CellResult, error) {
	known := map[string]jepsen.CellResult{}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for dec := json.NewDecoder(f); ; {
		var r jepsen.CellResult
		switch err := dec.Decode(&r); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the last line may be cut off
			return known, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		known[r.Cell.Name()] = r
	}
}
