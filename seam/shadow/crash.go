package shadow

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// PageSize is what the kernel writes at a time, SectorSize what a disk does.
const (
	PageSize   = 4096
	SectorSize = 512
)

// Loss is what a loss of power took.
type Loss struct {
	Files     int // that are known
	Unflushed int // pages whose bytes were not durable
	Old       int // of them, those that are as they were at the last sync
	Torn      int // of them, those with some sectors old and some new
	Shortened int // files that have their durable size again
	Unmade    int // files that are gone, as their names were not durable
}

// String is in words.
func (l Loss) String() string {
	return fmt.Sprintf("%d pages of %d files were not flushed, of them %d old and %d torn now; %d sizes and %d names undone", l.Unflushed, l.Files, l.Old, l.Torn, l.Shortened, l.Unmade)
}

// Add adds what another part lost.
func (l *Loss) Add(o Loss) {
	l.Files += o.Files
	l.Unflushed += o.Unflushed
	l.Old += o.Old
	l.Torn += o.Torn
	l.Shortened += o.Shortened
	l.Unmade += o.Unmade
}

// Part is a folder of a node that has a shadow of its own.
type Part struct {
	Name string // of its folder in the shadow
	Path string // below the data folder, with slashes
}

// Store and WAL are the parts of a node.
var (
	Store = Part{"store", "store"}
	WAL   = Part{"wal", "raft/wal"}
)

// Parts are all of them.
func Parts() []Part { return []Part{Store, WAL} }

// moods of a file: what becomes of its pages.
const (
	allNew = iota // the kernel had written everything back
	allOld        // nothing
	mixed         // each page is as it likes
	moods
)

// Crash makes of the files below root, whose process has ended, what a loss of power may have left: every page that was not durable is old,
// new, or torn at a sector; a size that was not is old or new; and of each folder all files whose names were not are there, or none. dir is the
// shadow's. It is removed: what is there now is durable.
func Crash(root, dir string, rng *rand.Rand) (Loss, error) {
	var l Loss
	known, err := files(filepath.Join(dir, bytesDir))
	if err != nil {
		return l, err
	}
	unmade := map[string]bool{} // what becomes of a folder's new names
	for _, rel := range known {
		path := filepath.Join(root, rel)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue // removed by somebody who did not tell
		}
		if _, err := os.Stat(filepath.Join(dir, madeDir, rel)); err == nil {
			folder := filepath.Dir(rel)
			if _, ok := unmade[folder]; !ok {
				unmade[folder] = rng.IntN(4) > 0 // mostly, or few crashes would show who relies on a name
			}
			if unmade[folder] {
				l.Unmade++
				if err := os.Remove(path); err != nil {
					return l, fmt.Errorf("shadow: crash: %w", err)
				}
				continue
			}
		}
		if err := l.file(path, filepath.Join(dir, bytesDir, rel), rng); err != nil {
			return l, fmt.Errorf("shadow: crash: %s: %w", path, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return l, fmt.Errorf("shadow: crash: %w", err)
	}
	return l, nil
}

// files are the plain files below dir, by path from there, sorted.
func files(dir string) (list []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, copySuffix) {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		list = append(list, rel)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("shadow: crash: %w", err)
	}
	slices.Sort(list)
	return list, nil
}

// file mixes what is in a file with what is durable of it.
func (l *Loss) file(path, durable string, rng *rand.Rand) error {
	old, err := os.Open(durable)
	if err != nil {
		return err
	}
	defer old.Close()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	l.Files++
	now, err := f.Stat()
	if err != nil {
		return err
	}
	then, err := old.Stat()
	if err != nil {
		return err
	}
	mood := rng.IntN(moods)
	before := make([]byte, PageSize)
	var end int64 // of what is new
	err = pages(f, func(off int64, page []byte) error {
		b := before[:len(page)]
		clear(b)
		if off < then.Size() {
			if _, err := old.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
		if bytes.Equal(b, page) {
			return nil
		}
		l.Unflushed++
		if !l.page(b, page, mood, rng) {
			end = off + int64(len(page))
			return nil
		}
		if !allZero(b) {
			end = off + int64(len(page))
		}
		_, err := f.WriteAt(b, off)
		return err
	})
	if err != nil {
		return err
	}
	// A page that reached the disk took the size with it.
	if size := max(then.Size(), end); size < now.Size() && rng.IntN(2) == 0 {
		l.Shortened++
		return f.Truncate(size)
	}
	return nil
}

// page makes of b, the old page, what is there after the crash; false when that is the new one.
func (l *Loss) page(b, now []byte, mood int, rng *rand.Rand) (changed bool) {
	what := mood
	if mood == mixed {
		what = rng.IntN(moods)
	}
	switch what {
	case allNew:
		return false
	case allOld:
		l.Old++
		return true
	}
	l.Torn++
	for at := 0; at < len(b); at += SectorSize {
		if end := min(at+SectorSize, len(b)); rng.IntN(2) == 0 {
			copy(b[at:end], now[at:end])
		}
	}
	return true
}
