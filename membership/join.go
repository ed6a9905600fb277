package membership

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Join contacts addresses once and returns how many answered, this node's own not counted.
// No error unless none did. KeepJoining retries in the background.
func (m *Membership) Join(addrs []string) (int, error) {
	answered := 0
	var errs []error
	for _, a := range addrs {
		if m.ctx.Err() != nil {
			return answered, ErrClosed
		}
		if m.own[a] {
			continue
		}
		n, err := m.list.Join([]string{a})
		answered += n
		if err != nil {
			errs = append(errs, joinError(a, err))
		}
	}
	if answered > 0 {
		return answered, nil
	}
	return 0, errors.Join(errs...)
}

// joinError gives memberlist's text, which flattens what our own delegate said, its identity back.
func joinError(addr string, err error) error {
	for _, s := range []error{ErrOtherCluster, ErrBadTags} {
		if _, text, ok := strings.Cut(err.Error(), s.Error()); ok {
			return fmt.Errorf("%w%s", s, strings.TrimRight(text, "\n"))
		}
	}
	return fmt.Errorf("membership: join %s: %w", addr, err)
}

// KeepJoining retries Join in the background until it has met another node, and again whenever
// it is alone. A later call replaces the addresses.
func (m *Membership) KeepJoining(addrs []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.joinAddrs = append([]string(nil), addrs...)
	poke(m.wakeJoin)
}

// rejoin is the loop behind KeepJoining. While there is need it tries with growing pauses;
// else it now and then tries a failed member, since memberlist itself forgets the dead and two halves of a
// split cluster would never find each other again.
func (m *Membership) rejoin() {
	beat := m.cfg.ProbeInterval
	shortest, longest := beat/5, 3*beat
	pause := shortest
	var notBefore time.Time
	told := time.Now().Add(quietStart - tellAgain)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-timer.C:
		case <-m.wakeJoin:
			if wait := time.Until(notBefore); wait > 0 { // tried just now; conflicts wake often
				timer.Reset(wait)
				continue
			}
		}
		addrs, need := m.joinTargets()
		if !need {
			pause = shortest
			m.tryFailed()
			timer.Reset(jitter(10 * beat))
			continue
		}
		_, err := m.Join(addrs)
		if err != nil && time.Since(told) > tellAgain && m.ctx.Err() == nil {
			told = time.Now()
			m.logger.Warn("cannot join yet, going on trying", "addresses", addrs, "error", err)
		}
		wait := jitter(pause)
		pause = min(2*pause, longest)
		notBefore = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// joinTargets are the addresses to join, and whether there is need.
func (m *Membership) joinTargets() (addrs []string, need bool) {
	m.mu.Lock()
	addrs, left := m.mu.joinAddrs, m.mu.left
	m.mu.Unlock()
	if left {
		return nil, false
	}
	alive := m.table.peers(Alive)
	if len(alive) == 0 {
		return addrs, len(addrs) > 0
	}
	if m.table.inConflict(time.Now()) {
		// They know our id at another address. They take this one when they have found that dead.
		return alive, true
	}
	return nil, false
}

// quietStart is how long nodes that start together may miss each other before that is worth a line.
const quietStart = 5 * time.Second

// tryFailed asks one failed member to come back.
func (m *Membership) tryFailed() {
	m.mu.Lock()
	left := m.mu.left
	m.mu.Unlock()
	failed := m.table.peers(Failed)
	if left || len(failed) == 0 {
		return
	}
	addr := failed[rand.IntN(len(failed))]
	if _, err := m.Join([]string{addr}); err != nil {
		m.logger.Debug("failed member does not answer yet", "address", addr, "error", err)
	}
}

// jitter spreads a pause over 0.75 to 1.25 of it, so that nodes don't act in step.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}
