package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/history"
)

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check HISTORY",
		Short: "Check the history of an earlier run again (all but the nodes' checksums)",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			ops, err := history.Read(f)
			if err != nil {
				return err
			}
			run := &checker.Run{Ops: ops}
			for _, op := range ops {
				if op.Kind == history.Drained && !slices.Contains(run.Nodes, op.Node) {
					run.Nodes = append(run.Nodes, op.Node)
				}
				if op.Kind == history.Receive && !slices.Contains(run.Groups, op.Group) {
					run.Groups = append(run.Groups, op.Group)
				}
			}
			// The history does not hold the statuses that this check needs.
			results := slices.DeleteFunc(checker.All(run), func(r checker.Result) bool { return r.Name == "logs differ" })
			for _, r := range results {
				fmt.Fprintf(cmd.OutOrStdout(), "%v\t%s\t%s\n", r.Valid, r.Name, r.Summary)
				for _, p := range r.Problems {
					fmt.Fprintf(cmd.OutOrStdout(), "  %s\n", p)
				}
			}
			if !checker.Valid(results) {
				return fmt.Errorf("the history is not valid")
			}
			return nil
		},
	}
}
