package raftnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// remote is a transport whose other end answers from a script.
type remote struct {
	raft.Transport
	answer func(call int, snapshot []byte, resp *raft.InstallSnapshotResponse) error
	calls  int
}

// InstallSnapshot implements raft.Transport.
func (r *remote) InstallSnapshot(_ raft.ServerID, _ raft.ServerAddress, _ *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	b, err := io.ReadAll(data)
	if err != nil {
		return err
	}
	r.calls++
	return r.answer(r.calls, b, resp)
}

func sender(r *remote) (l *link, leads *atomic.Bool, stop chan struct{}) {
	l = newLink(r, nil, nil, time.Now)
	leads, stop = &atomic.Bool{}, make(chan struct{})
	leads.Store(true)
	l.leads = func(term uint64, id raft.ServerID) bool { return leads.Load() && term == 3 && id == "n2/x" }
	l.stop, l.canReceive = stop, func(string) error { return nil }
	return l, leads, stop
}

func send(l *link) (*raft.InstallSnapshotResponse, error) {
	resp := &raft.InstallSnapshotResponse{}
	return resp, l.InstallSnapshot("n2/x", "a", &raft.InstallSnapshotRequest{Term: 3, Size: 8}, resp, strings.NewReader("snapshot"))
}

// asText is how an error arrives from another node.
func asText(err error) error { return errors.New(err.Error()) }

func TestLeaderComesAgainWithASnapshot(t *testing.T) {
	notYet := asText(fmt.Errorf("fsm: catching up: %w", ErrNotYet))
	refused := errors.New("fsm: damaged or foreign snapshot: checksum 00000000, expected 11111111")
	for _, tc := range []struct {
		name   string
		answer func(leads *atomic.Bool, stop chan struct{}) func(call int, resp *raft.InstallSnapshotResponse) error
		calls  int
		want   error // nil: installed
	}{
		{"until it is installed", func(*atomic.Bool, chan struct{}) func(int, *raft.InstallSnapshotResponse) error {
			return func(call int, resp *raft.InstallSnapshotResponse) error {
				if call < 200 {
					return notYet
				}
				resp.Success = true
				return nil
			}
		}, 200, nil},
		{"not after another error", func(*atomic.Bool, chan struct{}) func(int, *raft.InstallSnapshotResponse) error {
			return func(call int, _ *raft.InstallSnapshotResponse) error {
				if call < 3 {
					return notYet
				}
				return refused
			}
		}, 3, refused},
		{"not when it leads no longer", func(leads *atomic.Bool, _ chan struct{}) func(int, *raft.InstallSnapshotResponse) error {
			return func(call int, _ *raft.InstallSnapshotResponse) error {
				leads.Store(call < 2)
				return notYet
			}
		}, 2, notYet},
		{"not when it stops", func(_ *atomic.Bool, stop chan struct{}) func(int, *raft.InstallSnapshotResponse) error {
			return func(int, *raft.InstallSnapshotResponse) error {
				close(stop)
				return notYet
			}
		}, 1, raft.ErrTransportShutdown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &remote{}
				l, leads, stop := sender(r)
				f := tc.answer(leads, stop)
				r.answer = func(call int, snapshot []byte, resp *raft.InstallSnapshotResponse) error {
					if string(snapshot) != "snapshot" {
						t.Errorf("call %d carries %q", call, snapshot)
					}
					return f(call, resp)
				}
				resp, err := send(l)
				if r.calls != tc.calls || !errors.Is(err, tc.want) || resp.Success != (tc.want == nil) {
					t.Errorf("%d calls, %+v, %v", r.calls, resp, err)
				}
			})
		})
	}
}

func TestSnapshotIsNotSent(t *testing.T) {
	r := &remote{answer: func(int, []byte, *raft.InstallSnapshotResponse) error { return nil }}
	l, _, _ := sender(r)
	old := errors.New("an older raftmq")
	l.canReceive = func(nodeID string) error {
		if nodeID != "n2" {
			t.Errorf("asked about %s", nodeID)
		}
		return old
	}
	if _, err := send(l); !errors.Is(err, old) || r.calls != 0 {
		t.Errorf("to an older raftmq: %v, %d calls", err, r.calls)
	}
	l.canReceive = func(string) error { return nil }
	l.shut.Store(true)
	if _, err := send(l); !errors.Is(err, errAside) || r.calls != 0 {
		t.Errorf("with a sick disk: %v, %d calls", err, r.calls)
	}
}

// receiver is an intake with a Raft behind it that answers from a script.
type receiver struct {
	*intake
	term     atomic.Uint64
	last     atomic.Uint64 // of its Raft's log, which begins with 100
	received []string      // what Receive was called with
	got      []string      // what Raft was given
	from     chan raft.RPC
}

