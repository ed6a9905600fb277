package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// askStatus is how long each consumer may take to tell where it is (Broker2Client.getConsumeStatus).
const askStatus = 5 * time.Second

// tooOld refuses what a client of an old release does not understand.
func tooOld(version int32) *refusal {
	return refuse(remoting.ResponseSystemError, "the client does not support this feature. version=%s", remoting.VersionName(version))
}

// consumerStatus serves INVOKE_BROKER_TO_GET_CONSUMER_STATUS: every consumer of the group, or the one with the id that
// clientAddr has, is asked where it is, through the node that it is connected to.
func (b *Broker) consumerStatus(r transport.Responder, cmd *remoting.Command) {
	name, only := cmd.GetString("group"), cmd.GetString("clientAddr")
	members := b.cfg.Groups.Members(name)
	known := len(members) > 0 && (only == "" || slices.ContainsFunc(members, func(m group.Client) bool { return m.ID == only }))
	if !b.looksElsewhere(cmd, known) {
		b.statusOf(r, cmd, members, nil)
		return
	}
	owned := cmd.Clone()
	if !b.apart(func() {
		others, _ := b.consumersElsewhere(b.ctx, name)
		b.statusOf(r, owned, members, others)
	}) {
		busy(r)
	}
}

func (b *Broker) statusOf(r transport.Responder, cmd *remoting.Command, members []group.Client, others []consumerAt) {
	name, only := cmd.GetString("group"), cmd.GetString("clientAddr")
	if len(members)+len(others) == 0 {
		r.ReplyError(remoting.ResponseSystemError, "No Any Consumer online in the consumer group: ["+name+"]")
		return
	}
	if f := anyTooOld(members, others); f != nil {
		answerRefusal(r, f)
		return
	}
	ask := &remoting.Command{Code: remoting.RequestGetConsumerStatusFromClient}
	ask.Set("topic", cmd.GetString("topic"))
	ask.Set("group", name)
	if !b.apart(func() {
		var body remoting.ConsumerStatus
		add := func(id string, invoke func(ctx context.Context) (*remoting.Command, error)) {
			if only != "" && (id != only || len(body.Clients) > 0) {
				return
			}
			if offsets, ok := b.askOffsets(id, invoke); ok {
				body.Clients = append(body.Clients, remoting.ClientStatus{ClientID: id, Offsets: offsets})
			}
		}
		for _, m := range members {
			add(m.ID, func(ctx context.Context) (*remoting.Command, error) { return invokeClient(ctx, m, ask) })
		}
		for _, c := range others {
			add(c.ClientID, func(ctx context.Context) (*remoting.Command, error) {
				return b.cfg.Ask(ctx, c.addr, relayRequest(name, c.ClientID, ask))
			})
		}
		slices.SortFunc(body.Clients, func(x, y remoting.ClientStatus) int { return cmp.Compare(x.ClientID, y.ClientID) })
		successBody(r, body.Encode())
	}) {
		busy(r)
	}
}

// anyTooOld refuses what one of a group's consumers does not understand.
func anyTooOld(members []group.Client, others []consumerAt) *refusal {
	for _, m := range members {
		if m.Version < remoting.VersionMinResetOffset {
			return tooOld(m.Version)
		}
	}
	for _, c := range others {
		if c.Version < remoting.VersionMinResetOffset {
			return tooOld(c.Version)
		}
	}
	return nil
}

// askOffsets asks a consumer where it is.
func (b *Broker) askOffsets(id string, invoke func(ctx context.Context) (*remoting.Command, error)) ([]remoting.QueueOffset, bool) {
	ctx, cancel := context.WithTimeout(b.ctx, askStatus)
	defer cancel()
	resp, err := invoke(ctx)
	if err != nil || !succeeded(resp) || len(resp.Body) == 0 {
		return nil, false
	}
	var offsets remoting.ClientOffsets
	if err := offsets.Decode(resp.Body); err != nil {
		b.logger.Debug("a consumer's status cannot be read", "client", id, "error", err)
		return nil, false
	}
	return offsets.MessageQueueTable, true
}

