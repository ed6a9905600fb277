package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// namespaces is a network with one namespace per node, joined by a bridge; the host has an
// address on the bridge, and clients run there.
//
// A link is cut one way by giving the sender a wrong hardware address for the receiver: its
// frames reach nobody. To the sender that is silence, as from a pulled cable, not an error.
// All neighbour entries are permanent, so nothing repairs a cut by itself. That needs only
// iproute2 and root; no packet filter.
//
// The bridge's name is the claim on a subnet, since the kernel creates it once. Its alias names
// the program that owns it, so that the next run can remove what a crashed one left.
type namespaces struct {
	slot  int // third byte of the subnet
	nodes int

	shapeMu sync.Mutex
	shaper  *shaper // nil until a link is shaped
}

const (
	bridgePrefix = "rmqbr"
	aliasPrefix  = "raftmq-jepsen-"
	subnet       = "10.87"
	hostByte     = 254
	maxSlots     = 64
)

func (s *namespaces) bridge() string      { return bridgePrefix + strconv.Itoa(s.slot) }
func nsName(slot, n int) string           { return fmt.Sprintf("rmq%dn%d", slot, n) }
func vethName(slot, n int) string         { return fmt.Sprintf("rmqv%dn%d", slot, n) }
func (s *namespaces) nsPath(n int) string { return filepath.Join("/run/netns", nsName(s.slot, n)) }
func (s *namespaces) mac(n int) string {
	return fmt.Sprintf("02:52:4d:51:%02x:%02x", s.slot, hostOr(n))
}
func (s *namespaces) nobodysMAC(n int) string {
	return fmt.Sprintf("02:52:4d:00:%02x:%02x", s.slot, hostOr(n))
}
func (s *namespaces) ip(n int) string { return fmt.Sprintf("%s.%d.%d", subnet, s.slot, hostOr(n)) }

func hostOr(n int) int {
	if n == Host {
		return hostByte
	}
	return n
}

// NamespacesAvailable says why namespaces cannot be used here, nil if they can.
func NamespacesAvailable() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: network namespaces need root", ErrNoPartitions)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("%w: the ip command (iproute2) is missing: %w", ErrNoPartitions, err)
	}
	return nil
}

// NewNamespaces removes what crashed runs left and sets up a bridge with one namespace per
// node. An error wraps ErrNoPartitions where the machine does not allow it.
func NewNamespaces(nodes int) (Network, error) {
	if err := NamespacesAvailable(); err != nil {
		return nil, err
	}
	if nodes >= hostByte {
		return nil, fmt.Errorf("cluster: %d nodes do not fit a subnet", nodes)
	}
	removeStale()
	s := &namespaces{nodes: nodes}
	var err error
	for s.slot = range maxSlots {
		if err = ip("link", "add", "name", s.bridge(), "address", s.mac(Host), "type", "bridge"); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPartitions, err)
	}
	if err := s.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNoPartitions, err), s.Close())
	}
	return s, nil
}

