package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// InUse tells whether a broker runs on the folder.
type InUse struct {
	Running bool `json:"running"`
	PID     int  `json:"pid,omitempty"`     // of the holder of the lock, 0 when unknown
	Unknown bool `json:"unknown,omitempty"` // the kernel's list of locks can't be read
}

// inUse looks for a lock on the file `lock` in the kernel's list: RocketMQ holds a record lock of its process, RaftMQ the same of
// its open file, whose holder the kernel does not name; it has its process id in `abort`. Trying the lock instead would take it for a moment and could make a broker fail
// that starts just then.
func inUse(dir string) InUse {
	fi, err := os.Stat(filepath.Join(dir, lockName))
	if err != nil {
		return InUse{}
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return InUse{Unknown: true}
	}
	list, err := os.ReadFile("/proc/locks")
	if err != nil {
		return InUse{Unknown: true}
	}
	u := findLock(string(list), fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino))
	if u.Running && u.PID == 0 {
		if b, err := readHead(filepath.Join(dir, abortName), 32); err == nil {
			u.PID, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		}
	}
	return u
}

// findLock reads lines like "1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF".
func findLock(list, file string) InUse {
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] == "->" || f[3] != "WRITE" || f[5] != file {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil || pid < 0 {
			pid = 0
		}
		return InUse{Running: true, PID: pid}
	}
	return InUse{}
}

// diskBytes is what a file takes from the disk.
func diskBytes(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
