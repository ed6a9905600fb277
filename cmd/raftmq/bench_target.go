package main

import (
	"context"
	"fmt"
	"sync"

	"raftmq/transport/client"
)

// benchTarget finds leaders. It asks the name servers by turns, since after a leader change
// some of them may know it before others.
type benchTarget struct {
	clusters []*client.Cluster // one for each name server
	topic    string

	mu   sync.Mutex
	next int // name server to ask next
}

func newBenchTarget(nameServers []string, topic string) *benchTarget {
	t := &benchTarget{topic: topic}
	// The first asks all of them: for questions at the start.
	t.clusters = append(t.clusters, client.NewCluster(nameServers))
	for _, addr := range nameServers {
		t.clusters = append(t.clusters, client.NewCluster([]string{addr}))
	}
	return t
}

func (t *benchTarget) close() {
	for _, c := range t.clusters {
		_ = c.Close()
	}
}

// leader asks one name server, another one each time, for a broker group's leader.
func (t *benchTarget) leader(ctx context.Context, broker string) (string, error) {
	t.mu.Lock()
	cluster := t.clusters[1+t.next%(len(t.clusters)-1)]
	t.next++
	t.mu.Unlock()
	route, err := cluster.Route(ctx, t.topic)
	if err != nil {
		return "", err
	}
	addr, ok := route.Leader(broker)
	if !ok {
		return "", fmt.Errorf("no leader of %s is known", broker)
	}
	return addr, nil
}
