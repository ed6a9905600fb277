package fsm

import "github.com/hashicorp/raft"

// again tells whether l is the first entry after a restart that is new to the store (package seam).
func (f *FSM) again(l *raft.Log) bool {
	recovered := f.cfg.Store.Recovered().RaftIndex
	return recovered > 0 && l.Index > recovered && f.cfg.Store.Position().RaftIndex <= recovered
}
