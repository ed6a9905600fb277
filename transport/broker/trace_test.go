package broker

import (
	"testing"

	"raftmq/commitlog/record"
	"raftmq/fsm/metadata"
	"raftmq/transport/remoting"
)

// TestTraceProperties: with --trace-topic-enable each message has what 5.x consumers need to trace it, whatever it came with; without, what 4.9.4 stores.
func TestTraceProperties(t *testing.T) {
	traced := newNode(t, func(o *nodeOptions) { o.config = func(c *Config) { c.TraceTopicEnable, c.Region = true, "here" } })
	plain := newNode(t)
	batch := record.AppendBatchEntry(nil, record.BatchEntry{Body: []byte("x"), Properties: []byte("own\x011\x02")})
	for _, tc := range []struct {
		n    *node
		want map[string]string
	}{{traced, map[string]string{"MSG_REGION": "here", "TRACE_ON": "true"}}, {plain, nil}} {
		with := func(more map[string]string) map[string]string {
			more["CLUSTER"] = testCluster
			for k, v := range tc.want {
				more[k] = v
			}
			return more
		}
		n := tc.n
		n.putTopic("T", 1)
		c := n.dial()
		want(t, c.send("T", 0, "a\x011", []byte("x")), 0)
		wantProperties(t, n.stored("T", 0, 0).Properties, with(map[string]string{"a": "1"}))
		want(t, c.call(remoting.RequestSendBatchMessage, batch, "a", "pg", "b", "T", "c", "TBW102", "d", "4", "e", "0", "f", "0", "g", "1", "h", "0", "j", "0", "k", "false", "m", "true"), 0)
		wantProperties(t, n.stored("T", 0, 1).Properties, with(map[string]string{"own": "1"}))
		want(t, c.send("T", 0, "DELAY\x011", []byte("x")), 0)
		wantProperties(t, n.stored(metadata.ScheduleTopic, 0, 0).Properties, with(map[string]string{"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"}))
		want(t, c.send("T", 0, "TRACE_ON\x01false\x02MSG_REGION\x01elsewhere\x02b\x012", []byte("x")), 0)
		other := map[string]string{"b": "2", "TRACE_ON": "false", "MSG_REGION": "elsewhere"}
		wantProperties(t, n.stored("T", 0, 2).Properties, with(other))
	}
}
