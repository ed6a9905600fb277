package membership

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// beat is the tests' probe interval: detection takes about a second.
const beat = 150 * time.Millisecond

// within waits until ok, which says what it saw last.
func within(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		done, saw := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute; last: %s", what, saw)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// refusals collects what OnRefused gets.
type refusals struct {
	mu  sync.Mutex
	all []refusal
}

func (r *refusals) add(m Member, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, refusal{m, err})
}

func (r *refusals) count(node string, is error) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, x := range r.all {
		if x.member.NodeID == node && errors.Is(x.err, is) {
			n++
		}
	}
	return n
}

func open(t *testing.T, tags Tags, change ...func(*Config)) (*Membership, *refusals) {
	t.Helper()
	r := &refusals{}
	logger := hclog.New(&hclog.LoggerOptions{Name: tags.NodeID, Level: hclog.Info, Output: testWriter{t}})
	cfg := Config{Tags: tags, BindAddr: "127.0.0.1:0", ProbeInterval: beat, OnRefused: r.add, Logger: logger}
	for _, c := range change {
		c(&cfg)
	}
	m, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, r
}

// testWriter brings the log to t; memberlist's timers may still speak when the test is over.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func tags(id string) Tags {
	return Tags{NodeID: id, ClusterName: "C", Group: "g", ClientAddr: "127.0.0.1:1" + id[1:], RaftAddr: "127.0.0.1:2" + id[1:], Version: "v", BootstrapExpect: 3}
}

func addr(m *Membership) string { return m.Self().GossipAddr }

// view is m's members in short: "n1=alive n2=failed".
func view(m *Membership) string {
	var b strings.Builder
	for i, x := range m.Members() {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%s", x.NodeID, x.State)
	}
	return b.String()
}

func wantView(t *testing.T, m *Membership, want string) {
	t.Helper()
	within(t, m.nodeID+" sees "+want, func() (bool, string) { v := view(m); return v == want, v })
}

func three(t *testing.T) (a, b, c *Membership) {
	t.Helper()
	a, _ = open(t, tags("n1"))
	b, _ = open(t, tags("n2"))
	c, _ = open(t, tags("n3"))
	for _, m := range []*Membership{b, c} {
		if n, err := m.Join([]string{addr(a)}); n != 1 || err != nil {
			t.Fatalf("join: %d, %v", n, err)
		}
	}
	for _, m := range []*Membership{a, b, c} {
		wantView(t, m, "n1=alive n2=alive n3=alive")
	}
	return a, b, c
}

func TestJoinAndTags(t *testing.T) {
	t.Parallel()
	a, b, c := three(t)
	changed := make(chan struct{}, 100)
	a.OnChange(func() { changed <- struct{}{} })
	if err := c.UpdateTags(func(x *Tags) {
		x.ClusterID, x.LeaderTerm, x.HasData = "id-1", 7, true
		x.NodeID, x.ClusterName = "other", "other" // fixed
	}); err != nil {
		t.Fatal(err)
	}
	want := tags("n3")
	want.ClusterID, want.LeaderTerm, want.HasData = "id-1", 7, true
	for _, m := range []*Membership{a, b, c} {
		within(t, "tags of n3", func() (bool, string) {
			x := m.Members()[2]
			return x.Tags == want && x.GossipAddr == addr(c), fmt.Sprintf("%+v", x)
		})
	}
	select {
	case <-changed:
	case <-time.After(5 * time.Second):
		t.Error("no change was told")
	}
	if err := c.UpdateTags(func(x *Tags) { x.Version = strings.Repeat("v", 600) }); err == nil || !strings.Contains(err.Error(), "512") {
		t.Errorf("tags beyond 512 bytes: %v", err)
	}
	if got := c.Self().Version; got != "v" {
		t.Errorf("version after a refused change is %d bytes", len(got))
	}
}

