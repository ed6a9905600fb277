package main

import (
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/transport/remoting"
)

// benchJSON runs bench and returns its result.
func benchJSON(t *testing.T, args ...string) (*benchResult, error) {
	t.Helper()
	all := append([]string{"bench", "--json"}, args...)
	if !slices.Contains(args, "--mode=consume") {
		all = append(all, "--warmup=0s")
	}
	out, _, err := runTool(t, "", all...)
	r := new(benchResult)
	if jsonErr := json.Unmarshal([]byte(out), r); jsonErr != nil {
		t.Fatalf("%v (%v): %q", jsonErr, err, out)
	}
	return r, err
}

func TestBenchClosedLoop(t *testing.T) {
	for _, args := range []string{"", "--serialize=rocketmq", "--batch=16", "--batch=4 --unique-keys", "--unique-keys"} {
		t.Run(args, func(t *testing.T) {
			c := startFakeCluster(t, 1)
			r, err := benchJSON(t, append(strings.Fields(args), "--create", "--topic=speed", "--queues=3", "--size=100", "--connections=2", "--in-flight=8",
				"--duration=600ms", "--name-servers="+c.addrs())...)
			if err != nil {
				t.Fatal(err)
			}
			p, stored := r.Produce, int64(c.messages("speed"))
			// What is acknowledged before and after the measured time is stored too, but not counted.
			if most := p.Acknowledged + p.Acknowledged/4 + int64(20*8*p.Batch); p.Acknowledged == 0 || stored < p.Acknowledged || stored > most {
				t.Errorf("%d acknowledged, %d stored", p.Acknowledged, stored)
			}
			if len(p.Errors) > 0 || p.Reconnects > 0 {
				t.Errorf("errors %v, %d reconnects", p.Errors, p.Reconnects)
			}
			if l := p.Latency; l.P50 <= 0 || l.P50 > l.P99 || l.P99 > l.Max || l.Max > 10_000 {
				t.Errorf("latency %+v", l)
			}
			if p.LongestGap <= 0 || p.LongestGap > r.Seconds {
				t.Errorf("longest gap %v", p.LongestGap)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, q := range []string{"speed/0", "speed/1", "speed/2"} {
				if len(c.queues[q]) == 0 {
					t.Errorf("nothing in %s", q)
				}
			}
			body := record.View(c.queues["speed/0"][0]).Body()
			if len(body) != 100 {
				t.Errorf("body of %d bytes", len(body))
			}
			if strings.Contains(args, "unique-keys") && int64(len(c.keys)) != stored {
				t.Errorf("%d different keys of %d messages", len(c.keys), stored)
			}
		})
	}
}

func TestBenchFollowsTheLeader(t *testing.T) {
	c := startFakeCluster(t, 3)
	c.addTopic("t", 2)
	go func() {
		reaches(t, &c.nodes[0].stored, 10)
		c.setLeader(1) // node 0 refuses from now on
		reaches(t, &c.nodes[1].stored, 10)
		time.Sleep(150 * time.Millisecond)
		c.setLeader(2)
		c.nodes[1].server.CloseConns()
	}()
	r, err := benchJSON(t, "--topic=t", "--connections=2", "--in-flight=4", "--duration=2s", "--name-servers="+c.addrs())
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range c.nodes {
		if n.stored.Load() == 0 {
			t.Errorf("node %d got nothing", i)
		}
	}
	if r.Produce.Reconnects < 2 { // each connection, once at least
		t.Errorf("%d reconnects", r.Produce.Reconnects)
	}
	if e := r.Produce.Errors; len(e) == 0 || e[len(e)-1].Code != remoting.ResponseServiceNotAvailable || e[len(e)-1].Remark != "not the leader" {
		t.Errorf("errors %+v", e)
	}
}

// A leader that hangs keeps its connections open: bench leaves it when routes show another.
func TestBenchLeavesASilentLeader(t *testing.T) {
	c := startFakeCluster(t, 2)
	c.addTopic("t", 1)
	c.nodes[0].silent.Store(true)
	go func() {
		reaches(t, &c.nodes[0].asked, 4)
		c.setLeader(1)
	}()
	r, err := benchJSON(t, "--topic=t", "--connections=1", "--in-flight=4", "--duration=3s", "--name-servers="+c.addrs())
	if err != nil {
		t.Fatal(err)
	}
	if r.Produce.Acknowledged == 0 || r.Produce.LongestGap < 0.2 || r.Produce.LongestGap > 2.9 {
		t.Errorf("%d acknowledged, longest gap %v", r.Produce.Acknowledged, r.Produce.LongestGap)
	}
	if e := r.Produce.Errors; len(e) != 1 || e[0].Code != codeLost || e[0].Count != 4 {
		t.Errorf("errors %+v", e)
	}
}

func TestBenchWithoutAnswers(t *testing.T) {
	c := startFakeCluster(t, 1)
	c.addTopic("t", 1)
	c.nodes[0].silent.Store(true)
	r, err := benchJSON(t, "--topic=t", "--connections=1", "--in-flight=4", "--duration=1200ms", "--timeout=500ms", "--name-servers="+c.addrs())
	if !errors.Is(err, errReported) {
		t.Errorf("status %v", err)
	}
	if e := r.Produce.Errors; len(e) != 1 || e[0].Code != codeTimeout || e[0].Count < 4 {
		t.Errorf("errors %+v", e)
	}
	if r.Produce.LongestGap < 1.19 {
		t.Errorf("longest gap %v of a run without an acknowledged send", r.Produce.LongestGap)
	}
}

func TestBenchBacksOff(t *testing.T) {
	c := startFakeCluster(t, 1)
	c.addTopic("t", 1)
	c.nodes[0].failing.Store(&answerError{remoting.ResponseSystemBusy, "[OVERLOAD]"})
	go func() {
		reaches(t, &c.nodes[0].asked, 2)
		time.Sleep(300 * time.Millisecond)
		c.nodes[0].failing.Store(nil)
	}()
	r, err := benchJSON(t, "--topic=t", "--connections=1", "--in-flight=2", "--duration=1s", "--name-servers="+c.addrs())
	if err != nil || r.Produce.Acknowledged == 0 {
		t.Fatalf("%d acknowledged, %v", r.Produce.Acknowledged, err)
	}
	// Two requests each 10 ms for 300 ms, and some.
	if e := r.Produce.Errors; len(e) != 1 || e[0].Code != remoting.ResponseSystemBusy || e[0].Count > 100 || r.Produce.Reconnects != 0 {
		t.Errorf("errors %+v, %d reconnects", e, r.Produce.Reconnects)
	}
}

// In an open loop requests leave on schedule, and a stall counts for all that it delayed.
func TestBenchOpenLoop(t *testing.T) {
	c := startFakeCluster(t, 1)
	c.addTopic("t", 2)
	go func() {
		reaches(t, &c.nodes[0].stored, 200)
		gate := make(chan struct{})
		c.nodes[0].stall.Store(&gate)
		time.Sleep(300 * time.Millisecond)
		c.nodes[0].stall.Store(nil)
		close(gate)
	}()
	r, err := benchJSON(t, "--topic=t", "--connections=2", "--in-flight=16", "--rate=1000", "--duration=1500ms", "--name-servers="+c.addrs())
	if err != nil {
		t.Fatal(err)
	}
	p := r.Produce
	if p.Acknowledged < 500 || p.Acknowledged > 1600 {
		t.Errorf("%d acknowledged of 1500", p.Acknowledged)
	}
	// 300 of 1500 were delayed, by 150 ms on average; a closed loop would have seen 32.
	if p.Latency.P90 < 50 || p.Latency.Max < 250 {
		t.Errorf("latency %+v", p.Latency)
	}
}

func TestBenchConsume(t *testing.T) {
	c := startFakeCluster(t, 1)
	c.addTopic("t", 4)
	at := "--name-servers=" + c.addrs()
	if _, err := benchJSON(t, "--topic=t", "--size=100", "--batch=32", "--connections=1", "--in-flight=4", "--duration=200ms", at); err != nil {
		t.Fatal(err)
	}
	stored := int64(c.messages("t"))
	r, err := benchJSON(t, "--topic=t", "--mode=consume", "--duration=10s", at)
	if err != nil {
		t.Fatal(err)
	}
	if r.Consume.Messages != stored || stored == 0 || r.Consume.Queues != 4 || len(r.Consume.Errors) > 0 || r.Produce != nil || r.Seconds > 8 {
		t.Errorf("read %+v of %d, in %v s", r.Consume, stored, r.Seconds)
	}
	if r, err = benchJSON(t, "--topic=t", "--mode=consume", "--queues=1", at); err != nil || r.Consume.Queues != 1 || r.Consume.Messages >= stored {
		t.Errorf("one queue: %+v, %v", r.Consume, err)
	}
	if r, err = benchJSON(t, "--topic=t", "--mode=consume", "--from=last", at); err != nil || r.Consume.Messages != 0 {
		t.Errorf("from the last: %+v, %v", r.Consume, err)
	}
}

func TestBenchBoth(t *testing.T) {
	c := startFakeCluster(t, 1)
	c.addTopic("t", 2)
	r, err := benchJSON(t, "--topic=t", "--mode=both", "--rate=500", "--connections=1", "--duration=1s", "--name-servers="+c.addrs())
	if err != nil {
		t.Fatal(err)
	}
	if r.Produce.Acknowledged < 100 || r.Consume.Messages < r.Produce.Acknowledged/2 || r.Consume.EndToEnd.P50 > 1000 {
		t.Errorf("%+v, %+v", r.Produce, r.Consume)
	}
}

func TestBenchRefusals(t *testing.T) {
	c := startFakeCluster(t, 1)
	at := "--name-servers=" + c.addrs()
	for args, want := range map[string]string{
		"--mode=x":                         `--mode "x": allowed are produce, consume and both`,
		"--serialize=xml":                  `--serialize "xml"`,
		"--from=middle":                    `--from "middle"`,
		"--connections=0":                  "--connections 0: allowed are 1 to 4096",
		"--in-flight=65536":                "--in-flight 65536: allowed are 1 to 65535",
		"--size=16MiB":                     `--size "16MiB": allowed are 1 to 15MiB`,
		"--size=1MiB --batch=16":           "--batch 16: contradicts --size 1MiB",
		"--rate=-1":                        "--rate -1",
		"--duration=1ms":                   "--duration 1ms",
		"--create --queues=0":              "--queues 0: allowed are 1 to 1024",
		"--mode=consume --batch=4":         "--batch contradicts --mode consume",
		"--topic=none":                     "topic none does not exist; --create makes it",
		"--name-servers=127.0.0.1:1":       "dial tcp 127.0.0.1:1: ", // refused, or the time was up in the middle of the last try
		"--timeout=-1s":                    "--timeout -1s",
		"--topic=none --mode=consume":      "topic none does not exist",
		"--queues=2000":                    "--queues 2000: allowed are 0 to 1024",
		"--warmup=-1s --mode=both":         "--warmup -1s",
		"--duration=1s --pull-batch=10000": "--pull-batch 10000",
	} {
		all := append([]string{"bench"}, strings.Fields(args)...)
		if !strings.Contains(args, "name-servers") {
			all = append(all, at)
		} else {
			all = append(all, "--timeout=2s") // it tries for so long
		}
		if _, _, err := runTool(t, "", all...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestBenchReport(t *testing.T) {
	r := &benchResult{Topic: "t", Seconds: 10, Mode: benchBoth,
		Produce: &produceResult{Size: 1024, Connections: 4, InFlight: 256, Batch: 16, Rate: 5000, Acknowledged: 1234567, PerSecond: 123456.7, MBPerSecond: 126.4,
			Latency: latencyMillis{0.5, 9.99, 10.04, 99.96, 1234}, LongestGap: 1.5, Reconnects: 3,
			Errors: []errorCount{{codeLost, codeText(codeLost), 5, ""}, {14, codeText(14), 12, "not the leader\nFAQ"}}},
		Consume: &consumeResult{Queues: 8, PullBatch: 32, Messages: 999, PerSecond: 99.9, MBPerSecond: 0.1, PerPull: 31.5, EndToEnd: &latencyMillis{1, 2, 3, 4, 5}}}
	var b strings.Builder
	if err := r.write(&b, false); err != nil {
		t.Fatal(err)
	}
	want := `produce  1KiB to t, 5,000 msg/s on schedule over 4 connections × 256 in flight, batches of 16, 10.0 s
  acknowledged  1,234,567 messages  123,456 msg/s  126.4 MB/s
  latency       p50 0.50 ms  p90 9.99 ms  p99 10.0 ms  p99.9 100.0 ms  max 1234 ms
  longest gap   1.500 s without an acknowledged send
  errors        5 × connection lost
                12 × code 14 SERVICE_NOT_AVAILABLE, first: not the leader
  reconnects    3
consume  t, 8 queues, pulls of up to 32, 10.0 s
  read          999 messages  99 msg/s  0.1 MB/s  31.5 messages a pull
  end to end    p50 1.00 ms  p90 2.00 ms  p99 3.00 ms  p99.9 4.00 ms  max 5.00 ms
  errors        none
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// discardConn takes requests and gives the answers that a test put there.
type discardConn struct{ net.Conn }

func (discardConn) Write(b []byte) (int, error)     { return len(b), nil }
func (discardConn) SetReadDeadline(time.Time) error { return nil }
func (discardConn) Close() error                    { return nil }

// BenchmarkProducer is what the load itself costs: a burst of answers handled, as many requests encoded.
func BenchmarkProducer(b *testing.B) {
	const inFlight = 256
	bn := &bench{o: &benchOptions{size: 1024, batch: 1, connections: 1, inFlight: inFlight, topic: "t"}, epoch: time.Now(), stopping: make(chan struct{})}
	p := newProducer(bn, 0, groupQueues{"broker-a", 8})
	p.sock = discardConn{}
	p.send()
	r := frameReader{buf: make([]byte, benchBuffer)}
	b.ReportAllocs()
	b.SetBytes(1024)
	for i := 0; b.Loop(); i++ {
		if i%inFlight != 0 {
			continue // a burst is handled at once
		}
		r.from, r.to = 0, 0
		answers := r.buf[:0]
		for s := range p.slots {
			answers = remoting.AppendSendResponse(answers, remoting.SendResponse{Opaque: p.slots[s].generation<<slotBits | int32(s),
				Version: 401, MsgID: []byte("7F00000100002A9F0000000000000000"), Region: []byte("DefaultRegion"), TraceOn: true})
		}
		r.to = len(answers)
		if err := p.answers(&r); err != nil {
			b.Fatal(err)
		}
		if !p.send() {
			b.Fatal("not sent")
		}
	}
}
