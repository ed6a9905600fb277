package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// setClock makes a node's clock be off by d, at its next look at the file.
func setClock(n *cluster.Node, d time.Duration) error {
	path := clockFile(n)
	return errors.Join(os.WriteFile(path+".tmp", fmt.Appendf(nil, "raftmq-test-clock %v", d), 0o600), os.Rename(path+".tmp", path))
}

func clockFile(n *cluster.Node) string { return filepath.Join(filepath.Dir(n.DataDir), "clock") }

// F67: the leader's clock is stepped by an hour forth and back, by two hours at once, and leadership goes to a node whose clock is an hour
// behind, all under load. No send is refused, none takes long, and store times never go back along a queue.
func TestF67_ClockSteps(t *testing.T) {
	long(t)
	parallel(t, 11)
	topic := topicName(t)
	report := run(t, jepsen.Config{
		Flags:    steadyFlags(),
		Workload: workload.Config{Topic: topic, Client: workload.Raw, Rate: 1000},
		Prepare: func(c *cluster.Cluster) error {
			for _, n := range c.Nodes() {
				if err := setClock(n, 0); err != nil {
					return err
				}
				n.Flags = []string{"--test-clock-offset-file", clockFile(n)}
			}
			return nil
		},
		Do: func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
			defer cancel()
			return f67(ctx, t, c, rec, topic)
		},
	})
	for _, g := range report.Gaps {
		if g.Fault == "clock" && g.Length > bound(2*time.Second) {
			t.Errorf("%v without an acknowledged send after a step of the clock", g.Length)
		}
	}
}

func f67(ctx context.Context, t *testing.T, c *cluster.Cluster, rec *history.Recorder, topic string) error {
	leader, before, err := leading(ctx, c)
	if err != nil {
		return err
	}
	// Beside the load, sends that must all succeed at the first attempt.
	once := startOnce(t, leader, topic)
	for _, d := range []time.Duration{time.Hour, 0, -time.Hour, time.Hour, 5 * time.Second, 0, -5 * time.Second, 0} {
		if err := step(rec, "clock", leader.ID+" "+d.String(), func() error {
			if err := setClock(leader, d); err != nil {
				return err
			}
			return sleep(ctx, 800*time.Millisecond)
		}); err != nil {
			return err
		}
	}
	if err := unchanged(ctx, leader, before); err != nil {
		return err
	}
	if err := setClock(leader, time.Hour); err != nil {
		return err
	}
	if err := sleep(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	sent, err := once.stop()
	if err != nil {
		return fmt.Errorf("after %d sends at their first attempt: %w", sent, err)
	}
	if sent < 20 {
		return fmt.Errorf("only %d sends", sent)
	}
	// The next leader's clock is right, an hour behind what the log says.
	next := c.Nodes()[leader.Index%3]
	if err := step(rec, "transfer", next.ID, func() error {
		return leader.Admin(ctx, remoting.RequestTransferLeadership, remoting.TransferRequest{To: next.ID}, nil)
	}); err != nil {
		return err
	}
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	return storeTimesGrow(ctx, next, topic, 8)
}

// once sends messages one after the other, each one time; the first that fails ends it.
type once struct {
	cancel context.CancelFunc
	done   chan struct{}
	sent   int
	err    error
}

func startOnce(t *testing.T, n *cluster.Node, topic string) *once {
	ctx, cancel := context.WithCancel(t.Context())
	o := &once{cancel: cancel, done: make(chan struct{})}
	t.Cleanup(func() { cancel(); <-o.done })
	go func() {
		defer close(o.done)
		conn, err := n.Dial(ctx)
		if err != nil {
			o.err = err
			return
		}
		defer conn.Close()
		for ctx.Err() == nil {
			began := time.Now()
			ictx, stop := context.WithTimeout(context.WithoutCancel(ctx), bound(3*time.Second))
			resp, err := conn.Invoke(ictx, sendRequest("once-"+topic, 0, fmt.Sprint(o.sent), ""))
			stop()
			switch {
			case err != nil:
				o.err = err
				return
			case resp.Code != 0:
				o.err = fmt.Errorf("code %d %q after %v", resp.Code, resp.Remark, time.Since(began))
				return
			}
			o.sent++
		}
	}()
	return o
}

func (o *once) stop() (sent int, err error) {
	o.cancel()
	<-o.done
	return o.sent, o.err
}

// storeTimesGrow reads all queues of a topic from a node and checks that no message has an older store time than the one before it.
func storeTimesGrow(ctx context.Context, n *cluster.Node, topic string, queues int) error {
	conn, err := n.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for q := range queues {
		last, count := int64(0), 0
		for offset := int64(0); ; {
			resp, err := conn.Invoke(ctx, pullRequest(topic, q, offset, 0))
			if err != nil {
				return err
			}
			if resp.Code != remoting.ResponseSuccess {
				break
			}
			for b := resp.Body; len(b) > 0; {
				// Format notes §1: total size at 0, queue offset at 20, store timestamp at 56 with IPv4 hosts.
				size := int(binary.BigEndian.Uint32(b))
				stored := int64(binary.BigEndian.Uint64(b[56:]))
				if stored < last {
					return fmt.Errorf("%s/%d: message %d was stored at %d, the one before it at %d", topic, q, binary.BigEndian.Uint64(b[20:]), stored, last)
				}
				last, offset, b = stored, int64(binary.BigEndian.Uint64(b[20:]))+1, b[size:]
				count++
			}
		}
		if count == 0 {
			return fmt.Errorf("%s/%d is empty", topic, q)
		}
		if ahead := time.Until(time.UnixMilli(last)); ahead < 30*time.Minute {
			return fmt.Errorf("%s/%d: the newest message is only %v ahead of the right time: the steps had no effect", topic, q, ahead)
		}
	}
	return nil
}
