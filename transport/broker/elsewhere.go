package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
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

// located remembers which other nodes have producers of which groups: a pass over half messages asks for each message.
type located struct {
	mu     sync.Mutex
	groups map[string]location
}

type location struct {
	addrs []string // none: nobody has
	until time.Time
}

const (
	// locationTime is how long it is remembered which nodes have producers of a group: as long as it holds, that is found out by asking.
	locationTime = 10 * time.Second
	// nowhereTime is the same for groups of which no node has any.
	nowhereTime = 2 * time.Second
)

// producersAt returns nodes with producers of a group, and whether that was known from before.
func (b *Broker) producersAt(ctx context.Context, name string) (addrs []string, remembered bool) {
	now := b.cfg.Now()
	b.located.mu.Lock()
	at, ok := b.located.groups[name]
	b.located.mu.Unlock()
	if ok && now.Before(at.until) {
		return at.addrs, true
	}
	for _, a := range b.askPeers(ctx, forwardedRequest(remoting.RequestGetProducerConnectionList, "producerGroup", name), succeeded) {
		if succeeded(a.resp) {
			addrs = append(addrs, a.addr)
		}
	}
	at = location{addrs, now.Add(nowhereTime)}
	if len(addrs) > 0 {
		at.until = now.Add(locationTime)
	}
	b.located.mu.Lock()
	defer b.located.mu.Unlock()
	maps.DeleteFunc(b.located.groups, func(_ string, l location) bool { return !now.Before(l.until) })
	if b.located.groups == nil {
		b.located.groups = map[string]location{}
	}
	b.located.groups[name] = at
	return addrs, false
}

// forgetLocation: what was remembered is not so.
func (b *Broker) forgetLocation(name string) {
	b.located.mu.Lock()
	delete(b.located.groups, name)
	b.located.mu.Unlock()
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
		b.forgetLocation(name)
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

// otherIDs are the consumers of groups as other nodes know them, remembered for a moment: hundreds of members ask when one has come.
type otherIDs struct {
	mu     sync.Mutex
	groups map[string]*idList
}

type idList struct {
	done chan struct{} // closed when the rest is there
	ids  []string
	at   time.Time
}

// idsTime is how long they are remembered: less than clients are told later of a change than this node notices it.
const idsTime = notifyDelay / 2

func (l *idList) old(now time.Time) bool {
	select {
	case <-l.done:
		return now.Sub(l.at) > idsTime
	default:
		return false
	}
}

// idsElsewhere returns the client ids of a group's consumers that other nodes know.
func (b *Broker) idsElsewhere(name string) []string {
	now := time.Now()
	b.others.mu.Lock()
	l := b.others.groups[name]
	if l != nil && !l.old(now) {
		b.others.mu.Unlock()
		<-l.done
		return l.ids
	}
	maps.DeleteFunc(b.others.groups, func(_ string, l *idList) bool { return l.old(now) })
	if b.others.groups == nil {
		b.others.groups = map[string]*idList{}
	}
	l = &idList{done: make(chan struct{}), at: now}
	b.others.groups[name] = l
	b.others.mu.Unlock()
	defer close(l.done)
	ctx, cancel := context.WithTimeout(b.ctx, askWhere)
	defer cancel()
	for _, a := range b.askPeers(ctx, forwardedRequest(remoting.RequestGetConsumerListByGroup, "consumerGroup", name), nil) {
		var list remoting.ConsumerList
		if succeeded(a.resp) && list.Decode(a.resp.Body) == nil {
			l.ids = append(l.ids, list.ConsumerIDList...)
		}
	}
	return l.ids
}

// passOn has another node answer a request by itself.
func (b *Broker) passOn(ctx context.Context, addr string, cmd *remoting.Command) (*remoting.Command, error) {
	request := &remoting.Command{Code: cmd.Code, Language: cmd.Language, Version: cmd.Version, Ext: append([]remoting.Field{}, cmd.Ext...), Body: cmd.Body}
	request.Set(forwardedField, "true")
	return b.cfg.Ask(ctx, addr, request)
}

// busy answers that too many requests wait.
func busy(r transport.Responder) { r.ReplyError(remoting.ResponseSystemBusy, remarkOverload) }