func (s *namespaces) setUp() error {
	steps := [][]string{
		{"link", "set", s.bridge(), "alias", aliasPrefix + strconv.Itoa(os.Getpid())},
		{"addr", "add", s.ip(Host) + "/24", "dev", s.bridge()},
		{"link", "set", s.bridge(), "up"},
	}
	for n := 1; n <= s.nodes; n++ {
		ns, veth := nsName(s.slot, n), vethName(s.slot, n)
		steps = append(steps,
			[]string{"netns", "add", ns},
			[]string{"link", "add", veth, "type", "veth", "peer", "name", "eth0", "address", s.mac(n), "netns", ns},
			[]string{"link", "set", veth, "master", s.bridge(), "up"},
			[]string{"-n", ns, "link", "set", "lo", "up"},
			[]string{"-n", ns, "addr", "add", s.ip(n) + "/24", "dev", "eth0"},
			[]string{"-n", ns, "link", "set", "eth0", "up"},
		)
	}
	for _, args := range steps {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return Heal(s, s.nodes)
}

func (s *namespaces) Addresses(n int) Addresses {
	at := func(port int) string { return net.JoinHostPort(s.ip(n), strconv.Itoa(port)) }
	return Addresses{Client: at(9876), Raft: at(9877), Gossip: at(9878), HTTP: at(9879)}
}

// Wrap runs argv in the namespace. The command replaces itself with argv, so the pid stays the server's. nsenter changes the network
// and nothing else; "ip netns exec" also copies all mounts, among them those of other runs' disks, which then last as long as the process.
func (s *namespaces) Wrap(n int, argv []string) []string {
	if path, err := exec.LookPath("nsenter"); err == nil {
		return append([]string{path, "--net=" + s.nsPath(n)}, argv...)
	}
	return append([]string{"ip", "netns", "exec", nsName(s.slot, n)}, argv...)
}

func (s *namespaces) Cut(from, to int) error  { return s.neighbour(from, to, s.nobodysMAC(to)) }
func (s *namespaces) Mend(from, to int) error { return s.neighbour(from, to, s.mac(to)) }

// neighbour sets the hardware address that from uses to reach to.
func (s *namespaces) neighbour(from, to int, mac string) error {
	args := []string{"neigh", "replace", s.ip(to), "lladdr", mac, "nud", "permanent", "dev", s.bridge()}
	if from != Host {
		args[len(args)-1] = "eth0"
		args = append([]string{"-n", nsName(s.slot, from)}, args...)
	}
	return ip(args...)
}

func (s *namespaces) Probe(ctx context.Context, from int, addr string) error {
	if from == Host {
		return probe(ctx, addr)
	}
	result := make(chan error, 1)
	go func() {
		// The thread is not given back: it ends with the goroutine, and its namespace with it.
		runtime.LockOSThread()
		ns, err := os.Open(s.nsPath(from))
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err != nil {
			result <- fmt.Errorf("cluster: enter namespace of node %d: %w", from, err)
			return
		}
		result <- probe(ctx, addr)
	}()
	return <-result
}

func (s *namespaces) Close() error {
	s.shapeMu.Lock()
	defer s.shapeMu.Unlock()
	var err error
	if s.shaper != nil {
		err = s.shaper.close()
		s.shaper = nil
	}
	return errors.Join(err, remove(s.slot, s.nodes))
}

// remove deletes a slot's namespaces, and the links with them, and at last the bridge: as long
// as that is there nobody else takes the slot.
func remove(slot, nodes int) error {
	var err error
	for n := 1; n <= nodes; n++ {
		if _, serr := os.Stat(filepath.Join("/run/netns", nsName(slot, n))); serr != nil {
			continue
		}
		// Deleting one end deletes the pair at once; the namespace alone might linger.
		err = errors.Join(err, ignoreMissing(ip("link", "del", vethName(slot, n))), ip("netns", "del", nsName(slot, n)))
	}
	return errors.Join(err, ignoreMissing(ip("link", "del", bridgePrefix+strconv.Itoa(slot))))
}

func ignoreMissing(err error) error {
	if err != nil && strings.Contains(err.Error(), "Cannot find device") {
		return nil
	}
	return err
}

// removeStale removes the networks of programs that are gone. Errors are of no interest: what
// cannot be removed stays claimed and another slot is taken.
func removeStale() {
	for slot := range maxSlots {
		alias, err := os.ReadFile(fmt.Sprintf("/sys/class/net/%s%d/ifalias", bridgePrefix, slot))
		if err != nil {
			continue
		}
		pid, ok := bytes.CutPrefix(bytes.TrimSpace(alias), []byte(aliasPrefix))
		if !ok {
			continue
		}
		if _, err := os.Stat("/proc/" + string(pid)); errors.Is(err, os.ErrNotExist) {
			_ = remove(slot, hostByte-1)
		}
	}
}

// ip runs the ip command; an error holds the command and what it printed.
func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cluster: ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
