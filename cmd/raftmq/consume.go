package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// consumeOptions are consume's flags.
type consumeOptions struct {
	topic, group string
	from         string
	tag          string
	max          int
	noCommit     bool
	verbose      bool
	asJSON       bool
}

func newConsumeCommand() *cobra.Command {
	var flags toolFlags
	var o consumeOptions
	cmd := &cobra.Command{
		Use:   "consume",
		Short: "Print a topic's messages",
		Long: `Prints the bodies of a topic's messages, a line each, as they come, until --max messages have been
printed, none has come for --timeout, or it is interrupted. It begins where the group has got to, and
commits the group's offsets for what it has printed. It reads all queues and does not share them with
other consumers of the group.`,
		Example: `  raftmq consume --topic greetings --group readers --from first
  raftmq consume --topic greetings --group readers --tag 'en || fr' --max 10 --timeout 5s
  raftmq consume --topic greetings --group readers --json | jq -r .body`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			cluster, err := flags.connect()
			if err != nil {
				return err
			}
			defer cluster.Close()
			ctx, cancel := untilSignal(cmd)
			defer cancel()
			c := &printer{cluster: cluster, o: &o, idle: flags.timeout, out: bufio.NewWriter(cmd.OutOrStdout()), errOut: cmd.ErrOrStderr()}
			return c.run(ctx)
		},
	}
	flags.register(cmd, 0, "end when no message has come for so long; 0 waits for ever")
	fs := cmd.Flags()
	fs.StringVar(&o.topic, "topic", "", "`topic` to read")
	fs.StringVar(&o.group, "group", "", "consumer `group` whose offsets are used")
	fs.StringVar(&o.from, "from", fromFirst, "where to begin in queues of which the group has no offset: first or last")
	fs.StringVar(&o.tag, "tag", "*", "`tags` to read, joined by ||; * reads all")
	fs.IntVar(&o.max, "max", 0, "end after this `number` of messages; 0 is no limit")
	fs.BoolVar(&o.noCommit, "no-commit", false, "don't commit offsets")
	fs.BoolVarP(&o.verbose, "verbose", "v", false, "print queue, offset, time, tag and key before each body")
	fs.BoolVar(&o.asJSON, "json", false, "print a JSON object for each message")
	return cmd
}

func (o *consumeOptions) validate() error {
	var errs []error
	if o.topic == "" {
		errs = append(errs, flagError{"topic", o.topic, "is required"})
	} else if err := checkName(o.topic, remoting.MaxTopicLen); err != nil {
		errs = append(errs, flagError{"topic", o.topic, err.Error()})
	}
	if o.group == "" {
		errs = append(errs, flagError{"group", o.group, "is required"})
	} else if err := checkName(o.group, remoting.MaxGroupLen); err != nil {
		errs = append(errs, flagError{"group", o.group, err.Error()})
	}
	if o.from != fromFirst && o.from != fromLast {
		errs = append(errs, flagError{"from", o.from, "allowed are first and last"})
	}
	if o.max < 0 {
		errs = append(errs, flagError{"max", o.max, "allowed are 0 and more"})
	}
	if o.verbose && o.asJSON {
		errs = append(errs, errors.New("--verbose contradicts --json, which prints all there is"))
	}
	return errors.Join(errs...)
}

// printer reads all queues, a goroutine each, and prints under one lock.
type printer struct {
	cluster *client.Cluster
	o       *consumeOptions
	idle    time.Duration
	errOut  io.Writer

	mu      sync.Mutex // guards what follows
	out     *bufio.Writer
	printed int
	last    time.Time // when something was last printed
	failure error
	end     context.CancelFunc
}

// commitEvery is how long offsets of printed messages may wait to be committed.
const commitEvery = time.Second

func (p *printer) run(ctx context.Context) error {
	readers, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	outer := ctx
	ctx, p.end = context.WithCancel(ctx)
	defer p.end()
	p.last = time.Now()
	var wg sync.WaitGroup
	for _, r := range readers {
		wg.Go(func() { r.run(ctx) })
	}
	wg.Go(func() { p.watch(ctx, readers) })
	wg.Wait()
	// Also after an interrupt: what was printed is committed.
	commitCtx, cancel := context.WithTimeout(context.WithoutCancel(outer), 5*time.Second)
	defer cancel()
	for _, r := range readers {
		p.fail(r.commit(commitCtx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// watch ends the run when nothing has come for long, and commits from time to time.
func (p *printer) watch(ctx context.Context, readers []*queueReader) {
	tick := time.NewTicker(commitEvery / 10)
	defer tick.Stop()
	committed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		idle := time.Since(p.last)
		p.mu.Unlock()
		if p.idle > 0 && idle > p.idle {
			p.end()
			return
		}
		if time.Since(committed) < commitEvery {
			continue
		}
		for _, r := range readers {
			// An error shows again at the end, if it lasts.
			_ = r.commit(ctx)
		}
		committed = time.Now()
	}
}

// prepare makes a reader for each queue, at the group's offset.
func (p *printer) prepare(ctx context.Context) ([]*queueReader, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	route, err := routeWithRetry(ctx, p.cluster, p.o.topic)
	if err != nil {
		return nil, err
	}
	var readers []*queueReader
	for _, q := range route.Queues {
		if q.Perm&permRead == 0 {
			continue
		}
		for id := range q.ReadQueues {
			r := &queueReader{p: p, broker: q.Broker, id: id}
			if err := r.findOffset(ctx); err != nil {
				return nil, err
			}
			readers = append(readers, r)
		}
	}
	if len(readers) == 0 {
		return nil, fmt.Errorf("topic %s has no queue that may be read", p.o.topic)
	}
	return readers, nil
}

// fail notes the first error and ends the run.
func (p *printer) fail(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil {
		p.failure = err
	}
	p.end()
}

// print prints a queue's messages until the limit, and returns how many.
func (p *printer) print(messages []message) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for i := range messages {
		if p.o.max > 0 && p.printed >= p.o.max {
			break
		}
		if err := messages[i].write(p.out, p.o); err != nil {
			return n, err
		}
		p.printed++
		n++
	}
	if err := p.out.Flush(); err != nil {
		return 0, fmt.Errorf("standard output: %w", err)
	}
	if n > 0 {
		p.last = time.Now()
	}
	if p.o.max > 0 && p.printed >= p.o.max {
		p.end()
	}
	return n, nil
}

// warn tells of something that goes on.
func (p *printer) warn(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.errOut, "raftmq: "+format+"\n", args...)
}
