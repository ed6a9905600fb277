package fsm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"raftmq/commitlog/store"

	"github.com/hashicorp/raft"
)

// steps takes an image of a folder at each step of a catch-up.
type steps struct {
	t        *testing.T
	from, to string
	images   []image
}

func (s *steps) take(at string) {
	dir := filepath.Join(s.to, fmt.Sprintf("%04d", len(s.images)))
	for attempt := 0; ; attempt++ {
		err := os.CopyFS(dir, os.DirFS(s.from))
		if err == nil {
			break
		}
		// The store's own goroutines replace and remove files meanwhile.
		if !errors.Is(err, fs.ErrNotExist) || attempt == 100 {
			s.t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			s.t.Fatal(err)
		}
	}
	s.images = append(s.images, image{dir: dir, at: at})
}

// steppedStore takes images while log bytes are installed.
type steppedStore struct {
	Store
	steps *steps
}

// Install implements Store.
func (s steppedStore) Install(from, to int64) (store.Installer, error) {
	in, err := s.Store.Install(from, to)
	s.steps.take(fmt.Sprintf("installing [%d, %d)", from, to))
	return steppedInstaller{in, s.steps}, err
}

// Restore implements Store.
func (s steppedStore) Restore(p store.Position) error {
	s.steps.take("installed")
	err := s.Store.Restore(p)
	s.steps.take("restored")
	return err
}

type steppedInstaller struct {
	store.Installer
	steps *steps
}

// Write implements store.Installer.
func (s steppedInstaller) Write(p []byte) (int, error) {
	n, err := s.Installer.Write(p)
	s.steps.take(fmt.Sprintf("%d bytes more", n))
	return n, err
}

// Commit implements store.Installer.
func (s steppedInstaller) Commit(p store.Position) error {
	s.steps.take("before commit")
	err := s.Installer.Commit(p)
	s.steps.take("committed, staged still")
	return err
}

// TestCatchUpAfterACrashAtEveryStep: a process that dies anywhere between the first fetched byte and the restored snapshot starts again with what it had, or with all of
// the snapshot: a part of it is never seen. Going on brings it to what the leader has.
func TestCatchUpAfterACrashAtEveryStep(t *testing.T) {
	logs, others := script(t, 9), script(t, 10)
	for name, own := range map[string][]*raft.Log{
		"empty":    nil,
		"behind":   logs[:11],
		"diverged": append(append([]*raft.Log{}, logs[:10]...), others[10:25]...),
	} {
		t.Run(name, func(t *testing.T) {
			leader := openFollower(t, t.TempDir(), nil)
			defer leader.close()
			leader.fsm.ApplyBatch(logs[:40])
			leader.snapshot(t, logs[39].Index)
			meta, snapshot := leader.newest(t)
			awaitCleaned(t, leader.store)
			_, end := leader.store.LogRange()
			peers := map[string]*follower{"leader": leader}
			twin := openReplica(t, t.TempDir(), nil)
			twin.fsm.ApplyBatch(logs)
			want := closeAndRead(t, twin)

			apply := func(f *follower) (end int64) {
				for i, l := range own {
					c := *l
					if i >= 11 {
						c.Term = 7
					}
					f.fsm.Apply(&c)
				}
				if f.fatal != nil {
					t.Fatal(f.fatal)
				}
				_, end = f.store.LogRange()
				return end
			}
			dir := t.TempDir()
			f := openFollower(t, dir, peers)
			ownEnd := apply(f)
			s := &steps{t: t, from: dir, to: t.TempDir()}
			f.catchUp.cfg.Piece = 120_000
			f.fsm.cfg.Store = steppedStore{f.store, s}
			f.sources["leader"].before = func(off int64) error {
				s.take(fmt.Sprintf("asked for %d", off))
				return nil
			}
			f.receive(t, "leader", snapshot)
			s.take("sealed")
			id, err := f.take(t, meta, snapshot)
			if err != nil {
				t.Fatal(err)
			}
			hidden := len(s.images) // images before this one have no snapshot
			s.take("taken")
			f.restore(t, id)
			s.take("done")
			f.close()

			for i, img := range s.images {
				f := openFollower(t, img.dir, peers)
				list, err := f.snaps.List()
				if err != nil || (len(list) == 1) != (i >= hidden) {
					t.Fatalf("%s: snapshots %v, %v", img.at, list, err)
				}
				id := id
				if i < hidden {
					if _, got := f.store.LogRange(); got != ownEnd {
						t.Fatalf("%s: the log ends at %d, it ended at %d", img.at, got, ownEnd)
					}
					apply(f)
					f.receive(t, "leader", snapshot)
					if id, err = f.take(t, meta, snapshot); err != nil {
						t.Fatalf("%s: %v", img.at, err)
					}
				}
				f.restore(t, id)
				if _, got := f.store.LogRange(); got != end || len(f.stagedFiles(t)) != 0 {
					t.Fatalf("%s: the log ends at %d, the snapshot's at %d; staged %v", img.at, got, end, f.stagedFiles(t))
				}
				f.fsm.ApplyBatch(logs[40:])
				if diff := difference(want, closeAndRead(t, f.replica)); diff != "" || f.fatal != nil {
					t.Fatalf("%s: ended differently: %s; %v", img.at, diff, f.fatal)
				}
				f.close()
				if err := os.RemoveAll(img.dir); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d images", len(s.images))
		})
	}
}
