package broker

import (
	"errors"
	"time"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/seam"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// sendProposal is one send on its way: checked, proposed, applied, flushed, answered. It is
// pooled: between prepare and Propose's return it may look at the request's bytes, afterwards
// only at what it owns. After a successful Propose it belongs to the completion.
type sendProposal struct {
	b *Broker
	r transport.Responder
	h remoting.SendHeader

	msg     record.Message // of a batch: what all entries share, Body is the whole batch
	batch   bool
	wait    bool    // WAIT: the answer waits for the flush under SYNC_FLUSH
	queueID int32   // as answered: the one that was asked for, also for a dead letter
	sizes   []int32 // of the records
	props   []byte  // stored properties; of a batch: what each entry gets
	merged  []byte  // scratch: properties of one batch entry
	traced  []byte  // scratch: the request's properties with those for tracing

	began time.Time // when it was proposed; with the monotonic clock, since the other one may be set meanwhile (F67)
	count *topicCount

	code        int32
	queueOffset int64
	ids         []byte

	// Method values, made once so that answering does not allocate.
	appendFrame func(dst []byte) []byte
	flushed     func(error)
}

func newSendProposal(b *Broker) *sendProposal {
	p := &sendProposal{b: b}
	p.appendFrame = p.appendAnswer
	p.flushed = p.onFlushed
	return p
}

// keptScratch bounds the memory that a pooled proposal keeps.
const keptScratch = 64 << 10

// free gives the proposal back; nobody may hold it any more.
func (p *sendProposal) free() {
	p.r, p.h, p.msg = transport.Responder{}, remoting.SendHeader{}, record.Message{}
	p.batch, p.wait, p.code, p.count = false, false, 0, nil
	if cap(p.props)+cap(p.merged)+cap(p.traced)+cap(p.ids)+4*cap(p.sizes) > keptScratch {
		p.props, p.merged, p.traced, p.ids, p.sizes = nil, nil, nil, nil, nil
	}
	p.b.proposals.Put(p)
}

// AppendCommand implements raftnode.Proposal: the records in their stored form, stamped by the
// leader. Apply assigns the offsets.
func (p *sendProposal) AppendCommand(dst []byte, storeMillis int64) []byte {
	dst, start := command.BeginAppend(dst)
	p.msg.StoreTimestamp, p.began = storeMillis, p.b.cfg.Now()
	if !p.batch {
		dst = record.Append(dst, &p.msg)
		if seam.Often(seam.DoubleSend, 50) {
			return command.EndAppend(record.Append(dst, &p.msg), start, 2)
		}
		return command.EndAppend(dst, start, 1)
	}
	one, rest := p.msg, p.msg.Body
	if seam.Built {
		rest = seamBatch(p)
	}
	for len(rest) > 0 {
		var e record.BatchEntry
		e, rest, _ = record.NextBatchEntry(rest) // prepareBatch has seen that all are well-formed
		p.merged = record.JoinProperties(p.merged[:0], e.Properties, p.props)
		one.Flag, one.Body, one.Properties = e.Flag, e.Body, p.merged
		dst = record.Append(dst, &one)
	}
	return command.EndAppend(dst, start, len(p.sizes))
}

// seamBatch is the batch as it is stored; a planted bug (package seam) changes it.
func seamBatch(p *sendProposal) []byte {
	body := p.msg.Body
	if !seam.Often(seam.SwapBatch, 10) && !seam.Often(seam.HalfBatch, 10) {
		return body
	}
	last := body
	for rest := body; len(rest) > 0; {
		last = rest
		_, rest, _ = record.NextBatchEntry(rest)
	}
	others := body[:len(body)-len(last)]
	if seam.On(seam.HalfBatch) {
		p.sizes = p.sizes[:len(p.sizes)-1]
		return others
	}
	return append(append([]byte{}, last...), others...)
}

// Done implements raftnode.Proposal.
func (p *sendProposal) Done(entryResult any, i int, err error) {
	result, err := command.ResultOf(entryResult, i, err)
	if seam.On(seam.AckUncommitted) && errors.Is(err, raftnode.ErrLeadershipLost) {
		err = nil
	}
	if seam.Often(seam.RefuseStored, 50) {
		err = raftnode.ErrBusy
	}
	if err != nil {
		p.b.counters.failedWrites.Add(1)
		r, b := p.r, p.b
		b.counting.puts.Observe(p.took())
		p.free()
		b.replySend(r, refusalOf(err, b.cfg.MaxMessageSize))
		return
	}
	p.queueOffset = result.QueueOffset
	end := p.appendIDs(result.PhyOffset)
	if p.wait && p.b.syncFlush() {
		p.b.cfg.Store.WaitFlushed(end, p.flushed)
		return
	}
	p.answer(remoting.ResponseSuccess)
}

// onFlushed ends the wait of SYNC_FLUSH. A late flush is an answer of its own: the message is
// stored and committed all the same.
func (p *sendProposal) onFlushed(err error) {
	if err != nil {
		p.answer(remoting.ResponseFlushDiskTimeout)
		return
	}
	p.answer(remoting.ResponseSuccess)
}

// appendIDs writes the message ids and returns the physical offset after the last record.
func (p *sendProposal) appendIDs(phyOffset int64) (end int64) {
	p.ids = p.ids[:0]
	for i, size := range p.sizes {
		if i > 0 {
			p.ids = append(p.ids, ',')
		}
		p.ids = record.AppendMessageID(p.ids, p.b.cfg.StoreHost, phyOffset)
		phyOffset += int64(size)
	}
	return phyOffset
}

// answer ends a put that is stored.
func (p *sendProposal) answer(code int32) {
	p.code = code
	took, bytes := p.took(), p.bytes()
	p.b.counting.puts.Observe(took)
	p.b.counting.put(p.count, p.msg.QueueID, int64(len(p.sizes)), int64(bytes))
	p.b.warnSlow(took, bytes)
	p.r.ReplyRaw(p.appendFrame)
	p.free()
}

// took is how long the put has taken.
func (p *sendProposal) took() time.Duration { return p.b.cfg.Now().Sub(p.began) }

// bytes is how much was stored.
func (p *sendProposal) bytes() (n int) {
	for _, size := range p.sizes {
		n += int(size)
	}
	return n
}

func (p *sendProposal) appendAnswer(dst []byte) []byte {
	return remoting.AppendSendResponse(dst, remoting.SendResponse{
		Serialize: p.r.Serialize, Opaque: p.r.Opaque, Version: p.b.cfg.Version, Language: remoting.LanguageJava, Code: p.code,
		MsgID: p.ids, QueueID: p.queueID, QueueOffset: p.queueOffset, Region: p.b.region, TraceOn: true,
	})
}
