package transport

import (
	"encoding/binary"

	"raftmq/transport/remoting"
)

// Response codes that the server itself answers (RocketMQ RemotingSysResponseCode).
const (
	codeSystemError  int32 = 1
	codeSystemBusy   int32 = 2
	codeNotSupported int32 = 3
)

const (
	remarkOverload  = "[OVERLOAD]system busy, start flow control for a while"
	remarkOversize  = "the response does not fit a frame"
	remarkMalformed = "the response is malformed"
)

// Responder answers one request, from any goroutine. It is a small value. The first
// answer counts, a second one is dropped and counted (Stats.DoubleAnswers).
type Responder struct {
	Conn      *Conn
	Code      int32 // of the request
	Opaque    int32
	Version   int32 // of the request
	Serialize remoting.SerializeType
	OneWay    bool

	slot, gen uint32 // the connection's record of the owed answer
}

// Reply writes resp as the answer: opaque, response flag, serialisation, language and
// version are filled in. It drops the answer of a one-way request.
func (r Responder) Reply(resp *remoting.Command) {
	if r.OneWay {
		return
	}
	r.fill(resp)
	c := r.Conn
	c.out.mu.Lock()
	slow := false
	if c.owedLocked(r) {
		slow = c.answerLocked(r, remoting.AppendFrame(c.out.next.buf, resp))
	}
	c.out.mu.Unlock()
	if slow {
		c.server.dropSlow(c)
	}
}

// ReplyError answers code and remark with no body.
func (r Responder) ReplyError(code int32, remark string) {
	r.Reply(&remoting.Command{Code: code, Remark: remark})
}

// ReplyRaw lets appendFrame append one whole frame to the connection's write buffer:
// the hot path's way to answer without a Command. The frame must carry r's opaque and the
// response flag. appendFrame runs under the connection's lock: it appends and nothing else.
func (r Responder) ReplyRaw(appendFrame func(dst []byte) []byte) {
	if r.OneWay {
		return
	}
	if r.replyRaw(appendFrame) {
		r.Conn.server.dropSlow(r.Conn)
	}
}

func (r Responder) replyRaw(appendFrame func(dst []byte) []byte) (slow bool) {
	c := r.Conn
	c.out.mu.Lock()
	defer c.out.mu.Unlock() // also when appendFrame panics: then nothing was appended
	return c.owedLocked(r) && c.answerLocked(r, appendFrame(c.out.next.buf))
}

// ReplyViews writes resp's header and then bufs as the body, without copying them, and
// calls release (which may be nil) exactly once: when the bytes are with the kernel, or when
// they will not be needed because the connection is gone, the request was one-way or already answered.
// release may run on the caller's or the writer's goroutine and must not block. bufs itself is not kept.
func (r Responder) ReplyViews(resp *remoting.Command, bufs [][]byte, release func()) {
	queued, slow := false, false
	if !r.OneWay {
		r.fill(resp)
		queued, slow = r.replyViews(resp, bufs, release)
	}
	if !queued && release != nil {
		release()
	}
	if slow {
		r.Conn.server.dropSlow(r.Conn)
	}
}

// replyViews reports whether the connection now holds the views.
func (r Responder) replyViews(resp *remoting.Command, bufs [][]byte, release func()) (queued, slow bool) {
	c := r.Conn
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if !c.owedLocked(r) {
		return false, false
	}
	next := &c.out.next
	before := len(next.buf)
	buf := remoting.AppendFrameHead(next.buf, resp, size)
	if len(buf)-before+size > c.server.cfg.MaxFrameBytes {
		return false, c.failLocked(r, remarkOversize)
	}
	next.buf = buf
	if size == 0 {
		return false, c.countLocked(r, len(buf)-before)
	}
	for _, b := range bufs {
		if len(b) > 0 {
			next.views = append(next.views, view{at: len(buf), data: b})
		}
	}
	next.views[len(next.views)-1].release = release
	return true, c.countLocked(r, len(buf)-before+size+len(bufs)*viewCost)
}

// fill sets what the request decides. RocketMQ's servers name their language JAVA.
func (r *Responder) fill(resp *remoting.Command) {
	resp.Opaque = r.Opaque
	resp.Flag = resp.Flag&^remoting.FlagOneWay | remoting.FlagResponse
	resp.Serialize = r.Serialize
	resp.Language = remoting.LanguageJava
	resp.Version = r.Conn.server.cfg.Version
}

// owedLocked reports whether this answer is still wanted.
func (c *Conn) owedLocked(r Responder) bool {
	if c.out.gens[r.slot] != r.gen {
		c.server.stats.doubleAnswers.Add(1)
		return false
	}
	return !c.out.stoppedLocked()
}

// answerLocked takes buf, the gathering buffer with one frame appended, as r's answer. A frame that would
// break the stream is replaced by an error.
func (c *Conn) answerLocked(r Responder, buf []byte) (slow bool) {
	before := len(c.out.next.buf)
	n := len(buf) - before
	switch {
	case n < lengthFieldSize+minFrameLength || uint64(binary.BigEndian.Uint32(buf[before:])) != uint64(n-lengthFieldSize):
		return c.failLocked(r, remarkMalformed)
	case n > c.server.cfg.MaxFrameBytes:
		return c.failLocked(r, remarkOversize)
	}
	c.out.next.buf = buf
	return c.countLocked(r, n)
}

func (c *Conn) failLocked(r Responder, remark string) (slow bool) {
	c.server.failedAnswer(r, remark)
	resp := remoting.Command{Code: codeSystemError, Remark: remark}
	r.fill(&resp)
	before := len(c.out.next.buf)
	c.out.next.buf = remoting.AppendFrame(c.out.next.buf, &resp)
	return c.countLocked(r, len(c.out.next.buf)-before)
}

// countLocked settles the debt and accounts for n queued bytes, or what they cost.
func (c *Conn) countLocked(r Responder, n int) (slow bool) {
	c.out.takeSlotLocked(r.slot)
	c.out.next.answers++
	return c.out.gatheredLocked(n + answerCost)
}
