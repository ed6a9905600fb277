package store

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A message counts as in memory while it is within Config.HotBytes of the log's end, and as on disk behind that: RocketMQ's test. What
// the page cache really holds is not asked for; that would cost a system call a message.

// Transfer bounds what one Get returns. The first message is returned whatever its size.
type Transfer struct {
	Bytes, Msgs int
}

// RocketMQ's maxTransferBytesOnMessageInMemory and the like.
var (
	transferInMemory = Transfer{Bytes: 262144, Msgs: 32}
	transferOnDisk   = Transfer{Bytes: 65536, Msgs: 8}
)

func (t *Transfer) fillIn(preset Transfer) {
	if t.Bytes <= 0 {
		t.Bytes = preset.Bytes
	}
	if t.Msgs <= 0 {
		t.Msgs = preset.Msgs
	}
}

// coldReads counts what Get returned from behind HotBytes.
type coldReads struct {
	reads, messages, bytes atomic.Uint64
}

func (c *coldReads) count(res *GetResult) {
	if res.ColdCount == 0 {
		return
	}
	c.reads.Add(1)
	c.messages.Add(uint64(res.ColdCount))
	c.bytes.Add(uint64(res.ColdBytes))
}

// Hot reports whether what is at a physical offset counts as still in memory.
func (s *Store) Hot(phyOffset int64) bool { return s.log.MaxOffset()-phyOffset <= s.cfg.HotBytes }

// MemoryBytes is the machine's memory, 24 GiB when it is not known (as in RocketMQ).
func MemoryBytes() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 24 << 30
	}
	return int64(info.Totalram) * int64(info.Unit)
}
