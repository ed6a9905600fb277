package workload

import (
	"context"
	"fmt"
	"strings"
	"time"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
)

// Workload is load on a cluster. Calls come in this order: SetUp, Produce, AwaitDelivered, Close, Drain.
type Workload interface {
	// SetUp creates what is needed and starts consumers. All nodes that there are serve.
	SetUp(ctx context.Context) error
	// Produce puts on load until ctx ends, and lets operations that have begun end.
	Produce(ctx context.Context) error
	// AwaitDelivered waits for what is still on its way, at most until ctx ends. All nodes serve again.
	AwaitDelivered(ctx context.Context)
	// Close stops the clients.
	Close()
	// Drain reads from every node what is there.
	Drain(ctx context.Context)
	// Info tells the checkers what they need to know of the workload.
	Info() history.RunInfo
}

// Kind is a kind of workload.
type Kind struct {
	Name, About string
	// Flags are the servers', besides those of every run.
	Flags []string
	// Least is the shortest load that shows what the workload is for (0: any).
	Least time.Duration
	// Tables is set if it changes tables and sends no messages.
	Tables bool
	// Faults are nemeses that belong to the workload: they take turns with a run's own ones.
	Faults []string
}

// kept is how long the retention workload's messages are.
const kept = 15 * time.Second

// Kinds are all workloads.
func Kinds() []Kind {
	levels := make([]string, len(delays))
	for i, d := range delays {
		levels[i] = fmt.Sprintf("%ds", d/time.Second)
	}
	return []Kind{
		{Name: checker.Queue, About: "unique messages of several producers, read by two consumer groups and in the end from every node"},
		{Name: checker.Ordered, About: "messages with keys, read by Apache's ordered consumer: order of each key, one owner of a queue"},
		{Name: checker.Offsets, About: "consumer offsets are committed and read: linearizable", Tables: true},
		{Name: checker.Batch, About: "batches of 2 to 12: whole or not at all"},
		{Name: checker.Delay, About: "delay levels of 1 to 7 s: not early, not late, once",
			Flags: []string{"--message-delay-level", strings.Join(levels, " ")}},
		{Name: checker.Transaction, About: "transactions: committed, rolled back, or not known at first and asked for",
			Flags: []string{"--transaction-timeout", "1s", "--transaction-check-interval", "1s", "--transaction-check-max", "1000"}},
		{Name: checker.Retry, About: "messages that consumers send back: they come again, and the hopeless become dead letters",
			Flags: []string{"--message-delay-level", "1s 1s 1s 1s 1s 1s"}},
		{Name: checker.Topics, About: "topics are created, changed, deleted and looked up: linearizable", Tables: true},
		{Name: checker.Sizes, About: "bodies of a few bytes to 4 MiB"},
		{Name: checker.Retention, About: fmt.Sprintf("messages expire after %v while others are sent", kept),
			Flags: []string{"--file-reserved-time", kept.String(), "--clean-resource-interval", "1s", "--delete-when", "00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
				"--mapped-file-size-commit-log", "2MiB"}, Least: 40 * time.Second},
		{Name: checker.Membership, About: "as queue, while nodes join, leave and are replaced besides whatever else happens", Least: 60 * time.Second,
			Faults: []string{"grow", "shrink", "replace"}},
	}
}

// KindOf returns the workload of a name.
func KindOf(name string) (Kind, error) {
	var names []string
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kind{}, fmt.Errorf("workload: no workload %q, there are %s", name, strings.Join(names, ", "))
}

// New returns the workload of cfg.Kind; nothing runs yet.
func New(c *cluster.Cluster, rec *history.Recorder, cfg Config) Workload {
	if k, err := KindOf(cfg.Kind); err == nil && k.Tables {
		return newRegisters(c, rec, cfg)
	}
	return NewQueue(c, rec, cfg)
}
