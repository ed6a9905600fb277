package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"raftmq/commitlog/mappedfile"
)

// A node whose data is not to be believed any more puts it aside (DIR/aside/TIME-INCARNATION/) and begins anew under another incarnation. Nothing is deleted: an operator does that, or looks
// what happened. The steps are written down first (asideMarker), so that a crash between them is finished at the next start: half of a folder is never opened.

const (
	asideDir    = "aside"
	asideMarker = "aside.json"
	asideTime   = "20060102T150405Z"
	asideFormat = 1
)

// asidePlan is the content of asideMarker.
type asidePlan struct {
	FormatVersion int      `json:"formatVersion"`
	Folder        string   `json:"folder"` // below asideDir
	Parts         []string `json:"parts"`  // of the data folder, moved as they are
	// Next is node.json afterwards.
	Next   identity `json:"next"`
	Reason string   `json:"reason"`
}

// putAside moves parts of the data folder dir aside and gives it another incarnation. It returns where they are. Nothing may have the folder open.
func putAside(dir string, parts []string, reason string, now time.Time) (folder string, err error) {
	id, err := readIdentity(dir)
	if err != nil {
		return "", err
	}
	plan := asidePlan{FormatVersion: asideFormat, Folder: now.UTC().Format(asideTime) + "-" + id.Incarnation, Parts: parts, Next: *id, Reason: reason}
	plan.Next.Rejoined = id.Incarnation
	if plan.Next.Incarnation, err = newIncarnation(); err != nil {
		return "", err
	}
	b, err := json.MarshalIndent(&plan, "", "  ")
	if err != nil {
		return "", err
	}
	if err := replaceFile(filepath.Join(dir, asideMarker), append(b, '\n')); err != nil {
		return "", err
	}
	return filepath.Join(dir, asideDir, plan.Folder), finishAside(dir)
}

// finishAside carries out what asideMarker says, if it is there.
func finishAside(dir string) error {
	marker := filepath.Join(dir, asideMarker)
	b, err := os.ReadFile(marker)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var plan asidePlan
	if err := json.Unmarshal(b, &plan); err != nil {
		return fmt.Errorf("%s is damaged: %w", marker, err)
	}
	if plan.FormatVersion != asideFormat || plan.Folder == "" || filepath.Base(plan.Folder) != plan.Folder {
		return fmt.Errorf("%s has format version %d, this raftmq %s reads %d", marker, plan.FormatVersion, version, asideFormat)
	}
	to := filepath.Join(dir, asideDir, plan.Folder)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, part := range plan.Parts {
		if filepath.Base(part) != part {
			return fmt.Errorf("%s names %q", marker, part)
		}
		if _, err := os.Lstat(filepath.Join(to, part)); err == nil {
			continue // moved before the crash; what is there under this name now is new
		}
		if err := os.Rename(filepath.Join(dir, part), filepath.Join(to, part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if _, err := os.Lstat(filepath.Join(to, identityFile)); errors.Is(err, fs.ErrNotExist) {
		old, err := os.ReadFile(filepath.Join(dir, identityFile))
		if err == nil {
			err = replaceFile(filepath.Join(to, identityFile), old)
		}
		if err != nil {
			return err
		}
	}
	if err := errors.Join(replaceFile(filepath.Join(to, asideMarker), b), mappedfile.OS{}.SyncDir(to), mappedfile.OS{}.SyncDir(filepath.Join(dir, asideDir)), mappedfile.OS{}.SyncDir(dir)); err != nil {
		return err
	}
	if err := plan.Next.save(dir); err != nil {
		return err
	}
	if err := os.Remove(marker); err != nil {
		return err
	}
	return mappedfile.OS{}.SyncDir(dir)
}

// asideFolders are those that were put aside, oldest first, with when that was.
func asideFolders(dir string) (paths []string, newest time.Time) {
	list, err := os.ReadDir(filepath.Join(dir, asideDir))
	if err != nil {
		return nil, newest
	}
	for _, e := range list {
		at, err := time.Parse(asideTime, e.Name()[:min(len(asideTime), len(e.Name()))])
		if err != nil {
			continue
		}
		paths = append(paths, filepath.Join(dir, asideDir, e.Name()))
		if at.After(newest) {
			newest = at
		}
	}
	slices.Sort(paths)
	return paths, newest
}

// folderBytes is what the files below dir take, about.
func folderBytes(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				sum += fi.Size()
			}
		}
		return nil
	})
	return sum
}
