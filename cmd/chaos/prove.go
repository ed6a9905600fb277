package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"raftmq/jepsen"
	"raftmq/jepsen/workload"
	"raftmq/seam"
)

func newProve() *cobra.Command {
	var (
		bugs, dir, binary string
		p                 jepsen.Prover
		verbose           bool
		parallel          int
	)
	cmd := &cobra.Command{
		Use:   "prove",
		Short: "Plant bugs in the servers, one at a time, and show what finds them",
		Long: `prove builds servers with the tag ` + seam.Tag + `, plants one bug after the other, and runs the workload and nemesis that
are to find it. A bug that is not found is an error: such a bug of ours would not be noticed either. The same run without
the bug must pass.

Bugs: ` + names(),
		Example: `  chaos prove
  chaos prove --bug skip-raft-sync,apply-twice`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			proofs, err := wanted(bugs)
			if err != nil {
				return err
			}
			bin, done, err := seamBinary(cmd.Context(), binary)
			if err != nil {
				return err
			}
			defer done()
			if dir == "" {
				if dir, err = os.MkdirTemp("", "raftmq-prove-"); err != nil {
					return err
				}
			}
			defer func() { _ = os.Remove(dir) }() // unless something was left in it to look at
			if err := workload.StockLog(filepath.Join(os.TempDir(), fmt.Sprintf("raftmq-chaos-%d.stock-client.log", os.Getpid()))); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			p.Binary, p.Dir = bin, dir
			if verbose {
				p.Logf = timed(out)
			}
			fmt.Fprintln(out, head)
			wrong, err := proveAll(cmd.Context(), &p, proofs, parallel, func(got *jepsen.Proven) { fmt.Fprintln(out, row(got)) })
			if wrong > 0 {
				err = errors.Join(err, fmt.Errorf("%d of %d proofs failed; their folders are in %s", wrong, len(proofs), dir))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&bugs, "bug", "", "`names` of bugs, separated by commas (default all)")
	f.IntVar(&p.Tries, "tries", 2, "`number` of runs, each twice as long as the one before, until a bug counts as not found")
	f.BoolVar(&p.Control, "control", true, "run each cell without its bug too")
	f.Uint64Var(&p.Seed, "seed", 1, "`number` that repeats the runs' plans")
	f.IntVar(&parallel, "parallel", 2, "`number` of proofs at a time: they mostly wait")
	f.StringVar(&binary, "binary", "", "raftmq `executable` with the tag "+seam.Tag+" (default: built from this source)")
	f.StringVar(&dir, "dir", "", "`folder` for what is left of a proof that failed (default a temporary one)")
	f.BoolVar(&verbose, "verbose", false, "tell what happens")
	return cmd
}

// proveAll runs proofs, some at a time, tells of each when it is done, and counts those that failed.
func proveAll(ctx context.Context, p *jepsen.Prover, proofs []jepsen.Proof, parallel int, done func(*jepsen.Proven)) (wrong int, err error) {
	var mu sync.Mutex // guards done and what is returned
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(parallel, 1))
	for _, proof := range proofs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			got, perr := p.Prove(ctx, proof)
			mu.Lock()
			defer mu.Unlock()
			if perr != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", proof.Bug, perr))
				return
			}
			done(&got)
			if !got.Found || len(got.Clean) > 0 {
				wrong++
			}
		})
	}
	wg.Wait()
	return wrong, errors.Join(err, ctx.Err())
}

func names() string {
	var list []string
	for _, b := range seam.Bugs() {
		list = append(list, string(b))
	}
	return strings.Join(list, ", ")
}

// wanted are the proofs of a list of bugs.
func wanted(list string) (proofs []jepsen.Proof, err error) {
	all := jepsen.Proofs()
	if list == "" {
		return all, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(p jepsen.Proof) bool { return string(p.Bug) == name })
		if i < 0 {
			return nil, errors.New("--bug " + name + ": known are " + names())
		}
		proofs = append(proofs, all[i])
	}
	return proofs, nil
}

// head and row are the lines of the table.
const head = "| bug | workload × nemesis | found | after | by | without it |\n|---|---|---|---|---|---|"

func row(p *jepsen.Proven) string {
	found, by, clean := "yes", "", "not run"
	if !p.Found {
		found = "**NO**"
	}
	if seen := p.Seen(); len(seen) > 0 {
		by = seen[0]
	}
	switch {
	case len(p.Clean) > 0:
		clean = "**" + p.Clean[0] + "**"
	case p.Control:
		clean = "passes"
	}
	return fmt.Sprintf("| %s | %s × %s | %s | %.0f s | %s | %s |", p.Bug, p.Workload, cmp.Or(p.Nemesis, none), found, p.After.Seconds(), short(by), short(clean))
}

// short is a text in one line of a table.
func short(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	s = strings.ReplaceAll(s, "|", "\\|")
	if len(s) > 160 {
		s = s[:160] + "…"
	}
	return s
}
