package namesrv

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/membership/route"
	"raftmq/transport/remoting"
)

// node is a processor over real tables and a real router.
type node struct {
	*Processor
	tables *metadata.Tables
	leader string
	failed error // what Propose answers instead
}

// newNode has the golden capture's cluster: a leader, and a replica with number 1.
func newNode(tb testing.TB) *node {
	tb.Helper()
	n := &node{tables: metadata.New(), leader: "master"}
	check := func(err error) {
		if err != nil {
			tb.Helper()
			tb.Fatal(err)
		}
	}
	check(n.tables.PutSettings(command.Settings{ClusterID: "id", ClusterName: "PeerCluster", BrokerName: "peer-a", SegmentSize: 1 << 20, AutoCreateTopic: true, DefaultTopicQueues: 8}))
	for _, x := range []command.NodePut{{ID: "slave", ClientAddr: "127.0.0.1:12031"}, {ID: "master", ClientAddr: "127.0.0.1:12011"}} {
		_, err := n.tables.PutNode(x)
		check(err)
	}
	r := route.New(route.Config{Groups: []route.Group{{Name: "peer-a", ClusterName: "PeerCluster", Tables: n.tables,
		Leader: func() (string, bool) { return n.leader, n.leader != "" }}}})
	n.Processor = New(Config{Routes: r, KV: n.tables, Propose: n.apply, Properties: func() map[string]string {
		return map[string]string{"listenPort": "9876", "clusterName": "C", "odd": "a\nb\\"}
	}})
	return n
}

func (n *node) putTopics(tb testing.TB, queues int, names ...string) {
	tb.Helper()
	for _, name := range names {
		if err := n.tables.PutTopic(command.TopicPut{Topic: command.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6}}); err != nil {
			tb.Fatal(err)
		}
	}
}

// apply is Propose with the FSM's part for KV commands.
func (n *node) apply(ctx context.Context, b []byte) error {
	if n.failed != nil {
		return n.failed
	}
	if _, ok := ctx.Deadline(); !ok {
		return errors.New("a proposal without a deadline")
	}
	r, err := command.NewReader(append(command.AppendEntryHead(nil), b...))
	if err != nil {
		return err
	}
	c, ok, err := r.Next()
	if err != nil || !ok {
		return fmt.Errorf("no command: %v", err)
	}
	switch c.Kind {
	case command.KindKVPut:
		var p command.KVPut
		if err := json.Unmarshal(c.Payload, &p); err != nil {
			return err
		}
		return n.tables.PutKV(p)
	case command.KindKVDelete:
		var d command.KVDelete
		if err := json.Unmarshal(c.Payload, &d); err != nil {
			return err
		}
		return n.tables.DeleteKV(d)
	}
	return fmt.Errorf("kind %d", c.Kind)
}

// ask answers cmd as Register's handlers would.
func (n *node) ask(tb testing.TB, code int32, ext ...string) *remoting.Command {
	tb.Helper()
	cmd := &remoting.Command{Code: code}
	for i := 0; i < len(ext); i += 2 {
		cmd.Set(ext[i], ext[i+1])
	}
	return n.dispatch(tb, cmd)
}

func (n *node) dispatch(tb testing.TB, cmd *remoting.Command) *remoting.Command {
	tb.Helper()
	if cmd.Code == remoting.RequestGetRouteInfoByTopic {
		resp, _ := n.topicRoute(cmd)
		return resp
	}
	if a := n.answers()[cmd.Code]; a != nil {
		return a(cmd)
	}
	tb.Fatalf("no handler of code %d", cmd.Code)
	return nil
}

// captured is one line of testdata, see the README there.
type captured struct {
	Name, Direction, Header, BodyText string
}

func (c captured) command(tb testing.TB) *remoting.Command {
	tb.Helper()
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(c.Header)))
	frame = append(append(frame, c.Header...), c.BodyText...)
	var cmd remoting.Command
	var scratch []byte
	if err := remoting.DecodeFrame(frame, &cmd, &scratch); err != nil {
		tb.Fatalf("%s: %v", c.Name, err)
	}
	return &cmd
}

func readCaptured(tb testing.TB) (pairs [][2]captured) {
	tb.Helper()
	f, err := os.Open("testdata/ns-4.9.4.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var last captured
	for s := bufio.NewScanner(f); s.Scan(); {
		var c captured
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			tb.Fatal(err)
		}
		if c.Direction == "request" {
			last = c
		} else if c.Header != "" {
			pairs = append(pairs, [2]captured{last, c})
		}
	}
	return pairs
}

var bareID = regexp.MustCompile(`([{,])(\d+):`)

