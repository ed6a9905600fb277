package jepsen

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Print writes the report as tables for people.
func (r *Report) Print(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nfault\tnode\tlongest time without an acknowledged send\tdetail\n")
	for i, g := range r.Gaps {
		if i == 0 {
			fmt.Fprintf(t, "(none yet)\t\t%s\t\n", seconds(g.Length))
			continue
		}
		f := &r.Faults[i-1]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s%s\n", g.Fault, g.Node, seconds(g.Length), f.Detail, f.Error)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(t, "NOT RUN\t\t\t%s\n", s)
	}
	fmt.Fprintf(t, "\ncheck\tresult\tfound\n")
	for _, c := range r.Results {
		verdict := "ok"
		if !c.Valid {
			verdict = "FAILED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Name, verdict, c.Summary)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range r.Results {
		if c.Valid {
			continue
		}
		fmt.Fprintf(out, "\n%s:\n", c.Name)
		for _, p := range c.Problems {
			fmt.Fprintf(out, "  %s\n", p)
		}
	}
	for _, s := range r.Statuses {
		fmt.Fprintf(out, "%s: log end %d, checksum %s\n", s.NodeID, s.LogMax, s.LogChecksum)
	}
	fmt.Fprintf(out, "sent %d, acknowledged %d; without a leader %s (longest %s), %d leader changes\n",
		r.Sent, r.Acked, seconds(r.Leader.Total), seconds(r.Leader.Longest), r.Leader.Changes)
	for _, err := range r.Errors {
		fmt.Fprintf(out, "ERROR: %v\n", err)
	}
	if r.Dir != "" {
		fmt.Fprintf(out, "history, logs and data are in %s\n", r.Dir)
	}
	verdict := "VALID"
	if !r.Valid {
		verdict = "NOT VALID"
	}
	_, err := fmt.Fprintln(out, verdict)
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
