package mappedfile

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrLockLimit: the limit on locked memory (RLIMIT_MEMLOCK) forbids it.
var ErrLockLimit = errors.New("mappedfile: not allowed to lock memory")

// Lock keeps b in memory (mlock).
func Lock(b []byte) error {
	err := unix.Mlock(b)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("mappedfile: mlock of %d bytes: %w", len(b), err)
	}
	var l unix.Rlimit
	limit := "unknown"
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil {
		limit = fmt.Sprintf("%d bytes", l.Cur)
	}
	return fmt.Errorf("%w: %d bytes, the process's limit is %s: raise it (ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit) or give the process CAP_IPC_LOCK: %w",
		ErrLockLimit, len(b), limit, err)
}
