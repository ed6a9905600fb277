package command

import (
	"errors"
	"fmt"
	"testing"
)

// TestF83_NothingOfAHigherLevelIsAdmitted: each kind is proposed only in a cluster that has its level, and the numbers stay what they are.
func TestF83_NothingOfAHigherLevelIsAdmitted(t *testing.T) {
	known := map[Level]int{}
	for kind := range 256 {
		need := Kind(kind).level(1)
		known[need]++
		for cluster := Oldest; cluster <= Newest; cluster++ {
			err := Admit([]byte{byte(kind), 1, 0, 0, 0, 0}, cluster)
			if allowed := Kind(kind).AllowedAt(cluster); allowed != (err == nil) {
				t.Errorf("kind %d in a cluster of level %d: allowed %t, admitted with %v", kind, cluster, allowed, err)
			}
			switch {
			case Kind(kind) == KindLevel:
				if err != nil {
					t.Errorf("kind %d, which raises the level, in a cluster of level %d: %v", kind, cluster, err)
				}
			case need == 0:
				if !errors.Is(err, ErrUnknown) {
					t.Errorf("unknown kind %d: %v", kind, err)
				}
			case (need > cluster) != errors.Is(err, ErrLevel) || need <= cluster && err != nil:
				t.Errorf("kind %d of level %d in a cluster of level %d: %v", kind, need, cluster, err)
			}
		}
		if err := Admit([]byte{byte(kind), 2, 0, 0, 0, 0}, Newest); Kind(kind) != KindLevel && !errors.Is(err, ErrUnknown) {
			t.Errorf("version 2 of kind %d: %v", kind, err)
		}
	}
	if known[1] != 16 {
		t.Errorf("%d kinds of level 1: those are fixed, they are 1 to 16", known[1])
	}
	if err := Admit([]byte{1, 1, 0, 0, 0}, Newest); !errors.Is(err, ErrMalformed) {
		t.Errorf("a cut command: %v", err)
	}
}

// TestF83_OlderRaftmqStopsAtANewerCommand: what a raftmq of a lower level reads of a command above it.
func TestF83_OlderRaftmqStopsAtANewerCommand(t *testing.T) {
	for kind := range 256 {
		b := append(AppendEntryHead(nil), byte(kind), 1, 0, 0, 0, 0)
		need := Kind(kind).level(1)
		err := walk(b)
		if unknown := need == 0 || need > Newest; unknown != errors.Is(err, ErrUnknown) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	if err := TooNew(Newest + 1); !errors.Is(err, ErrUnknown) || err.Error() != fmt.Sprintf("%v: the cluster has feature level %d, this raftmq applies up to %d: start a newer raftmq here, as the other nodes run one", ErrUnknown, Newest+1, Newest) {
		t.Errorf("text %q", err)
	}
}

// TestRaiseFormat holds the bytes still.
func TestRaiseFormat(t *testing.T) {
	b, err := AppendJSON(nil, KindLevel, Raise{Level: 2})
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x14\x01\x00\x00\x00\x0b{\"level\":2}"; string(b) != want {
		t.Errorf("got %q, want %q", b, want)
	}
}
