//go:build !raftmq_seam

package main

import "raftmq/commitlog/mappedfile"

// storeFS is the store's file system: the operating system's, but in a server with the seam (seam_on.go).
func storeFS(string) (mappedfile.FS, error) { return nil, nil }
