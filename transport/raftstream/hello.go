package raftstream

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Both ends of a connection say who they are before Raft's bytes flow. Raft itself knows a peer by its address only: a node that
// took over the address of another one, of this cluster or of a foreign one, would be sent entries, and its answers
// would count for the other.
//
//	0  4  magic "RMQH"
//	4  1  version, 1
//	5  1  zero
//	6  2  length of what follows, big-endian
//	8     JSON: of the dialler a Hello, of the listener a verdict
const (
	helloMagic   = "RMQH"
	helloVersion = 1
	helloHead    = 8
	maxHello     = 4096
	// helloTimeout bounds a listener's wait for the hello of a connection that was accepted.
	helloTimeout = 10 * time.Second
)

var (
	// ErrPeer: at the other end is not the node that should be there. It comes with the reason.
	ErrPeer = errors.New("raftstream: wrong peer")
	// ErrHello: what came is no hello of RaftMQ.
	ErrHello = errors.New("raftstream: malformed hello")
)

// Hello is who dials, and whom.
type Hello struct {
	NodeID string `json:"nodeId"`
	// To is the node id that should listen there, "" when it is not known.
	To          string `json:"to,omitempty"`
	ClusterName string `json:"clusterName"`
	Group       string `json:"group"`               // broker name
	ClusterID   string `json:"clusterId,omitempty"` // "" while the node does not know it
}

type verdict struct {
	Error string `json:"error,omitempty"`
}

// refusal says why self does not talk to the sender of h, "" when it does.
func (h *Hello) refusal(self *Hello) string {
	switch {
	case h.ClusterName != self.ClusterName:
		return fmt.Sprintf("this is node %s of cluster %s, not of %s", self.NodeID, self.ClusterName, h.ClusterName)
	case h.ClusterID != "" && self.ClusterID != "" && h.ClusterID != self.ClusterID:
		return fmt.Sprintf("this is node %s of another cluster of the name %s, with id %s, not %s", self.NodeID, self.ClusterName, self.ClusterID, h.ClusterID)
	case h.Group != self.Group:
		return fmt.Sprintf("this is node %s of broker group %s, not of %s", self.NodeID, self.Group, h.Group)
	case h.To != "" && h.To != self.NodeID:
		return fmt.Sprintf("this is node %s, not %s", self.NodeID, h.To)
	}
	return ""
}

func appendHello(dst []byte, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return dst, fmt.Errorf("%w: %w", ErrHello, err)
	}
	if len(b) > maxHello {
		return dst, fmt.Errorf("%w: %d bytes, at most %d", ErrHello, len(b), maxHello)
	}
	dst = append(dst, helloMagic...)
	dst = append(dst, helloVersion, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(b)))
	return append(dst, b...), nil
}

// readHello reads exactly one message from r into v.
func readHello(r io.Reader, v any) error {
	var head [helloHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrHello, err)
	}
	if string(head[:4]) != helloMagic {
		return fmt.Errorf("%w: magic %q", ErrHello, head[:4])
	}
	if head[4] != helloVersion {
		return fmt.Errorf("%w: version %d, this raftmq speaks %d", ErrHello, head[4], helloVersion)
	}
	n := binary.BigEndian.Uint16(head[6:])
	if head[5] != 0 || n > maxHello {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrHello, n, maxHello)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return fmt.Errorf("%w: %w", ErrHello, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", ErrHello, err)
	}
	return nil
}

// greet is the dialler's part, within the given time.
func (l *Layer) greet(c net.Conn, target string, timeout time.Duration) error {
	hello := l.cfg.Self()
	if l.cfg.Expect != nil {
		hello.To = l.cfg.Expect(target)
	}
	b, err := appendHello(nil, hello)
	if err != nil {
		return err
	}
	if timeout > 0 {
		if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	var v verdict
	if err := readHello(c, &v); err != nil {
		return err
	}
	if v.Error != "" {
		return fmt.Errorf("%w: %s", ErrPeer, v.Error)
	}
	return c.SetDeadline(time.Time{})
}

// welcome is the listener's part.
func (l *Layer) welcome(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	var h Hello
	if err := readHello(c, &h); err != nil {
		return err
	}
	self := l.cfg.Self()
	reason := h.refusal(&self)
	b, err := appendHello(nil, verdict{reason})
	if err != nil {
		return err
	}
	if _, err := c.Write(b); err != nil {
		return err
	}
	if reason != "" {
		return fmt.Errorf("%w: node %s of cluster %s was told: %s", ErrPeer, h.NodeID, h.ClusterName, reason)
	}
	return c.SetDeadline(time.Time{})
}
