package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is how full one partition is, bytes.
type Disk struct {
	Path        string
	Total, Free int64
	Usable      int64 // of Free, what is not kept for root
}

// Ratio is the part in use as RocketMQ computes it, in whole percent rounded up (0.91): used/(used+usable). -1 when it
// is not known.
func (d Disk) Ratio() float64 {
	used := d.Total - d.Free
	if d.Total <= 0 || used+d.Usable <= 0 {
		return -1
	}
	return math.Ceil(100*float64(used)/float64(used+d.Usable)) / 100
}

// Space is how full the partitions of log, consume queues and key index are.
type Space struct{ CommitLog, ConsumeQueue, Index Disk }

// StatDisk asks the operating system. A path that is not there has no figures.
func StatDisk(path string) Disk {
	d := Disk{Path: path}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err == nil {
		block := int64(st.Bsize)
		d.Total, d.Free, d.Usable = int64(st.Blocks)*block, int64(st.Bfree)*block, int64(st.Bavail)*block
	}
	return d
}

// Space looks at the disks.
func (s *Store) Space() Space {
	return Space{
		CommitLog:    s.cfg.Disk(filepath.Join(s.cfg.Dir, commitLogDir)),
		ConsumeQueue: s.cfg.Disk(filepath.Join(s.cfg.Dir, queueDir)),
		Index:        s.cfg.Disk(filepath.Join(s.cfg.Dir, indexDir)),
	}
}

// spaceWatch is what the disk check knows beside the ratios.
type spaceWatch struct {
	// ahead: the next segment could not be made for want of space. Set and cleared by the pre-allocation.
	mu    sync.Mutex
	ahead bool

	tight atomic.Bool // little is left: look often
}

// prepared is told by the log's pre-allocation how it went. What it could not make the writer will soon need: no more
// messages until it can, and that before Apply meets it.
func (s *Store) prepared(err error) {
	noSpace := isNoSpace(err)
	s.space.mu.Lock()
	s.space.ahead = noSpace
	s.space.mu.Unlock()
	if noSpace {
		s.diskFull(true, "the next segment has no room")
	}
	s.running.set(FlagNotWriteable, err != nil && !noSpace)
}

// noSpace is called on the FSM goroutine when Apply needs room that the disk does not have: what was accepted before is
// written with what was put by.
func (s *Store) noSpace() bool {
	s.diskFull(true, "the log has no room")
	return s.reserve.release()
}

func (s *Store) diskFull(full bool, why string) {
	if !s.running.set(FlagDiskFull, full) {
		return
	}
	space := s.Space()
	if full {
		s.logger.Warn("disk is full, no messages are taken", "reason", why, "commit-log-ratio", space.CommitLog.Ratio(),
			"consume-queue-ratio", space.ConsumeQueue.Ratio(), "usable-bytes", space.CommitLog.Usable)
		return
	}
	s.logger.Info("disk has space again", "commit-log-ratio", space.CommitLog.Ratio(), "usable-bytes", space.CommitLog.Usable)
}

// tightInterval is how often the disk is looked at while little is left of it: a second is long enough to fill it.
const tightInterval = 50 * time.Millisecond

// spaceLoop ends with the store.
func (s *Store) spaceLoop() {
	for s.pause(s.spaceInterval()) {
		s.checkSpace()
	}
}

func (s *Store) spaceInterval() time.Duration {
	if s.space.tight.Load() {
		return min(tightInterval, s.cfg.SpaceInterval)
	}
	return s.cfg.SpaceInterval
}

// checkSpace sets and clears the disk-full flag, and puts the reserve by or gives it up.
func (s *Store) checkSpace() {
	space := s.Space()
	s.space.tight.Store(space.CommitLog.Total > 0 && space.CommitLog.Usable < 8*s.cfg.MinFreeBytes)
	usable := space.CommitLog.Usable
	known := space.CommitLog.Total > 0
	if known && usable < s.cfg.MinFreeBytes/2 && s.reserve.release() {
		s.logger.Warn("gave up the reserve, the disk is full", "usable-bytes", usable)
	}
	why := s.fullness(space, 0)
	if missing := s.reserve.missing(); why == "" && missing > 0 {
		if why = s.fullness(space, missing); why == "" {
			if err := s.reserve.make(); err != nil {
				why = "the reserve cannot be made: " + err.Error()
			}
		}
	}
	s.diskFull(why != "", why)
}

// fullness says why the disk would count as full after taking more bytes of it, "" when it would not.
func (s *Store) fullness(space Space, more int64) string {
	warning := float64(s.cfg.DiskWarningRatio) / 100
	for _, d := range []Disk{space.CommitLog, space.ConsumeQueue} {
		d.Free, d.Usable = d.Free-more, d.Usable-more
		if ratio := d.Ratio(); ratio > warning {
			return fmt.Sprintf("%s: ratio %.2f, limit %.2f", d.Path, ratio, warning)
		}
		if d.Total > 0 && d.Usable < s.cfg.MinFreeBytes {
			return fmt.Sprintf("%s: %d bytes usable, least %d", d.Path, d.Usable, s.cfg.MinFreeBytes)
		}
	}
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	if s.space.ahead {
		return "the next segment has no room"
	}
	return ""
}

// reserve is a file of blocks put by for what was accepted when the disk turned out to be full: in Apply there is no way
// to refuse it any more.
type reserve struct {
	path string
	size int64 // 0: none

	mu   sync.Mutex
	have bool // the file is there, with all its blocks
}

const reserveName = "reserve"

// adopt takes a reserve over that an earlier process left.
func (r *reserve) adopt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Stat(r.path, &st); err == nil && r.size > 0 {
		r.have = st.Size == r.size && st.Blocks*512 >= r.size
	}
}

// missing is how many bytes make would take.
func (r *reserve) missing() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.have {
		return 0
	}
	return r.size
}

// make takes the blocks. A file system that cannot has no reserve.
func (r *reserve) make() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.have || r.size == 0 {
		return nil
	}
	err := allocateFile(r.path, r.size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = os.Remove(r.path)
		r.size = 0
	}
	if err != nil {
		return errors.Join(err, removeIfThere(r.path))
	}
	r.have = true
	return nil
}

// release gives the blocks back, and tells whether there were any.
func (r *reserve) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.have {
		return false
	}
	r.have = false
	return os.Remove(r.path) == nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func allocateFile(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	err = f.Truncate(size) // an older one may have been larger
	for err == nil {
		if err = unix.Fallocate(int(f.Fd()), 0, 0, size); !errors.Is(err, unix.EINTR) {
			break
		}
		err = nil
	}
	return errors.Join(err, f.Close())
}
