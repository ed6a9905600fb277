package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Quality is what a link does to the packets of one direction.
type Quality struct {
	Delay, Jitter time.Duration // each packet waits Delay and up to Jitter more; it may be overtaken
	Loss          float64       // share that is dropped, 0 to 1
}

// Shaping counts packets that went through the shaper.
type Shaping struct{ Passed, Dropped uint64 }

// Shaper is a Network whose links can be made bad. Mend makes them good again.
type Shaper interface {
	// Shape gives one direction between two nodes a quality.
	Shape(from, to int, q Quality) error
	Shaped() Shaping
}

// shaper passes packets on in user space: kernels without a queueing discipline for it can delay and lose them too. The sender of a
// shaped link is given the hardware address of a tap device on the bridge for the receiver's, so that its frames come here; they
// go out again with the right one. Links that are not shaped do not pass through it.
type shaper struct {
	ns     *namespaces
	tap    *os.File
	wg     sync.WaitGroup
	counts struct{ passed, dropped atomic.Uint64 }

	mu    sync.Mutex
	links map[[2]int]Quality
	end   bool
}

func (s *namespaces) tapName() string { return fmt.Sprintf("rmqtap%d", s.slot) }
func (s *namespaces) tapMAC() string  { return fmt.Sprintf("02:52:4d:7a:%02x:00", s.slot) }

// Shape implements Shaper.
func (s *namespaces) Shape(from, to int, q Quality) error {
	s.shapeMu.Lock()
	defer s.shapeMu.Unlock()
	if s.shaper == nil {
		sh, err := newShaper(s)
		if err != nil {
			return err
		}
		s.shaper = sh
	}
	s.shaper.mu.Lock()
	s.shaper.links[[2]int{from, to}] = q
	s.shaper.mu.Unlock()
	return s.neighbour(from, to, s.tapMAC())
}

// Shaped implements Shaper.
func (s *namespaces) Shaped() Shaping {
	s.shapeMu.Lock()
	defer s.shapeMu.Unlock()
	if s.shaper == nil {
		return Shaping{}
	}
	return Shaping{s.shaper.counts.passed.Load(), s.shaper.counts.dropped.Load()}
}

func newShaper(ns *namespaces) (*shaper, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cluster: /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(ns.tapName())
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cluster: tap device %s: %w", ns.tapName(), err), unix.Close(fd))
	}
	sh := &shaper{ns: ns, tap: os.NewFile(uintptr(fd), ns.tapName()), links: map[[2]int]Quality{}}
	// The address that senders are given must not be the device's own: a bridge takes that for the host's.
	if err := ip("link", "set", ns.tapName(), "master", ns.bridge(), "up"); err != nil {
		return nil, errors.Join(err, sh.tap.Close())
	}
	sh.wg.Go(sh.run)
	return sh, nil
}

// run reads frames until the device is closed.
func (sh *shaper) run() {
	buf := make([]byte, 1<<17)
	for {
		n, err := sh.tap.Read(buf)
		if err != nil {
			return
		}
		if from, to, ok := sh.endpoints(buf[:n]); ok {
			sh.pass(from, to, append([]byte(nil), buf[:n]...))
		}
	}
}

const (
	etherSize = 14
	etherIPv4 = 0x0800
)

// endpoints reads sender and receiver from a frame for us, by its IPv4 addresses.
func (sh *shaper) endpoints(frame []byte) (from, to int, ok bool) {
	if len(frame) < etherSize+20 || int(frame[12])<<8|int(frame[13]) != etherIPv4 || frame[2] != 0x4d || frame[3] != 0x7a {
		return 0, 0, false // somebody else's, flooded by the bridge
	}
	node := func(b byte) int {
		if b == hostByte {
			return Host
		}
		return int(b)
	}
	return node(frame[etherSize+15]), node(frame[etherSize+19]), true
}

// pass sends a frame on, late or never.
func (sh *shaper) pass(from, to int, frame []byte) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.links[[2]int{from, to}]
	if q.Loss > 0 && rand.Float64() < q.Loss {
		sh.counts.dropped.Add(1)
		return
	}
	sh.counts.passed.Add(1)
	// Our own address as the sender's, lest the bridge learns that the node is here.
	copy(frame[6:12], frame[0:6])
	copy(frame[0:6], []byte{0x02, 0x52, 0x4d, 0x51, byte(sh.ns.slot), byte(hostOr(to))})
	wait := q.Delay
	if q.Jitter > 0 {
		wait += rand.N(q.Jitter)
	}
	if wait <= 0 {
		_, _ = sh.tap.Write(frame)
		return
	}
	if sh.end {
		return
	}
	sh.wg.Add(1)
	time.AfterFunc(wait, func() {
		defer sh.wg.Done()
		_, _ = sh.tap.Write(frame) // what cannot be written is a lost packet
	})
}

func (sh *shaper) close() error {
	sh.mu.Lock()
	sh.end = true
	sh.mu.Unlock()
	err := sh.tap.Close()
	sh.wg.Wait()
	return err
}
