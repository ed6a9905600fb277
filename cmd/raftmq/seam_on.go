//go:build raftmq_seam

package main

import (
	"path/filepath"
	"strings"

	"raftmq/commitlog/mappedfile"
	"raftmq/seam"
	"raftmq/seam/shadow"
)

// storeFS is the store's file system, which tells the shadow what is durable.
func storeFS(dir string) (mappedfile.FS, error) {
	if seam.Shadow() == "" {
		return nil, nil
	}
	keeper, err := shadow.NewKeeper(dir, filepath.Join(seam.Shadow(), shadow.Store.Name))
	if err != nil {
		return nil, err
	}
	// What is at stake are commit log and journal: queues and index are built again.
	log := func(path string) bool {
		rel, err := filepath.Rel(dir, path)
		return err == nil && (strings.HasPrefix(rel, "commitlog") || strings.HasPrefix(rel, "journal"))
	}
	return shadow.NewFS(keeper, shadow.Lies{
		Bytes: func(path string) bool { return seam.On(seam.SkipLogSync) && log(path) },
		Names: func(dir string) bool { return seam.On(seam.SkipNameSync) && log(dir) },
	}), nil
}
