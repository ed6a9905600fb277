package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftmq/commitlog/inspect"
)

var errDamage = errors.New("the store is damaged")

func newStoreVerifyCommand() *cobra.Command {
	var flags storeFlags
	var strict bool
	var levels string
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Find damage in a store",
		Long: `Reads everything and compares it: records with their checksums, lengths and places; the log with RaftMQ's
apply journal; each record with its consume queue unit and key index entries, and the reverse; headers,
chains, checkpoint, recovery points; whether configuration files parse. Each damaged place is one
line with its file and the offset in it; notices are worth knowing but no damage.

Exit status: 0 no damage, 1 damage, 2 the folder could not be read.`,
		Example: `  raftmq store verify /root/store
  raftmq store verify --json /var/lib/raftmq | jq -r 'select(.kind) | .file' | sort | uniq -c`,
		Args: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if flags.delayLevels, err = parseDelayLevels(levels); err != nil {
				return unreadable(err)
			}
			s, err := flags.open(cmd, args[0], "verify")
			if err != nil {
				return unreadable(err)
			}
			return verifyStore(cmd.OutOrStdout(), s, flags.asJSON, strict)
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&strict, "strict", false, "notices count as damage")
	cmd.Flags().BoolVar(&flags.noIndex, "no-index", false, "the store is kept without a key index (messageIndexEnable=false)")
	cmd.Flags().StringVar(&levels, "delay-levels", "", "messageDelayLevel of the broker, such as \"1s 5s 10s\" (default RocketMQ's)")
	return cmd
}

// parseDelayLevels reads RocketMQ's messageDelayLevel; nil for an empty text.
func parseDelayLevels(text string) ([]time.Duration, error) {
	var levels []time.Duration
	for _, f := range strings.Fields(text) {
		d, err := time.ParseDuration(f)
		if days, ok := strings.CutSuffix(f, "d"); err != nil && ok {
			d, err = time.ParseDuration(days + "h")
			d *= 24
		}
		if err != nil || d <= 0 {
			return nil, flagError{"delay-levels", text, "allowed are times such as 1s 5m 2h 1d, separated by spaces"}
		}
		levels = append(levels, d)
	}
	return levels, nil
}

func verifyStore(out io.Writer, s *inspect.Store, asJSON, strict bool) error {
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	summary, err := s.Verify(func(f inspect.Finding) {
		if asJSON {
			_ = enc.Encode(f) // the flush tells
			return
		}
		writeFinding(w, &f)
	})
	if err != nil {
		return unreadable(errors.Join(err, w.Flush()))
	}
	if asJSON {
		err = enc.Encode(map[string]any{"summary": summary})
	} else {
		err = writeSummary(w, s, &summary)
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		return unreadable(err)
	}
	if summary.Damaged > 0 || strict && summary.Notices > 0 {
		return &statusError{statusDamaged, errors.Join(errReported, errDamage)}
	}
	return nil
}

func writeFinding(w io.Writer, f *inspect.Finding) {
	severity := "damage"
	if f.Notice {
		severity = "notice"
	}
	where := fmt.Sprintf("%s at %d", f.File, f.Offset)
	if f.Length > 0 {
		where += fmt.Sprintf(" (%d bytes)", f.Length)
	}
	if f.Topic != "" {
		where += fmt.Sprintf(", %s/%d offset %d", f.Topic, f.QueueID, f.QueueOffset)
	}
	fmt.Fprintf(w, "%-7s %-18s %s: %s\n", severity, f.Kind, where, f.Detail)
}

func writeSummary(w io.Writer, s *inspect.Store, sum *inspect.Summary) error {
	verdict := "clean"
	if sum.Damaged > 0 {
		verdict = fmt.Sprintf("%d damaged places", sum.Damaged)
	}
	if sum.Notices > 0 {
		verdict += fmt.Sprintf(", %d notices", sum.Notices)
	}
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(sum.ByKind)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, sum.ByKind[k]))
	}
	if len(kinds) > 0 {
		verdict += " (" + strings.Join(kinds, ", ") + ")"
	}
	what := fmt.Sprintf("%d records in %d segments [%d, %d), %d units in %d queues, %d entries in %d index files", sum.Records, sum.Segments,
		sum.LogMin, sum.LogEnd, sum.Units, sum.Queues, sum.IndexEntries, sum.IndexFiles)
	if s.Format == inspect.RaftMQ {
		what += fmt.Sprintf(", %d journal records", sum.JournalRecords)
	}
	if sum.ConfigFiles > 0 {
		what += fmt.Sprintf(", %d configuration files", sum.ConfigFiles)
	}
	if !sum.Complete {
		what += fmt.Sprintf("; a broker is running, so only what it had finished when this began, up to %d, was judged", sum.JudgedTo)
	}
	_, err := fmt.Fprintf(w, "%s: %s; %s; took %s\n", s.Dir, verdict, what, time.Duration(sum.Millis)*time.Millisecond)
	return err
}
