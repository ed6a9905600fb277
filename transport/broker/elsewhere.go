package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// tellOne sends a one-way request to one of the members, that with the id or, if that is "", any. It reports whether it is on a connection.
func tellOne(members []group.Client, id string, cmd *remoting.Command) bool {
	for i, first := 0, rand.IntN(max(1, len(members))); i < len(members); i++ {
		m := members[(first+i)%len(members)]
		if id != "" && m.ID != id {
			continue
		}
		if c, ok := m.Conn.(oneWaySender); ok && c.SendOneWay(cmd) == nil {
			return true
		}
	}
	return false
}

const (
	// locationTime is how long it is remembered which nodes have producers of a group: as long as it holds, that is found out by asking.
	locationTime = 10 * time.Second
	// nowhereTime is the same for groups of which no node has any.
	nowhereTime = 2 * time.Second
)

// producersAt returns nodes with producers of a group, and whether that was known from before: a pass over half messages asks for each
// message.
func (b *Broker) producersAt(ctx context.Context, name string) (addrs []string, remembered bool) {
	return b.located.get(name, b.cfg.Now(), func() (addrs []string, keep time.Duration) {
		for _, a := range b.askPeers(ctx, forwardedRequest(remoting.RequestGetProducerConnectionList, "producerGroup", name), succeeded) {
			if succeeded(a.resp) {
				addrs = append(addrs, a.addr)
			}
		}
		if len(addrs) == 0 {
			return nil, nowhereTime
		}
		return addrs, locationTime
	})
}

// tellProducerElsewhere passes a one-way request on to one producer of a group that is connected to another node.
func (b *Broker) tellProducerElsewhere(name string, cmd *remoting.Command) bool {
	if b.cfg.Peers == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(b.ctx, askWhere)
	defer cancel()
	for {
		addrs, remembered := b.producersAt(ctx, name)
		if slices.ContainsFunc(addrs, func(addr string) bool { return b.relayToClient(ctx, addr, name, "", cmd) }) {
			return true
		}
		if len(addrs) == 0 {
			return false
		}
		b.located.forget(name)
		if !remembered {
			return false
		}
	}
}

// consumerAt is a consumer that is connected to another node.
type consumerAt struct {
	connectionJSON
	addr string
}

// consumersElsewhere are a group's consumers that only other nodes know, each once, by id, and the group as the first of those nodes
// describes it.
func (b *Broker) consumersElsewhere(ctx context.Context, name string) (found []consumerAt, as *consumerConnectionsJSON) {
	ctx, cancel := context.WithTimeout(ctx, askWhere)
	defer cancel()
	known := map[string]bool{}
	for _, id := range b.cfg.Groups.Consumers(name) {
		known[id] = true
	}
	for _, a := range b.askPeers(ctx, forwardedRequest(remoting.RequestGetConsumerConnectionList, "consumerGroup", name), nil) {
		var theirs consumerConnectionsJSON
		if !succeeded(a.resp) || json.Unmarshal(a.resp.Body, &theirs) != nil {
			continue
		}
		as = &theirs
		for _, c := range theirs.ConnectionSet {
			if !known[c.ClientID] {
				known[c.ClientID] = true
				found = append(found, consumerAt{c, a.addr})
			}
		}
	}
	slices.SortFunc(found, func(x, y consumerAt) int { return cmp.Compare(x.ClientID, y.ClientID) })
	return found, as
}

// idsTime is how long it is remembered which consumers other nodes know: less than clients are told later of a change than this node
// notices it.
const idsTime = notifyDelay / 2

// idsElsewhere returns the client ids of a group's consumers that other nodes know: hundreds of members ask when one has come.
func (b *Broker) idsElsewhere(name string) []string {
	ids, _ := b.others.get(name, time.Now(), func() (ids []string, keep time.Duration) {
		ctx, cancel := context.WithTimeout(b.ctx, askWhere)
		defer cancel()
		for _, a := range b.askPeers(ctx, forwardedRequest(remoting.RequestGetConsumerListByGroup, "consumerGroup", name), nil) {
			var list remoting.ConsumerList
			if succeeded(a.resp) && list.Decode(a.resp.Body) == nil {
				ids = append(ids, list.ConsumerIDList...)
			}
		}
		return ids, idsTime
	})
	return ids
}

// passOn has another node answer a request by itself.
func (b *Broker) passOn(ctx context.Context, addr string, cmd *remoting.Command) (*remoting.Command, error) {
	request := &remoting.Command{Code: cmd.Code, Language: cmd.Language, Version: cmd.Version, Ext: append([]remoting.Field{}, cmd.Ext...), Body: cmd.Body}
	request.Set(forwardedField, "true")
	return b.cfg.Ask(ctx, addr, request)
}

// busy answers that too many requests wait.
func busy(r transport.Responder) { r.ReplyError(remoting.ResponseSystemBusy, remarkOverload) }
