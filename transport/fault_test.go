package transport

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"raftmq/transport/remoting"
)

// TestF37ViewFaults: a view whose file was cut, or whose device fails, can't be sent. The connection ends, the owner is told, the
// view is given back, and others are served.
func TestF37ViewFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "segment")
	const size = 64 << 10
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(mapped) }()
	if err := f.Truncate(8 << 10); err != nil {
		t.Fatal(err)
	}
	rs := &releases{counts: make([]atomic.Int32, 1)}
	told := make(chan error, 10)
	_, addr := startServer(t, Config{OnFault: func(err error) { told <- err }}, func(s *Server) {
		s.HandleInline(700, func(r Responder, cmd *remoting.Command) {
			r.ReplyViews(&remoting.Command{}, [][]byte{mapped[:size]}, rs.of(0))
		})
		s.HandleInline(701, func(r Responder, cmd *remoting.Command) { r.Reply(&remoting.Command{}) })
	})
	p := dialPeer(t, addr)
	if _, err := p.Write(remoting.AppendFrame(nil, &remoting.Command{Code: 700})); err != nil {
		t.Fatal(err)
	}
	if err := <-told; !errors.Is(err, syscall.EFAULT) {
		t.Fatalf("told %v", err)
	}
	rs.mustBeOnce(t)
	other := dialPeer(t, addr)
	if _, err := other.Write(remoting.AppendFrame(nil, &remoting.Command{Code: 701, Opaque: 5})); err != nil {
		t.Fatal(err)
	}
	if resp := other.mustReceive(); resp.Opaque != 5 {
		t.Fatalf("answer %d", resp.Opaque)
	}
}
