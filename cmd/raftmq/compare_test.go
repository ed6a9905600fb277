package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"raftmq/transport/remoting"
)

// replicaLogs are made-up nodes' logs.
type replicaLogs map[string][]byte

func (l replicaLogs) sum(_ context.Context, node string, from, to int64) (uint32, error) {
	b := l[node]
	if from < 0 || to > int64(len(b)) || from > to {
		return 0, fmt.Errorf("%s holds %d bytes", node, len(b))
	}
	return crc32.Checksum(b[from:to], castagnoli), nil
}

// at is what a node holds, its log compared from from on.
func (l replicaLogs) at(node string, from int64) held {
	sum, err := l.sum(context.Background(), node, from, int64(len(l[node])))
	return held{node: node, voter: true, sum: sum, err: err,
		answer: remoting.ChecksumAnswer{NodeID: node, Index: 9, LogEnd: int64(len(l[node])), Tables: "aa", Queues: "bb"}}
}

func TestReplicasThatDifferAreNamedWithTheirRange(t *testing.T) {
	const size, at = 1 << 20, 700_001
	whole := make([]byte, size)
	for i := range whole {
		whole[i] = byte(i * 7)
	}
	other := slices.Clone(whole)
	other[at] ^= 1
	for _, tt := range []struct {
		name     string
		logs     replicaLogs
		change   func(all []held)
		differ   []string
		majority bool
		inLog    []string // those with a range
		alarm    []string
	}{
		{"equal", replicaLogs{"n1": whole, "n2": whole, "n3": whole}, nil, nil, true, nil, nil},
		{"one log", replicaLogs{"n1": whole, "n2": other, "n3": whole}, nil, []string{"n2"}, true, []string{"n2"}, []string{"n2 differs from n1 in log bytes in", "n1 and n3 agree"}},
		{"the first log", replicaLogs{"n1": other, "n2": whole, "n3": whole}, nil, []string{"n1"}, true, []string{"n1"}, []string{"n1 differs from n2 in log bytes in", "n2 and n3 agree"}},
		{"a shorter log", replicaLogs{"n1": whole, "n2": whole, "n3": whole[:size-5]}, nil, []string{"n3"}, true, nil, []string{"n3 differs from n1 in the log's end (1048571, not 1048576)"}},
		{"tables", replicaLogs{"n1": whole, "n2": whole, "n3": whole}, func(all []held) { all[2].answer.Tables = "cc" }, []string{"n3"}, true, nil, []string{"n3 differs from n1 in the tables"}},
		{"queues", replicaLogs{"n1": whole, "n2": whole, "n3": whole}, func(all []held) { all[1].answer.Queues = "cc" }, []string{"n2"}, true, nil, []string{"n2 differs from n1 in the queues' next offsets"}},
		{"all", replicaLogs{"n1": whole, "n2": other, "n3": whole}, func(all []held) { all[2].answer.Tables = "cc" }, []string{"n2", "n3"}, false, []string{"n2"}, []string{"no majority agrees"}},
		{"one of two that answer", replicaLogs{"n1": whole, "n2": other, "n3": whole}, func(all []held) { all[2].err = errors.New("down") }, []string{"n2"}, false, []string{"n2"}, []string{"no majority agrees"}},
		{"one down", replicaLogs{"n1": whole, "n2": other, "n3": whole}, func(all []held) { all[1].err = errors.New("down") }, nil, true, nil, nil},
		// A non-voter's word does not count.
		{"non-voters", replicaLogs{"n1": other, "n2": other, "n3": whole}, func(all []held) { all[0].voter, all[1].voter = false, false }, []string{"n1", "n2"}, true, []string{"n1", "n2"}, []string{"n1 differs from n3", "n2 differs from n3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var all []held
			for _, id := range []string{"n1", "n2", "n3"} {
				all = append(all, tt.logs.at(id, 1000))
			}
			if tt.change != nil {
				tt.change(all)
			}
			voters := 0
			for _, h := range all {
				if h.voter {
					voters++
				}
			}
			v := judge(t.Context(), all, voters, 1000, tt.logs.sum)
			if !slices.Equal(v.differ, tt.differ) || v.majority != tt.majority || v.status.Index != 9 {
				t.Errorf("differ %v, majority %t, index %d", v.differ, v.majority, v.status.Index)
			}
			if len(v.ranges) != len(tt.inLog) {
				t.Errorf("ranges %v, wanted for %v", v.ranges, tt.inLog)
			}
			for _, id := range tt.inLog {
				if r := v.ranges[id]; r[0] > at || r[1] <= at || r[1]-r[0] > compareGrain {
					t.Errorf("%s: range %v does not hold %d closely", id, r, at)
				}
			}
			for _, want := range tt.alarm {
				if !strings.Contains(v.status.Alarm, want) {
					t.Errorf("alarm %q lacks %q", v.status.Alarm, want)
				}
			}
			if tt.alarm == nil && v.status.Alarm != "" {
				t.Errorf("alarm %q", v.status.Alarm)
			}
			down := slices.ContainsFunc(all, func(h held) bool { return h.err != nil })
			if v.all() != (len(tt.differ) == 0 && !down) || down != (len(v.status.Unasked) == 1) {
				t.Errorf("all %t, not asked %v", v.all(), v.status.Unasked)
			}
		})
	}
}

// TestStrikesCountInARow: a node that was equal once begins anew, and the others' counts are not mixed with its.
func TestStrikesCountInARow(t *testing.T) {
	var r replicaCheck
	if r.status() != nil {
		t.Error("a status before the first comparison")
	}
	for i, step := range []struct {
		differ []string
		want   map[string]int
	}{
		{[]string{"n2"}, map[string]int{"n2": 1}}, {[]string{"n2", "n3"}, map[string]int{"n2": 2, "n3": 1}}, {[]string{"n3"}, map[string]int{"n3": 2}}, {nil, nil}, {[]string{"n2", "n3"}, map[string]int{"n2": 1, "n3": 1}},
	} {
		got := r.note(remoting.ReplicaStatus{AtMs: int64(i + 1)}, step.differ)
		for _, id := range []string{"n2", "n3"} {
			if got[id] != step.want[id] {
				t.Errorf("step %d: %s has %d strikes, want %d", i, id, got[id], step.want[id])
			}
		}
		if r.differing() != len(step.differ) || r.status().AtMs != int64(i+1) {
			t.Errorf("step %d: %d differ, %+v", i, r.differing(), r.status())
		}
	}
}
