package raftstream

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func greeting(t *testing.T, self Hello, expect func(string) string) *Layer {
	t.Helper()
	l, err := Open(Config{Bind: "127.0.0.1:0", Self: func() Hello { return self }, Expect: expect})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// accepted reads what comes over the next connection.
func accepted(l *Layer) chan error {
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer func() { _ = c.Close() }()
		b := make([]byte, 5)
		if _, err := io.ReadFull(c, b); err != nil {
			done <- err
			return
		}
		_, err = c.Write(b)
		done <- err
	}()
	return done
}

func TestGreeting(t *testing.T) {
	self := Hello{NodeID: "n2", ClusterName: "C", Group: "g", ClusterID: "1"}
	for name, tc := range map[string]struct {
		dialler Hello
		to      string
		refused string // part of the reason, "" when it is let in
	}{
		"peer":                             {Hello{NodeID: "n1", ClusterName: "C", Group: "g", ClusterID: "1"}, "n2", ""},
		"not yet known whom":               {Hello{NodeID: "n1", ClusterName: "C", Group: "g", ClusterID: "1"}, "", ""},
		"newcomer":                         {Hello{NodeID: "n1", ClusterName: "C", Group: "g"}, "n2", ""},
		"another cluster":                  {Hello{NodeID: "n1", ClusterName: "D", Group: "g", ClusterID: "1"}, "n2", "cluster C, not of D"},
		"another cluster of the same name": {Hello{NodeID: "n1", ClusterName: "C", Group: "g", ClusterID: "2"}, "n2", "with id 1, not 2"},
		"another group":                    {Hello{NodeID: "n1", ClusterName: "C", Group: "h", ClusterID: "1"}, "n2", "broker group g, not of h"},
		"another node":                     {Hello{NodeID: "n1", ClusterName: "C", Group: "g", ClusterID: "1"}, "n3", "this is node n2, not n3"},
	} {
		t.Run(name, func(t *testing.T) {
			listener := greeting(t, self, nil)
			dialler := greeting(t, tc.dialler, func(address string) string {
				if address != listener.Addr().String() {
					t.Errorf("asked for %s", address)
				}
				return tc.to
			})
			done := accepted(listener)
			c, err := dialler.Dial(raft.ServerAddress(listener.Addr().String()), 5*time.Second)
			if tc.refused != "" {
				if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("dial: %v", err)
				}
				if err := <-done; !errors.Is(err, ErrPeer) {
					t.Errorf("accept: %v", err)
				}
				if n := dialler.Conns(); n != 0 {
					t.Errorf("%d connections left", n)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := c.Write([]byte("bytes")); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 5)
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "bytes" {
				t.Errorf("got %q, %v", b, err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStrangersBytes: what is no hello never reaches Raft.
func TestStrangersBytes(t *testing.T) {
	for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "RMQH\x02\x00\x00\x02{}", "RMQH\x01\x00\xff\xff{}", "RMQH\x01\x00\x00\x02[}", "\x00\x00"} {
		listener := greeting(t, Hello{NodeID: "n2"}, nil)
		done := accepted(listener)
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(garbage)); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).CloseWrite() // the other end may have hung up already
		if err := <-done; !errors.Is(err, ErrHello) {
			t.Errorf("%q: %v", garbage, err)
		}
		_ = c.Close()
	}
}

func TestHelloBytes(t *testing.T) {
	b, err := appendHello(nil, Hello{NodeID: "n1", To: "n2", ClusterName: "C", Group: "g", ClusterID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "524d514801000047" + // magic, version, length
		"7b226e6f64654964223a226e31222c22746f223a226e32222c22636c75737465724e616d65223a2243222c2267726f7570223a2267222c22636c75737465724964223a2231227d"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzReadHello(f *testing.F) {
	for _, v := range []any{Hello{NodeID: "n1", To: "n2", ClusterName: "C", Group: "g", ClusterID: "1"}, verdict{"no"}, verdict{}} {
		b, err := appendHello(nil, v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Hello
		if err := readHello(bytes.NewReader(b), &h); err != nil {
			return
		}
		again, err := appendHello(nil, h)
		if err != nil {
			return // JSON escapes may make it longer
		}
		var twice Hello
		if err := readHello(bytes.NewReader(again), &twice); err != nil || twice != h {
			t.Fatalf("%+v became %+v: %v", h, twice, err)
		}
	})
}
