// Package namesrv answers name-server requests: topic routes, cluster and topic lists and the
// KV table. Any node answers them, from its router and its replicated tables.
//
// Brokers don't register here: who exists and who leads comes from Raft and gossip. Never-Guess: a node that
// knows no leader holds route queries and then closes their connections, answers everything else SYSTEM_ERROR with a text that says to retry, and never says that a topic does not exist.
// Answers are those of RocketMQ 4.9.4's name server (DefaultRequestProcessor), in standard JSON for everybody.
package namesrv

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"raftmq/membership/route"
	"raftmq/transport"
	"raftmq/transport/remoting"

	"github.com/hashicorp/go-hclog"
)

// Routes is the router (route.Router). Its methods don't block.
type Routes interface {
	Topic(name string) (route.Route, error)
	Clusters() ([]route.Broker, error)
	Topics(cluster string, keep func(sysFlag int) bool) ([]string, error)
}

// ErrLeads: there is no other node to ask.
var ErrLeads = errors.New("namesrv: this node leads")

// passedOnField marks a request that another node has passed on: it is not passed on again.
const passedOnField = "raftmqForwarded"

const (
	askTimeout = time.Second
	// maxAsking bounds the requests that wait for the leader; beyond it the tables here have to do.
	maxAsking = 256
)

// routeQuery answers 105. It waits for a leader if none is known, unless one of RaftMQ's own tools asks, which looks elsewhere by itself.
func (p *Processor) routeQuery(r transport.Responder, cmd *remoting.Command) {
	resp, err := p.topicRoute(cmd)
	if errors.Is(err, route.ErrNoLeader) && cmd.Get(remoting.OwnToolField) == nil && p.cfg.Spawn != nil {
		p.hold(r, cmd)
		return
	}
	p.confirm(r, cmd, resp)
}

// confirm answers with resp, but asks the leader before it says that a topic does not exist.
func (p *Processor) confirm(r transport.Responder, cmd *remoting.Command, resp *remoting.Command) {
	if resp.Code != remoting.ResponseTopicNotExist {
		r.Reply(resp)
		return
	}
	ahead := p.ahead(cmd)
	reply := func(resp *remoting.Command) {
		if resp.Code == remoting.ResponseTopicNotExist && ahead != nil {
			resp = ahead
		}
		r.Reply(resp)
	}
	if p.cfg.AskLeader == nil || cmd.Get(passedOnField) != nil || p.asking.Load() >= maxAsking {
		reply(resp)
		return
	}
	request := cmd.Clone()
	request.Flag = 0
	request.Set(passedOnField, "true")
	p.asking.Add(1)
	if !p.cfg.Spawn(func() {
		defer p.asking.Add(-1)
		known, err := p.askLeader(request)
		switch {
		case err == nil:
			reply(known)
		case errors.Is(err, ErrLeads), cmd.Get(remoting.OwnToolField) != nil:
			reply(resp)
		default: // there is a leader, which may know better
			_ = r.Conn.Close()
		}
	}) {
		p.asking.Add(-1)
		reply(resp)
	}
}

// askLeader asks twice: leadership may be moving.
func (p *Processor) askLeader(request *remoting.Command) (resp *remoting.Command, err error) {
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		resp, err = p.cfg.AskLeader(ctx, request.Clone())
		cancel()
		if err == nil || errors.Is(err, ErrLeads) {
			return resp, err
		}
	}
	return nil, err
}

// KV reads the replicated KV table (metadata.Tables).
type KV interface {
	KV(namespace, key string) (string, bool)
	KVNamespace(namespace string) map[string]string
}

// Config of New.
type Config struct {
	Routes Routes
	KV     KV
	// Propose has one encoded command (fsm/command) committed and applied, on whichever node
	// leads, and returns what the tables said to it.
	Propose func(ctx context.Context, command []byte) error
	// ProposeTimeout bounds it (3 s, the clients' own patience).
	ProposeTimeout time.Duration
	// AskLeader passes a request on to the node that leads; ErrLeads when this node leads itself. A follower learns of a new topic
	// up to a commit interval later than the client that had it created, so what it does not know it asks for (Never-Guess).
	// nil: this node's tables are the last word.
	AskLeader func(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error)
	// Spawn starts a goroutine that the owner joins; false when it is closing. Needed for AskLeader. nil: routes are not held either while
	// no leader is known.
	Spawn func(func()) bool
	// Closing is closed when the owner begins to close: routes that are held are let go. nil: never.
	Closing <-chan struct{}
	// RetryQueues is how many queues the retry topic of a consumer group will have, if the group's first heartbeat makes it. A
	// consumer asks for that route before its first heartbeat and then not again for half a minute, so it is
	// answered ahead. nil: no group is made by heartbeats.
	RetryQueues func(group string) (queues int, ok bool)
	// LeaderAddress is published as broker id 0 instead of the leader's own client address: the operator's address for whoever leads. "": none.
	LeaderAddress string
	// Properties are the settings that 319 shows. nil: none.
	Properties func() map[string]string
	Logger     hclog.Logger
}

