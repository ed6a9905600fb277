package main

import (
	"errors"
	"fmt"
	"sync/atomic"

	"raftmq/commitlog/store"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// logRanges serves this node's commit log to peers: raw bytes and checksums.
type logRanges struct {
	store  *store.Store
	served atomic.Int64 // bytes
}

// register answers RequestLogRange and RequestLogSum, leader or not: what is in the log is committed.
func (l *logRanges) register(s *transport.Server) {
	s.Handle(remoting.RequestLogRange, func(r transport.Responder, cmd *remoting.Command) {
		req, err := remoting.DecodeLogRange(cmd)
		if err != nil {
			r.ReplyError(remoting.ResponseSystemError, err.Error())
			return
		}
		l.pin(&req)
		b, err := l.store.LogBytes(req.Offset, int(min(req.Length, remoting.MaxLogRange)))
		if err != nil {
			l.refuse(r, &req, err)
			return
		}
		l.served.Add(int64(b.Len))
		r.ReplyViews(l.answer(&req, b.CRC), b.Bufs, b.Release)
	})
	s.Handle(remoting.RequestLogSum, func(r transport.Responder, cmd *remoting.Command) {
		req, err := remoting.DecodeLogRange(cmd)
		if err != nil {
			r.ReplyError(remoting.ResponseSystemError, err.Error())
			return
		}
		l.pin(&req)
		sum, err := l.sum(&req)
		if err != nil {
			l.refuse(r, &req, err)
			return
		}
		r.Reply(l.answer(&req, sum))
	})
}

// pin keeps what a peer is fetching.
func (l *logRanges) pin(req *remoting.LogRange) {
	switch {
	case req.Peer == "":
	case req.Done:
		l.store.Unpin(req.Peer)
	default:
		l.store.Pin(req.Peer, req.Offset)
	}
}

func (l *logRanges) sum(req *remoting.LogRange) (uint32, error) {
	if req.Slow {
		return l.store.SegmentSum(req.Offset)
	}
	return l.store.LogSum(req.Offset, req.Offset+req.Length)
}

func (l *logRanges) answer(req *remoting.LogRange, crc uint32) *remoting.Command {
	st := l.store.Stats()
	answer := remoting.LogRangeAnswer{Offset: req.Offset, CRC: crc, MinOffset: st.FileMin, MaxOffset: st.MaxOffset}
	cmd := &remoting.Command{Code: remoting.ResponseSuccess}
	answer.SetExt(cmd)
	return cmd
}

func (l *logRanges) refuse(r transport.Responder, req *remoting.LogRange, err error) {
	resp := l.answer(req, 0)
	resp.Code = remoting.ResponseSystemError
	switch {
	case errors.Is(err, store.ErrDamaged):
		resp.Code = remoting.ResponseLogRangeDamaged
	case errors.Is(err, store.ErrRange):
		resp.Code = remoting.ResponseLogRangeOutside
	}
	resp.Remark = fmt.Sprintf("log bytes from %d, %d bytes: %v", req.Offset, req.Length, err)
	r.Reply(resp)
}
