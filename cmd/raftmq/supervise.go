package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"raftmq/commitlog/mappedfile"
	"raftmq/fsm/raftnode"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// A node that stopped because of its disk is opened again in the same process, once probes of the disk pass: what is
// really there is then read back, as at any start (F33), and nobody needs to come because a disk was full for a while (F27). Until then it holds no
// port but that of the HTTP page, which says what is wrong: to its peers it is down, which is the truth (F29).

// Pauses before a node is opened again. They grow while it fails again soon after; a full disk is tried at short
// intervals, since a try costs little and somebody is probably making room.
const (
	firstPause = time.Second
	longPause  = time.Minute
	fullPause  = 2 * time.Second
	ranWell    = 10 * time.Minute
)

// isDiskError reports whether err is the disk's and may be over some day.
func isDiskError(err error) bool {
	for _, e := range []error{raftnode.ErrDisk, mappedfile.ErrFault, mappedfile.ErrNoSpace, syscall.EIO, syscall.ENOSPC, syscall.EDQUOT,
		syscall.EROFS, syscall.ENXIO, syscall.ENODEV, syscall.EUCLEAN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func isFull(err error) bool {
	return errors.Is(err, mappedfile.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// parking is a node that waits for its disk.
type parking struct {
	cfg    *Config
	logger hclog.Logger
	pause  time.Duration // before the next opening
}

// wait returns when the disk is worth another try, or with ctx's error. ran is how long the node had run.
func (p *parking) wait(ctx context.Context, why error, ran time.Duration) error {
	switch {
	case isFull(why):
		p.pause = min(max(2*p.pause, firstPause), fullPause)
	case p.pause == 0 || ran > ranWell:
		p.pause = firstPause
	default:
		p.pause = min(2*p.pause, longPause)
	}
	began := time.Now()
	page := p.page(began, why)
	defer page()
	p.logger.Error("the node is down until its disk is well", "error", why, "next-try-in", p.pause)
	told := began
	for try := p.pause; ; try = time.Second {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(try):
		}
		err := p.probe(ctx)
		if err == nil {
			break
		}
		if time.Since(told) > 30*time.Second {
			told = time.Now()
			p.logger.Error("the disk is still not well", "down-for", time.Since(began).Round(time.Second), "error", err)
		}
	}
	dropCaches(p.cfg.DataDir)
	p.logger.Info("the disk takes writes, opening the node again", "down-for", time.Since(began).Round(time.Millisecond))
	return ctx.Err()
}

// probe writes in the Raft folder and in the data folder. A probe that hangs is waited for: a second one would only hang too.
func (p *parking) probe(ctx context.Context) error {
	result := make(chan error, 1)
	go func() {
		result <- errors.Join(
			raftnode.Probe(raftnode.Config{Dir: filepath.Join(p.cfg.DataDir, "raft"), LogStore: raftnode.LogStoreKind(p.cfg.RaftLogStore)}),
			probeFolder(filepath.Join(p.cfg.DataDir, "store")))
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// probeFolder writes and syncs a small file.
func probeFolder(dir string) error {
	f, err := os.CreateTemp(dir, "probe-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 64*kib))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// dropCaches makes the next reads of the folder's files come from the device: after a failed fsync the kernel may go on
// showing pages that never got there. The kernel tells each failure to write back once, at the next fsync of the file, whoever makes
// it and however long ago that was: they are taken here, all of them, or the node would fail with the next one each time it is opened. What
// was lost with them is seen by opening, which reads what is there. Errors that last come back there too.
func dropCaches(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if f, err := os.Open(path); err == nil {
			_ = f.Sync()
			_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
			_ = f.Close()
		}
		return nil
	})
}

// page serves the HTTP page of a parked node, and returns what ends it.
func (p *parking) page(since time.Time, why error) (end func()) {
	problem := func() error {
		return fmt.Errorf("down for %v because of its disk, comes back when a probe write succeeds: %w", time.Since(since).Round(time.Second), why)
	}
	return downPage(p.cfg, p.logger, problem)
}