// runningInfo serves GET_CONSUMER_RUNNING_INFO: the consumer's own answer, as it is.
func (b *Broker) runningInfo(r transport.Responder, cmd *remoting.Command) {
	b.callConsumer(r, cmd.Clone(), nil)
}

// consumeDirectly serves CONSUME_MESSAGE_DIRECTLY: the consumer gets the message that the id names, now, and its verdict is the answer.
func (b *Broker) consumeDirectly(r transport.Responder, cmd *remoting.Command) {
	owned := cmd.Clone()
	owned.Set("brokerName", b.cfg.BrokerName)
	b.callConsumer(r, owned, func() *refusal {
		_, at, err := record.ParseMessageID(owned.GetString("msgId"))
		if err != nil {
			return refuse(remoting.ResponseSystemError, "%v", err)
		}
		rec, release, err := b.cfg.Store.RecordAt(at)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return refuse(remoting.ResponseSystemError, "can not find message by the offset, %d", at)
		case err != nil:
			return refusalOf(err, b.cfg.MaxMessageSize)
		}
		owned.Body = slices.Clone(rec)
		release()
		return nil
	})
}

// member returns a group's consumer with an id that is connected to this node.
func (b *Broker) member(name, id string) (m group.Client, ok bool) {
	members := b.cfg.Groups.Members(name)
	i := slices.IndexFunc(members, func(m group.Client) bool { return m.ID == id })
	if i < 0 {
		return m, false
	}
	return members[i], true
}

// callConsumer passes a request on to the consumer that it names, after prepare, and its answer back (AdminBrokerProcessor.callConsumer). If that is
// connected to another node, that node does.
func (b *Broker) callConsumer(r transport.Responder, cmd *remoting.Command, prepare func() *refusal) {
	name, id := cmd.GetString("consumerGroup"), cmd.GetString("clientId")
	m, ok := b.member(name, id)
	if !ok {
		if !b.looksElsewhere(cmd, false) {
			notOnline(r, name, id)
		} else if !b.apart(func() { b.callElsewhere(r, cmd, name, id) }) {
			busy(r)
		}
		return
	}
	if v := m.Version; v < remoting.VersionMinRunningInfo {
		r.ReplyError(remoting.ResponseSystemError, fmt.Sprintf("The Consumer <%s> Version <%s> too low to finish, please upgrade it to V3_1_8_SNAPSHOT", id, remoting.VersionName(v)))
		return
	}
	if prepare != nil {
		if f := prepare(); f != nil {
			answerRefusal(r, f)
			return
		}
	}
	ask := &remoting.Command{Code: cmd.Code, Ext: withoutForwarded(cmd.Ext), Body: cmd.Body}
	if !b.apart(func() {
		ctx, cancel := context.WithTimeout(b.ctx, askClient)
		defer cancel()
		resp, err := invokeClient(ctx, m, ask)
		answerCall(r, name, id, resp, err)
	}) {
		busy(r)
	}
}

func notOnline(r transport.Responder, name, id string) {
	r.ReplyError(remoting.ResponseSystemError, fmt.Sprintf("The Consumer <%s> <%s> not online", name, id))
}

// answerCall passes a consumer's answer on, or says why there is none.
func answerCall(r transport.Responder, name, id string, resp *remoting.Command, err error) {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		r.ReplyError(remoting.ResponseConsumeMsgTimeout, fmt.Sprintf("consumer <%s> <%s> Timeout: %v", name, id, err))
	case err != nil:
		r.ReplyError(remoting.ResponseSystemError, fmt.Sprintf("invoke consumer <%s> <%s> Exception: %v", name, id, err))
	default:
		r.Reply(resp)
	}
}

// callElsewhere has the node that a consumer is connected to call it.
func (b *Broker) callElsewhere(r transport.Responder, cmd *remoting.Command, name, id string) {
	others, _ := b.consumersElsewhere(b.ctx, name)
	i := slices.IndexFunc(others, func(c consumerAt) bool { return c.ClientID == id })
	if i < 0 {
		notOnline(r, name, id)
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, askClient+askWhere)
	defer cancel()
	resp, err := b.passOn(ctx, others[i].addr, cmd)
	answerCall(r, name, id, resp, err)
}

func withoutForwarded(ext []remoting.Field) []remoting.Field {
	return slices.DeleteFunc(slices.Clone(ext), func(f remoting.Field) bool { return f.Key == forwardedField })
}

