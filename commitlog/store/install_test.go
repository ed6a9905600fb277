package store

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"raftmq/commitlog/record"
)

// TestInstall: an empty node and one that is behind get a peer's bytes and end up with its
// log and queues.
func TestInstall(t *testing.T) {
	leakCheck(t)
	history := randomEntries(15, 200)
	peerConfig := quiet(t, t.TempDir())
	peer := open(t, peerConfig)
	var at, mid Position
	for i, commands := range history {
		apply(t, peer, uint64(i+1), commands...)
		if i == 99 {
			mid = peer.Position()
		}
		if i == 149 {
			at = peer.Position()
		}
	}
	settle(t, peer)
	for _, c := range []struct {
		name  string
		have  int // entries the node has already
		from  func(end int64) int64
		piece int
	}{
		{"empty", 0, func(int64) int64 { return 0 }, 1000},
		{"empty, byte by byte", 0, func(int64) int64 { return 0 }, 1},
		{"empty, at once", 0, func(int64) int64 { return 0 }, 1 << 30},
		{"behind, all of it", 60, func(int64) int64 { return 0 }, 3000},
		{"behind, what it lacks", 100, func(end int64) int64 { return end }, 3000},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := quiet(t, t.TempDir())
			s := open(t, cfg)
			applyFrom(t, s, history[:c.have], 0)
			if c.have == 100 {
				// A node that is behind has restored an earlier snapshot, too.
				if got := s.Position(); got.LogEnd != mid.LogEnd {
					t.Fatalf("at %+v", got)
				}
			}
			_, end := s.LogRange()
			install(t, s, peer, c.from(end), at, c.piece)
			applyFrom(t, s, history, 150)
			settle(t, s)
			if got, want := s.Position(), peer.Position(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("position %+v\nwant %+v", got, want)
			}
			for range 2 {
				compare(t, s, peer)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, cfg)
				if got := s.Recovered(); got.RaftIndex != 200 {
					t.Fatalf("recovered %+v", got)
				}
			}
		})
	}
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
}

// install sends [from, p.LogEnd) of the peer's log.
func install(t *testing.T, s, peer *Store, from int64, p Position, piece int) {
	t.Helper()
	in, err := s.Install(from, p.LogEnd)
	if err != nil {
		t.Fatal(err)
	}
	send(t, in, peer, from, p.LogEnd, piece)
	if err := in.Commit(p); err != nil {
		t.Fatal(err)
	}
	if s.DispatchedTo() != p.LogEnd {
		t.Fatalf("dispatched to %d, not to %d", s.DispatchedTo(), p.LogEnd)
	}
}

