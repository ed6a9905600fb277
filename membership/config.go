package membership

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"
)

// listConfig is memberlist's LAN configuration, a little quicker in telling news and with a
// beat that tests may shorten. What makes detection calm stays: four beats of suspicion, indirect
// probes, TCP probes, and the awareness of one's own slowness.
func listConfig(cfg Config, logger hclog.Logger) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = cfg.Tags.NodeID
	c.ProbeInterval = cfg.ProbeInterval
	c.ProbeTimeout = cfg.ProbeInterval / 2
	c.GossipInterval = cfg.ProbeInterval / 5
	c.PushPullInterval = 15 * cfg.ProbeInterval
	c.TCPTimeout = 5 * time.Second
	c.DeadNodeReclaimTime = cfg.ProbeInterval // a node with a new address waits this long after the old one's death
	c.EnableCompression = false               // messages are a few hundred bytes
	c.Logger = log.New(&listLog{logger.Named("memberlist")}, "", 0)
	return c
}

// resolve turns host:port into an address; memberlist takes only literal ones.
func resolve(what, addr string) (*net.TCPAddr, error) {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("membership: %s address %q: %w", what, addr, err)
	}
	if a.IP == nil {
		a.IP = net.IPv4zero // an empty host
	}
	return a, nil
}

// listLog takes memberlist's lines ("[WARN] memberlist: text") into hclog, all at debug and
// its debug at trace: what an operator must know, this package says itself, once and in its own words.
type listLog struct{ logger hclog.Logger }

func (l *listLog) Write(p []byte) (int, error) {
	n := len(p)
	p = bytes.TrimSpace(p)
	level := "INFO"
	if len(p) > 0 && p[0] == '[' {
		if i := bytes.IndexByte(p, ']'); i > 0 {
			level, p = string(p[1:i]), bytes.TrimSpace(p[i+1:])
		}
	}
	p = bytes.TrimPrefix(p, []byte("memberlist: "))
	at := hclog.Debug
	if level == "DEBUG" {
		at = hclog.Trace
	}
	if l.logger.GetLevel() <= at {
		l.logger.Log(at, "memberlist says", "its-level", level, "text", string(p))
	}
	return n, nil
}

// transport is memberlist's own, with streams that end when the membership is closed: a paused
// peer must not hold Close up for memberlist's timeouts.
type transport struct {
	*memberlist.NetTransport
	ctx context.Context
}

func newTransport(ctx context.Context, bind *net.TCPAddr, logger *log.Logger) (*transport, error) {
	// A free port for TCP may be taken for UDP: with port 0 try again.
	tries := 1
	if bind.Port == 0 {
		tries = 10
	}
	var err error
	for range tries {
		var t *memberlist.NetTransport
		t, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{bind.IP.String()}, BindPort: bind.Port, Logger: logger})
		if err == nil {
			return &transport{NetTransport: t, ctx: ctx}, nil
		}
	}
	return nil, fmt.Errorf("membership: bind %s: %w", bind, err)
}

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(t.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: c, stop: context.AfterFunc(t.ctx, func() { c.Close() })}, nil
}

// cutConn is a connection that the end of a context closes.
type cutConn struct {
	net.Conn
	stop func() bool
}

func (c *cutConn) Close() error {
	c.stop()
	return c.Conn.Close()
}
