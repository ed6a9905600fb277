package main

import (
	"github.com/spf13/cobra"

	"raftmq/jepsen"
)

func newTotals() *cobra.Command {
	return &cobra.Command{
		Use:   "totals RESULTS…",
		Short: "Add up what matrices have found",
		Long: `totals prints the table of one or more files of results of chaos matrix, also of ones that are under
way. Of several results of a cell the last one counts; runs that failed are listed in any case.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []jepsen.CellResult
			for _, path := range args {
				results, _, err := readResults(path)
				if err != nil {
					return err
				}
				all = append(all, results...)
			}
			return jepsen.PrintMatrix(cmd.OutOrStdout(), all)
		},
	}
}
