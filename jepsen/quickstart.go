package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// QuickConfig of Quickstart. Zero values take the defaults in parentheses.
type QuickConfig struct {
	Messages int // (20000)
	BodySize int // bytes (1024)
	Senders  int // goroutines (8)
	Queues   int // of the topic (8)
	Binary   string
	// Dir gets data and logs; it must be empty or missing. It is removed at the end unless Keep is set or the
	// result is bad.
	Dir string
	// Keep leaves the cluster running, in a form that scripts/cluster knows.
	Keep bool
	// Port is the first of the ports, as scripts/cluster counts them (9876, or the next free of 9976, 10076, …).
	Port int
	Out  io.Writer // progress lines and the table
}

// quickTimeout bounds everything but building, which takes a minute on a machine that has built nothing yet: 3 minutes in all.
const quickTimeout = 110 * time.Second

const quickTopic = "quickstart"

// quick is one run of Quickstart.
type quick struct {
	cfg     QuickConfig
	port    int
	began   time.Time
	cluster *cluster.Cluster
	rec     *history.Recorder
	load    *workload.Queue
	watch   *LeaderWatch
	sent    chan error // Produce's end

	results  []checker.Result
	ops      []history.Op
	statuses []remoting.NodeStatus
	leader   Leaderless
	gap      time.Duration
}

// Quickstart starts three nodes, sends and consumes with Apache's Go client, kills the leader in the middle, brings
// it back, and shows what became of the messages. It returns ErrInvalid if an acknowledged message is lost, logs differ, or any other check
// fails; in the end no process is left unless Keep is set and all went well.
func Quickstart(ctx context.Context, cfg QuickConfig) (err error) {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&cfg.Messages, 20000)
	def(&cfg.BodySize, 1024)
	def(&cfg.Senders, 8)
	def(&cfg.Queues, 8)
	ctx, cancel := context.WithTimeout(ctx, quickTimeout)
	defer cancel()
	q := &quick{cfg: cfg, began: time.Now(), sent: make(chan error, 1)}
	if err := q.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close(err)) }()
	for _, step := range []func(context.Context) error{q.start, q.startLoad, q.killLeader, q.bringBack, q.finish} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return q.judge()
}

func (q *quick) say(format string, args ...any) {
	fmt.Fprintf(q.cfg.Out, "%6.1f s  %s\n", time.Since(q.began).Seconds(), fmt.Sprintf(format, args...))
}

func (q *quick) open() error {
	if entries, err := os.ReadDir(q.cfg.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("folder %s is in use; remove it or name another one with --dir", q.cfg.Dir)
	}
	var err error
	if q.port, err = quickPort(q.cfg.Port); err != nil {
		return err
	}
	q.cluster, err = cluster.New(cluster.Config{
		Dir: q.cfg.Dir, Binary: q.cfg.Binary, Network: cluster.NewLoopbackAt(q.port, 3), Detached: q.cfg.Keep,
	})
	if err != nil {
		return err
	}
	q.rec, err = history.Create("")
	if err != nil {
		return err
	}
	q.load = workload.NewQueue(q.cluster, q.rec, workload.Config{
		Topic: quickTopic, Queues: q.cfg.Queues, Producers: q.cfg.Senders, Groups: 1, Consumers: 2, Rate: -1,
		BodySize: q.cfg.BodySize, Messages: q.cfg.Messages, Client: workload.Stock,
	})
	return nil
}

// quickPort returns the first port of a range in which the twelve ports of three nodes are free.
func quickPort(want int) (int, error) {
	if want != 0 {
		return want, quickPortFree(want)
	}
	var err error
	for port := 9876; port < 12000; port += 100 {
		if err = quickPortFree(port); err == nil {
			return port, nil
		}
	}
	return 0, err
}

func quickPortFree(base int) error {
	n := cluster.NewLoopbackAt(base, 3)
	for i := 1; i <= 3; i++ {
		for _, addr := range n.Addresses(i).All() {
			if err := portFree(addr); err != nil {
				return fmt.Errorf("port in use: %w; choose others with --port", err)
			}
		}
	}
	return nil
}

