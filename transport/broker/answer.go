package broker

import (
	"encoding/json"
	"errors"
	"fmt"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// Remarks and remark parts of a 4.9.4 broker.
const (
	faqHint        = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
	remarkNoCode   = "not set any response code"
	remarkRejected = "[REJECTREQUEST]system busy, start flow control for a while"
	remarkOverload = "[OVERLOAD]system busy, start flow control for a while"
)

// refusal is an answer other than success.
type refusal struct {
	code   int32
	remark string
	cause  error // of another package, nil for a check of our own
}

func refuse(code int32, format string, args ...any) *refusal {
	return &refusal{code: code, remark: fmt.Sprintf(format, args...)}
}

// refusalOf is the one place where errors of other packages become response codes. limit is the
// largest body (for MESSAGE_ILLEGAL).
func refusalOf(err error, limit int) (f *refusal) {
	var put *putRefused
	switch {
	case errors.As(err, &put):
		f = &refusal{code: put.code, remark: put.remark}
	case errors.Is(err, command.ErrNoResult):
		f = &refusal{code: remoting.ResponseSystemError, remark: remarkUnknown}
	case errors.Is(err, raftnode.ErrBusy):
		f = refuse(remoting.ResponseSystemBusy, remarkRejected)
	case errors.Is(err, raftnode.ErrTooLarge):
		f = messageIllegal(limit)
	case errors.Is(err, raftnode.ErrNotLeader), errors.Is(err, raftnode.ErrLeadershipLost), errors.Is(err, raftnode.ErrClosed):
		f = refuse(remoting.ResponseServiceNotAvailable, "service not available now. %v", err)
	default:
		f = refuse(remoting.ResponseServiceNotAvailable, "service not available now. The command failed on this node: %v", err)
	}
	f.cause = err
	return f
}

func messageIllegal(limit int) *refusal {
	return refuse(remoting.ResponseMessageIllegal,
		"the message is illegal, maybe msg body or properties length not matched. msg body length limit %dB, msg properties length limit 32KB.", limit)
}

// unavailable is the answer of a node that may not write: 14 with the leader's name, if it is known.
func (b *Broker) unavailable() *refusal {
	if b.ctx.Err() != nil {
		return refuse(remoting.ResponseServiceNotAvailable, "%s", b.serviceNotAvailable()) // "message store has been shut down"
	}
	node, addr := b.cfg.LeaderAddr()
	if node == "" {
		return refuse(remoting.ResponseServiceNotAvailable, "service not available now. No leader is known, an election may be under way.")
	}
	return refuse(remoting.ResponseServiceNotAvailable, "service not available now. This node does not lead; the leader is node %s at %s.", node, addr)
}

// successBody answers 0 with a body.
func successBody(r transport.Responder, body []byte) {
	r.Reply(&remoting.Command{Body: body})
}

// emptyExt answers with an ext map that is there and empty, as handlers with a response header class do in Java.
func emptyExt(r transport.Responder, code int32, remark string) {
	r.Reply(&remoting.Command{Code: code, Remark: remark, Ext: []remoting.Field{}})
}

// replyJSON answers 0 with a JSON body.
func replyJSON(r transport.Responder, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		r.ReplyError(remoting.ResponseSystemError, "the answer cannot be written: "+err.Error())
		return
	}
	successBody(r, b)
}

// success answers 0 with nothing else.
func success(r transport.Responder) { r.Reply(&remoting.Command{}) }

func answerRefusal(r transport.Responder, f *refusal) { r.ReplyError(f.code, f.remark) }