func send(t *testing.T, in Installer, peer *Store, from, to int64, piece int) {
	t.Helper()
	for from < to {
		b, release, err := peer.ReadLog(from, int(min(int64(piece), to-from)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(b); err != nil {
			t.Fatal(err)
		}
		from += int64(len(b))
		release()
	}
}

// compare reads both stores.
func compare(t *testing.T, s, peer *Store) {
	t.Helper()
	low, end := s.LogRange()
	if _, peerEnd := peer.LogRange(); end != peerEnd {
		t.Fatalf("log [%d, %d), the peer's ends at %d", low, end, peerEnd)
	}
	got, err := s.Checksum(low, end)
	if err != nil {
		t.Fatal(err)
	}
	want, err := peer.Checksum(low, end)
	if err != nil || got != want {
		t.Fatalf("checksum %#x, want %#x, %v", got, want, err)
	}
	if s.queues.Len() != peer.queues.Len() {
		t.Fatalf("%d queues, want %d", s.queues.Len(), peer.queues.Len())
	}
	var a, b GetResult
	defer a.Release()
	defer b.Release()
	for topic := range 4 {
		for queue := range int32(3) {
			name := fmt.Sprintf("T%d", topic)
			for n := s.MinOffset(name, queue); n < peer.MaxOffset(name, queue); {
				req := GetRequest{Topic: []byte(name), QueueID: queue, Offset: n, MaxMsgs: 32}
				s.Get(&req, &a)
				peer.Get(&req, &b)
				if a.Status != Found || a.NextBeginOffset != b.NextBeginOffset || a.Bytes != b.Bytes ||
					!bytes.Equal(bytes.Join(a.Buffers, nil), bytes.Join(b.Buffers, nil)) {
					t.Fatalf("%s/%d at %d: %v next %d, peer %v next %d", name, queue, n, a.Status, a.NextBeginOffset, b.Status, b.NextBeginOffset)
				}
				n = a.NextBeginOffset
			}
		}
	}
}

// TestInstallFromTheMiddle: the peer's log does not begin at 0 any more. Queues begin where
// its first segment does.
func TestInstallFromTheMiddle(t *testing.T) {
	leakCheck(t)
	history := randomEntries(16, 400)
	peer := open(t, quiet(t, t.TempDir()))
	applyFrom(t, peer, history, 0)
	settle(t, peer)
	position := peer.Position()
	if position.LogEnd < 3*testSegment {
		t.Fatalf("log of %d bytes only", position.LogEnd)
	}
	cfg := quiet(t, t.TempDir())
	s := open(t, cfg)
	applyFrom(t, s, history[:10], 0)
	install(t, s, peer, testSegment, position, 10_000)
	for range 2 {
		if low, end := s.LogRange(); low != testSegment || end != position.LogEnd {
			t.Fatalf("log [%d, %d)", low, end)
		}
		if low := s.MinOffset("T1", 1); low == 0 || low >= s.MaxOffset("T1", 1) {
			t.Fatalf("queue begins at %d", low)
		}
		var res GetResult
		s.Get(&GetRequest{Topic: []byte("T1"), QueueID: 1, Offset: 0, MaxMsgs: 1}, &res)
		if res.Status != OffsetTooSmall || res.NextBeginOffset != s.MinOffset("T1", 1) {
			t.Fatalf("%v next %d", res.Status, res.NextBeginOffset)
		}
		compare(t, s, peer)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, cfg)
	}
}

// TestHalfInstalled: an installation that was killed, aborted or refused leaves nothing of it
// behind, and the next one works.
func TestHalfInstalled(t *testing.T) {
	leakCheck(t)
	history := randomEntries(17, 200)
	peer := open(t, quiet(t, t.TempDir()))
	applyFrom(t, peer, history, 0)
	settle(t, peer)
	p := peer.Position()
	for _, extend := range []bool{false, true} {
		for _, end := range []string{"killed", "closed", "aborted", "short", "wrong bytes", "foreign place"} {
			t.Run(fmt.Sprintf("extend=%v/%s", extend, end), func(t *testing.T) {
				cfg := quiet(t, t.TempDir())
				s := open(t, cfg)
				applyFrom(t, s, history[:50], 0)
				settle(t, s)
				_, before := s.LogRange()
				from := int64(0)
				if extend {
					from = before
				}
				in, err := s.Install(from, p.LogEnd)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Install(from, p.LogEnd); !errors.Is(err, ErrInstall) {
					t.Fatalf("a second one: %v", err)
				}
				send(t, in, peer, from, (from+p.LogEnd)/2, 999)
				var res GetResult
				s.Get(&GetRequest{Topic: []byte("T1"), QueueID: 1, Offset: 3, MaxMsgs: 1}, &res)
				if extend && res.Status != Found || !extend && (res.Status != OffsetFoundNull || res.NextBeginOffset != 3) || s.Replacing() == extend {
					t.Fatalf("meanwhile: %v next %d", res.Status, res.NextBeginOffset)
				}
				res.Release()
				reopen := func() {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, cfg)
				}
				bad := func(change func(b []byte)) {
					b, release, err := peer.ReadLog((from+p.LogEnd)/2, 5000)
					if err != nil {
						t.Fatal(err)
					}
					b = bytes.Clone(b)
					release()
					change(b)
					_, err = in.Write(b)
					if err == nil {
						_, err = in.Write(make([]byte, 20_000))
					}
					if !errors.Is(err, ErrInstall) {
						t.Fatalf("bad bytes: %v", err)
					}
					if err := in.Commit(p); !errors.Is(err, ErrInstall) {
						t.Fatalf("commit: %v", err)
					}
				}
				switch end {
				case "killed":
					dir := t.TempDir()
					copyDir(t, cfg.Dir, dir)
					s.Close()
					cfg.Dir = dir
					s = open(t, cfg)
				case "closed":
					reopen()
				case "aborted":
					err = in.Abort()
				case "short":
					if err := in.Commit(p); !errors.Is(err, ErrInstall) {
						t.Fatalf("half of it: %v", err)
					}
					err = in.Abort()
				case "wrong bytes":
					bad(func(b []byte) {
						for i := range b {
							b[i] ^= 0x55
						}
					})
					err = in.Abort()
				case "foreign place":
					bad(func(b []byte) { clear(b) })
					err = in.Abort()
				}
				if err != nil {
					t.Fatal(err)
				}
				low, now := s.LogRange()
				want := int64(0)
				if extend {
					want = before
				}
				if low != 0 || now != want || s.Replacing() {
					t.Fatalf("log [%d, %d), want [0, %d)", low, now, want)
				}
				if ok, err := s.folder.exists(installName); ok || err != nil {
					t.Fatalf("marker is there: %v", err)
				}
				install(t, s, peer, now, p, 5000)
				compare(t, s, peer)
				reopen()
				compare(t, s, peer)
			})
		}
	}
}

// TestInstallVerifies: bytes that are no log at all, or a log of another place or segment size.
func TestInstallVerifies(t *testing.T) {
	leakCheck(t)
	good := command{topic: "A", bodies: [][]byte{body(100)}}
	rec := good.records()
	record.PatchOffsets(rec, 0, 0)
	flipped := bytes.Clone(rec)
	flipped[120] ^= 1
	elsewhere := bytes.Clone(rec)
	record.PatchOffsets(elsewhere, 0, 192)
	for name, b := range map[string][]byte{
		"zeroes":                make([]byte, 500),
		"bit flip in a body":    flipped,
		"another offset":        elsewhere,
		"filler too early":      append(bytes.Clone(rec), record.AppendBlank(nil, 64)...),
		"too long":              append(bytes.Clone(rec), make([]byte, 1000)...),
		"larger than a segment": (&command{topic: "A", bodies: [][]byte{body(testSegment)}}).records(),
	} {
		for _, piece := range []int{1, 1 << 20} {
			s := open(t, quiet(t, t.TempDir()))
			in, err := s.Install(0, 600)
			if name == "larger than a segment" {
				in, err = func() (Installer, error) { in.Abort(); return s.Install(0, 1<<20) }()
			}
			if err != nil {
				t.Fatal(err)
			}
			for rest := b; len(rest) > 0 && err == nil; {
				n := min(piece, len(rest))
				_, err = in.Write(rest[:n])
				rest = rest[n:]
			}
			if !errors.Is(err, ErrInstall) {
				t.Errorf("%s in pieces of %d: %v", name, piece, err)
			}
			if err := in.Abort(); err != nil {
				t.Error(err)
			}
			if _, end := s.LogRange(); end != 0 {
				t.Errorf("%s: log end %d", name, end)
			}
			s.Close()
		}
	}
}
