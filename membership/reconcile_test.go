package membership

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// fakeVoters is a Raft configuration in memory that logs what is done to it.
type fakeVoters struct {
	voters   []Voter
	log      []string
	caughtUp map[string]bool
	fail     string // the call that fails
	contact  map[string]time.Time
}

func (f *fakeVoters) LastContact(id string) time.Time { return f.contact[id] }

// heard is when each of these nodes has just answered.
func heard(ids ...string) map[string]time.Time {
	at := map[string]time.Time{}
	for _, id := range ids {
		at[id] = time.Now()
	}
	return at
}

func (f *fakeVoters) do(what string, v Voter, apply func()) error {
	call := what + " " + v.NodeID + "/" + v.Incarnation + "@" + v.RaftAddr
	f.log = append(f.log, call)
	if call == f.fail {
		return errors.New("refused")
	}
	apply()
	return nil
}

func (f *fakeVoters) drop(v Voter) {
	for i, have := range f.voters {
		if have.NodeID == v.NodeID && have.Incarnation == v.Incarnation {
			f.voters = append(f.voters[:i:i], f.voters[i+1:]...)
			return
		}
	}
}

func (f *fakeVoters) List() ([]Voter, error) { return append([]Voter(nil), f.voters...), nil }
func (f *fakeVoters) AddNonvoter(v Voter) error {
	return f.do("nonvoter", v, func() { f.drop(v); v.Votes = false; f.voters = append(f.voters, v) })
}
func (f *fakeVoters) AddVoter(v Voter) error {
	return f.do("voter", v, func() { f.drop(v); v.Votes = true; f.voters = append(f.voters, v) })
}
func (f *fakeVoters) Remove(v Voter) error { return f.do("remove", v, func() { f.drop(v) }) }
func (f *fakeVoters) CaughtUp(_ context.Context, m Member) (bool, error) {
	return f.caughtUp[m.NodeID], nil
}

func peer(id, incarnation, addr string, s State) Member {
	return Member{Tags: Tags{NodeID: id, ClusterName: "C", Group: "g", Incarnation: incarnation, RaftAddr: addr}, State: s}
}

func threeVoters() []Voter {
	return []Voter{{"n1", "a", "n1:1", true}, {"n2", "b", "n2:1", true}, {"n3", "c", "n3:1", true}}
}

