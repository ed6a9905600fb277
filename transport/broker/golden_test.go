package broker

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"raftmq/fsm/metadata"
	"raftmq/transport/remoting"
)

// goldenCase is one line of testdata/raw-4.9.4.jsonl.
type goldenCase struct {
	Name    string
	Request string
	Body    string
	BodyHex string
	Zeros   int
	Answer  string
	Note    string
}

func (g *goldenCase) body(t *testing.T) []byte {
	switch {
	case g.BodyHex != "":
		b, err := hex.DecodeString(g.BodyHex)
		if err != nil {
			t.Fatal(err)
		}
		return b
	case g.Zeros > 0:
		return make([]byte, g.Zeros)
	}
	return []byte(g.Body)
}

func readGolden(t *testing.T) (cases []goldenCase) {
	f, err := os.Open("testdata/raw-4.9.4.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var g goldenCase
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, g)
	}
	if err := lines.Err(); err != nil || len(cases) < 200 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	return cases
}

// rawConn writes header texts as they were captured.
type rawConn struct {
	net.Conn
	t *testing.T
}

func (n *node) dialRaw(t *testing.T) *rawConn {
	c, err := net.Dial("tcp4", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &rawConn{c, t}
}

// ask sends one request and returns the next answer; nil when none comes within wait.
func (c *rawConn) ask(header string, body []byte, wait time.Duration) *remoting.Command {
	c.t.Helper()
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	frame = append(append(frame, header...), body...)
	if _, err := c.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	must(c.SetReadDeadline(time.Now().Add(wait)))
	for {
		var size [4]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return nil
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			c.t.Fatal(err)
		}
		var resp remoting.Command
		if err := remoting.DecodeFrame(frame, &resp, new([]byte)); err != nil {
			c.t.Fatal(err)
		}
		if resp.IsResponse() {
			return resp.Clone()
		}
	}
}

// difference is an answer of ours that is meant to be another than 4.9.4's.
type difference struct {
	code   int32
	remark string // a part of it
	why    string
}

const (
	whyException = "a Java exception text is not worth imitating; the code is the same"
	whyFilter    = "unknown types are refused"
	whyFilterOn  = "property filters are always on (enablePropertyFilter)"
	whyGate      = "the leader gate comes first, and its remark names the leader"
)

