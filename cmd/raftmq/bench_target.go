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

// leader asks one name server, another one each time, for a broker group's leader. It does not ask
// the address avoid, which was silent, if there are others.
func (t *benchTarget) leader(ctx context.Context, broker, avoid string) (string, error) {
	route, err := t.nextServer(avoid).Route(ctx, t.topic)
	if err != nil {
		return "", err
	}
	addr, ok := route.Leader(broker)
	if !ok {
		return "", fmt.Errorf("no leader of %s is known", broker)
	}
	return addr, nil
}

func (t *benchTarget) nextServer(avoid string) *client.Cluster {
	t.mu.Lock()
	defer t.mu.Unlock()
	single := t.clusters[1:]
	var chosen *client.Cluster
	for range single {
		chosen = single[t.next%len(single)]
		t.next++
		if chosen.NameServers()[0] != avoid {
			break
		}
	}
	return chosen
}
