package e2e

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/workload"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// F77, fewer rounds: a held pull answers as soon as the message is there; none waits for its
// hold time.
func TestF77_LongPollWakesUp(t *testing.T) {
	c := startCluster(t, cluster.Config{})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	leader := leaderOf(t, c)
	sender, puller := dial(t, leader.Addrs.Client), dial(t, leader.Addrs.Client)
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	const hold = 15 * time.Second
	late := make([]time.Duration, 0, rounds)
	for i := range int64(rounds) {
		answered := make(chan time.Time, 1)
		var code int32
		// The pull and the send race on two connections, now the one, now the other first.
		pull := func() {
			puller.Go(pullRequest(topic, 0, i, hold), func(resp *remoting.Command, err error) {
				if err == nil {
					code = resp.Code
				}
				answered <- time.Now()
			})
		}
		acked := make(chan time.Time, 1)
		send := func() {
			sender.Go(sendRequest(topic, 0, fmt.Sprint("m-", i), ""), func(*remoting.Command, error) { acked <- time.Now() })
		}
		if i%2 == 0 {
			pull()
			send()
		} else {
			send()
			pull()
		}
		stored := <-acked
		select {
		case at := <-answered:
			if code != remoting.ResponseSuccess {
				t.Fatalf("round %d: pull answered %d", i, code)
			}
			late = append(late, at.Sub(stored))
		case <-time.After(hold + 5*time.Second):
			t.Fatalf("round %d: the pull was never answered", i)
		}
	}
	slices.Sort(late)
	p50, p99, worst := late[len(late)/2], late[len(late)*99/100], late[len(late)-1]
	t.Logf("from acknowledgement to delivery: median %v, p99 %v, worst %v", p50, p99, worst)
	// One that was not woken is answered when its hold time is over.
	if limit := bound(50 * time.Millisecond); p99 > limit || worst > hold-3*time.Second {
		t.Errorf("p99 %v, worst %v; want %v, much less than %v", p99, worst, limit, hold)
	}
}

// frames is one connection without any client library: it sees each frame that comes.
type frames struct {
	net.Conn
	in *bufio.Reader
}

func dialFrames(t *testing.T, addr string) *frames {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &frames{c, bufio.NewReader(c)}
}

