package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"raftmq/fsm/command"
)

var settings = command.Settings{ClusterID: "c1", ClusterName: "C", BrokerName: "B", SegmentSize: 1 << 20, AutoCreateTopic: true, AutoCreateGroup: true, DefaultTopicQueues: 8}

func filled(t testing.TB) *Tables {
	t.Helper()
	tb := New()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(tb.PutSettings(settings))
	for _, id := range []string{"n1", "n2", "n3"} {
		_, err := tb.PutNode(command.NodePut{ID: id, ClientAddr: id + ":1"})
		must(err)
	}
	must(tb.PutTopic(command.TopicPut{Topic: command.TopicConfig{TopicName: "T", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6}, Millis: 5}))
	must(tb.PutGroup(command.GroupPut{Group: command.DefaultGroup("g"), Millis: 6}))
	must(tb.CommitOffsets(command.OffsetsCommit{Offsets: []command.ConsumerOffset{{Topic: "T", Group: "g", QueueID: 1, Offset: 7}, {Topic: "T", Group: "g", QueueID: 0, Offset: 3}, {Topic: "T", Group: "h", QueueID: 0, Offset: -1}}}))
	must(tb.PutKV(command.KVPut{Namespace: "N", Key: "k", Value: "v"}))
	return tb
}

func TestExportImport(t *testing.T) {
	a, err := filled(t).Export()
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // map order must not show (Deterministic-Apply)
		b, err := filled(t).Export()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Fatalf("equal tables, different bytes:\n%s\n%s", a, b)
		}
	}
	restored := New()
	if err := restored.PutKV(command.KVPut{Namespace: "old", Key: "k", Value: "v"}); err != nil {
		t.Fatal(err)
	}
	if err := restored.Import(a); err != nil {
		t.Fatal(err)
	}
	b, err := restored.Export()
	if err != nil || !bytes.Equal(a, b) {
		t.Fatalf("import changed the tables (%v):\n%s\n%s", err, a, b)
	}
	if n, err := restored.PutNode(command.NodePut{ID: "n4"}); err != nil || n.Number != 4 {
		t.Errorf("a node after a restore got number %d (%v), want 4", n.Number, err)
	}
	if err := restored.Import([]byte(`{"version":4}`)); !errors.Is(err, command.ErrUnknown) {
		t.Errorf("newer version: %v", err)
	}
	if err := restored.Import(a[:len(a)-1]); err == nil {
		t.Error("cut bytes were imported")
	}
	if _, ok := restored.Topic("T"); !ok {
		t.Error("a failed import lost the tables")
	}
}

func TestSettingsAreFixedAndMakeTheBuiltIns(t *testing.T) {
	tb := New()
	if err := tb.PutTopic(command.TopicPut{Topic: command.TopicConfig{TopicName: "T"}}); !errors.Is(err, ErrNoSettings) {
		t.Errorf("topic before settings: %v", err)
	}
	if err := tb.PutSettings(settings); err != nil {
		t.Fatal(err)
	}
	if err := tb.PutSettings(settings); err != nil {
		t.Errorf("the same settings again: %v", err)
	}
	other := settings
	other.SegmentSize++
	if err := tb.PutSettings(other); !errors.Is(err, ErrSettingsFixed) {
		t.Errorf("other settings: %v", err)
	}
	for topic, want := range map[string][2]int{"TBW102": {8, 7}, "C": {16, 7}, "B": {1, 7}, "SCHEDULE_TOPIC_XXXX": {18, 6}, "BenchmarkTest": {1024, 6}, "C_REPLY_TOPIC": {1, 6}} {
		c, ok := tb.Topic(topic)
		if !ok || c.WriteQueueNums != want[0] || c.Perm != want[1] {
			t.Errorf("built-in %s: %+v, want queues and perm %v", topic, c, want)
		}
		if !tb.IsSystemTopic(topic) {
			t.Errorf("%s is not known as a system topic", topic)
		}
	}
	if _, ok := tb.Group("TOOLS_CONSUMER"); !ok {
		t.Error("no built-in groups")
	}
}

func TestDeletedTopicHidesItsMessages(t *testing.T) {
	tb := filled(t)
	if err := tb.DeleteTopic(command.TopicDelete{Topic: "T"}, map[int32]int64{0: 10, 1: 0}); err != nil {
		t.Fatal(err)
	}
	if err := tb.DeleteTopic(command.TopicDelete{Topic: "T"}, nil); !errors.Is(err, ErrNoTopic) {
		t.Errorf("second deletion: %v", err)
	}
	if _, ok := tb.ConsumerOffset("g", "T", 0); ok {
		t.Error("consumer offsets survived their topic")
	}
	if f := tb.QueueFloor([]byte("T"), 0); f != 10 {
		t.Errorf("floor %d, want 10", f)
	}
	if f := tb.QueueFloor([]byte("T"), 1); f != 0 {
		t.Errorf("floor of an empty queue %d, want 0", f)
	}
}

func TestOffsetsAndGroups(t *testing.T) {
	tb := filled(t)
	if o, ok := tb.ConsumerOffset("g", "T", 1); !ok || o != 7 {
		t.Errorf("offset %d %v", o, ok)
	}
	if _, ok := tb.ConsumerOffset("h", "T", 0); ok {
		t.Error("a negative commit was stored")
	}
	if got := fmt.Sprint(tb.GroupOffsets("g")); got != "map[T:map[0:3 1:7]]" {
		t.Errorf("group offsets %s", got)
	}
	if got := fmt.Sprint(tb.TopicOffsets("T"), tb.TopicOffsets("None"), tb.AllOffsets()["g"]); got != "map[g:map[0:3 1:7]] map[] map[T:map[0:3 1:7]]" {
		t.Errorf("offsets %s", got)
	}
	g := command.DefaultGroup("g")
	g.RetryMaxTimes = 3
	if err := tb.PutGroup(command.GroupPut{Group: g, OnlyIfAbsent: true}); err != nil {
		t.Fatal(err)
	}
	if c, _ := tb.Group("g"); c.RetryMaxTimes != 16 {
		t.Error("OnlyIfAbsent changed an existing group")
	}
	if err := tb.DeleteGroup(command.GroupDelete{Group: "g", RemoveOffsets: true}); err != nil {
		t.Fatal(err)
	}
	if _, ok := tb.ConsumerOffset("g", "T", 1); ok {
		t.Error("offsets survived their group")
	}
}

func FuzzImport(f *testing.F) {
	b, err := filled(f).Export()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"version":2,"delay":[{"level":1,"offset":5}],"transactions":{"progress":3,"ended":[{"from":5,"to":9}],"checked":[{"offset":4,"times":2}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tb := New()
		if tb.Import(b) != nil {
			return
		}
		once, err := tb.Export()
		if err != nil {
			t.Fatal(err)
		}
		again := New()
		if err := again.Import(once); err != nil {
			t.Fatal(err)
		}
		if twice, _ := again.Export(); !bytes.Equal(once, twice) {
			t.Fatalf("export changed by a round trip:\n%s\n%s", once, twice)
		}
	})
}

func BenchmarkTopicBytes(b *testing.B) {
	tb := filled(b)
	name := []byte("T")
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := tb.TopicBytes(name); !ok {
			b.Fatal("lost")
		}
	}
}
