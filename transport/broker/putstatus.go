package broker

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/raftnode"
	"raftmq/transport/remoting"
)

// RocketMQ's put statuses, and what becomes of them here (format notes §4.3):
//
//	PUT_OK                              0
//	FLUSH_DISK_TIMEOUT                  10, see sendProposal.onFlushed
//	FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE  never: an answer comes after a majority has the message (Quorum-Durable)
//	CREATE_MAPEDFILE_FAILED             1: the next segment can't be made, other than for space
//	SERVICE_NOT_AVAILABLE               14: not writeable, disk full, store failed or shut down; and not the leader, which says so
//	OS_PAGECACHE_BUSY                   1, and before that 2 on arrival: Apply is stuck in a batch
//	MESSAGE_ILLEGAL, PROPERTIES_SIZE_EXCEEDED  13, in prepare
//	UNKNOWN_ERROR                       1: the state machine gave no result
//	LMQ_CONSUME_QUEUE_NUM_EXCEEDED      never: there are no light queues

// putRefused is a store status that is known before anything is proposed.
type putRefused struct {
	status store.PutStatus
	code   int32
	remark string // of the send processor
	ofEnd  string // of END_TRANSACTION
}

func (e *putRefused) Error() string { return e.remark }

const (
	remarkCreateFailed  = "create mapped file failed, server is busy or broken."
	remarkPageCacheBusy = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
	remarkUnknown       = "UNKNOWN_ERROR"
	remarkPeersFull     = "service not available now. The disks of so many replicas are full that no majority could store the message"
)

// refusedPuts counts writes that were refused in a row because this node does not lead or is not writeable: one in
// refusalsPerWarning is told.
type refusedPuts struct {
	row atomic.Int64
	// slow puts, and how often each was not told
	slow store.Throttle
}

const refusalsPerWarning = 50_000

// propose is cfg.Raft.Propose for what stores messages, behind the store's checks.
func (b *Broker) propose(p raftnode.Proposal) error {
	if status := b.cfg.Store.PutStatus(); status != store.PutOK {
		return b.putRefused(status)
	}
	if b.cfg.PeersFull != nil && b.cfg.PeersFull() {
		b.warnRefused("the disks of other replicas are full, so that no majority could store a message")
		return &putRefused{store.ServiceNotAvailable, remoting.ResponseServiceNotAvailable, remarkPeersFull, "Service not available now."}
	}
	if b.refused.row.Load() != 0 {
		b.refused.row.Store(0)
	}
	return b.cfg.Raft.Propose(p)
}

func (b *Broker) putRefused(status store.PutStatus) *putRefused {
	switch status {
	case store.CreateMappedFileFailed:
		b.warnRefused("the next commit log segment cannot be made")
		return &putRefused{status, remoting.ResponseSystemError, remarkCreateFailed, "Create mapped file failed."}
	case store.OSPageCacheBusy:
		return &putRefused{status, remoting.ResponseSystemError, remarkPageCacheBusy, "OS page cache busy, please try another machine"}
	}
	if b.cfg.Store.Flags().Writeable() {
		b.logger.Warn("the store is closed or has failed, a message is refused")
	} else {
		b.warnRefused("the store is not writeable")
	}
	return &putRefused{status, remoting.ResponseServiceNotAvailable, b.serviceNotAvailable(), "Service not available now."}
}

// serviceNotAvailable is RocketMQ's text with this node's figures.
func (b *Broker) serviceNotAvailable() string {
	space := b.cfg.Store.Space()
	return fmt.Sprintf("service not available now. It may be caused by one of the following reasons: "+
		"the broker's disk is full [CL: %5.2f CQ: %5.2f INDEX: %5.2f], messages are put to the slave, message store has been shut down, etc.",
		space.CommitLog.Ratio(), space.ConsumeQueue.Ratio(), space.Index.Ratio())
}

// warnRefused tells of the first refusal in a row, and of each 50,000th after it.
func (b *Broker) warnRefused(why string) {
	if n := b.refused.row.Add(1) - 1; n%refusalsPerWarning == 0 {
		b.logger.Warn("messages are refused", "reason", why, "flags", b.cfg.Store.Flags(), "refused-in-a-row", n)
	}
}

// slowPut is from when on a put is worth a warning, if none was given just now.
const slowPut = 500 * time.Millisecond

func (b *Broker) warnSlow(took time.Duration, bytes int) {
	if took <= slowPut {
		return
	}
	if ok, unsaid := b.refused.slow.Allow(b.cfg.Now()); ok {
		b.logger.Warn("putting a message took long", "took", took, "bytes", bytes, "unsaid", unsaid)
	}
}

// endRefusalOf is refusalOf with the remarks of EndTransactionProcessor.
func endRefusalOf(err error, limit int) *refusal {
	f := refusalOf(err, limit)
	var put *putRefused
	if errors.As(err, &put) {
		f.remark = put.ofEnd
	}
	if f.code == remoting.ResponseMessageIllegal {
		f.remark = "T" + f.remark[1:]
	}
	return f
}
