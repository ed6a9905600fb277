// Package route puts topic routes and the cluster table together from replicated tables
// (topics, nodes), Raft leadership of local groups and gossip: the leader is broker 0, replicas keep
// stable ids. Gossip's suspicion alone never changes a route.
package route

import "errors"

// Broker is one broker group as clients see it.
type Broker struct {
	Name    string // brokerName
	Cluster string
	Addrs   map[int64]string // 0 = leader
}

// Queue is one topic's queues in one group.
type Queue struct {
	BrokerName                 string
	Read, Write, Perm, SysFlag int
}

// Route is a topic's route.
type Route struct {
	Brokers        []Broker
	Queues         []Queue
	OrderTopicConf string
}

// Errors.
var (
	ErrNoTopic  = errors.New("route: no such topic")
	ErrNoLeader = errors.New("route: no leader is known")
)