func TestFailedStaysListedAndComesBack(t *testing.T) {
	t.Parallel()
	a, b, c := three(t)
	old := addr(c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Membership{a, b} {
		wantView(t, m, "n1=alive n2=alive n3=failed")
		if x := m.Members()[2]; x.Tags != tags("n3") || x.GossipAddr != old || time.Since(x.Since) > time.Minute {
			t.Errorf("failed member %+v", x)
		}
	}
	// The same address again, and nobody but the others to call it: they try the failed one.
	d, _ := open(t, tags("n3"), func(c *Config) { c.BindAddr = old })
	for _, m := range []*Membership{a, b, d} {
		wantView(t, m, "n1=alive n2=alive n3=alive")
	}
}

func TestAnnounceLeave(t *testing.T) {
	t.Parallel()
	a, b, c := three(t)
	for _, leaving := range []bool{true, false} {
		if err := c.AnnounceLeave(leaving); err != nil {
			t.Fatal(err)
		}
		for _, m := range []*Membership{a, b, c} {
			within(t, fmt.Sprint("n3 alive and leaving: ", leaving), func() (bool, string) {
				x := m.Members()[2]
				return x.State == Alive && x.Leaving == leaving, fmt.Sprintf("%+v", x)
			})
		}
	}
}

func TestLeave(t *testing.T) {
	t.Parallel()
	a, b, c := three(t)
	old := addr(c)
	if err := c.Leave(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := c.Leave(time.Second); err != nil {
		t.Errorf("second leave: %v", err)
	}
	for _, m := range []*Membership{a, b} {
		wantView(t, m, "n1=alive n2=alive n3=left")
	}
	if got := c.Self().State; got != Left {
		t.Errorf("own state %s", got)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if err := c.UpdateTags(func(*Tags) {}); !errors.Is(err, ErrClosed) {
		t.Errorf("tags after close: %v", err)
	}
	if _, err := c.Join([]string{addr(a)}); !errors.Is(err, ErrClosed) {
		t.Errorf("join after close: %v", err)
	}
	// It may come back, here with a new address at once.
	d, _ := open(t, tags("n3"))
	d.KeepJoining([]string{addr(a)})
	for _, m := range []*Membership{a, b, d} {
		wantView(t, m, "n1=alive n2=alive n3=alive")
	}
	if addr(d) == old {
		t.Error("the test wanted another address")
	}
	e, _ := open(t, tags("n4"))
	e.Close()
	if err := e.Leave(time.Second); !errors.Is(err, ErrClosed) {
		t.Errorf("leave after close: %v", err)
	}
}

// F59: a node restarts with another address before gossip has missed it.
func TestRestartWithNewAddressTakesItsNameOver(t *testing.T) {
	t.Parallel()
	a, b, c := three(t)
	c.Close()
	moved := tags("n3")
	moved.ClientAddr = "127.0.0.1:999"
	d, refused := open(t, moved)
	d.KeepJoining([]string{addr(a), addr(b)})
	for _, m := range []*Membership{a, b, d} {
		within(t, "n3 at its new address", func() (bool, string) {
			x := m.Members()[2]
			return x.State == Alive && x.GossipAddr == addr(d) && x.ClientAddr == moved.ClientAddr, fmt.Sprintf("%+v", x)
		})
	}
	if refused.count("n3", ErrNameConflict) > 1 {
		t.Error("the conflict was told more than once")
	}
}

func TestSecondNodeWithTheSameIDIsRefused(t *testing.T) {
	t.Parallel()
	a, ra := open(t, tags("n1"))
	b, rb := open(t, tags("n2"))
	if _, err := b.Join([]string{addr(a)}); err != nil {
		t.Fatal(err)
	}
	wantView(t, a, "n1=alive n2=alive")
	twin := tags("n2")
	twin.ClientAddr = "127.0.0.1:999"
	d, rd := open(t, twin)
	d.KeepJoining([]string{addr(a)})
	within(t, "all report the conflict", func() (bool, string) {
		x, y, z := ra.count("n2", ErrNameConflict), rb.count("n2", ErrNameConflict), rd.count("n2", ErrNameConflict)
		return x > 0 && z > 0, fmt.Sprint(x, y, z)
	})
	// The twin goes on trying all the time and never gets in while the first one is alive.
	deadline := time.Now().Add(8 * beat)
	for time.Now().Before(deadline) {
		if x := a.Members()[1]; x.GossipAddr != addr(b) || x.ClientAddr != tags("n2").ClientAddr {
			t.Fatalf("the twin got in: %+v", x)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if n := ra.count("n2", ErrNameConflict); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestOtherClusterIsRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		ours, them func(*Tags)
		says       string
	}{
		{"name", func(*Tags) {}, func(x *Tags) { x.ClusterName = "D" }, `"D"`},
		{"id", func(x *Tags) { x.ClusterID = "id-1" }, func(x *Tags) { x.ClusterID = "id-2" }, "id-2"},
		{"name, same node id", func(*Tags) {}, func(x *Tags) { x.ClusterName, x.NodeID = "D", "n1" }, `"D"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := tags("n1"), tags("n9")
			tt.ours(&ours)
			tt.them(&theirs)
			a, ra := open(t, ours)
			x, rx := open(t, theirs)
			n, err := x.Join([]string{addr(a)})
			if n != 0 || !errors.Is(err, ErrOtherCluster) {
				t.Fatalf("join: %d, %v", n, err)
			}
			within(t, "both report it", func() (bool, string) {
				i, j := ra.count(theirs.NodeID, ErrOtherCluster), rx.count(ours.NodeID, ErrOtherCluster)
				return i > 0 && j > 0, fmt.Sprint(i, j)
			})
			ra.mu.Lock()
			defer ra.mu.Unlock()
			if !strings.Contains(ra.all[0].err.Error(), tt.says) {
				t.Errorf("reason: %v", ra.all[0].err)
			}
			if v := view(a); v != "n1=alive" {
				t.Errorf("our members: %s", v)
			}
		})
	}
}

// A node that was let in before it was known to be another cluster's disappears when that is known.
func TestClusterIDLearntLater(t *testing.T) {
	t.Parallel()
	a, ra := open(t, tags("n1"))
	other := tags("n2")
	other.ClusterID = "id-2"
	b, _ := open(t, other)
	if _, err := b.Join([]string{addr(a)}); err != nil {
		t.Fatal(err)
	}
	wantView(t, a, "n1=alive n2=alive")
	if err := a.UpdateTags(func(x *Tags) { x.ClusterID = "id-1" }); err != nil {
		t.Fatal(err)
	}
	if v := view(a); v != "n1=alive" {
		t.Errorf("members: %s", v)
	}
	wantView(t, b, "n2=alive")
	within(t, "report", func() (bool, string) { return ra.count("n2", ErrOtherCluster) == 1, "" })
	// It doesn't keep a node of ours from joining through a.
	c, _ := open(t, func() Tags { x := tags("n3"); x.ClusterID = "id-1"; return x }())
	if _, err := c.Join([]string{addr(a)}); err != nil {
		t.Fatal(err)
	}
	wantView(t, c, "n1=alive n3=alive")
	wantView(t, a, "n1=alive n3=alive")
}

func TestKeepJoiningUntilMetAndWhenAlone(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a free port, for the node that comes later
	if err != nil {
		t.Fatal(err)
	}
	later := l.Addr().String()
	l.Close()
	a, _ := open(t, tags("n1"))
	a.KeepJoining([]string{addr(a), later})
	b, _ := open(t, tags("n2"), func(c *Config) { c.BindAddr = later })
	wantView(t, a, "n1=alive n2=alive")
	b.Close()
	wantView(t, a, "n1=alive n2=failed")
	c, _ := open(t, tags("n3"), func(c *Config) { c.BindAddr = later })
	wantView(t, a, "n1=alive n2=failed n3=alive")
	wantView(t, c, "n1=alive n3=alive")
}

// Close must not wait for a peer that accepts and says nothing.
func TestCloseWhileJoiningASilentPeer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan struct{}, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			accepted <- struct{}{}
		}
	}()
	a, _ := open(t, tags("n1"))
	a.KeepJoining([]string{l.Addr().String()})
	<-accepted
	start := time.Now()
	a.Close()
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("close took %s", d)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	a, _ := open(t, tags("n1"))
	for _, tt := range []struct {
		name string
		cfg  Config
		says string
	}{
		{"no node id", Config{Tags: Tags{ClusterName: "C"}, BindAddr: "127.0.0.1:0"}, "node id"},
		{"no cluster", Config{Tags: Tags{NodeID: "n"}, BindAddr: "127.0.0.1:0"}, "cluster name"},
		{"bad bind", Config{Tags: tags("n2"), BindAddr: "127.0.0.1"}, "127.0.0.1"},
		{"port in use", Config{Tags: tags("n2"), BindAddr: addr(a)}, "in use"},
		{"advertise nothing", Config{Tags: tags("n2"), BindAddr: "127.0.0.1:0", AdvertiseAddr: ":7000"}, "advertise"},
		{"long tags", Config{Tags: Tags{NodeID: "n", ClusterName: strings.Repeat("c", 600)}, BindAddr: "127.0.0.1:0"}, "512"},
	} {
		m, err := Open(tt.cfg)
		if err == nil {
			m.Close()
			t.Errorf("%s: no error", tt.name)
		} else if !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
