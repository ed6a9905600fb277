package broker

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/transport/remoting"
)

// queryFields are a key query's ext fields.
func queryFields(topic, key string, maxNum int, unique bool) []string {
	return []string{"topic", topic, "key", key, "maxNum", fmt.Sprint(maxNum), "beginTimestamp", "0", "endTimestamp", fmt.Sprint(int64(math.MaxInt64)),
		"_UNIQUE_KEY_QUERY", fmt.Sprint(unique)}
}

// withIndex gives the node's store a small key index.
func withIndex(o *nodeOptions) {
	o.store.MessageIndexEnable, o.store.MaxHashSlotNum, o.store.MaxIndexNum = true, 100, 1000
}

// TestQueryMessage: codes, remarks and ext names are those of the captured cases "broker/query by key", "… unique
// key" and "…, nothing" of a 4.9.4 broker (and 5.3.3, which answers the same).
func TestQueryMessage(t *testing.T) {
	t.Parallel()
	n := newNode(t, withIndex)
	n.putTopic("T", 2)
	c := n.dial()
	for i := range 40 {
		props := fmt.Sprintf("KEYS\x01Aa k%d\x02UNIQ_KEY\x01U%d", i, i)
		if i%2 == 1 {
			props = "KEYS\x01BB" // the same hash
		}
		want(t, c.send("T", i%2, props, []byte{byte(i)}), 0)
	}
	bodies := func(r *remoting.Command) (got []byte) {
		t.Helper()
		for _, m := range records(t, r.Body) {
			got = append(got, m.Body[0])
		}
		return got
	}
	const found, notFound = 0, remoting.ResponseQueryNotFound
	for _, q := range []struct {
		topic, key string
		max        int
		unique     bool
		code       int32
		want       []byte
	}{
		{"T", "k4", 32, false, found, []byte{4}},
		{"T", "U4", 32, false, found, []byte{4}},
		{"T", "U4", 0, true, found, []byte{4}}, // a unique query gets 32 whatever it says
		{"T", "k4", 32, true, notFound, nil},
		{"T", "Aa", 3, false, found, []byte{34, 36, 38}},
		{"T", "BB", 2, false, found, []byte{37, 39}},
		{"T", "Aa", 0, false, notFound, nil},
		{"T", "none", 32, false, notFound, nil},
		{"None", "Aa", 32, false, notFound, nil},
		{"T", "", 32, false, notFound, nil},
	} {
		r := want(t, c.call(remoting.RequestQueryMessage, nil, queryFields(q.topic, q.key, q.max, q.unique)...), q.code)
		if got := bodies(r); !slices.Equal(got, q.want) {
			t.Errorf("%+v: %v", q, got)
		}
		var h remoting.QueryMessageResponse
		if err := h.Decode(r); err != nil || extNames(r) != "indexLastUpdatePhyoffset indexLastUpdateTimestamp" {
			t.Errorf("%+v: ext %q, %v", q, extNames(r), err)
		}
		if (h.IndexLastUpdateTimestamp > 0) != (q.code == found) {
			t.Errorf("%+v: %+v", q, h)
		}
		if q.code == notFound && r.Remark != "can not find message, maybe time range not correct" {
			t.Errorf("%+v: %q", q, r.Remark)
		}
	}
	if r := c.call(remoting.RequestQueryMessage, nil, "topic", "T", "key", "k"); r.Code != 1 || !strings.Contains(r.Remark, "maxNum") {
		t.Errorf("without maxNum: %d %q", r.Code, r.Remark)
	}
	// A follower gives what it has; "nothing" only the leader may say.
	n.raft.follow(2, testOther)
	r := want(t, c.call(remoting.RequestQueryMessage, nil, queryFields("T", "k4", 32, false)...), 0)
	if got := bodies(r); !slices.Equal(got, []byte{4}) {
		t.Errorf("follower: %v", got)
	}
	want(t, c.call(remoting.RequestQueryMessage, nil, queryFields("T", "none", 32, false)...), remoting.ResponseServiceNotAvailable)
}

// TestQueryMessageWithoutIndex: "not found" would be a guess.
func TestQueryMessageWithoutIndex(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(o *nodeOptions) { o.store.MessageIndexEnable = false })
	r := n.dial().call(remoting.RequestQueryMessage, nil, queryFields("T", "k", 32, false)...)
	if r.Code != remoting.ResponseSystemError || !strings.Contains(r.Remark, "messageIndexEnable") {
		t.Errorf("%d %q", r.Code, r.Remark)
	}
}

// TestViewMessageByID: the record that a query names is the one that its message id names.
func TestViewMessageByID(t *testing.T) {
	t.Parallel()
	n := newNode(t, withIndex)
	n.putTopic("T", 1)
	c := n.dial()
	sent := want(t, c.send("T", 0, "KEYS\x01k", []byte("body")), 0)
	_, phyOffset, err := record.ParseMessageID(sent.GetString("msgId"))
	if err != nil {
		t.Fatal(err)
	}
	view := want(t, c.call(remoting.RequestViewMessageByID, nil, "offset", fmt.Sprint(phyOffset)), 0)
	query := want(t, c.call(remoting.RequestQueryMessage, nil, queryFields("T", "k", 32, false)...), 0)
	if len(view.Body) == 0 || !slices.Equal(view.Body, query.Body) {
		t.Errorf("view %d bytes, query %d bytes", len(view.Body), len(query.Body))
	}
}
