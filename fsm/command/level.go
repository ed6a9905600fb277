package command

import (
	"errors"
	"fmt"
)

// Level is a feature level: how much of the entries' and tables' format a raftmq can apply, and how much of it a cluster uses. Each
// level takes in those below. A cluster's level is replicated and only ever raised, by KindLevel, when all of its members can apply
// the next one; until then the leader proposes nothing of it, so that nodes of both versions work side by side and an upgraded node
// can be rolled back (F83).
//
//	1  kinds 1 to 16
//	2  kinds 17 and above; tables of version 3 and above
//
// What is added to entries, tables, snapshots or to files of a node's folder belongs to a level that no released raftmq has: write it only when
// the cluster's level (metadata.Tables.Level) has come there.
type Level int

// Oldest is the level of a cluster that was never raised, and of a raftmq that does not tell its level. Newest, the highest that this raftmq can
// apply, is in level_*.go.
const Oldest Level = 1

// Raise is the payload of KindLevel. Whoever proposes it has made sure that all members can apply the level.
type Raise struct {
	Level Level `json:"level"`
}

// ErrLevel: the command needs a higher feature level than the cluster's.
var ErrLevel = errors.New("command: the cluster's feature level is too low; when all nodes run a raftmq that has it: raftmq cluster upgrade")

// level is what it takes to apply a command, 0 for one that this raftmq does not know.
func (k Kind) level(version uint8) Level {
	switch {
	case version != 1:
		return 0
	case k >= KindAppend && k <= KindMark:
		return 1
	case k == KindLevel, k == KindSegmentSum, k >= KindQueueLock && k <= KindQueueLocksAdopt:
		return 2
	}
	return 0
}

// AllowedAt reports whether all members of a cluster of the given level can apply commands of this kind.
func (k Kind) AllowedAt(cluster Level) bool {
	need := k.level(1)
	return k == KindLevel || need != 0 && need <= cluster
}

// Admit returns ErrLevel for an encoded command that not all members of a cluster of the given level can apply.
func Admit(encoded []byte, cluster Level) error {
	if len(encoded) < commandHead {
		return fmt.Errorf("%w: command of %d bytes", ErrMalformed, len(encoded))
	}
	kind, version := Kind(encoded[0]), encoded[1]
	switch need := kind.level(version); {
	case kind == KindLevel: // raises it
		return nil
	case need == 0:
		return fmt.Errorf("%w: kind %d version %d", ErrUnknown, kind, version)
	case need > cluster:
		return fmt.Errorf("%w (kind %d needs level %d, the cluster has %d)", ErrLevel, kind, need, cluster)
	}
	return nil
}

// TooNew says that this raftmq cannot take part in a cluster of the given level.
func TooNew(cluster Level) error {
	return fmt.Errorf("%w: the cluster has feature level %d, this raftmq applies up to %d: start a newer raftmq here, as the other nodes run one", ErrUnknown, cluster, Newest)
}