func TestReconcile(t *testing.T) {
	for name, tc := range map[string]struct {
		voters   []Voter
		members  []Member
		caughtUp map[string]bool
		passes   int
		want     []string
	}{
		"nothing to do":                                        {threeVoters(), []Member{peer("n1", "a", "n1:1", Alive), peer("n2", "b", "n2:1", Alive)}, nil, 2, nil},
		"F65 failed and suspect stay":                          {threeVoters(), []Member{peer("n2", "b", "n2:1", Failed), peer("n3", "c", "n3:1", Suspect)}, nil, 3, nil},
		"newcomer waits":                                       {threeVoters(), []Member{peer("n4", "d", "n4:1", Alive)}, nil, 3, []string{"nonvoter n4/d@n4:1"}},
		"newcomer votes when caught up":                        {threeVoters(), []Member{peer("n4", "d", "n4:1", Alive)}, map[string]bool{"n4": true}, 3, []string{"nonvoter n4/d@n4:1", "voter n4/d@n4:1"}},
		"F59 voter's address follows":                          {threeVoters(), []Member{peer("n2", "b", "n2:9", Alive)}, nil, 2, []string{"voter n2/b@n2:9"}},
		"F59 swapped addresses stay":                           {threeVoters(), []Member{peer("n2", "b", "n3:1", Alive), peer("n3", "c", "n2:1", Alive)}, nil, 2, nil},
		"F57 wiped node is replaced":                           {threeVoters(), []Member{peer("n2", "x", "n2:1", Alive)}, nil, 2, []string{"remove n2/b@n2:1", "nonvoter n2/x@n2:1"}},
		"left is removed":                                      {threeVoters(), []Member{peer("n3", "c", "n3:1", Left)}, nil, 2, []string{"remove n3/c@n3:1"}},
		"a node about to leave is removed and not added again": {threeVoters(), []Member{leaving(peer("n3", "c", "n3:1", Alive))}, nil, 3, []string{"remove n3/c@n3:1"}},
		"barred is not added":                                  {threeVoters(), []Member{peer("barred", "d", "n4:1", Alive)}, nil, 2, nil},
		"the leader does not remove itself":                    {threeVoters(), []Member{peer("n1", "a", "n1:1", Left)}, nil, 2, nil},
		"other clusters and groups": {threeVoters(), []Member{
			{Tags: Tags{NodeID: "x", ClusterName: "D", Group: "g", RaftAddr: "x:1"}, State: Alive},
			{Tags: Tags{NodeID: "y", ClusterName: "C", Group: "h", RaftAddr: "y:1"}, State: Alive}}, nil, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := &fakeVoters{voters: tc.voters, caughtUp: tc.caughtUp, contact: heard("n2", "n3")}
			var updated []string
			r := &Reconciler{Self: Tags{NodeID: "n1", ClusterName: "C", Group: "g"}, Members: func() []Member { return tc.members }, Voters: v,
				Update: func(_ context.Context, m Member) error { updated = append(updated, m.NodeID); return nil },
				Barred: func(m Member) bool { return m.NodeID == "barred" }, Logger: hclog.NewNullLogger()}
			for range tc.passes {
				if err := r.pass(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if !reflect.DeepEqual(v.log, tc.want) {
				t.Errorf("changes %q, want %q", v.log, tc.want)
			}
			alive := 0
			for _, m := range tc.members {
				if m.State == Alive && m.ClusterName == "C" && m.Group == "g" && !m.Leaving && m.NodeID != "barred" {
					alive++
				}
			}
			if len(updated) != alive*tc.passes {
				t.Errorf("addresses of %v told to the tables, want those of %d members each pass", updated, alive)
			}
		})
	}
}

func TestReconcileGoesOnAfterAnError(t *testing.T) {
	v := &fakeVoters{voters: threeVoters(), fail: "nonvoter n4/d@n4:1"}
	r := &Reconciler{Self: Tags{NodeID: "n1", ClusterName: "C", Group: "g"}, Voters: v, Logger: hclog.NewNullLogger(),
		Members: func() []Member {
			return []Member{peer("n4", "d", "n4:1", Alive), peer("n5", "e", "n5:1", Alive)}
		},
		Update: func(context.Context, Member) error { return nil }}
	if err := r.pass(context.Background()); err == nil || !strings.Contains(err.Error(), "n4") || len(v.log) != 2 {
		t.Fatalf("error %v after %q: want n4's failure told and n5 joined", err, v.log)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.Run(ctx) // returns at once when the leadership is over
	if len(v.voters) != 4 {
		t.Fatalf("%d voters", len(v.voters))
	}
}

// TestWipedNodeIsKeptWithoutQuorum: without its former self the others would have to agree, and one of them is down.
func TestWipedNodeIsKeptWithoutQuorum(t *testing.T) {
	v := &fakeVoters{voters: threeVoters(), contact: heard("n2")}
	r := &Reconciler{Self: Tags{NodeID: "n1", ClusterName: "C", Group: "g"}, Voters: v, Logger: hclog.NewNullLogger(),
		Members: func() []Member { return []Member{peer("n2", "x", "n2:1", Alive), peer("n3", "c", "n3:1", Failed)} },
		Update:  func(context.Context, Member) error { return nil }}
	if err := r.pass(context.Background()); !errors.Is(err, ErrNoQuorum) || len(v.log) != 0 {
		t.Fatalf("%v after %q", err, v.log)
	}
	v.contact = heard("n2", "n3")
	if err := r.pass(context.Background()); err != nil || len(v.log) != 2 {
		t.Fatalf("%v after %q", err, v.log)
	}
}

func leaving(m Member) Member {
	m.Leaving = true
	return m
}

func TestDeadTimeout(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	five := append(threeVoters(), Voter{"n4", "d", "n4:1", true}, Voter{"n5", "e", "n5:1", true})
	all := func(s State) []Member {
		return []Member{peer("n1", "a", "n1:1", Alive), peer("n2", "b", "n2:1", Alive), peer("n3", "c", "n3:1", s)}
	}
	for name, tc := range map[string]struct {
		timeout time.Duration
		voters  []Voter
		members []Member
		contact map[string]time.Time
		leads   time.Time
		want    []string
	}{
		"off":                          {0, threeVoters(), all(Failed), heard("n2"), long, nil},
		"removed":                      {time.Minute, threeVoters(), all(Failed), heard("n2"), long, []string{"remove n3/c@n3:1"}},
		"unknown to gossip":            {time.Minute, threeVoters(), all(Failed)[:2], heard("n2"), long, []string{"remove n3/c@n3:1"}},
		"another incarnation is there": {time.Minute, threeVoters(), append(all(Failed)[:2], leaving(peer("n3", "x", "n3:1", Failed))), heard("n2"), long, []string{"remove n3/c@n3:1"}},
		"alive in gossip":              {time.Minute, threeVoters(), all(Alive), heard("n2"), long, nil},
		"suspect":                      {time.Minute, threeVoters(), all(Suspect), heard("n2"), long, nil},
		"Raft hears it":                {time.Minute, threeVoters(), all(Failed), heard("n2", "n3"), long, nil},
		"the leader is new":            {time.Minute, threeVoters(), all(Failed), heard("n2"), time.Now(), nil},
		"never below a quorum":         {time.Minute, threeVoters(), all(Failed), nil, long, nil},
		"one a pass":                   {time.Minute, five, all(Alive), heard("n2", "n3"), long, []string{"remove n4/d@n4:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &fakeVoters{voters: tc.voters, contact: tc.contact}
			var forgotten []string
			r := &Reconciler{Self: Tags{NodeID: "n1", ClusterName: "C", Group: "g"}, Members: func() []Member { return tc.members }, Voters: v,
				Update: func(context.Context, Member) error { return nil }, DeadTimeout: tc.timeout, leads: tc.leads,
				Forget: func(_ context.Context, id string) error { forgotten = append(forgotten, id); return nil }, Logger: hclog.NewNullLogger()}
			if err := r.pass(context.Background()); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(v.log, tc.want) {
				t.Errorf("changes %q, want %q", v.log, tc.want)
			}
			if len(forgotten) != len(tc.want) {
				t.Errorf("forgotten: %q", forgotten)
			}
		})
	}
}

// F63: what stays must be a quorum that answers.
func TestF63CheckRemoval(t *testing.T) {
	old := map[string]time.Time{"n2": time.Now().Add(-time.Minute)}
	voters := append(threeVoters(), Voter{"n4", "d", "n4:1", false})
	for _, tc := range []struct {
		remove  int
		voters  []Voter
		contact map[string]time.Time
		ok      bool
	}{
		{2, voters, heard("n2"), true},
		{2, voters, old, false},         // n1 alone of n1, n2
		{2, voters, heard("n3"), false}, // the one that would go does not count
		{3, voters, nil, true},          // a non-voter may always go
		{0, voters[:1], nil, false},     // the last one
		{1, voters[:2], nil, true},      // two become one, which is there
	} {
		err := CheckRemoval("n1", tc.voters[tc.remove], tc.voters, func(id string) time.Time { return tc.contact[id] })
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrNoQuorum) {
			t.Errorf("remove %s of %d voters, contact %v: %v, want ok=%v", tc.voters[tc.remove].NodeID, len(tc.voters), tc.contact, err, tc.ok)
		}
	}
}