func newReceiver(t *testing.T, receive func(ctx context.Context) error, install func() (*raft.InstallSnapshotResponse, error)) *receiver {
	t.Helper()
	r := &receiver{from: make(chan raft.RPC)}
	r.term.Store(3)
	head := func(stream io.Reader) ([]byte, error) { // the first eight bytes
		b := make([]byte, 8)
		n, err := io.ReadFull(stream, b)
		return b[:n], err
	}
	r.intake = newIntake(head, func(ctx context.Context, leader string, snapshot []byte) error {
		r.received = append(r.received, leader+" "+string(snapshot))
		return receive(ctx)
	}, r.term.Load, func(index, term uint64) bool { return term == 3 && 100 <= index && index < r.last.Load() })
	r.wg.Add(1)
	go r.run(r.from)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case rpc := <-r.rpcs:
				req := rpc.Command.(*raft.InstallSnapshotRequest)
				b, err := io.ReadAll(rpc.Reader)
				if err != nil || int64(len(b)) != req.Size {
					t.Errorf("Raft reads %d bytes of %d, %v", len(b), req.Size, err)
				}
				r.got = append(r.got, string(b))
				resp, err := install()
				rpc.Respond(resp, err)
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		r.intake.close()
		close(stop)
	})
	return r
}

// take gives it a snapshot and returns the answer.
func (r *receiver) take(stream io.Reader, term, index uint64, size int64) (*raft.InstallSnapshotResponse, error) {
	answer := make(chan raft.RPCResponse, 1)
	r.from <- raft.RPC{Command: &raft.InstallSnapshotRequest{RPCHeader: raft.RPCHeader{ID: []byte("n1/x")}, Term: term, LastLogIndex: index, LastLogTerm: term, Size: size},
		Reader: stream, RespChan: answer}
	got := <-answer
	resp, _ := got.Response.(*raft.InstallSnapshotResponse)
	return resp, got.Error
}

func installed() (*raft.InstallSnapshotResponse, error) {
	return &raft.InstallSnapshotResponse{Term: 3, Success: true}, nil
}

func atHand(context.Context) error { return nil }

// What arrives and can be installed is given to Raft, without what an earlier build has sent behind it; the next call on the connection begins
// where the stream ends. If the leader did not get the answer it is told again.
func TestSnapshotIsGivenToRaft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, atHand, installed)
		for i, stream := range []string{"snapshot", "snapshotand log bytes"} {
			rest := strings.NewReader(stream)
			resp, err := r.take(rest, 3, uint64(100+i), int64(len(stream)))
			if err != nil || !resp.Success || rest.Len() != 0 {
				t.Fatalf("%q: %+v, %v, %d bytes are left", stream, resp, err, rest.Len())
			}
		}
		resp, err := r.take(strings.NewReader("snapshot"), 3, 101, 8)
		if err != nil || !resp.Success {
			t.Errorf("again: %+v, %v", resp, err)
		}
		if want := "[n1 snapshot n1 snapshot]"; fmt.Sprint(r.received) != want || fmt.Sprint(r.got) != "[snapshot snapshot]" {
			t.Errorf("received %v, Raft got %v", r.received, r.got)
		}
	})
}

// What must not be installed never reaches Raft, nor starts a transfer.
func TestSnapshotIsRefused(t *testing.T) {
	wrong := errors.New("fsm: damaged or foreign snapshot: checksum")
	for _, tc := range []struct {
		name    string
		stream  io.Reader
		term    uint64 // of the leader
		own     uint64
		receive error
		want    error // nil: no error, and no success
		asked   int   // how often Receive was called
	}{
		{"cut in the middle", strings.NewReader("snaps"), 3, 3, nil, io.ErrUnexpectedEOF, 0},
		{"cut behind what is needed", strings.NewReader("snapshot"), 3, 3, nil, io.ErrUnexpectedEOF, 0},
		{"the connection fails", io.MultiReader(strings.NewReader("snap"), failing{}), 3, 3, nil, errInjected, 0},
		{"of a leader that was", strings.NewReader("snapshot and more"), 2, 3, nil, nil, 0},
		{"before Raft runs", strings.NewReader("snapshot and more"), 3, 0, nil, ErrNotYet, 0},
		{"wrong checksum", strings.NewReader("snapshot and more"), 3, 3, wrong, wrong, 1},
		{"not yet", strings.NewReader("snapshot and more"), 3, 3, ErrNotYet, ErrNotYet, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReceiver(t, func(context.Context) error { return tc.receive }, installed)
				r.term.Store(tc.own)
				resp, err := r.take(tc.stream, tc.term, 100, int64(len("snapshot and more")))
				if !errors.Is(err, tc.want) || err == nil && (resp.Success || resp.Term != tc.own) {
					t.Errorf("%+v, %v", resp, err)
				}
				if len(r.received) != tc.asked || len(r.got) != 0 {
					t.Errorf("received %v, Raft got %v", r.received, r.got)
				}
			})
		})
	}
}

