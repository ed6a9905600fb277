package group

// LearnProducer registers a producer that a half message names, unless the connection is registered already, and
// reports whether it did. Heartbeats may come 30 s after the first message. No allocation for a known one.
func (r *Registry) LearnProducer(group []byte, c Client) bool {
	id := c.Conn.ID()
	r.mu.RLock()
	known := r.mu.producers[string(group)][id] != nil
	r.mu.RUnlock()
	if known {
		return false
	}
	r.register(Heartbeat{Client: c, Producers: []string{string(group)}}, "") // its client id is not known
	return true
}
