package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"raftmq/commitlog/inspect"
)

func newStoreStatCommand() *cobra.Command {
	var flags storeFlags
	var quick bool
	cmd := &cobra.Command{
		Use:   "stat DIR",
		Short: "Count what is in a store",
		Long: `Prints sizes, ranges and times, and how many records each topic and queue has. That reads the whole
log; with --quick only names, sizes and the ends of queues are looked at.`,
		Example: "  raftmq store stat /var/lib/raftmq",
		Args:    oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := flags.open(cmd, args[0], "stat")
			if err != nil {
				return unreadable(err)
			}
			st, err := s.Stat(quick)
			if err != nil {
				return unreadable(err)
			}
			if flags.asJSON {
				return unreadable(json.NewEncoder(cmd.OutOrStdout()).Encode(st))
			}
			return unreadable(writeStat(cmd.OutOrStdout(), st))
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&quick, "quick", false, "don't read the log")
	return cmd
}

func writeStat(out io.Writer, st *inspect.Stat) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("folder", "%s", st.Dir)
	line("format", "%s", st.Format)
	switch {
	case st.InUse.Running:
		line("in use", "by process %d", st.InUse.PID)
	case st.Abort:
		line("in use", "no, and the last stop was not clean")
	default:
		line("in use", "no")
	}
	log := &st.Log
	line("segments", "%d of %s, offsets %d to %d", log.Segments, byteSize(st.SegmentSize), log.Min, log.End)
	if log.Counted {
		line("records", "%d of %s, bodies %s; %d fillers of %s", log.Records, byteSize(log.RecordBytes), byteSize(log.BodyBytes), log.Fillers, byteSize(log.FillerBytes))
		if log.Records > 0 {
			line("stored", "%s to %s", storeTime(log.FirstTime), storeTime(log.LastTime))
		}
		if log.Damaged > 0 {
			line("damaged", "%d places in the log; see \"store verify\"", log.Damaged)
		}
	}
	line("queue files", "of %s", byteSize(st.QueueFileSize))
	if x := st.Index; x != nil {
		line("key index", "%d files, %d entries of %d in a file, %d slots", x.Files, x.Entries, max(x.MaxEntries-1, 0), x.Slots)
	}
	if c := st.Checkpoint; c != nil {
		line("checkpoint", "log %s, queues %s, index %s", storeTime(c.PhysicMsgTimestamp), storeTime(c.LogicsMsgTimestamp), storeTime(c.IndexMsgTimestamp))
	}
	if j := st.Journal; j != nil {
		line("journal", "%d records, raft index %d to %d, up to offset %d", j.Records, j.FirstIndex, j.LastIndex, j.End)
	}
	if p := st.Recovery; p != nil {
		line("durable", "log up to %d (raft index %d of term %d)", p.LogEnd, p.RaftIndex, p.RaftTerm)
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "PART\tFILES\tSIZE\tON DISK")
	for _, p := range st.Parts {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", p.Name, p.Files, byteSize(p.Bytes), byteSize(p.Disk))
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "TOPIC\tQUEUE\tRECORDS\tSIZE\tIN LOG\tUNITS\tFIRST STORED\tLAST STORED")
	for _, t := range st.Topics {
		for _, q := range t.Queues {
			records, size, inLog, first, last := "-", "-", "-", "-", "-"
			if log.Counted {
				records, size, inLog = fmt.Sprint(q.Records), byteSize(q.Bytes), fmt.Sprintf("%d-%d", q.LogMin, q.LogMax)
			}
			if q.Records > 0 {
				first, last = storeTime(q.FirstTime), storeTime(q.LastTime)
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%d-%d\t%s\t%s\n", t.Topic, q.ID, records, size, inLog, q.Min, q.Max, first, last)
		}
	}
	return w.Flush()
}

// byteSize is a size for people.
func byteSize(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 || f == float64(int64(f)) {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}