// Processor answers the requests.
type Processor struct {
	cfg    Config
	logger hclog.Logger
	asking atomic.Int64 // requests that wait for the leader's answer
	held   heldRoutes
}

// New returns a Processor.
func New(cfg Config) *Processor {
	if cfg.ProposeTimeout <= 0 {
		cfg.ProposeTimeout = 3 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	return &Processor{cfg: cfg, logger: cfg.Logger.Named("namesrv")}
}

// answer makes the answer to one request; it keeps nothing of cmd.
type answer func(cmd *remoting.Command) *remoting.Command

// answers are the requests that this package knows, besides routes.
func (p *Processor) answers() map[int32]answer {
	return map[int32]answer{
		remoting.RequestGetBrokerClusterInfo:             p.clusterInfo,
		remoting.RequestGetAllTopicListFromNameServer:    p.allTopics,
		remoting.RequestGetTopicsByCluster:               p.topicsByCluster,
		remoting.RequestGetSystemTopicListFromNameServer: p.systemTopics,
		remoting.RequestGetUnitTopicList:                 p.topicsByFlag(func(f int) bool { return f&flagUnit != 0 }),
		remoting.RequestGetHasUnitSubTopicList:           p.topicsByFlag(func(f int) bool { return f&flagUnitSub != 0 }),
		remoting.RequestGetHasUnitSubUnunitTopicList:     p.topicsByFlag(func(f int) bool { return f&flagUnitSub != 0 && f&flagUnit == 0 }),
		remoting.RequestDeleteTopicInNameServer:          p.deleteTopic,
		remoting.RequestPutKVConfig:                      p.putKV,
		remoting.RequestGetKVConfig:                      p.getKV,
		remoting.RequestDeleteKVConfig:                   p.deleteKV,
		remoting.RequestGetKVListByNamespace:             p.listKV,
		remoting.RequestWipeWritePermOfBroker:            p.writePerm("wipeTopicCount"),
		remoting.RequestAddWritePermOfBroker:             p.writePerm("addTopicCount"),
		remoting.RequestGetNameServerConfig:              p.getConfig,
		remoting.RequestUpdateNameServerConfig:           p.updateConfig,
	}
}

// Register registers all handlers at a client port's server. Routes are asked by every client all the
// time and cost a few microseconds, so they are answered where they are read.
func (p *Processor) Register(s *transport.Server) {
	s.HandleInline(remoting.RequestGetRouteInfoByTopic, p.routeQuery)
	for code, a := range p.answers() {
		s.Handle(code, func(r transport.Responder, cmd *remoting.Command) { r.Reply(a(cmd)) })
	}
}

func refuse(code int32, remark string) *remoting.Command {
	return &remoting.Command{Code: code, Remark: remark}
}

// unknown answers a request that this node can't answer now.
func unknown(err error) *remoting.Command {
	switch {
	case errors.Is(err, route.ErrCatchingUp):
		return refuse(remoting.ResponseSystemError, "this node has just started and is still catching up with its leader, retry in a moment or ask another node")
	case errors.Is(err, route.ErrNoLeader):
		return refuse(remoting.ResponseSystemError, "no leader is known: an election is under way or this node is cut off from the majority, retry in a moment or ask another node")
	}
	return refuse(remoting.ResponseSystemError, err.Error())
}

// getConfig answers 319.
func (p *Processor) getConfig(*remoting.Command) *remoting.Command {
	var b strings.Builder
	if p.cfg.Properties != nil {
		props := p.cfg.Properties()
		keys := make([]string, 0, len(props))
		for k := range props {
			keys = append(keys, k)
		}
		sort.Strings(keys)
		for _, k := range keys {
			fmt.Fprintf(&b, "%s=%s\n", k, oneLine.Replace(props[k]))
		}
	}
	return &remoting.Command{Body: []byte(b.String())}
}

// oneLine keeps a value from ending its line (java.util.Properties' escapes).
var oneLine = strings.NewReplacer("\\", `\\`, "\n", `\n`, "\r", `\r`)

// updateConfig answers 318: settings are flags.
func (p *Processor) updateConfig(*remoting.Command) *remoting.Command {
	return refuse(remoting.ResponseSystemError, "the name server part of a raftmq node has no settings that can be changed at run time: change the flag or the configuration file and restart the node")
}
