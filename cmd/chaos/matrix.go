package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
		pairs         []string
		draw          int
		results, dir  string
		limit         time.Duration
		again         bool
		rates         map[string]string
		rounds        int
	)
	cmd := &cobra.Command{
		Use:   "matrix [flags] [-- SERVER FLAGS]",
		Short: "Run every workload under every nemesis, one after the other",
		Long: `matrix runs its cells one after the other, in an order drawn from the seed, and writes one line for
each, and a table in the end. Results go to a file, one JSON object a line. Cells that are in it already
are not run again, so a matrix that was interrupted goes on where it was. History and logs of failed
cells are kept. A cell in which a fault took no effect is void: it proves nothing and is run up to three times.
Status 0: all cells passed; 1: some failed; 3: none failed, some are void.`,
		Example: `  chaos matrix --time 60s --results night.jsonl
  chaos matrix --workloads queue,delay --nemeses kill,wipe,halves+disk-full --rates queue=1000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			rate, err := parseRates(rates)
			if err != nil {
				return err
			}
			cells, err := plan(loads, faults, &f.cfg, rounds)
			if err == nil && len(pairs) > 0 {
				cells, err = selection(pairs, &f.cfg)
			}
			if err != nil {
				return err
			}
			if draw > 0 {
				cells = cells[:min(draw, len(cells))] // they are in an order of the seed's
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d cells, seed %d\n", len(cells), f.cfg.Seed)
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
			built, err := buildOf(bin)
			if err != nil {
				return err
			}
			var all []nemesis.Fault
			for _, c := range cells {
				var probe jepsen.Config
				if err := want(&probe, c.Workload, c.Nemesis); err != nil {
					return err
				}
				all = append(all, probe.Faults...)
			}
			seamDone, err := withSeam(cmd.Context(), &f.cfg, all)
			if err != nil {
				return err
			}
			defer seamDone()
			run := func(ctx context.Context, cell jepsen.Cell, dir string) (*jepsen.Report, error) {
				cfg := f.cfg
				if err := want(&cfg, cell.Workload, cell.Nemesis); err != nil {
					return nil, err
				}
				cfg.Binary, cfg.Dir, cfg.Seed = bin, dir, cell.Seed
				if r, ok := rate[cell.Workload]; ok {
					cfg.Workload.Rate = r
				}
				return jepsen.Run(ctx, cfg)
			}
			return runMatrix(cmd.Context(), cells, matrixConfig{results: results, dir: dir, build: built, limit: limit, again: again, out: cmd.OutOrStdout(), run: run})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&loads, "workloads", "all", "`names` of workloads, separated by commas")
	fs.StringVar(&faults, "nemeses", "all", "`names` of nemeses, separated by commas; A+B is one of both at the same time")
	fs.StringSliceVar(&pairs, "cells", nil, "these alone, as `WORKLOAD:NEMESIS,…`")
	fs.IntVar(&draw, "draw", 0, "run this `number` of cells only, drawn by the seed (0: all)")
	f.register(fs)
	fs.StringToStringVar(&rates, "rates", nil, "messages per second of single workloads, as `NAME=RATE,…`; the others have --rate's")
	fs.IntVar(&rounds, "rounds", 1, "how `often` each cell is run, each time with another seed")
	fs.StringVar(&results, "results", "chaos-results.jsonl", "`file` of results; cells that are in it are not run again")
	fs.StringVar(&dir, "dir", "", "`folder` for what is kept of failed cells (default beside the results)")
	fs.DurationVar(&limit, "limit", 0, "begin no cell after this `duration`; 0 for none")
	fs.BoolVar(&again, "again", false, "run cells again that failed before, or were void")
	return cmd
}

// parseRates reads --rates.
func parseRates(rates map[string]string) (map[string]float64, error) {
	out := map[string]float64{}
	for name, text := range rates {
		if _, err := workload.KindOf(name); err != nil {
			return nil, fmt.Errorf("--rates: %w", err)
		}
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate == 0 {
			return nil, fmt.Errorf("--rates %s=%s: a number of messages per second, negative for no limit", name, text)
		}
		out[name] = rate
	}
	return out, nil
}

// buildOf names the source that a binary was built from: its revision, and + if there were changes, or what the linker knows.
func buildOf(bin string) (string, error) {
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		return "", fmt.Errorf("%s: %w", bin, err)
	}
	revision, changed := info.Main.Version, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	return revision + changed, nil
}

// plan lists the cells, round after round, each in an order of its own, so that a matrix that is cut short has seen a bit of all. A cell's
// seed follows from the matrix's, so that one can be repeated alone.
func plan(loads, faults string, cfg *jepsen.Config, rounds int) (cells []jepsen.Cell, err error) {
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
	if rounds < 1 {
		return nil, fmt.Errorf("--rounds %d: at least one", rounds)
	}
	for round := range rounds {
		begin := len(cells)
		for _, n := range nemeses {
			for _, l := range names {
				cell, err := cellOf(l, n, cfg, round)
				if err != nil {
					return nil, err
				}
				cells = append(cells, cell)
			}
		}
		// By what is drawn for each cell and not by place: a cell keeps its turn when others come to be.
		slices.SortStableFunc(cells[begin:], func(a, b jepsen.Cell) int { return cmp.Compare(a.Seed, b.Seed) })
	}
	return cells, nil
}

// selection lists the cells of pairs, in their order.
func selection(pairs []string, cfg *jepsen.Config) (cells []jepsen.Cell, err error) {
	for _, pair := range pairs {
		l, n, ok := strings.Cut(pair, ":")
		if !ok {
			return nil, fmt.Errorf("--cells %s: WORKLOAD:NEMESIS", pair)
		}
		cell, err := cellOf(l, n, cfg, 0)
		if err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

func cellOf(load, faults string, cfg *jepsen.Config, round int) (jepsen.Cell, error) {
	var probe jepsen.Config
	if err := want(&probe, load, faults); err != nil {
		return jepsen.Cell{}, err
	}
	h := fnv.New64a()
	fmt.Fprint(h, cfg.Seed, load, faults, cfg.Nodes)
	if round > 0 {
		fmt.Fprint(h, " ", round)
	}
	return jepsen.Cell{Workload: load, Nemesis: faults, Nodes: cfg.Nodes, Seconds: cfg.Time.Seconds(), Seed: h.Sum64() % 1_000_000}, nil
}

// errVoid: nothing failed, and some cells prove nothing. The program ends with status 3.
var errVoid = errors.New("faults of some cells took no effect: these say nothing")

// voidTries is how often a cell is run whose faults take no effect.
const voidTries = 3

type matrixConfig struct {
	results, dir string
	build        string // of the server
	limit        time.Duration
	again        bool
	out          io.Writer
	run          runCell
}

func runMatrix(ctx context.Context, cells []jepsen.Cell, cfg matrixConfig) error {
	began := time.Now()
	earlier, whole, err := readResults(cfg.results)
	if err != nil {
		return err
	}
	known := newest(earlier)
	file, err := os.OpenFile(cfg.results, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(whole); err != nil {
		return err
	}
	planned := map[string]bool{}
	for _, cell := range cells {
		planned[cell.Name()] = true
	}
	out := slices.DeleteFunc(slices.Clone(earlier), func(r jepsen.CellResult) bool { return !planned[r.Name()] })
	left := 0
	for i, cell := range cells {
		old, ok := known[cell.Name()]
		switch {
		case ok && (old.Verdict.Settled() || !cfg.again):
			continue
		case ctx.Err() != nil, cfg.limit > 0 && time.Since(began) > cfg.limit:
			left++
			continue
		}
		for try := 1; ; try++ {
			fmt.Fprintf(cfg.out, "%3d/%d %-12s %-16s ", i+1, len(cells), cell.Workload, cell.Nemesis)
			result := oneCell(ctx, cell, &cfg, earlier)
			result.Build = cfg.build
			if ctx.Err() != nil {
				fmt.Fprintln(cfg.out, "interrupted")
				left++
				break
			}
			fmt.Fprintln(cfg.out, result.Line())
			out, earlier = append(out, result), append(earlier, result)
			line, err := json.Marshal(result)
			if err != nil {
				return err
			}
			if _, err := file.Write(append(line, '\n')); err != nil {
				return err
			}
			if result.Verdict != jepsen.Void || try == voidTries {
				break
			}
		}
	}
	if err := jepsen.PrintMatrix(cfg.out, out); err != nil {
		return err
	}
	if left > 0 {
		fmt.Fprintf(cfg.out, "%d cells are left; the same command goes on with them\n", left)
	}
	void := false
	for _, r := range newest(out) {
		if r.Verdict == jepsen.Failed {
			return fmt.Errorf("cells have failed; their histories are in %s", cfg.dir)
		}
		void = void || r.Verdict == jepsen.Void
	}
	if void {
		return errVoid
	}
	return ctx.Err()
}

// newest are the last results of each cell.
func newest(results []jepsen.CellResult) map[string]jepsen.CellResult {
	known := map[string]jepsen.CellResult{}
	for _, r := range results {
		known[r.Name()] = r
	}
	return known
}

// oneCell runs a cell in a folder of its own, which stays if it fails, beside that of an earlier try which has failed.
func oneCell(ctx context.Context, cell jepsen.Cell, cfg *matrixConfig, earlier []jepsen.CellResult) jepsen.CellResult {
	dir := filepath.Join(cfg.dir, cell.Name())
	for try := 2; slices.ContainsFunc(earlier, func(r jepsen.CellResult) bool { return r.Kept == dir }); try++ {
		dir = filepath.Join(cfg.dir, fmt.Sprintf("%s-%d", cell.Name(), try))
	}
	_ = os.RemoveAll(dir) // of a try that was interrupted
	report, err := cfg.run(ctx, cell, dir)
	result := jepsen.NewCellResult(cell, report, err)
	switch {
	case result.Verdict.Settled(), ctx.Err() != nil:
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

// readResults returns all results of a file, in the order in which they were made, and how far the file is whole: the last line may be
// cut off.
func readResults(path string) (results []jepsen.CellResult, whole int64, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	for n := 1; ; n++ {
		line, rest, ok := bytes.Cut(text, []byte{'\n'})
		if !ok {
			return results, whole, nil
		}
		var r jepsen.CellResult
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, 0, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		results = append(results, r)
		whole += int64(len(line)) + 1
		text = rest
	}
}