// portFree tries for a moment: between fork and exec of any command that this program runs, the child still has a
// listener that was closed here meanwhile.
func portFree(addr string) error {
	for deadline := time.Now().Add(200 * time.Millisecond); ; time.Sleep(5 * time.Millisecond) {
		l, err := net.Listen("tcp", addr)
		if err == nil {
			return l.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

func (q *quick) start(ctx context.Context) error {
	q.say("starting three nodes (ports %d to %d, data in %s)", q.port, q.port+23, q.cfg.Dir)
	if err := q.cluster.StartAll(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	leader, err := q.cluster.WaitServing(ctx)
	if err != nil {
		return err
	}
	q.say("cluster serves, %s leads", leader.ID)
	return nil
}

func (q *quick) startLoad(ctx context.Context) error {
	if err := within(ctx, startTimeout, q.load.SetUp); err != nil {
		return err
	}
	q.watch = WatchLeader(q.cluster, nil)
	q.say("sending %d messages of %d bytes from %d goroutines to %d queues; two push consumers of one group",
		q.cfg.Messages, q.cfg.BodySize, q.cfg.Senders, q.cfg.Queues)
	go func() { q.sent <- q.load.Produce(ctx) }()
	return nil
}

// await waits until so many messages are acknowledged, with a line of progress now and then.
func (q *quick) await(ctx context.Context, acked int) error {
	for said := time.Now(); ; {
		have, delivered := q.load.Progress()
		if have >= acked {
			return nil
		}
		if time.Since(said) > 5*time.Second {
			q.say("%d acknowledged, %d consumed", have, delivered)
			said = time.Now()
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d messages acknowledged: %w", have, q.cfg.Messages, err)
		}
	}
}

// killLeader kills it in the middle and waits until the next one has taken some messages.
func (q *quick) killLeader(ctx context.Context) error {
	if err := q.await(ctx, q.cfg.Messages/2); err != nil {
		return err
	}
	leader, err := q.cluster.Leader(ctx)
	if err != nil {
		return err
	}
	op := q.rec.Begin(history.Op{Kind: history.Fault, Process: "nemesis", Fault: "kill", Node: leader.ID, Queue: -1, Offset: -1})
	defer q.rec.End(op)
	if err := leader.Kill(); err != nil {
		return err
	}
	op.Outcome, op.Detail = history.OK, leader.Exit()
	killed := time.Now()
	acked, delivered := q.load.Progress()
	q.say("%d acknowledged, %d consumed; killed %s, the leader (SIGKILL)", acked, delivered, leader.ID)
	next, err := q.cluster.Leader(ctx)
	if err != nil {
		return err
	}
	q.say("%s leads, %.1f s after the kill; stock clients look for a new leader every 30 s", next.ID, time.Since(killed).Seconds())
	if err := q.await(ctx, min(acked+q.cfg.Messages/10, q.cfg.Messages)); err != nil {
		return err
	}
	q.say("%s takes messages", next.ID)
	return nil
}

// bringBack starts the killed node again and waits until all nodes serve.
func (q *quick) bringBack(ctx context.Context) error {
	for _, n := range q.cluster.Nodes() {
		if n.Running() {
			continue
		}
		if err := n.Start(); err != nil {
			return err
		}
		q.say("started %s again", n.ID)
	}
	return within(ctx, startTimeout, func(ctx context.Context) error {
		_, err := q.cluster.WaitServing(ctx)
		return err
	})
}

// finish waits for the last acknowledgement, the consumers and equal logs, and reads every node.
func (q *quick) finish(ctx context.Context) error {
	if err := q.await(ctx, q.cfg.Messages); err != nil {
		return err
	}
	if err := <-q.sent; err != nil {
		return err
	}
	q.leader = q.watch.Stop()
	acked, delivered := q.load.Progress()
	q.say("%d acknowledged, %d consumed; waiting for the consumers", acked, delivered)
	_ = within(ctx, deliverTimeout, func(ctx context.Context) error { q.load.AwaitDelivered(ctx); return nil })
	q.load.Close()
	q.say("waiting until the logs are equal")
	if err := within(ctx, convergeTimeout, func(ctx context.Context) (err error) {
		q.statuses, err = q.cluster.WaitConverged(ctx)
		return err
	}); err != nil {
		q.say("%v", err)
	}
	q.say("reading every message from every node")
	q.load.Drain(ctx)
	return nil
}

// judge runs all checks and prints the table.
func (q *quick) judge() error {
	var err error
	if q.ops, err = q.rec.Close(); err != nil {
		return err
	}
	q.results = checker.All(&checker.Run{Ops: q.ops, Nodes: []string{"n1", "n2", "n3"}, Groups: q.load.Groups(), Statuses: q.statuses})
	for _, g := range checker.Gaps(q.ops) {
		q.gap = max(q.gap, g.Length)
	}
	if err := q.print(); err != nil {
		return err
	}
	var broken []string
	for _, r := range q.results {
		if !r.Valid {
			broken = append(broken, fmt.Sprintf("%s: %s\n  %s", r.Name, r.Summary, strings.Join(r.Problems, "\n  ")))
		}
	}
	if len(broken) > 0 {
		return fmt.Errorf("%w:\n%s", ErrInvalid, strings.Join(broken, "\n"))
	}
	return nil
}

// print writes the summary. Lost is what was acknowledged and is missing on any node, or never came to
// a consumer.
func (q *quick) print() error {
	count := map[string]int{}
	for _, r := range q.results {
		count[r.Name] = r.Count
	}
	consumed := map[string]bool{}
	deliveries := 0
	for i := range q.ops {
		if op := &q.ops[i]; op.Kind == history.Receive {
			deliveries++
			consumed[op.Value] = true
		}
	}
	acked, _ := q.load.Progress()
	t := tabwriter.NewWriter(q.cfg.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	row("acknowledged", acked)
	row("consumed", len(consumed))
	row("lost", max(count["missing on a node"], count["never delivered to a group"]))
	row("duplicated", fmt.Sprintf("%d\t(%d sent again without an answer to the first try, %d delivered again)",
		deliveries-len(consumed), count["duplicates"], count["delivered again"]))
	row("seconds without a leader", fmt.Sprintf("%.1f", q.leader.Total.Seconds()))
	row("seconds without an acknowledged send", fmt.Sprintf("%.1f\t(stock clients ask for a new leader every 30 s only)", q.gap.Seconds()))
	fmt.Fprintf(t, "\nnode\tlog end\tchecksum\t\n")
	for i := range q.statuses {
		s := &q.statuses[i]
		role := s.Role
		if s.NodeID == q.killed() {
			role += ", was killed"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t(%s)\n", s.NodeID, s.LogMax, s.LogChecksum, role)
	}
	fmt.Fprintln(t)
	return t.Flush()
}

func (q *quick) killed() string {
	for i := range q.ops {
		if q.ops[i].Kind == history.Fault {
			return q.ops[i].Node
		}
	}
	return ""
}

// close ends the processes, or hands them over after a good run with Keep.
func (q *quick) close(failed error) error {
	q.load.Close()
	if q.watch != nil {
		q.watch.Stop()
	}
	if q.cfg.Keep && failed == nil {
		if err := q.cluster.HandOver(q.port); err != nil {
			return errors.Join(err, q.cluster.Close())
		}
		q.sayKept()
		return nil
	}
	err := q.cluster.Close()
	if failed != nil && !errors.Is(failed, context.Canceled) { // after an interrupt there is nothing to look at
		fmt.Fprintf(q.cfg.Out, "data and logs are in %s\n", q.cfg.Dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(q.cfg.Dir))
}

func (q *quick) sayKept() {
	dir := q.cfg.Dir
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, dir); err == nil && !strings.HasPrefix(rel, "..") {
			dir = rel
		}
	}
	d := ""
	if dir != "cluster-data" {
		d = " -d " + strconv.Quote(dir)
	}
	fmt.Fprintf(q.cfg.Out, `The cluster is still running. Name servers and brokers: %s

  scripts/cluster status%s
  scripts/cluster kill 1%s
  scripts/cluster start 1%s
  scripts/cluster down%s

`, strings.Join(q.cluster.ClientAddrs(), ";"), d, d, d, d)
}

// pause waits d or until ctx ends, then with its error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
