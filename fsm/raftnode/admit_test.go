package raftnode

import (
	"bytes"
	"errors"
	"testing"
)

// TestF83_RefusedCommandIsInNoEntry: what Admit refuses is answered at once, and nothing of it goes into the entry that others share.
func TestF83_RefusedCommandIsInNoEntry(t *testing.T) {
	refused := errors.New("of a higher level")
	c := startCluster(t, func(_ int, cfg *Config) {
		cfg.Admit = func(b []byte) error {
			if bytes.HasPrefix(b, []byte("new")) {
				return refused
			}
			return nil
		}
	})
	leader := c.leader(t)
	c.fsms[leader].mu.Lock()
	c.fsms[leader].keep = true
	c.fsms[leader].mu.Unlock()
	done := make(chan outcomeOf, 300)
	for range 100 {
		for _, text := range []string{"old;", "new;", "old;"} {
			if err := c.nodes[leader].Propose(&message{data: []byte(text), done: done}); (text == "new;") != errors.Is(err, refused) || text != "new;" && err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
	for range 200 {
		if o := <-done; o.err != nil {
			t.Fatal(o.err)
		}
	}
	if s := c.nodes[leader].Stats(); s.Commands != 200 || s.InFlightBytes != 0 {
		t.Errorf("stats %+v", s)
	}
	c.fsms[leader].mu.Lock()
	defer c.fsms[leader].mu.Unlock()
	if got := bytes.Join(c.fsms[leader].entries, nil); !bytes.Equal(got, bytes.Repeat([]byte("old;"), 200)) {
		t.Errorf("the entries hold %q", got)
	}
}
