package broker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"raftmq/fsm/metadata"
	"raftmq/transport/broker/stats"
	"raftmq/transport/remoting"
)

func (c *conn) runtimeInfo() map[string]string {
	c.t.Helper()
	var info remoting.KVTable
	if err := info.Decode(want(c.t, c.call(remoting.RequestGetBrokerRuntimeInfo, nil), 0).Body); err != nil {
		c.t.Fatal(err)
	}
	return info.Table
}

// TestRuntimeInfoKeys: every key of a real broker's answer is there, and each value has the form of its.
func TestRuntimeInfoKeys(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "", "")
	want(t, c.send("T", 0, "DELAY\x011", []byte("later")), 0)
	got := c.runtimeInfo()
	f, err := os.Open("testdata/mqadmin-brokerStatus-4.9.4.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	keys := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		key, value, ok := strings.Cut(s.Text(), ":")
		key = strings.TrimSpace(key)
		if !ok || strings.HasPrefix(key, "mqadmin") || key == "scheduleMessageOffset_3" {
			continue
		}
		keys++
		if strings.HasPrefix(key, "commitLogDiskRatio_") {
			key = "commitLogDiskRatio_" + n.store.Space().CommitLog.Path
		}
		if _, ok := got[key]; !ok {
			t.Errorf("%s is missing", key)
			continue
		}
		if form, own := formOf(strings.TrimPrefix(value, " ")), formOf(got[key]); form != own && got[key] != "  " && got[key] != "null" && key != "earliestMessageTimeStamp" {
			t.Errorf("%s is %q (%s), a real broker has %q (%s)", key, got[key], own, value, form)
		}
	}
	if keys < 40 {
		t.Fatalf("%d keys in the capture", keys)
	}
	for key, value := range map[string]string{"putMessageTimesTotal": "3", "msgPutTotalTodayNow": "3", "commitLogMinOffset": "0", "scheduleMessageOffset_1": "0,1",
		"putMessageFailedTimes": "0", "remainTransientStoreBufferNumbs": "2147483647", "putMessageDistributeTime": "null", "pageCacheLockTimeMills": "0"} {
		if got[key] != value {
			t.Errorf("%s is %q, want %q", key, got[key], value)
		}
	}
	if got["earliestMessageTimeStamp"] == "-1" {
		t.Error("the log has a first message")
	}
}

var digits = regexp.MustCompile(`[0-9]+`)

// formOf is a value with its numbers left out. Rates have one or more figures.
func formOf(value string) string {
	form := digits.ReplaceAllString(value, "9")
	if strings.Trim(form, "9. ") == "" && strings.Contains(form, ".") && strings.Contains(value, " ") {
		return "rates"
	}
	return strings.TrimSpace(form)
}

func (c *conn) stats(name, key string) (d remoting.BrokerStatsData) {
	c.t.Helper()
	r := want(c.t, c.call(remoting.RequestViewBrokerStatsData, nil, "statsName", name, "statsKey", key), 0)
	if err := json.Unmarshal(r.Body, &d); err != nil {
		c.t.Fatal(err)
	}
	return d
}

// TestBrokerStats: what sends and pulls leave in the items that mqadmin's statsAll and brokerConsumeStats read.
func TestBrokerStats(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 2)
	c := n.dial()
	want(t, c.call(remoting.RequestViewBrokerStatsData, nil, "statsName", "TOPIC_PUT_NUMS", "statsKey", "T"), 1, "The stats <TOPIC_PUT_NUMS> <T> not exist")
	_, before := n.store.LogRange()
	want(t, c.send("T", 1, "", []byte("one")), 0)
	want(t, c.call(remoting.RequestSendMessage, batchBody("two", "three", "four"), sendFields("T", 1, "", "batch", "true")...), 0)
	_, after := n.store.LogRange()
	want(t, c.send("T", 0, "DELAY\x013", []byte("later")), 0)
	n.waitReadable("T", 1, 4)
	p := want(t, c.pull("g", "T", 1, 0, flagCarried, 0), 0)
	want(t, c.pull("g", "T", 1, 4, flagCarried, 0), remoting.ResponsePullNotFound)
	want(t, c.sendBack("g", phyOffset(t, want(t, c.send("T", 0, "", []byte("back")), 0)), 1), 0)
	back := n.stored("T", 0, 0)

	n.broker.counting.items.Sample(time.Now())
	size := after - before + int64(back.Size())
	for _, w := range []struct {
		name, key string
		sum       int64
		average   float64
	}{
		{"TOPIC_PUT_NUMS", "T", 5, 5. / 3}, // a send-back is none, as in RocketMQ
		{"TOPIC_PUT_SIZE", "T", size, float64(size) / 3},
		{"TOPIC_PUT_NUMS", metadata.ScheduleTopic, 1, 1},
		{"QUEUE_PUT_NUMS", metadata.ScheduleTopic + "@2", 1, 1},
		{"BROKER_PUT_NUMS", testCluster, 6, 6. / 4},
		{"GROUP_GET_NUMS", "T@g", 4, 4},
		{"GROUP_GET_SIZE", "T@g", int64(len(p.Body)), float64(len(p.Body))},
		{"QUEUE_GET_NUMS", "T@1@g", 4, 4},
		{"QUEUE_GET_SIZE", "T@1@g", int64(len(p.Body)), float64(len(p.Body))},
		{"BROKER_GET_NUMS", testCluster, 4, 4},
		{"SNDBCK_PUT_NUMS", "T@g", 1, 1},
	} {
		d := c.stats(w.name, w.key)
		if d.Minute.Sum != w.sum || d.Minute.Average != w.average || d.Minute.TPS <= 0 || d.Hour.Sum != 0 {
			t.Errorf("%s %s: %+v, want %+v", w.name, w.key, d, w)
		}
	}
	if d := c.stats("GROUP_GET_FALL_SIZE", "1@T@g"); d.Minute.Sum <= 0 || d.Minute.Sum > after {
		t.Errorf("fall size %+v", d)
	}
	if d := c.stats("GROUP_GET_FALL_TIME", "1@T@g"); d.Minute.Sum < 0 || d.Minute.Sum > 60_000 {
		t.Errorf("fall time %+v", d)
	}
	for _, missing := range [][2]string{{"QUEUE_PUT_NUMS", "T@1"}, {"GROUP_GET_NUMS", "T@h"}, {"NO_SUCH", "T"}, {"", ""}} {
		want(t, c.call(remoting.RequestViewBrokerStatsData, nil, "statsName", missing[0], "statsKey", missing[1]), 1, fmt.Sprintf("The stats <%s> <%s> not exist", missing[0], missing[1]))
	}
}

