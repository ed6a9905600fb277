package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"raftmq/commitlog/inspect"
)

// Exit statuses of the store commands.
const (
	statusDamaged    = 1
	statusUnreadable = 2
)

// statusError ends the process with a status of its own.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// exitStatus is the process's status for an error of a command.
func exitStatus(err error) int {
	var s *statusError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &s):
		return s.status
	}
	return 1
}

// unreadable is the error of a store command that could not do its work, a wrong flag included, so
// that status 1 always means damage.
func unreadable(err error) error {
	var s *statusError
	if err == nil || errors.As(err, &s) {
		return err
	}
	return &statusError{statusUnreadable, err}
}

// storeFlags are common to the commands that read a store folder.
type storeFlags struct {
	commitLog     []string
	segmentSize   int64
	queueFileSize int64
	indexSlots    int
	delayLevels   []time.Duration
	noIndex       bool
	quiet         bool
	asJSON        bool
}

func (f *storeFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&f.commitLog, "commit-log", nil, "`folders` of the segments, if they are not in DIR/commitlog (storePathCommitLog)")
	sizeVar(fs, &f.segmentSize, "segment-size", 0, "size of a segment, if the files can't tell (mappedFileSizeCommitLog)")
	sizeVar(fs, &f.queueFileSize, "queue-file-size", 0, "size of a consume queue file, if the files can't tell (mappedFileSizeConsumeQueue)")
	fs.IntVar(&f.indexSlots, "index-slots", 0, "hash slots of an index file, if the files can't tell (maxHashSlotNum)")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "no progress and no notes on standard error")
	fs.BoolVar(&f.asJSON, "json", false, "print JSON, one object a line")
}

// open opens the folder and says so when a broker is running on it.
func (f *storeFlags) open(cmd *cobra.Command, dir, doing string) (*inspect.Store, error) {
	if f.indexSlots < 0 {
		return nil, flagError{"index-slots", f.indexSlots, "allowed are 0 and more"}
	}
	o := inspect.Options{CommitLogDirs: f.commitLog, SegmentSize: f.segmentSize, QueueFileSize: f.queueFileSize, IndexSlots: f.indexSlots,
		DelayLevels: f.delayLevels, NoIndex: f.noIndex}
	if !f.quiet {
		p := progress{out: cmd.ErrOrStderr(), doing: doing, begun: time.Now()}
		p.told = p.begun
		o.Progress = p.report
	}
	s, err := inspect.Open(dir, o)
	if err != nil || f.quiet {
		return s, err
	}
	switch {
	case s.InUse.Running && s.InUse.PID > 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "raftmq: process %d is running on %s: what it writes meanwhile is a moving target\n", s.InUse.PID, s.Dir)
	case s.InUse.Running:
		fmt.Fprintf(cmd.ErrOrStderr(), "raftmq: a broker is running on %s: what it writes meanwhile is a moving target\n", s.Dir)
	case s.InUse.Unknown:
		fmt.Fprintf(cmd.ErrOrStderr(), "raftmq: can't tell whether a broker is running on %s; if so, its newest part may look damaged\n", s.Dir)
	}
	return s, nil
}

// progress tells on standard error how far a long walk is.
type progress struct {
	out         io.Writer
	doing       string
	begun, told time.Time
}

const progressEvery = 5 * time.Second

func (p *progress) report(done, total int64) {
	now := time.Now()
	if now.Sub(p.told) < progressEvery || total == 0 {
		return
	}
	p.told = now
	const mib = 1 << 20
	fmt.Fprintf(p.out, "%s: %d of %d MiB, %d %%, %.0f MiB/s\n", p.doing, done/mib, total/mib, done*100/total, float64(done)/mib/now.Sub(p.begun).Seconds())
}

func newStoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Look into a store folder of RocketMQ or RaftMQ",
		Long: `Reads a store folder that RocketMQ (4.9, 5.x) or RaftMQ wrote: RocketMQ's storePathRootDir, a
node's --data-dir, or the folder store/ below it. Nothing is written or locked, so the commands
also work while a broker is running on the folder; they say so then, and leave out what it was just writing.

Exit status: 0 all well, 1 damage was found (verify), 2 the folder could not be read.`,
		Example: `  raftmq store stat /var/lib/raftmq
  raftmq store verify /root/store
  raftmq store dump /root/store --topic TopicTest --limit 10 --body text`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unreadable(plainFlagError(err)) })
	cmd.AddCommand(newStoreDumpCommand(), newStoreVerifyCommand(), newStoreStatCommand(), newStoreCompareCommand(), newStoreExportConfigCommand())
	return cmd
}

// oneFolder is cobra.ExactArgs(1) with a status of 2.
func oneFolder(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return unreadable(fmt.Errorf("one folder must be named, got %d", len(args)))
	}
	return nil
}