// producerConnections serves GET_PRODUCER_CONNECTION_LIST. Producers send heartbeats to the leader only, to another
// node after a change of leadership; so one that knows none asks the others.
func (b *Broker) producerConnections(r transport.Responder, cmd *remoting.Command) {
	name := cmd.GetString("producerGroup")
	members := b.cfg.Groups.Producers(name)
	if len(members) > 0 || cmd.Get(forwardedField) != nil || b.cfg.Peers == nil {
		replyProducers(r, name, connectionsOf(members))
		return
	}
	if !b.apart(func() {
		var found []connectionJSON
		ctx, cancel := context.WithTimeout(b.ctx, authorityWait)
		defer cancel()
		for _, a := range b.askPeers(ctx, forwardedRequest(remoting.RequestGetProducerConnectionList, "producerGroup", name), nil) {
			var body producerConnectionsJSON
			if succeeded(a.resp) && json.Unmarshal(a.resp.Body, &body) == nil {
				found = append(found, body.ConnectionSet...)
			}
		}
		replyProducers(r, name, found)
	}) {
		busy(r)
	}
}

// forwardedRequest makes a request to other nodes that they answer by themselves.
func forwardedRequest(code int32, fields ...string) func() *remoting.Command {
	return func() *remoting.Command {
		cmd := &remoting.Command{Code: code}
		for i := 0; i+1 < len(fields); i += 2 {
			cmd.Set(fields[i], fields[i+1])
		}
		cmd.Set(forwardedField, "true")
		return cmd
	}
}

type producerConnectionsJSON struct {
	ConnectionSet []connectionJSON `json:"connectionSet"`
}

func replyProducers(r transport.Responder, name string, found []connectionJSON) {
	if len(found) == 0 {
		r.ReplyError(remoting.ResponseSystemError, "the producer group["+name+"] not exist")
		return
	}
	replyJSON(r, producerConnectionsJSON{found})
}

// producerJSON is RocketMQ's ProducerInfo.
type producerJSON struct {
	ClientID   string `json:"clientId"`
	Language   string `json:"language"`
	LastUpdate int64  `json:"lastUpdateTimestamp"`
	RemoteIP   string `json:"remoteIP"`
	Version    int32  `json:"version"`
}

type producersJSON struct {
	Data map[string][]producerJSON `json:"data"`
}

// allProducers serves GET_ALL_PRODUCER_INFO: those of this node and of all others.
func (b *Broker) allProducers(r transport.Responder, cmd *remoting.Command) {
	all := producersJSON{map[string][]producerJSON{}}
	for name, members := range b.cfg.Groups.AllProducers() {
		for _, m := range members {
			all.Data[name] = append(all.Data[name], producerJSON{m.ID, remoting.LanguageName(m.Language), m.LastSeen.UnixMilli(), "/" + m.Conn.RemoteAddr().String(), m.Version})
		}
	}
	if cmd.Get(forwardedField) != nil || b.cfg.Peers == nil {
		replyJSON(r, all)
		return
	}
	if !b.apart(func() {
		ctx, cancel := context.WithTimeout(b.ctx, authorityWait)
		defer cancel()
		for _, a := range b.askPeers(ctx, forwardedRequest(remoting.RequestGetAllProducerInfo), nil) {
			var theirs producersJSON
			if !succeeded(a.resp) || json.Unmarshal(a.resp.Body, &theirs) != nil {
				continue
			}
			for name, found := range theirs.Data {
				all.Data[name] = mergeProducers(all.Data[name], found)
			}
		}
		replyJSON(r, all)
	}) {
		busy(r)
	}
}

// mergeProducers keeps the newest of what two nodes know of the same client.
func mergeProducers(a, b []producerJSON) []producerJSON {
	out := append(slices.Clone(a), b...)
	slices.SortFunc(out, func(x, y producerJSON) int {
		return cmp.Or(cmp.Compare(x.ClientID, y.ClientID), cmp.Compare(y.LastUpdate, x.LastUpdate))
	})
	return slices.CompactFunc(out, func(x, y producerJSON) bool { return x.ClientID == y.ClientID })
}