// normalBody makes bodies comparable: ids in quotes, topic lists in order.
func normalBody(tb testing.TB, body string) string {
	tb.Helper()
	body = bareID.ReplaceAllString(body, `$1"$2":`)
	if !strings.Contains(body, `"topicList"`) {
		return body
	}
	var l remoting.TopicList
	if err := json.Unmarshal([]byte(body), &l); err != nil {
		tb.Fatal(err)
	}
	slices.Sort(l.TopicList)
	return string(l.Encode())
}

// TestGolden gives a 4.9.4 name server's requests in their order to ours, with the same topics in
// the tables, and compares whole headers and bodies.
func TestGolden(t *testing.T) {
	n := newNode(t)
	n.putTopics(t, 1, "%RETRY%golden_nobroad_cg", "%RETRY%nobody_cg", "%RETRY%golden_err2_cg", "%RETRY%nobody3_cg", "%RETRY%golden_err_cg",
		"%DLQ%golden_err_cg", "RMQ_SYS_TRACE_TOPIC", "GoldenUneven", "GoldenWriteOnly", "GoldenReadOnly", "GoldenErrOrder")
	n.putTopics(t, 2, "GoldenErr")
	// What is not the same, on purpose.
	other := map[string]string{
		"ns/kv list emptied":                     "an emptied namespace is as if it had never been",
		"ns/wipe write perm":                     "refused",
		"ns/route after wipe":                    "refused before",
		"ns/add write perm":                      "refused",
		"ns/config":                              "settings of another program",
		"ns/config update, bad value":            "refused",
		"ns/data version of unregistered broker": "brokers don't register",
	}
	compared := 0
	for _, p := range readCaptured(t) {
		req, want := p[0], p[1]
		if other[req.Name] != "" {
			continue
		}
		compared++
		cmd := req.command(t)
		got := n.dispatch(t, cmd)
		// What transport fills in.
		got.Flag, got.Language, got.Version, got.Opaque = remoting.FlagResponse, remoting.LanguageJava, remoting.Version4_9_4, cmd.Opaque
		frame := remoting.AppendFrame(nil, got)
		header := string(frame[8 : 8+binary.BigEndian.Uint32(frame[4:])&0xffffff])
		if header != want.Header {
			t.Errorf("%s\n got header  %s\n want header %s", req.Name, header, want.Header)
		}
		if g, w := normalBody(t, string(got.Body)), normalBody(t, want.BodyText); g != w {
			t.Errorf("%s\n got body  %s\n want body %s", req.Name, g, w)
		}
		if strings.Contains(string(got.Body), " ") {
			t.Errorf("%s: a blank in the body, Go clients read it wrong: %s", req.Name, got.Body)
		}
	}
	if compared < 25 {
		t.Errorf("%d answers compared", compared)
	}
}

// Never-Guess: without a leader nothing is answered as if it were known.
func TestWithoutLeaderNothingIsGuessed(t *testing.T) {
	n := newNode(t)
	n.leader = ""
	for _, r := range []struct {
		code int32
		ext  []string
	}{
		{105, []string{"topic", "nope"}}, {105, []string{"topic", "TBW102"}}, {106, nil}, {206, nil}, {224, []string{"cluster", "PeerCluster"}}, {304, nil}, {311, nil},
		{101, []string{"namespace", "N", "key", "k"}}, {219, []string{"namespace", "N"}}, {205, []string{"brokerName", "x"}},
	} {
		got := n.ask(t, r.code, r.ext...)
		if got.Code != remoting.ResponseSystemError || !strings.Contains(got.Remark, "retry") || got.Body != nil {
			t.Errorf("%d: code %d, remark %q, %d bytes", r.code, got.Code, got.Remark, len(got.Body))
		}
	}
}

func TestChangesThatAreRefusedOrFail(t *testing.T) {
	n := newNode(t)
	for _, r := range []struct {
		name string
		code int32
		ext  []string
		want int32
		says string
	}{
		{"put without key", 100, []string{"namespace", "N", "value", "v"}, 1, "missing"},
		{"delete without namespace", 102, []string{"key", "k"}, 1, "missing"},
		{"delete of what isn't there", 102, []string{"namespace", "N", "key", "k"}, 0, ""},
		{"put a setting", 100, []string{"namespace", metadata.SettingsNamespace, "key", "k", "value", "v"}, 1, "updateBrokerConfig"},
		{"delete a setting", 102, []string{"namespace", metadata.SettingsNamespace, "key", "k"}, 1, "updateBrokerConfig"},
		{"wipe", 205, []string{"brokerName", "peer-a"}, 1, "raftmq"},
		{"add", 327, []string{"brokerName", "peer-a"}, 1, "raftmq"},
		{"config", 318, nil, 1, "restart"},
		{"delete topic", 216, []string{"topic", "T"}, 0, ""},
	} {
		got := n.ask(t, r.code, r.ext...)
		if got.Code != r.want || !strings.Contains(got.Remark, r.says) {
			t.Errorf("%s: code %d, remark %q", r.name, got.Code, got.Remark)
		}
	}
	n.failed = errors.New("no leader")
	if got := n.ask(t, 100, "namespace", "N", "key", "k", "value", "v"); got.Code != 1 || !strings.Contains(got.Remark, "no leader") {
		t.Errorf("a proposal that fails: code %d, remark %q", got.Code, got.Remark)
	}
}