var differences = map[string]difference{
	"broker/create topic, perm missing":                        {1, "perm", whyException},
	"broker/create topic, bad filter type":                     {1, "topicFilterType = [NONSENSE] value invalid", whyException},
	"broker/create group, empty body":                          {1, "group configuration", whyException},
	"broker/create group, bad JSON":                            {1, "group configuration", whyException},
	"broker/send batch, broken body":                           {1, "batch entry", whyException},
	"broker/send without queueId":                              {1, "queueId", whyException + "; ext is there"},
	"broker/send queueId not a number":                         {1, "queueId", whyException + "; ext is there"},
	"broker/send delay not a number":                           {1, "DELAY", whyException + "; ext is there"},
	"broker/end transaction, type 0":                           {0, "", "4.9.4 does not answer; here every request has an answer (F93)"},
	"broker/end transaction, type 5":                           {1, "commitOrRollback is 5", whyException},
	"broker/pull bad SQL92":                                    {23, "parse the consumer's subscription failed", "4.9.4 gives every message; a consumer that carries a wrong expression is told so here"},
	"broker/pull SQL92, filter off":                            {20, "NO_MATCHED_MESSAGE", whyFilterOn},
	"broker/check client config SQL92, filter off":             {0, "", whyFilterOn},
	"broker/pull unknown expression type":                      {1, "filter message by XYZ", whyFilter},
	"broker/heartbeat no body":                                 {1, "heartbeat", whyException},
	"broker/heartbeat bad JSON":                                {1, "heartbeat", whyException},
	"broker/pull by heartbeat subscription":                    {0, "FOUND", "hash codes are computed from the tags; the heartbeat's codeSet, empty here, is not used"},
	"broker/query offset, missing field":                       {1, "queueId", whyException},
	"broker/view by offset, inside a record":                   {1, "can not find message by the offset, 5", whyException + ": an offset inside a record is no message"},
	"broker/check client config bad SQL92":                     {23, "illegal expression", whyException},
	"broker/consumer status, unknown group":                    {1, "No Any Consumer online in the consumer group: [nobody_cg]", whyException},
	"broker/update config":                                     {1, "no setting can be changed", "the kit's broker has no settings; see TestUpdateConfig and cmd/raftmq's TestRunningSettings"},
	"broker/update config, unknown key":                        {1, "no setting can be changed", "4.9.4 passes over what it does not know; here it is refused"},
	"broker/update config, bad value":                          {1, "no setting can be changed", "4.9.4 passes over what it cannot read; here it is refused"},
	"broker/all consumer offsets":                              {3, "not supported", "for RocketMQ's slaves, of which there are none"},
	"broker/all delay offsets":                                 {3, "not supported", "for RocketMQ's slaves, of which there are none"},
	"broker/resume half message check":                         {1, "Put message back", "4.9.4 makes a half message of whatever the id names; here only of one that was given up"},
	"broker/lock without body":                                 {1, "lock request", whyException},
	"broker/send back missing field":                           {1, "offset", whyException},
	"broker/send back, broker read-only":                       {0, "", "there is no brokerPermission"},
	"broker/half message refused":                              {0, "", "there is no rejectTransactionMessage"},
	"broker/pull, broker write-only":                           {0, "FOUND", "there is no brokerPermission"},
	"broker/send before startAcceptSendRequestTimeStamp":       {0, "", "there is no startAcceptSendRequestTimeStamp"},
	"broker/send batch before startAcceptSendRequestTimeStamp": {0, "", "there is no startAcceptSendRequestTimeStamp"},

	"broker/pull by heartbeat subscription, newer version asked": {0, "FOUND", "Java checks tags itself: unfiltered is right, and 25 stops a 5.x client for 30 s"},

	"slave/send":            {14, "the leader is node n2 at 10.0.0.2:10911", whyGate},
	"slave/send v2":         {14, "the leader is node n2 at 10.0.0.2:10911", whyGate},
	"slave/send batch":      {14, "the leader is node n2 at 10.0.0.2:10911", whyGate},
	"slave/half message":    {14, "the leader is node n2 at 10.0.0.2:10911", whyGate},
	"slave/delayed":         {14, "the leader is node n2 at 10.0.0.2:10911", whyGate},
	"slave/unknown topic":   {14, "the leader is node n2 at 10.0.0.2:10911", whyGate},
	"slave/forbidden topic": {14, "the leader is node n2 at 10.0.0.2:10911", whyGate},
	"slave/body too large":  {14, "the leader is node n2 at 10.0.0.2:10911", whyGate},
}

// skipped cases, with the reason.
var skipped = map[string]string{
	"slave/end transaction": "asked of the leader, see TestEndTransactionElsewhere; a 4.9.4 slave answers 11", "slave/send back": "asked of the leader, see TestSendBackElsewhere",
	"slave/update offset": "asked of the leader, see TestForward", "slave/query offset": "asked of the leader, see TestForward",
	"slave/max offset": "asked of the leader, see TestForward", "slave/min offset": "asked of the leader, see TestForward",
	"slave/earliest time": "asked of the leader, see TestForward", "slave/topic stats": "asked of the leader, see TestForward",
	"slave/create topic": "asked of the leader, see TestForward; a 4.9.4 slave refuses it",
}

var portPattern = regexp.MustCompile(`127\.0\.0\.1:\d+`)

