package raftstream

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

const wait = 30 * time.Second

func open(t *testing.T, cfg Config) *Layer {
	t.Helper()
	if cfg.Bind == "" {
		cfg.Bind = "127.0.0.1:0"
	}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(wait); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// serveEcho echoes on every accepted connection until the layer closes.
func serveEcho(t *testing.T, l *Layer) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				if !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(c, c)
				c.Close()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
}

func mustEcho(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "ping" {
		t.Fatalf("%q, %v", got, err)
	}
}

func mustBeClosed(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(wait))
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v from a connection that should be closed", n, err)
	}
}

func TestCloseConnsKeepsListening(t *testing.T) {
	a, b := open(t, Config{}), open(t, Config{})
	serveEcho(t, a)
	serveEcho(t, b)
	var conns []net.Conn
	for range 3 {
		out, err := a.Dial(raft.ServerAddress(b.Addr().String()), wait)
		if err != nil {
			t.Fatal(err)
		}
		in, err := b.Dial(raft.ServerAddress(a.Addr().String()), wait)
		if err != nil {
			t.Fatal(err)
		}
		mustEcho(t, out)
		mustEcho(t, in)
		conns = append(conns, out, in)
	}
	if a.Conns() != 6 || b.Conns() != 6 {
		t.Errorf("%d and %d connections", a.Conns(), b.Conns())
	}
	a.CloseConns() // both directions
	for _, c := range conns {
		mustBeClosed(t, c)
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	eventually(t, "untracked", func() bool { return a.Conns() == 0 && b.Conns() == 0 })
	again, err := b.Dial(raft.ServerAddress(a.Addr().String()), wait)
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, again)

	if err := a.Close(); err != nil {
		t.Error(err)
	}
	mustBeClosed(t, again)
	if err := a.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, err := a.Dial(raft.ServerAddress(b.Addr().String()), wait); !errors.Is(err, ErrClosed) {
		t.Errorf("dial after close: %v", err)
	}
	if _, err := a.Accept(); !errors.Is(err, ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
	if c, err := b.Dial(raft.ServerAddress(a.Addr().String()), wait); err == nil {
		c.Close()
		t.Error("still listening")
	}
}

func TestAdvertise(t *testing.T) {
	port := func(l *Layer) string {
		_, p, err := net.SplitHostPort(l.BoundAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, tc := range []struct {
		bind, advertise string
		want            string // PORT stands for the bound one
	}{
		{"127.0.0.1:0", "", "127.0.0.1:PORT"},
		{"127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:PORT"},
		{"127.0.0.1:0", "node1.example:7000", "node1.example:7000"},
		{"127.0.0.1:0", "[::1]:7000", "[::1]:7000"},
		{":0", "localhost:0", "localhost:PORT"},
		{":0", "", ""},
		{"0.0.0.0:0", "", ""},
		{"127.0.0.1:0", "0.0.0.0:7000", ""},
		{"127.0.0.1:0", "[::]:7000", ""},
		{"127.0.0.1:0", ":7000", ""},
		{"127.0.0.1:0", "node1", ""},
	} {
		l, err := Listen(tc.bind, tc.advertise, nil)
		if err != nil {
			if tc.want != "" || !errors.Is(err, ErrNotAdvertisable) {
				t.Errorf("%+v: %v", tc, err)
			}
			continue
		}
		if want := strings.ReplaceAll(tc.want, "PORT", port(l)); l.Addr().String() != want || l.Addr().Network() != "tcp" {
			t.Errorf("%+v: address %s", tc, l.Addr())
		}
		l.Close()
	}
	used := open(t, Config{})
	if l, err := Listen(used.BoundAddr().String(), "", nil); err == nil {
		l.Close()
		t.Error("listening twice on one port")
	} else if !strings.Contains(err.Error(), used.BoundAddr().String()) {
		t.Errorf("error without the address: %v", err)
	}
}

func TestDialFilterIsolates(t *testing.T) {
	errCut := errors.New("cut")
	var mu sync.Mutex
	cut := false
	a := open(t, Config{})
	serveEcho(t, a)
	b := open(t, Config{DialFilter: func(target string) error {
		mu.Lock()
		defer mu.Unlock()
		if cut && target == a.Addr().String() {
			return errCut
		}
		return nil
	}})
	c, err := b.Dial(raft.ServerAddress(a.Addr().String()), wait)
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, c)
	mu.Lock()
	cut = true
	mu.Unlock()
	b.CloseConns()
	mustBeClosed(t, c)
	if _, err := b.Dial(raft.ServerAddress(a.Addr().String()), wait); !errors.Is(err, errCut) {
		t.Errorf("error %v", err)
	}
}

func TestDialTimeout(t *testing.T) {
	// A listener that never completes a TLS handshake.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l := open(t, Config{TLS: testTLS(t)})
	if _, err := l.Dial(raft.ServerAddress(silent.Addr().String()), 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) && !isTimeout(err) {
		t.Errorf("error %v", err)
	}
	if l.Conns() != 0 {
		t.Errorf("%d connections kept", l.Conns())
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// testTLS is a configuration for both sides with a certificate of its own.
func testTLS(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

// TestUnderRaft sends Raft's own requests over plain and TLS layers, before and after a cut.
func TestUnderRaft(t *testing.T) {
	for name, config := range map[string]*tls.Config{"plain": nil, "tls": testTLS(t)} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t, Config{TLS: config}), open(t, Config{TLS: config})
			from := raft.NewNetworkTransport(a, 3, wait, io.Discard)
			to := raft.NewNetworkTransport(b, 3, wait, io.Discard)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					select {
					case rpc := <-to.Consumer():
						entries := rpc.Command.(*raft.AppendEntriesRequest).Entries
						rpc.Respond(&raft.AppendEntriesResponse{Success: bytes.Equal(entries[0].Data, bytes.Repeat([]byte("x"), 1<<20))}, nil)
					case <-stop:
						return
					}
				}
			})
			if from.LocalAddr() != raft.ServerAddress(a.Addr().String()) {
				t.Errorf("local address %s", from.LocalAddr())
			}
			appendEntries := func() error {
				request := &raft.AppendEntriesRequest{Entries: []*raft.Log{{Data: bytes.Repeat([]byte("x"), 1<<20)}}}
				var response raft.AppendEntriesResponse
				if err := from.AppendEntries("b", to.LocalAddr(), request, &response); err != nil {
					return err
				}
				if !response.Success {
					return errors.New("other bytes arrived")
				}
				return nil
			}
			if err := appendEntries(); err != nil {
				t.Fatal(err)
			}
			b.CloseConns()
			// The pooled connection may fail once.
			eventually(t, "works again", func() bool { return appendEntries() == nil })
			close(stop)
			wg.Wait()
			for _, transport := range []*raft.NetworkTransport{from, to} {
				if err := transport.Close(); err != nil {
					t.Error(err)
				}
			}
			if a.Conns() != 0 || b.Conns() != 0 {
				t.Errorf("%d and %d connections kept", a.Conns(), b.Conns())
			}
		})
	}
}
