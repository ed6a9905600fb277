// Package membership is the gossip layer (memberlist): who exists, at which addresses, in
// which group, and who leads it. It is soft knowledge, lost on restart without harm, and never
// changes Raft membership by itself.
package membership

import (
	"time"

	"github.com/hashicorp/go-hclog"
)

// Tags are what a node tells about itself (at most 512 bytes encoded).
type Tags struct {
	NodeID, ClusterName, ClusterID string // ClusterID is "" until the node belongs to one
	Group                          string // RocketMQ brokerName
	ClientAddr, RaftAddr, HTTPAddr string
	Version                        string
	BootstrapExpect                int
	HasData                        bool   // the node holds Raft state: nobody may bootstrap over it
	LeaderTerm                     uint64 // >0: this node leads its group in that term
}

// State of a member as gossip sees it.
type State string

// States.
const (
	Alive   State = "alive"
	Suspect State = "suspect"
	Failed  State = "failed"
	Left    State = "left"
)

// Member is one node.
type Member struct {
	Tags
	GossipAddr string
	State      State
	Since      time.Time
}

// Config of Open.
type Config struct {
	Tags          Tags
	BindAddr      string // host:port, both TCP and UDP
	AdvertiseAddr string // host:port, default the bound address
	Logger        hclog.Logger
	// OnRefused is called when a node of another cluster name or id tries to join or is joined.
	OnRefused func(Member, error)
}

// Membership is the open gossip layer.
type Membership struct{}

// Open binds and starts gossip with nobody.
func Open(cfg Config) (*Membership, error) { panic("stub") }

// Join contacts addresses once and returns how many answered. Retrying is done inside in
// the background until at least one has answered (KeepJoining).
func (m *Membership) Join(addrs []string) (int, error) { panic("stub") }

// KeepJoining retries Join in the background until it has met another node, and again whenever alone.
func (m *Membership) KeepJoining(addrs []string) { panic("stub") }

// Members lists all known nodes, itself included, sorted by node id.
func (m *Membership) Members() []Member { panic("stub") }

// UpdateTags changes this node's tags and spreads them.
func (m *Membership) UpdateTags(change func(*Tags)) error { panic("stub") }

// OnChange registers a callback for any change of Members (coalesced, own goroutine). Before Join.
func (m *Membership) OnChange(f func()) { panic("stub") }

// Leave says good-bye; Close stops without it (after Leave it is required too).
func (m *Membership) Leave(timeout time.Duration) error { panic("stub") }
func (m *Membership) Close() error                      { panic("stub") }
