package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"raftmq/jepsen"
	"raftmq/jepsen/history"
)

// historyPath is the history in a run's folder.
func historyPath(dir string) string { return filepath.Join(dir, "history.jsonl") }

func readHistory(path string) ([]history.Op, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return history.Read(f)
}

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check HISTORY",
		Short: "Check the history of an earlier run again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ops, err := readHistory(args[0])
			if err != nil {
				return err
			}
			var report jepsen.Report
			if err := jepsen.Judge(ops, &report); err != nil {
				return err
			}
			if err := report.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
			if !report.Valid {
				return fmt.Errorf("the history is not valid")
			}
			return nil
		},
	}
}

func newPage() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "report HISTORY",
		Short: "Write a page with a run's timeline: operations, faults, leaders, latency",
		Long:  "report writes one HTML file that needs nothing else and no network.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				out = filepath.Join(filepath.Dir(args[0]), "report.html")
			}
			if err := writePage(args[0], out); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), out)
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`file` to write (default report.html beside the history)")
	return cmd
}

func writePage(historyFile, out string) error {
	ops, err := readHistory(historyFile)
	if err != nil {
		return err
	}
	var report jepsen.Report
	if err := jepsen.Judge(ops, &report); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	err = report.WritePage(f, ops)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