// TestMinuteLine: a minute without traffic is not told.
func TestMinuteLine(t *testing.T) {
	var lines lineCounter
	n := newNode(t, func(o *nodeOptions) { o.config = func(c *Config) { c.Logger = lines.logger() } })
	n.putTopic("T", 1)
	c := n.dial()
	for range 3 {
		n.broker.minute()
	}
	if got := lines.count("traffic"); got != 0 {
		t.Errorf("%d lines about nothing", got)
	}
	want(t, c.send("T", 0, "", []byte("x")), 0)
	n.broker.minute()
	if got := lines.count("puts=1"); got != 1 {
		t.Errorf("%d lines about a put", got)
	}
	if got := c.runtimeInfo()["putMessageDistributeTime"]; strings.Count(got, ":1") != 1 || strings.Count(got, ":0") != 12 {
		t.Errorf("distribution %q", got)
	}
	n.broker.minute()
	if got := lines.count("traffic"); got != 1 {
		t.Errorf("%d lines, the last minute was idle", got)
	}
}

// TestDayTotals: the totals at the last two midnights.
func TestDayTotals(t *testing.T) {
	var d dayTotals
	table := map[string]string{}
	check := func(putYesterday, putToday, givenYesterday, givenToday string) {
		t.Helper()
		d.fill(table)
		want := map[string]string{"msgPutTotalYesterdayMorning": putYesterday, "msgPutTotalTodayMorning": putToday, "msgGetTotalYesterdayMorning": givenYesterday, "msgGetTotalTodayMorning": givenToday}
		for key, value := range want {
			if table[key] != value {
				t.Errorf("%s is %s, want %s", key, table[key], value)
			}
		}
	}
	at := time.Date(2024, 12, 30, 22, 0, 0, 0, time.UTC)
	d.turn(at, 10, 1)
	d.turn(at.Add(time.Hour), 20, 2)
	check("0", "0", "0", "0")
	d.turn(at.Add(2*time.Hour), 30, 3)
	d.turn(at.Add(25*time.Hour), 40, 4)
	check("0", "30", "0", "3")
	d.turn(at.Add(26*time.Hour), 50, 5) // another year's first day
	check("30", "50", "3", "5")
}

// TestCountingDoesNotAllocate: once topic, group and queue are known.
func TestCountingDoesNotAllocate(t *testing.T) {
	var c counting
	c.init("C")
	topic, group := []byte("T"), []byte("g")
	count := func() {
		c.put(c.topic(topic, 18), 0, 1, 100)
		c.got(c.pull(topic, group, 3), 32, 1000, time.Millisecond, 0, 0)
		c.puts.Observe(3 * time.Millisecond)
	}
	count()
	if n := testing.AllocsPerRun(100, count); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if c.items.Find(stats.BrokerGetNums, "C").Value() == 0 {
		t.Error("nothing was counted")
	}
}

func BenchmarkCountSend(b *testing.B) {
	var c counting
	c.init("C")
	topic := []byte("TopicTest")
	b.ReportAllocs()
	for b.Loop() {
		c.put(c.topic(topic, 18), 0, 1, 1024)
		c.puts.Observe(time.Duration(time.Now().UnixMilli()%4) * time.Millisecond)
	}
}

func BenchmarkCountPull(b *testing.B) {
	var c counting
	c.init("C")
	topic, group := []byte("TopicTest"), []byte("group")
	b.ReportAllocs()
	for b.Loop() {
		c.got(c.pull(topic, group, 3), 32, 32<<10, time.Millisecond, 0, 0)
	}
}