// A snapshot of what this node has, with more behind it, changes nothing: Raft would remove what is behind it from the log. It may come from a leader's goroutine for a former self
// of this node.
func TestSnapshotBehindTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, atHand, installed)
		take := func(term, index uint64, asked, given int) {
			t.Helper()
			resp, err := r.take(strings.NewReader("snapshot"), term, index, 8)
			if err != nil || !resp.Success || len(r.received) != asked || len(r.got) != given {
				t.Errorf("%+v, %v; received %v, Raft got %v", resp, err, r.received, r.got)
			}
		}
		r.last.Store(110)
		take(3, 108, 0, 0)
		take(3, 110, 1, 1) // nothing behind it
		take(3, 112, 2, 2)
		take(3, 99, 3, 3) // not known to be the same entry
		// What was missing came while Receive waited.
		late := newReceiver(t, nil, installed)
		late.intake.receive = func(context.Context, string, []byte) error { late.last.Store(120); return nil }
		if resp, err := late.take(strings.NewReader("snapshot"), 3, 115, 8); err != nil || !resp.Success || len(late.got) != 0 {
			t.Errorf("%+v, %v, Raft got %v", resp, err, late.got)
		}
	})
}

// A server that was removed is sent no snapshot: at its address may be another incarnation.
func TestNoSnapshotForARemovedServer(t *testing.T) {
	r := &remote{answer: func(int, []byte, *raft.InstallSnapshotResponse) error { return nil }}
	l, leads, _ := sender(r)
	leads.Store(false)
	if _, err := send(l); !errors.Is(err, errNotAsked) || r.calls != 0 {
		t.Errorf("%d calls, %v", r.calls, err)
	}
}

// What beyond says of a real log.
func TestBeyond(t *testing.T) {
	c := startCluster(t, nil)
	n := c.nodes[c.leader(t)]
	c.propose(t, "one")
	c.propose(t, "two")
	last := n.raft.LastIndex()
	var l raft.Log
	if err := n.logs.GetLog(last-1, &l); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		index, term uint64
		want        bool
	}{{last - 1, l.Term, true}, {last, l.Term, false}, {last + 1, l.Term, false}} {
		if got := n.beyond(tc.index, tc.term); got != tc.want {
			t.Errorf("beyond(%d, %d) is %v, the log ends with %d", tc.index, tc.term, got, last)
		}
	}
}

type failing struct{}

// Read implements io.Reader.
func (failing) Read([]byte) (int, error) { return 0, errInjected }

// While Raft restores a snapshot, or Receive fetches, calls are answered in time, and none is given to Raft twice.
func TestSnapshotTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t, atHand, func() (*raft.InstallSnapshotResponse, error) {
			time.Sleep(time.Minute) // the work of a restore
			return installed()
		})
		began := time.Now()
		calls := 0
		for {
			at := time.Now()
			resp, err := r.take(strings.NewReader("snapshot"), 3, 100, 8)
			if took := time.Since(at); took > installHold {
				t.Fatalf("the answer took %v", took)
			}
			calls++
			if err == nil {
				if !resp.Success {
					t.Errorf("%+v", resp)
				}
				break
			}
			if !errors.Is(err, ErrNotYet) {
				t.Fatal(err)
			}
			time.Sleep(installPause)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+installHold || calls < 20 || len(r.got) != 1 {
			t.Errorf("%d calls in %v, Raft was given %d snapshots", calls, took, len(r.got))
		}
		// One that Raft refuses is tried again.
		fails := newReceiver(t, atHand, func() (*raft.InstallSnapshotResponse, error) {
			return &raft.InstallSnapshotResponse{Term: 3}, errInjected
		})
		for range 2 {
			if _, err := fails.take(strings.NewReader("snapshot"), 3, 100, 8); !errors.Is(err, errInjected) {
				t.Error(err)
			}
		}
		if len(fails.got) != 2 {
			t.Errorf("Raft was given %d snapshots", len(fails.got))
		}
	})
}

