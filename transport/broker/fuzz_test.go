package broker

import (
	"encoding/json"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// FuzzSend: whatever a send carries, it is refused or becomes one command whose records are
// whole, fit the limits and are as many and as large as announced. No node could apply anything else.
func FuzzSend(f *testing.F) {
	f.Add("T", "KEYS\x01k\x02WAIT\x01false\x02", []byte("body"), int32(0), int32(0), int32(0), false)
	f.Add("T", "DELAY\x01-1\x02TRAN_MSG\x01no", []byte{}, int32(-1), int32(8), int32(0), false)
	f.Add("T", "DELAY\x013\x02REAL_TOPIC\x01x\x02WAIT\x01true", []byte("later"), int32(-1), int32(8), int32(0), false)
	f.Add("T", "TRAN_MSG\x01true\x02PGROUP\x01pg\x02DELAY\x0199", []byte("maybe"), int32(2), int32(4), int32(0), false)
	f.Add("%RETRY%g", "DELAY\x014\x02TRAN_MSG\x01true", []byte("x"), int32(0), int32(0), int32(3), false)
	f.Add("%RETRY%g", "a\x01b", []byte("x"), int32(0), int32(0), int32(99), false)
	f.Add("T", "WAIT\x01true", batchBody("one", "two"), int32(1), int32(0), int32(0), true)
	f.Add("T", "\x02\x02\x01x\x02y\x01", append(batchBody("one"), 0, 0, 0, 5, 1), int32(0), int32(0), int32(0), true)
	n := newNode(f, func(o *nodeOptions) { o.config = func(c *Config) { c.MaxMessageSize = 64 << 10 } })
	n.putTopic("T", 4)
	conn := benchConn(f, transport.NewServer(transport.Config{}))
	p := newSendProposal(n.broker)
	f.Fuzz(func(t *testing.T, topic, props string, body []byte, queue, sysFlag, reconsume int32, batch bool) {
		cmd := &remoting.Command{Code: remoting.RequestSendMessage, Body: body}
		for key, value := range map[string]any{"queueId": queue, "sysFlag": sysFlag, "reconsumeTimes": reconsume, "batch": batch} {
			text, _ := json.Marshal(value)
			cmd.Set(key, string(text))
		}
		cmd.Set("topic", topic)
		cmd.Set("properties", props)
		p.r = transport.Responder{Conn: conn, OneWay: true}
		p.batch, p.wait = false, false
		if refused := p.prepare(cmd); refused != nil {
			if refused.code == 0 || refused.remark == "" {
				t.Errorf("refusal %+v", refused)
			}
			return
		}
		entry := p.AppendCommand(command.AppendEntryHead(nil), 1234)
		reader, err := command.NewReader(entry)
		if err != nil {
			t.Fatal(err)
		}
		c, ok, err := reader.Next()
		if err != nil || !ok || c.Kind != command.KindAppend {
			t.Fatalf("%+v %v %v", c, ok, err)
		}
		records, count, err := c.Records()
		if err != nil || count != len(p.sizes) {
			t.Fatalf("%d records, %d announced: %v", count, len(p.sizes), err)
		}
		for _, size := range p.sizes {
			var m record.Message
			got, err := record.Decode(records, &m)
			if err != nil || got != int(size) || m.StoreTimestamp != 1234 || m.QueueID < 0 || checkTopicName(m.Topic) != nil {
				t.Fatalf("record of %d bytes, %d announced, %+v: %v", got, size, m, err)
			}
			if cluster, _ := record.Property(m.Properties, record.PropertyCluster); string(cluster) != testCluster {
				t.Fatalf("CLUSTER is %q in %q", cluster, m.Properties)
			}
			records = records[got:]
		}
		if _, more, _ := reader.Next(); more || len(records) > 0 {
			t.Fatalf("%d bytes too many", len(records))
		}
	})
}