func (f *frames) read(deadline time.Time) (*remoting.Command, error) {
	if err := f.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	var length [4]byte
	if _, err := io.ReadFull(f.in, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(f.in, frame); err != nil {
		return nil, err
	}
	cmd, scratch := new(remoting.Command), []byte(nil)
	return cmd, remoting.DecodeFrame(frame, cmd, &scratch)
}

// F93: 64 synchronous clients; every request gets exactly one answer, or its connection closes.
// In the middle of the second half the leader is killed.
func TestF93_OneAnswerEach(t *testing.T) {
	parallel(t, 7)
	c := startCluster(t, cluster.Config{})
	topic := topicName(t)
	createTopic(t, c, topic, 8)
	leader := leaderOf(t, c)
	each := 300
	if testing.Short() {
		each = 30
	}
	t.Run("calm", func(t *testing.T) { oneAnswerEach(t, leader, topic, each, nil) })
	t.Run("killed", func(t *testing.T) {
		oneAnswerEach(t, leader, topic, each, func() {
			if err := leader.Kill(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("follower", func(t *testing.T) {
		serving(t, c)
		oneAnswerEach(t, followerOf(t, c), topic, each/3, nil)
	})
}

func oneAnswerEach(t *testing.T, n *cluster.Node, topic string, each int, hurt func()) {
	const clients = 64
	var answered, closed atomic.Int64
	var wg sync.WaitGroup
	var once sync.Once
	for i := range clients {
		f := dialFrames(t, n.Addrs.Client)
		wg.Go(func() {
			for k := range each {
				if hurt != nil && answered.Load() > int64(clients*each/2) {
					once.Do(hurt)
				}
				cmd := sendRequest(topic, i%8, fmt.Sprintf("c%d-%d", i, k), "")
				cmd.Opaque = int32(i*1_000_000 + k)
				if _, err := f.Write(remoting.AppendFrame(nil, cmd)); err != nil {
					closed.Add(1)
					return
				}
				resp, err := f.read(time.Now().Add(time.Minute))
				switch {
				case errors.Is(err, os.ErrDeadlineExceeded):
					t.Errorf("client %d: request %d got no answer in a minute and the connection is open", i, k)
					return
				case err != nil:
					closed.Add(1)
					return
				case resp.Opaque != cmd.Opaque || !resp.IsResponse():
					t.Errorf("client %d: opaque %d answers %d", i, resp.Opaque, cmd.Opaque)
					return
				}
				answered.Add(1)
			}
			// Nothing may be left.
			if resp, err := f.read(time.Now().Add(200 * time.Millisecond)); err == nil {
				t.Errorf("client %d: a second answer: code %d opaque %d", i, resp.Code, resp.Opaque)
			}
		})
	}
	wg.Wait()
	t.Logf("%d answered, %d connections closed", answered.Load(), closed.Load())
	if hurt == nil && answered.Load() != int64(clients*each) {
		t.Errorf("%d of %d requests answered, %d connections closed", answered.Load(), clients*each, closed.Load())
	}
	if hurt != nil && closed.Load() == 0 {
		t.Error("the killed node closed no connection: it was not hit under load")
	}
}

// F94: right after an acknowledgement the queue's max offset on that node is past the message.
func TestF94_MaxOffsetNeverLags(t *testing.T) {
	parallel(t, 10)
	c := startCluster(t, cluster.Config{})
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	leader := leaderOf(t, c)
	rounds := 2500
	if testing.Short() {
		rounds = 200
	}
	var wg sync.WaitGroup
	for q := range 4 {
		lc := dial(t, leader.Addrs.Client)
		wg.Go(func() {
			for i := range rounds {
				resp, err := lc.Invoke(t.Context(), sendRequest(topic, q, fmt.Sprint("m-", i), ""))
				if err != nil || resp.Code != 0 {
					t.Errorf("send: %v, %v", resp, err)
					return
				}
				acked, err := strconv.ParseInt(resp.GetString("queueOffset"), 10, 64)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err = lc.Invoke(t.Context(), request(remoting.RequestGetMaxOffset, nil, "topic", topic, "queueId", strconv.Itoa(q)))
				if err != nil || resp.Code != 0 {
					t.Errorf("max offset: %v, %v", resp, err)
					return
				}
				if got, err := strconv.ParseInt(resp.GetString("offset"), 10, 64); err != nil || got < acked+1 {
					t.Errorf("round %d: max offset %d right after offset %d was acknowledged (%v)", i, got, acked, err)
					return
				}
				if i%16 == 0 && !pullFinds(t, lc, topic, q, acked) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// pullFinds pulls an acknowledged message without hold, as a reader to the end does. The answer
// may be "ask again at once" for a moment, but not "nothing there".
func pullFinds(t *testing.T, lc *client.Client, topic string, queue int, offset int64) bool {
	for deadline := time.Now().Add(30 * time.Second); ; {
		resp, err := lc.Invoke(t.Context(), pullRequest(topic, queue, offset, 0))
		switch {
		case err == nil && resp.Code == remoting.ResponseSuccess:
			return true
		case err != nil, resp.Code != remoting.ResponsePullRetryImmediately, time.Now().After(deadline):
			t.Errorf("pull at the acknowledged offset %d: %v, %v", offset, resp, err)
			return false
		}
	}
}

// F95: pipelined sends of one connection to one queue are stored in the order sent.
func TestF95_OrderInAConnection(t *testing.T) {
	parallelHeavy(t, 3, 2)
	c := startCluster(t, cluster.Config{})
	topic := topicName(t)
	createTopic(t, c, topic, 4)
	leader := leaderOf(t, c)
	each := 8000
	if testing.Short() {
		each = 1000
	}
	var wg sync.WaitGroup
	for q := range 4 {
		lc := dial(t, leader.Addrs.Client)
		wg.Go(func() { pipeline(t, lc, topic, q, each) })
	}
	wg.Wait()
	for q := range int32(4) {
		next := 0
		n, err := workload.ReadQueue(t.Context(), dial(t, leader.Addrs.Client), "e2e", topic, q, func(d workload.Delivery) {
			if want := fmt.Sprintf("q%d-%d", q, next); d.Value != want && !t.Failed() {
				t.Errorf("queue %d offset %d holds %s, want %s", q, d.Offset, d.Value, want)
			}
			next++
		})
		if err != nil || n != each {
			t.Errorf("queue %d: %d of %d messages: %v", q, n, each, err)
		}
	}
}

// pipeline sends with 256 in flight; every offset is the order of sending.
func pipeline(t *testing.T, lc *client.Client, topic string, q, each int) {
	slots := make(chan struct{}, 256)
	var wg sync.WaitGroup
	for i := range each {
		slots <- struct{}{}
		wg.Add(1)
		lc.Go(sendRequest(topic, q, fmt.Sprintf("q%d-%d|", q, i), ""), func(resp *remoting.Command, err error) {
			defer wg.Done()
			<-slots
			switch {
			case err != nil:
				t.Errorf("send %d: %v", i, err)
			case resp.Code != 0:
				t.Errorf("send %d: %d %s", i, resp.Code, resp.Remark)
			case resp.GetString("queueOffset") != strconv.Itoa(i):
				t.Errorf("send %d got offset %s", i, resp.GetString("queueOffset"))
			}
		})
	}
	wg.Wait()
}
