package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"raftmq/transport/remoting"
)

// verified is one node's row of "cluster verify".
type verified struct {
	node   string
	answer remoting.ChecksumAnswer
	err    error
}

func newClusterVerifyCommand() *cobra.Command {
	var wait time.Duration
	var last sizeValue
	var tablesOnly bool
	cmd, _ := adminCommand(&cobra.Command{
		Use:   "verify",
		Short: "Compare what all nodes hold",
		Long: `Puts a mark into the log and asks each node what it held there: the checksum of the replicated tables, of the queues'
next offsets, and of the commit log's bytes up to the mark. Writes may go on meanwhile. Ends with status 1 if nodes
differ, or if one cannot be asked.`,
		Example: `  raftmq cluster verify
  raftmq cluster verify --last 1GiB`,
		Args: cobra.NoArgs,
	}, time.Hour, func(ctx context.Context, addrs []string, out io.Writer, _ []string) error {
		nodes := askNodes(ctx, addrs, 3*time.Second, true)
		if firstAnswer(nodes) == nil {
			return nobodyAnswers(nodes)
		}
		var mark remoting.MarkRequest
		if err := askAdmin(ctx, answering(nodes), remoting.RequestMark, mark, &mark); err != nil {
			return err
		}
		rows := askChecksums(ctx, nodes, remoting.ChecksumRequest{ID: mark.ID, WaitMillis: wait.Milliseconds()})
		if !tablesOnly {
			request := remoting.ChecksumRequest{ID: mark.ID, WaitMillis: wait.Milliseconds(), Log: true}
			for _, r := range rows {
				if r.err == nil {
					request.From = max(request.From, r.answer.LogMin)
					if last > 0 {
						request.From = max(request.From, r.answer.LogEnd-int64(last))
					}
				}
			}
			rows = askChecksums(ctx, nodes, request)
		}
		return writeVerified(out, rows)
	})
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long a node may take to come to the mark")
	cmd.Flags().Var(&last, "last", "compare only so many bytes at the log's end, `size`; 0 compares all")
	cmd.Flags().BoolVar(&tablesOnly, "tables-only", false, "leave the commit log out")
	return cmd
}

func answering(nodes []nodeAnswer) (addrs []string) {
	for _, n := range nodes {
		if n.Status != nil {
			addrs = append(addrs, n.Address)
		}
	}
	return addrs
}

// askChecksums asks all nodes at once.
func askChecksums(ctx context.Context, nodes []nodeAnswer, request remoting.ChecksumRequest) []verified {
	rows := make([]verified, len(nodes))
	done := make(chan struct{})
	for i, n := range nodes {
		go func() {
			defer func() { done <- struct{}{} }()
			rows[i].node = n.Address
			if n.Status == nil {
				rows[i].err = errors.New(n.Error)
				return
			}
			rows[i].node = n.Status.NodeID
			rows[i].err = askAdmin(ctx, []string{n.Address}, remoting.RequestChecksum, request, &rows[i].answer)
		}()
	}
	for range nodes {
		<-done
	}
	return rows
}

func writeVerified(out io.Writer, rows []verified) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tAT INDEX\tTABLES\tQUEUES\tLOG RANGE\tLOG")
	kinds := map[string][]string{} // checksums → nodes
	var order []string
	failed := false
	for _, r := range rows {
		if r.err != nil {
			failed = true
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\n", r.node)
			continue
		}
		a := r.answer
		span := "-"
		if a.Log != "" {
			span = fmt.Sprintf("%d-%d", a.LogFrom, a.LogEnd)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", a.NodeID, a.Index, a.Tables, a.Queues, span, orDash(a.Log))
		key := fmt.Sprintf("%d %s %s %d %s", a.Index, a.Tables, a.Queues, a.LogEnd, a.Log)
		if !slices.Contains(order, key) {
			order = append(order, key)
		}
		kinds[key] = append(kinds[key], a.NodeID)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.err != nil {
			fmt.Fprintf(out, "%s: %v\n", r.node, r.err)
		}
	}
	switch {
	case len(order) > 1:
		failed = true
		fmt.Fprintf(out, "THE NODES DIFFER:")
		for _, key := range order {
			fmt.Fprintf(out, " %v", kinds[key])
		}
		fmt.Fprintln(out)
	case len(order) == 1 && !failed:
		fmt.Fprintf(out, "all %d nodes hold the same\n", len(kinds[order[0]]))
	case len(order) == 1:
		fmt.Fprintf(out, "%v hold the same; the others could not be asked\n", kinds[order[0]])
	}
	return reported(nil, failed)
}
