package metadata

import (
	"bytes"
	"errors"
	"testing"

	"raftmq/fsm/command"
)

// TestF83_LevelInTheTables: it is only raised, it survives export and import, and tables of a cluster that was never raised are
// what a raftmq without levels reads.
func TestF83_LevelInTheTables(t *testing.T) {
	tb := filled(t)
	if l := tb.Level(); l != command.Oldest {
		t.Fatalf("level %d before any raise", l)
	}
	before, err := tb.Export()
	if err != nil || bytes.Contains(before, []byte(`"level"`)) || !bytes.HasPrefix(before, []byte(`{"version":1,`)) {
		t.Fatalf("tables of level 1 are not what they were: %v %.60s", err, before)
	}
	for _, l := range []command.Level{2, 2, 7} {
		if err := tb.RaiseLevel(command.Raise{Level: l}); err != nil || tb.Level() != l {
			t.Fatalf("raise to %d: %v, level %d", l, err, tb.Level())
		}
	}
	if err := tb.RaiseLevel(command.Raise{Level: 6}); !errors.Is(err, ErrLevelLower) || tb.Level() != 7 {
		t.Errorf("lowered: %v, level %d", err, tb.Level())
	}
	tooNew, err := tb.Export()
	if err != nil {
		t.Fatal(err)
	}
	other := New()
	if err := other.Import(tooNew); !errors.Is(err, command.ErrUnknown) || other.Level() != command.Oldest {
		t.Errorf("tables of level 7 were imported: %v, level %d", err, other.Level())
	}
	raised := filled(t)
	if err := raised.RaiseLevel(command.Raise{Level: command.Newest}); err != nil {
		t.Fatal(err)
	}
	b, err := raised.Export()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Import(b); err != nil || other.Level() != command.Newest {
		t.Fatalf("import: %v, level %d", err, other.Level())
	}
	if again, err := other.Export(); err != nil || !bytes.Equal(again, b) {
		t.Errorf("export after import differs: %v", err)
	}
	if err := other.Import(before); err != nil || other.Level() != command.Oldest {
		t.Errorf("import of tables without a level: %v, level %d", err, other.Level())
	}
}
