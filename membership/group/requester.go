package group

// LearnRequester notes that the client with that id waits for replies on a connection (REPLY_TO_CLIENT of a request), unless
// one is known for it, and reports whether it did: a Go producer's heartbeat may come half a minute after its first request.
// No allocation for a known one.
func (r *Registry) LearnRequester(id []byte, c Client) bool {
	r.mu.RLock()
	known := r.mu.requesters[string(id)] != nil
	r.mu.RUnlock()
	if known {
		return false
	}
	c.ID = string(id)
	c.LastSeen = r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.requesters[c.ID] != nil {
		return false
	}
	r.requestsLocked(r.memberLocked(c.Conn.ID()), &c)
	return true
}

// Requester returns the connection of a producer by its client id: where replies go.
func (r *Registry) Requester(id string) (Client, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := r.mu.requesters[id]
	if c == nil {
		return Client{}, false
	}
	return *c, true
}

// requestsLocked makes c the connection for its client id. A connection stands for one id.
func (r *Registry) requestsLocked(m *membership, c *Client) {
	if m.requester != c.ID {
		r.dropRequesterLocked(c.Conn.ID(), m)
		m.requester = c.ID
	}
	r.mu.requesters[c.ID] = c
}

func (r *Registry) dropRequesterLocked(conn uint64, m *membership) {
	if c := r.mu.requesters[m.requester]; c != nil && c.Conn.ID() == conn {
		delete(r.mu.requesters, m.requester)
	}
	m.requester = ""
}

// memberLocked is what a connection is known for, made on first use.
func (r *Registry) memberLocked(conn uint64) *membership {
	m := r.mu.conns[conn]
	if m == nil {
		m = &membership{consumers: map[string]struct{}{}, producers: map[string]struct{}{}}
		r.mu.conns[conn] = m
	}
	return m
}

// tidyLocked forgets a connection that is known for nothing.
func (r *Registry) tidyLocked(conn uint64, m *membership) {
	if len(m.consumers)+len(m.producers) == 0 && m.requester == "" {
		delete(r.mu.conns, conn)
	}
}
