package membership

import (
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"
)

// newTestTable has one other node, n2, alive since about now.
func newTestTable(t *testing.T) (*table, delegate, *memberlist.Node) {
	t.Helper()
	cfg := Config{Tags: tags("n1")}
	cfg.EnsureDefaults()
	x := newTable(cfg, hclog.NewNullLogger(), func() {})
	meta, err := encodeTags(tags("n2"), false)
	if err != nil {
		t.Fatal(err)
	}
	n := &memberlist.Node{Name: "n2", Addr: net.IPv4(127, 0, 0, 1), Port: 7, Meta: meta}
	d := delegate{x}
	if err := d.NotifyAlive(n); err != nil {
		t.Fatal(err)
	}
	d.NotifyJoin(n)
	return x, d, n
}

// stateOf asks both ways, which must agree.
func stateOf(x *table, now time.Time, id string) State {
	one, ok := x.member(id, now)
	for _, m := range x.members(now) {
		if m.NodeID == id {
			if !ok || one.State != m.State {
				return "alone " + one.State
			}
			return m.State
		}
	}
	if ok {
		return "alone " + one.State
	}
	return "forgotten"
}

func TestSuspectIsWhoDoesNotAnswerOurProbes(t *testing.T) {
	x, d, n := newTestTable(t)
	start := time.Now()
	for _, tt := range []struct {
		after time.Duration
		want  State
	}{{0, Alive}, {3 * time.Second, Alive}, {5 * time.Second, Suspect}} {
		if got := stateOf(x, start.Add(tt.after), "n2"); got != tt.want {
			t.Errorf("after %s without an answer: %s, want %s", tt.after, got, tt.want)
		}
	}
	d.NotifyPingComplete(n, time.Millisecond, nil)
	if got := stateOf(x, time.Now(), "n2"); got != Alive {
		t.Errorf("after an answer: %s", got)
	}
}

func TestRetention(t *testing.T) {
	x, d, n := newTestTable(t)
	d.NotifyLeave(n)
	now := time.Now()
	if got := stateOf(x, now.Add(71*time.Hour), "n2"); got != Failed {
		t.Errorf("after 71 h: %s", got)
	}
	if got := stateOf(x, now.Add(73*time.Hour), "n2"); got != "forgotten" {
		t.Errorf("after 73 h: %s", got)
	}

	x, d, n = newTestTable(t)
	n.Meta, _ = encodeTags(tags("n2"), true)
	d.NotifyUpdate(n)
	if got := stateOf(x, now, "n2"); got != Alive {
		t.Errorf("while saying good-bye: %s", got)
	}
	d.NotifyLeave(n)
	if got := stateOf(x, now.Add(50*time.Minute), "n2"); got != Left {
		t.Errorf("after 50 min: %s", got)
	}
	if got := stateOf(x, now.Add(70*time.Minute), "n2"); got != "forgotten" {
		t.Errorf("after 70 min: %s", got)
	}
}

func TestRefusalsOfManyStrangersStayBounded(t *testing.T) {
	x, d, n := newTestTable(t)
	other := tags("n2")
	other.ClusterName = "D"
	n.Meta, _ = encodeTags(other, false)
	for i := range 2000 {
		n.Name, n.Port = "stranger", uint16(i)
		if d.NotifyAlive(n) == nil {
			t.Fatal("let in")
		}
	}
	if len(x.mu.reported) > 256 || len(x.refused) > cap(x.refused) {
		t.Errorf("%d remembered", len(x.mu.reported))
	}
	n.Meta = []byte{9}
	if err := d.NotifyAlive(n); err == nil {
		t.Error("unreadable tags were let in")
	}
}

func TestMemberlistsLinesGoToDebug(t *testing.T) {
	var lines []string
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: writerFunc(func(p []byte) { lines = append(lines, string(p)) })})
	l := &listLog{logger}
	for _, s := range []string{"[DEBUG] memberlist: a", "[WARN] memberlist: b", "[ERR] c", "d", "["} {
		if n, err := l.Write([]byte(s + "\n")); n != len(s)+1 || err != nil {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
	if len(lines) != 4 { // its debug is trace
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }
