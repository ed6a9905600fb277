package fsm

import (
	"raftmq/commitlog/store"
	"raftmq/fsm/command"

	"github.com/hashicorp/raft"
)

// Mark is this node's state at a command.Mark. Equal replicas have equal marks (Same-Bytes, Deterministic-Apply).
type Mark struct {
	ID    string
	Index uint64 // of the entry
	// Position is the store's in the middle of the entry: what the commands before the mark did is in it.
	Position store.Position
	// Tables encodes what the tables held at the mark. It may be called later and from any goroutine.
	Tables func() ([]byte, error)
}

func (f *FSM) mark(c command.Command, l *raft.Log) (refusal, err error) {
	return decodeAnd(c, func(m command.Mark) error {
		if f.cfg.OnMark != nil {
			f.cfg.OnMark(Mark{ID: m.ID, Index: l.Index, Position: f.cfg.Store.Position(), Tables: f.cfg.Tables.Capture()})
		}
		return nil
	})
}
