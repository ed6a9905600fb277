package group

import "testing"

func TestRequesters(t *testing.T) {
	r, clock, _ := newTestRegistry()
	expect := func(what, id string, conn uint64) {
		t.Helper()
		c, ok := r.Requester(id)
		if ok != (conn != 0) || ok && (c.Conn.ID() != conn || c.ID != id) {
			t.Errorf("%s: %+v, %v", what, c, ok)
		}
	}
	learn := func(conn uint64, id string) bool { return r.LearnRequester([]byte(id), Client{Conn: testConn(conn)}) }
	expect("unknown", "a", 0)
	if !learn(1, "a") || learn(1, "a") || learn(2, "a") {
		t.Error("the first connection counts, as long as it is there")
	}
	expect("learnt from a request", "a", 1)
	r.Heartbeat(beat(3, "a", "g"))
	expect("a heartbeat counts more", "a", 3)
	r.CloseConn(1)
	expect("the older connection's end does not matter", "a", 3)
	r.CloseConn(3)
	expect("closed", "a", 0)
	// One connection is one client.
	learn(4, "x")
	learn(4, "y")
	expect("replaced", "x", 0)
	expect("replaced", "y", 4)
	r.LearnProducer([]byte("pg"), Client{Conn: testConn(4), ID: "127.0.0.1:1"})
	expect("a half message tells no client id", "y", 4)
	expect("nor is the address one", "127.0.0.1:1", 0)
	// A client that is no producer any more gets no replies.
	r.Heartbeat(beat(5, "b", "g"))
	r.Unregister(5, "", "g")
	expect("still a producer", "b", 5)
	r.Unregister(5, "p-g", "")
	expect("unregistered", "b", 0)
	clock.at = clock.at.Add(Expiry + 1)
	r.Heartbeat(beat(6, "c", "g"))
	r.Expire()
	expect("expired", "y", 0)
	expect("alive", "c", 6)
	r.CloseConn(6)
	if r.Stats() != (Stats{}) || len(r.mu.conns) != 0 || len(r.mu.requesters) != 0 {
		t.Errorf("left over: %+v, %d connections, %d requesters", r.Stats(), len(r.mu.conns), len(r.mu.requesters))
	}
}