// Closing ends calls that wait, for Receive as well as for Raft.
func TestIntakeCloses(t *testing.T) {
	for name, receive := range map[string]func(ctx context.Context) error{
		"while it receives": func(ctx context.Context) error {
			<-ctx.Done()
			return ErrNotYet
		},
		"while Raft restores": atHand,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				r := newReceiver(t, receive, func() (*raft.InstallSnapshotResponse, error) {
					<-release
					return installed()
				})
				answered := make(chan error, 1)
				go func() {
					_, err := r.take(strings.NewReader("snapshot"), 3, 100, 8)
					answered <- err
				}()
				synctest.Wait()
				closed := make(chan struct{})
				go func() {
					r.intake.close()
					close(closed)
				}()
				<-closed
				if err := <-answered; err == nil {
					t.Error("it was installed")
				}
				close(release)
				if r.begin() {
					t.Error("a call begins after close")
				}
			})
		})
	}
}

// A follower that its leader's log no longer reaches says "not yet" for a while, loses connections, and is there in the end: Raft on both
// sides sees one snapshot.
func TestFollowerBehindTheLog(t *testing.T) {
	var asked atomic.Int32
	var read atomic.Int32
	c := startCluster(t, func(_ int, cfg *Config) {
		cfg.Receive = func(context.Context, string, []byte) error {
			if asked.Add(1) <= 3 {
				return ErrNotYet
			}
			return nil
		}
		cfg.ReadSnapshot = func(stream io.Reader) ([]byte, error) {
			if read.Add(1) == 2 {
				return nil, errInjected // the connection is lost
			}
			return io.ReadAll(stream)
		}
	})
	lead := c.leader(t)
	away := (lead + 1) % 3
	if err := c.nodes[away].Close(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		m := &message{data: bytes.Repeat([]byte("x"), 1000), done: make(chan outcomeOf, 1)}
		if err := c.nodes[lead].Propose(m); err != nil {
			t.Fatal(err)
		}
		if o := <-m.done; o.err != nil {
			t.Fatal(o.err)
		}
	}
	if err := c.nodes[lead].Snapshot(); err != nil {
		t.Fatal(err)
	}
	at := c.nodes[lead].Indexes().Snapshot
	c.reopen(t, away)
	eventually(t, time.Minute, "the follower has the snapshot", func() bool {
		i := c.nodes[away].Indexes()
		return i.Snapshot == at && i.Applied == c.nodes[lead].Indexes().Applied
	})
	if got := asked.Load(); got != 4 {
		t.Errorf("Receive was called %d times, want 4", got)
	}
}

// With Raft itself: a follower that is sent a snapshot of what it has keeps what is behind that in its log, and goes on. (Raft removed it, and panicked at the next entry.)
func TestOldSnapshotLeavesTheLog(t *testing.T) {
	c := startCluster(t, func(_ int, cfg *Config) {
		cfg.Receive = func(context.Context, string, []byte) error { return nil }
		cfg.ReadSnapshot = io.ReadAll
	})
	lead := c.leader(t)
	l, f := c.nodes[lead], c.nodes[(lead+1)%3]
	for i := range 3 {
		c.propose(t, fmt.Sprint("covered ", i))
	}
	if err := l.Snapshot(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.propose(t, fmt.Sprint("behind ", i))
	}
	last := l.Indexes().Applied
	eventually(t, time.Minute, "the follower has all", func() bool { return f.Indexes().Applied >= last })
	snapshots, err := l.cfg.Snapshots.List()
	if err != nil || len(snapshots) == 0 || snapshots[0].Index >= last {
		t.Fatalf("snapshots %v, %v; the log ends with %d", snapshots, err, last)
	}
	meta, stream, err := l.cfg.Snapshots.Open(snapshots[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	req := raft.InstallSnapshotRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(serverID(l.cfg.NodeID, l.cfg.Incarnation)), Addr: []byte(l.cfg.Transport.LocalAddr())},
		SnapshotVersion: meta.Version, Term: l.term(), Leader: []byte(l.cfg.Transport.LocalAddr()), LastLogIndex: meta.Index, LastLogTerm: meta.Term,
		Size: meta.Size, Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex}
	var resp raft.InstallSnapshotResponse
	if err := l.link.InstallSnapshot(serverID(f.cfg.NodeID, f.cfg.Incarnation), f.cfg.Transport.LocalAddr(), &req, &resp, stream); err != nil || !resp.Success {
		t.Fatalf("%+v, %v", resp, err)
	}
	for i := meta.Index + 1; i <= last; i++ {
		var e raft.Log
		if err := f.logs.GetLog(i, &e); err != nil {
			t.Errorf("entry %d behind the snapshot at %d: %v", i, meta.Index, err)
		}
	}
	c.propose(t, "more")
	last = l.Indexes().Applied
	eventually(t, time.Minute, "the follower goes on", func() bool { return f.Indexes().Applied >= last })
}