func extNames(c *remoting.Command) string {
	var names []string
	for _, f := range c.Ext {
		names = append(names, f.Key)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestGoldenAnswers asks what a 4.9.4 broker was asked and compares code, remark and ext names.
func TestGoldenAnswers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	noCreation := newNode(t, func(o *nodeOptions) { o.settings.AutoCreateGroup = false })
	noCreation.putTopic("GoldenErr", 2)
	c, second := n.dialRaw(t), n.dialRaw(t)
	used := map[string]bool{}
	for _, g := range readGolden(t) {
		if _, ok := skipped[g.Name]; ok {
			used[g.Name] = true
			continue
		}
		at := c
		switch {
		case strings.HasSuffix(g.Name, "no auto-creation"):
			at = noCreation.dialRaw(t)
		case g.Name == "broker/heartbeat second client":
			at = second
		case g.Name == "broker/max offset": // the capture went on with a new connection here
			_ = c.Close()
			eventually(t, "the closed connection's members are gone", func() bool { return n.groups.Consumers("golden_err_cg") == nil })
			n.clock.Store(int64(learnTime))
			c = n.dialRaw(t)
			at = c
		case g.Name == "slave/send":
			n.raft.follow(9, testOther)
		}
		// The queue of "send queueId negative" is random, so the end of queue 0 is not that of the capture.
		if _, behind, ok := strings.Cut(g.Name, "broker/pull at max"); ok || g.Name == "broker/pull beyond max" {
			end := n.store.MaxOffset("GoldenErr", 0)
			n.waitReadable("GoldenErr", 0, end)
			if behind == "" {
				end += 50
			}
			g.Request = regexp.MustCompile(`"queueOffset":"\d+"`).ReplaceAllString(g.Request, fmt.Sprintf(`"queueOffset":"%d"`, end))
		}
		n.waitReadable("GoldenErr", 0, n.store.MaxOffset("GoldenErr", 0))
		if strings.HasPrefix(g.Name, "broker/end transaction") { // the capture's half message is elsewhere in its log
			g.Request = strings.ReplaceAll(g.Request, `"commitLogOffset":"4229930"`, fmt.Sprintf(`"commitLogOffset":"%d"`, n.stored(metadata.HalfTopic, 0, 0).PhyOffset))
		}
		wait := waitLong
		if g.Answer == "" && differences[g.Name].code == 0 {
			wait = 30 * time.Millisecond
		}
		got := at.ask(g.Request, g.body(t), wait)
		d, differs := differences[g.Name]
		if differs {
			used[g.Name] = true
			if got == nil || got.Code != d.code || !strings.Contains(got.Remark, d.remark) {
				t.Errorf("%s: %+v, want %d …%s…", g.Name, got, d.code, d.remark)
			}
		}
		if g.Answer == "" {
			if got != nil && !differs {
				t.Errorf("%s: answered %d %q, 4.9.4: %s", g.Name, got.Code, got.Remark, g.Note)
			}
			continue
		}
		var golden remoting.Command
		frame := binary.BigEndian.AppendUint32(nil, uint32(len(g.Answer)))
		if err := remoting.DecodeFrame(append(frame, g.Answer...), &golden, new([]byte)); err != nil {
			t.Fatalf("%s: %v", g.Name, err)
		}
		if got == nil {
			t.Errorf("%s: no answer, 4.9.4: %d %q", g.Name, golden.Code, golden.Remark)
			continue
		}
		ours := fmt.Sprintf("%d %q %s", got.Code, portPattern.ReplaceAllString(got.Remark, "ADDR"), extNames(got))
		theirs := fmt.Sprintf("%d %q %s", golden.Code, portPattern.ReplaceAllString(golden.Remark, "ADDR"), extNames(&golden))
		if !differs && ours != theirs {
			t.Errorf("%s:\n  ours  %s\n  4.9.4 %s", g.Name, ours, theirs)
		}
		if differs && ours == theirs {
			t.Errorf("%s is no difference any more: %s", g.Name, ours)
		}
	}
	for name := range differences {
		if !used[name] {
			t.Errorf("there is no case %s", name)
		}
	}
}
