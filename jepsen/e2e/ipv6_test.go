package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"raftmq/commitlog/record"
	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// loopback6 is a loopback network on ::1.
type loopback6 struct{ cluster.Network }

func (l loopback6) Addresses(n int) cluster.Addresses {
	a := l.Network.Addresses(n)
	for _, addr := range []*string{&a.Client, &a.Raft, &a.Gossip, &a.HTTP} {
		*addr = strings.Replace(*addr, "127.0.0.1", "[::1]", 1)
	}
	return a
}

// TestF81_IPv6: nodes on ::1 only. Records have longer hosts, and with them the position of the store time is another: what reads it back is a query by id, by key
// and by time, and the commands that show times.
func TestF81_IPv6(t *testing.T) {
	parallel(t, 3)
	if six, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 on loopback here: %v", err)
	} else {
		_ = six.Close()
	}
	c := startCluster(t, cluster.Config{Network: loopback6{freePorts(t, 3)}})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	p := newProducer(t, c)
	before := time.Now()
	var ids, unique []string
	var want []string
	for i := range 20 {
		body := fmt.Sprint("m-", i)
		res, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte(body)).WithKeys([]string{"key" + body}))
		if err != nil || res.Status != primitive.SendOK {
			t.Fatalf("send: %v, %v", res, err)
		}
		ids, unique, want = append(ids, res.OffsetMsgID), append(unique, res.MsgID), append(want, body)
	}
	after := time.Now()
	box := &inbox{}
	startConsumer(t, c, "g-"+topic, topic, "", box)
	box.await(t, slices.Clone(want))

	leader := leaderOf(t, c)
	lc := dial(t, leader.Addrs.Client)
	stored := func(rec []byte) record.Message {
		t.Helper()
		var m record.Message
		if _, err := record.Decode(rec, &m); err != nil {
			t.Fatal(err)
		}
		if host := netip.MustParseAddrPort(leader.Addrs.Client); m.StoreHost != host || m.BornHost.Addr() != host.Addr() {
			t.Errorf("hosts %v and %v, want %v", m.StoreHost, m.BornHost, host)
		}
		if at := time.UnixMilli(m.StoreTimestamp); at.Before(before.Add(-time.Second)) || at.After(after.Add(time.Second)) {
			t.Errorf("store time %v, sent between %v and %v", at, before, after)
		}
		return m
	}
	times := make([]int64, len(ids))
	for i, id := range ids {
		host, offset, err := record.ParseMessageID(id)
		if err != nil || host.String() != leader.Addrs.Client {
			t.Fatalf("id %q: %v, %v", id, host, err)
		}
		resp := invoke(t, lc, request(remoting.RequestViewMessageByID, nil, "offset", strconv.FormatInt(offset, 10)))
		if resp.Code != 0 {
			t.Fatalf("by id: %d %s", resp.Code, resp.Remark)
		}
		m := stored(resp.Body)
		times[i] = m.StoreTimestamp
		if string(m.Body) != want[i] {
			t.Errorf("by id %s: %q, want %q", id, m.Body, want[i])
		}
	}
	from, to := strconv.FormatInt(before.Add(-time.Minute).UnixMilli(), 10), strconv.FormatInt(after.Add(time.Minute).UnixMilli(), 10)
	for key, byUnique := range map[string]string{unique[7]: "true", "keym-7": "false"} {
		eventually(t, time.Minute, "the index", func() bool { // it is written beside the log
			return invoke(t, lc, request(remoting.RequestQueryMessage, nil, "topic", topic, "key", key, "maxNum", "8", "beginTimestamp", from, "endTimestamp", to, "_UNIQUE_KEY_QUERY", byUnique)).Code == 0
		})
		resp := invoke(t, lc, request(remoting.RequestQueryMessage, nil, "topic", topic, "key", key, "maxNum", "8", "beginTimestamp", from, "endTimestamp", to, "_UNIQUE_KEY_QUERY", byUnique))
		if m := stored(resp.Body); string(m.Body) != "m-7" {
			t.Errorf("by key %s: %q", key, m.Body)
		}
	}
	for i := 1; i < len(times); i++ {
		if times[i] == times[i-1] {
			continue // the first of its millisecond is meant
		}
		resp := invoke(t, lc, request(remoting.RequestSearchOffsetByTimestamp, nil, "topic", topic, "queueId", "0", "timestamp", strconv.FormatInt(times[i], 10)))
		if resp.Code != 0 || number(t, resp, "offset") != int64(i) {
			t.Errorf("by time %d: %d %s, offset %s; want %d", times[i], resp.Code, resp.Remark, resp.GetString("offset"), i)
		}
	}
	if resp := invoke(t, lc, request(remoting.RequestGetEarliestMsgStoreTime, nil, "topic", topic, "queueId", "0")); resp.Code != 0 || number(t, resp, "timestamp") != times[0] {
		t.Errorf("earliest store time: %d %s, want %d", resp.Code, resp.GetString("timestamp"), times[0])
	}
	for _, n := range c.Nodes() {
		for what, cmd := range map[string]*remoting.Command{
			"runtime info": request(remoting.RequestGetBrokerRuntimeInfo, nil), "cluster info": request(remoting.RequestGetBrokerClusterInfo, nil),
			"topic stats":     request(remoting.RequestGetTopicStatsInfo, nil, "topic", topic),
			"consume stats":   request(remoting.RequestGetConsumeStats, nil, "consumerGroup", "g-"+topic, "topic", topic),
			"connections":     request(remoting.RequestGetConsumerConnectionList, nil, "consumerGroup", "g-"+topic),
			"broker settings": request(remoting.RequestGetBrokerConfig, nil),
		} {
			if resp := invoke(t, dial(t, n.Addrs.Client), cmd); resp.Code != 0 || len(resp.Body) == 0 {
				t.Errorf("%s of %s: %d %s", what, n.ID, resp.Code, resp.Remark)
			} else if what == "topic stats" && !strings.Contains(string(resp.Body), strconv.FormatInt(times[len(times)-1], 10)) {
				t.Errorf("topic stats of %s without the newest store time %d: %s", n.ID, times[len(times)-1], resp.Body)
			}
		}
	}
	for _, args := range [][]string{{"cluster", "status"}, {"topic", "describe", topic}, {"cluster", "verify"}} {
		out, err := exec.CommandContext(t.Context(), serverBin(t), append(args, "--name-servers", strings.Join(c.ClientAddrs(), ","))...).CombinedOutput()
		if err != nil {
			t.Errorf("raftmq %v: %v\n%s", args, err, out)
		}
	}
}