// The operator's address for whoever leads is broker 0, everywhere; replicas keep theirs.
func TestLeaderAddress(t *testing.T) {
	n := newNode(t)
	n.cfg.LeaderAddress = "lb.example:9876"
	var r remoting.TopicRouteData
	if err := r.Decode(n.ask(t, 105, "topic", "TBW102").Body); err != nil || len(r.BrokerDatas) != 1 || len(r.BrokerDatas[0].BrokerAddrs) != 2 ||
		r.BrokerDatas[0].BrokerAddrs[0] != "lb.example:9876" || r.BrokerDatas[0].BrokerAddrs[1] != "127.0.0.1:12031" {
		t.Errorf("route %+v, %v", r, err)
	}
	var c remoting.ClusterInfo
	if err := c.Decode(n.ask(t, 106).Body); err != nil || c.BrokerAddrTable["peer-a"].BrokerAddrs[0] != "lb.example:9876" {
		t.Errorf("cluster %+v, %v", c, err)
	}
	var l remoting.TopicList
	if err := l.Decode(n.ask(t, 304).Body); err != nil || l.BrokerAddr != "lb.example:9876" {
		t.Errorf("system topics %+v, %v", l, err)
	}
}

// Clients of 5.x get the field of 5.x's routes, others what a 4.9.4 name server tells them.
func TestRouteOf5x(t *testing.T) {
	n := newNode(t)
	for _, code := range []int32{remoting.RequestGetRouteInfoByTopic, remoting.RequestGetBrokerClusterInfo} {
		for version, want := range map[int32]bool{remoting.Version4_9_4: false, remoting.Version5_0_0: true, remoting.Version5_0_0 + 50: true} {
			cmd := &remoting.Command{Code: code, Version: version}
			cmd.Set("topic", "TBW102")
			if body := string(n.dispatch(t, cmd).Body); strings.Contains(body, `"enableActingMaster":false`) != want || !strings.Contains(body, "brokerAddrs") {
				t.Errorf("request %d of version %d: %s", code, version, body)
			}
		}
	}
}

func TestUnitTopics(t *testing.T) {
	n := newNode(t)
	for i, name := range []string{"none", "unit", "sub", "both"} {
		if err := n.tables.PutTopic(command.TopicPut{Topic: command.TopicConfig{TopicName: name, ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6, TopicSysFlag: i}}); err != nil {
			t.Fatal(err)
		}
	}
	for code, want := range map[int32][]string{311: {"both", "unit"}, 312: {"both", "sub"}, 313: {"sub"}} {
		var l remoting.TopicList
		if err := l.Decode(n.ask(t, code).Body); err != nil || !slices.Equal(l.TopicList, want) {
			t.Errorf("%d: %v, %v", code, l.TopicList, err)
		}
	}
}

func TestConfigText(t *testing.T) {
	n := newNode(t)
	if got, want := string(n.ask(t, 319).Body), "clusterName=C\nlistenPort=9876\nodd=a\\nb\\\\\n"; got != want {
		t.Errorf("%q", got)
	}
	n.cfg.Properties = nil
	if got := n.ask(t, 319); got.Code != 0 || got.Body == nil {
		t.Errorf("without settings: code %d, body %v", got.Code, got.Body)
	}
}

// F73: with 60,000 topics of the longest name the list still fits a frame.
func TestF73TopicListFitsAFrame(t *testing.T) {
	n := newNode(t)
	names := make([]string, 60_000)
	for i := range names {
		names[i] = fmt.Sprintf("%0127d", i)
	}
	n.putTopics(t, 8, names...)
	got := n.ask(t, 206)
	if size := len(remoting.AppendFrame(nil, got)); size >= 16<<20 {
		t.Errorf("%d bytes", size)
	}
	var l remoting.TopicList
	if err := l.Decode(got.Body); err != nil || len(l.TopicList) < len(names) {
		t.Errorf("%d topics, %v", len(l.TopicList), err)
	}
}

func BenchmarkTopicRoute(b *testing.B) {
	n := newNode(b)
	n.putTopics(b, 8, "T")
	cmd := &remoting.Command{Code: 105}
	cmd.Set("topic", "T")
	b.ReportAllocs()
	for b.Loop() {
		if resp, _ := n.topicRoute(cmd); resp.Code != 0 {
			b.Fatal(resp.Remark)
		}
	}
}
