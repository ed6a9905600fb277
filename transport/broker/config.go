package broker

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/metadata"
	"raftmq/fsm/raftnode"
	"raftmq/membership/group"
	"raftmq/transport/remoting"

	"github.com/hashicorp/go-hclog"
)

// Raft is what the broker needs of the Raft node. All methods may be called at once from
// many goroutines.
type Raft interface {
	// State is a cheap snapshot. A leader whose process was stopped for a while may be Ready in it and deposed.
	State() raftnode.State
	// Certain reports whether this node is Ready and nobody else can have led up to now; cheap.
	Certain() bool
	// Confirm asks a majority, and returns nil if nobody else has led up to its call.
	Confirm(ctx context.Context) error
	// Propose takes p or refuses at once; see raftnode.Proposal for its duties.
	Propose(p raftnode.Proposal) error
	// ProposeWait proposes one encoded command and waits for what the FSM returned for it.
	ProposeWait(ctx context.Context, command []byte) (entryResult any, i int, err error)
}

// Config of a Broker. Zero values take the defaults in parentheses; fields without one are required.
type Config struct {
	Raft   Raft
	Store  *store.Store
	Tables *metadata.Tables
	Groups *group.Registry // its OnChange is taken by the broker

	ClusterName, BrokerName string
	// StoreHost is this node's client address as clients reach it: it goes into records and message ids.
	StoreHost netip.AddrPort
	// LeaderAddr names the leader for remarks; empty strings when none is known.
	LeaderAddr func() (nodeID, clientAddr string)
	// Forward sends a request to the leader's client address and returns its answer. It fails
	// when no leader is known. nil: nothing is forwarded.
	Forward func(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error)
	// Peers are the client addresses of the other nodes of this group, and Ask sends a request to one of them. nil: there are none.
	Peers func() []string
	Ask   func(ctx context.Context, addr string, cmd *remoting.Command) (*remoting.Command, error)
	// Relay passes a write to the leader without blocking and reports whether it did; then done is called once, from another goroutine, with
	// the answer, valid until done returns. Writes that are passed on are carried out in that order. It returns false while there is no connection
	// to the leader. Relays reports whether clients' writes are to be passed on at all. nil: they are not.
	Relay  func(cmd *remoting.Command, done func(*remoting.Command, error)) bool
	Relays func() bool
	// CaughtUp reports that this node has once held all that a leader had applied since it started;
	// before that it cannot know what exists (Never-Guess). nil: as soon as a leader is known.
	CaughtUp func() bool
	// DeleteExpired makes this node, which leads, delete what is old enough at whatever hour it is (retention.Loop.Arm). It must be
	// quick. nil: nothing is deleted on request.
	DeleteExpired func()
	// PeersFull reports that so many other voters' disks are full that a majority could not store a message. It must be quick: it is asked
	// for each message. nil: never.
	PeersFull func() bool
	// TransactionUnknown is told that a producer was asked about a half message, given by its queue offset, and knows no
	// outcome yet. It must be quick. nil: nobody is told.
	TransactionUnknown func(half int64)
	// BrokerIDOf is the stable broker id of a node as a replica, 0 when it is not known.
	BrokerIDOf func(nodeID string) int64

	HoldWrites     time.Duration // how long a write waits for a leader before it is refused (1 s); negative: not at all
	MaxHeldWrites  int           // writes that wait at once (8192)
	MaxHeldBytes   int           // their bytes (16 MiB)
	MaxHeldPulls   int           // parked pulls (100,000)
	MaxMessageSize int           // body of a message and of a whole batch, bytes (4 MiB)
	OffsetGather   time.Duration // how long consumer offsets gather before one command takes them (100 ms)
	// SlaveReadEnable sends a consumer that is further behind than memory reaches to a replica, and back when it has caught up.
	// Replicas: the broker ids of the group's nodes that serve and do not lead, ascending. nil: none.
	SlaveReadEnable bool
	Replicas        func() []int64
	// TraceTopicEnable has the leader make RMQ_SYS_TRACE_TOPIC, to which clients send what they did with messages, and store region and trace
	// switch with each message, as 5.x does.
	TraceTopicEnable bool
	Region           string // MSG_REGION of answers ("DefaultRegion")
	Version          int32  // version in answers that are written without the server's help (401)
	// Properties are further lines of GET_BROKER_CONFIG: what this node was started with.
	Properties map[string]string
	// CheckSetting says why a setting may not be changed to a value while the cluster runs; nil: it may. Without it
	// none can be.
	CheckSetting func(name, value string) error
	Logger       hclog.Logger     // (none)
	Now          func() time.Time // (time.Now)
}

var errNoSettings = errors.New("broker: no setting can be changed while this broker runs")

// Limits without a setting.
const (
	// maxSuspend bounds the time a pull may ask to be parked for: clients give up after 30 s.
	maxSuspend = 60 * time.Second
	// authorityWait is how long a request that only the leader may answer waits for one (wire
	// notes §3.8: below the clients' 3 s, and never an error that they would take for an answer).
	authorityWait = 2 * time.Second
	// maxWaiting bounds the requests that wait for a leader or for its answer.
	maxWaiting = 4096
	// batchBlowUp bounds what a batch may become when it is stored: each entry gets the
	// request's own properties and a record header.
	batchBlowUp = 4
	// batchRoom is what a command has beside the records.
	batchRoom = 64 << 10
)

func (cfg *Config) ensureDefaults() {
	if cfg.HoldWrites == 0 {
		cfg.HoldWrites = time.Second
	}
	setDefault(&cfg.MaxHeldWrites, 8192)
	setDefault(&cfg.MaxHeldBytes, 16<<20)
	setDefault(&cfg.MaxHeldPulls, 100_000)
	setDefault(&cfg.MaxMessageSize, 4<<20)
	setDefault(&cfg.OffsetGather, 100*time.Millisecond)
	setDefault(&cfg.Version, remoting.Version4_9_4)
	if cfg.Region == "" {
		cfg.Region = "DefaultRegion"
	}
	if cfg.LeaderAddr == nil {
		cfg.LeaderAddr = func() (string, string) { return "", "" }
	}
	if cfg.Replicas == nil {
		cfg.Replicas = func() []int64 { return nil }
	}
	if cfg.BrokerIDOf == nil {
		cfg.BrokerIDOf = func(string) int64 { return 0 }
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
}

func (cfg *Config) validate() error {
	switch {
	case cfg.Raft == nil:
		return errors.New("broker: Config.Raft is missing")
	case cfg.Store == nil:
		return errors.New("broker: Config.Store is missing")
	case cfg.Tables == nil:
		return errors.New("broker: Config.Tables is missing")
	case cfg.Groups == nil:
		return errors.New("broker: Config.Groups is missing")
	case (cfg.Peers == nil) != (cfg.Ask == nil):
		return errors.New("broker: Config.Peers and Ask go together")
	case cfg.ClusterName == "" || cfg.BrokerName == "":
		return errors.New("broker: Config.ClusterName and BrokerName must not be empty")
	case !cfg.StoreHost.IsValid() || cfg.StoreHost.Addr().IsUnspecified():
		return errors.New("broker: Config.StoreHost must be an address that clients can reach")
	}
	return nil
}

func setDefault[T int | int32 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
