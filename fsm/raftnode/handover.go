package raftnode

import (
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// ErrHandingOver: another transfer of leadership is under way.
var ErrHandingOver = errors.New("raftnode: leadership is being handed over already")

// settleTimeout is how long a transfer waits for the entries in flight. Writes that come meanwhile wait at the broker, which holds them for
// about as long.
const settleTimeout = 500 * time.Millisecond

// handOver transfers leadership with nothing in flight. Raft alone refuses what comes while it transfers, in a way that looks to clients
// like a lost leader, and they burn their retries on it. So this node stops taking writes first (State.Ready is false, which makes the broker
// hold them), what is in flight is committed and answered, and only then does Raft transfer. If that fails the node takes writes
// again.
func (n *Node) handOver(transfer func() raft.Future) error {
	if len(n.otherVoters()) == 0 {
		return await(transfer(), n.stop) // Raft says that there is nobody
	}
	if !n.handing.CompareAndSwap(false, true) {
		return ErrHandingOver
	}
	defer func() {
		n.handing.Store(false)
		n.poke()
	}()
	n.poke()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(settleTimeout); (n.State().Ready || n.proposer.stats().InFlightBytes > 0) && time.Now().Before(deadline); {
		select {
		case <-tick.C:
		case <-n.stop:
			return ErrClosed
		}
	}
	n.lease.revoke(n.State().Term)
	return await(transfer(), n.stop)
}
