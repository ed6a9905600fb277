package broker

import (
	"sync"
	"time"

	"raftmq/transport/remoting"
)

const (
	// notifyDelay gathers changes of a group that come together.
	notifyDelay = 50 * time.Millisecond
	// notifyPause is the least time between two notifications of one group (F75: a thousand members
	// that start together must not cause a million messages).
	notifyPause = 500 * time.Millisecond
)

// oneWaySender is the part of a client's connection that notifications need.
type oneWaySender interface {
	SendOneWay(*remoting.Command) error
}

// notifier tells the members of a consumer group that it has changed
// (NOTIFY_CONSUMER_IDS_CHANGED, RocketMQ DefaultConsumerIdsChangeListener), changes gathered.
type notifier struct {
	b  *Broker
	mu struct {
		sync.Mutex
		due  map[string]time.Time // changed groups and when to tell
		last map[string]time.Time // when a group was last told
	}
	wake chan struct{}
}

func (n *notifier) init(b *Broker) {
	n.b = b
	n.mu.due, n.mu.last = map[string]time.Time{}, map[string]time.Time{}
	n.wake = make(chan struct{}, 1)
}

// mark notes that a group has changed.
func (n *notifier) mark(group string) {
	now := time.Now()
	n.mu.Lock()
	if _, ok := n.mu.due[group]; !ok {
		at := now.Add(notifyDelay)
		if pause := n.mu.last[group].Add(notifyPause); at.Before(pause) {
			at = pause
		}
		n.mu.due[group] = at
	}
	n.mu.Unlock()
	signal(n.wake)
}

// run is the notifier's goroutine; it ends with the broker.
func (n *notifier) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		groups, next := n.take(time.Now())
		for _, g := range groups {
			n.tell(g)
		}
		timer.Reset(time.Until(next))
		select {
		case <-n.wake:
		case <-timer.C:
		case <-n.b.ctx.Done():
			return
		}
	}
}

// take removes the groups that are due and returns when to look again.
func (n *notifier) take(now time.Time) (groups []string, next time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	next = now.Add(time.Hour)
	for g, at := range n.mu.due {
		if now.Before(at) {
			next = earlier(next, at)
			continue
		}
		delete(n.mu.due, g)
		n.mu.last[g] = now
		groups = append(groups, g)
	}
	for g, at := range n.mu.last {
		if now.Sub(at) > notifyPause {
			delete(n.mu.last, g)
		}
	}
	return groups, next
}

func (n *notifier) tell(group string) {
	if g, ok := n.b.cfg.Tables.Group(group); ok && !g.NotifyConsumerIDsChangedEnable {
		return
	}
	cmd := remoting.Command{Code: remoting.RequestNotifyConsumerIDsChanged}
	(&remoting.ConsumerGroupHeader{ConsumerGroup: group}).Encode(&cmd)
	for _, member := range n.b.cfg.Groups.Members(group) {
		if c, ok := member.Conn.(oneWaySender); ok {
			if err := c.SendOneWay(&cmd); err != nil {
				n.b.logger.Debug("consumer was not notified", "group", group, "client", member.ID, "error", err)
			}
		}
	}
}
