package broker

import "slices"

// suggest is the broker id at which the pull's client had better go on (suggestWhichBrokerId; wire notes §7.3). A consumer that reads what is no
// longer in the leader's memory would push newer messages out of it, for those who read them and for the followers' catching up:
// with SlaveReadEnable it is sent to a replica, the one that its group names (whichBrokerWhenConsumeSlowly) if that serves and does not
// lead, otherwise one by its queue's number, so that queues spread. When it has caught up it is sent back (the group's brokerId).
// Every node serves pulls, so a client that goes on where it was is served all the same.
func (p *pull) suggest() int64 {
	b := p.b
	if !b.cfg.SlaveReadEnable {
		return 0
	}
	replicas := b.cfg.Replicas()
	if !p.res.Lagging {
		if slices.Contains(replicas, p.home) {
			return p.home
		}
		return 0
	}
	if len(replicas) == 0 {
		return 0
	}
	if slices.Contains(replicas, p.slow) {
		return p.slow
	}
	return replicas[int(p.h.QueueID)%len(replicas)]
}
