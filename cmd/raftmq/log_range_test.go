package main

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/transport"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// filledStore is an open store with n entries of one message of size bytes.
func filledStore(t *testing.T, dir string, n, size int) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir, SegmentSize: 1 << 20, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for i := range n {
		b := record.Append(nil, &record.Message{Topic: []byte("T"), BornHost: netip.MustParseAddrPort("127.0.0.1:1"), StoreHost: netip.MustParseAddrPort("127.0.0.1:2"),
			BornTimestamp: 1, StoreTimestamp: int64(1 + i), Body: bytes.Repeat([]byte{byte(i)}, size)})
		if err := s.BeginEntry(uint64(i+1), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append([]byte("T"), 0, b, 1); err != nil {
			t.Fatal(err)
		}
		if err := s.EndEntry(); err != nil {
			t.Fatal(err)
		}
	}
	s.Publish()
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	return s
}

// serveLog serves a store's log and returns a client of it.
func serveLog(t *testing.T, s *store.Store) *client.Client {
	t.Helper()
	server := transport.NewServer(transport.Config{})
	(&logRanges{store: s}).register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { server.Serve(l); close(done) }()
	c, err := client.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		<-done
	})
	return c
}

// TestLogRange: a peer gets exactly the bytes of the log, over several segments, with their checksums; what is not there, and
// what is damaged, has an answer of its own.
func TestLogRange(t *testing.T) {
	dir := t.TempDir()
	s := filledStore(t, dir, 120, 30000)
	_, end := s.LogRange()
	if end < 3<<20 {
		t.Fatalf("the log ends at %d", end)
	}
	c := serveLog(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	var log bytes.Buffer
	if err := c.FetchLog(ctx, 0, end, &log); err != nil {
		t.Fatal(err)
	}
	var want []byte
	segments, err := filepath.Glob(filepath.Join(dir, "commitlog", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range segments {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, b...)
	}
	if !bytes.Equal(log.Bytes(), want[:end]) {
		t.Fatal("other bytes than in the files")
	}
	for _, r := range [][2]int64{{0, end}, {12345, 2345678}, {end, 0}} {
		sum, answer, err := c.LogSum(ctx, remoting.LogRange{Offset: r[0], Length: min(r[1], end-r[0])})
		if err != nil || sum != crc32.Checksum(log.Bytes()[r[0]:min(r[0]+r[1], end)], castagnoli) {
			t.Errorf("%v: sum %08x, %v", r, sum, err)
		}
		if answer.MinOffset != 0 || answer.MaxOffset != end {
			t.Errorf("%+v", answer)
		}
	}
	if b, _, err := c.LogRange(ctx, remoting.LogRange{Offset: end - 5, Length: 100}); err != nil || !bytes.Equal(b, want[end-5:end]) {
		t.Errorf("at the end: %d bytes, %v", len(b), err)
	}
	if b, _, err := c.LogRange(ctx, remoting.LogRange{Offset: end, Length: 100}); err != nil || len(b) != 0 {
		t.Errorf("behind the end: %d bytes, %v", len(b), err)
	}
	if b, _, err := c.LogRange(ctx, remoting.LogRange{Offset: 0, Length: 1 << 40}); err != nil || len(b) != remoting.MaxLogRange {
		t.Errorf("more than an answer may have: %d bytes, %v", len(b), err)
	}
	if _, answer, err := c.LogRange(ctx, remoting.LogRange{Offset: end + 1, Length: 1}); !errors.Is(err, client.ErrLogOutside) || answer.MaxOffset != end {
		t.Errorf("outside: %+v, %v", answer, err)
	}
	if err := c.FetchLog(ctx, end-10, end+10, &log); !errors.Is(err, client.ErrLogOutside) {
		t.Errorf("beyond the end: %v", err)
	}

	f, err := os.OpenFile(segments[1], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{want[1<<20+5000] ^ 1}, 5000); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.LogRange(ctx, remoting.LogRange{Offset: 1<<20 + 4000, Length: 2000}); !errors.Is(err, client.ErrLogDamaged) {
		t.Errorf("damaged: %v", err)
	}
	if _, _, err := c.LogRange(ctx, remoting.LogRange{Offset: 2 << 20, Length: 1000}); err != nil {
		t.Errorf("beside the damage: %v", err)
	}
}
