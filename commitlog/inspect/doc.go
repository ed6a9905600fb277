// Package inspect reads a store folder from outside: one that real RocketMQ (4.9, 5.x) wrote, or
// RaftMQ. It lists what is in it, counts it, and compares its structures with each other, so that
// every kind of damage is named with file and offset.
//
// It repairs nothing and recovers nothing; what a broker would make of a damaged store is not its
// business. DLedger's log is not read.
//
// It decodes journal, recovery points, index and checkpoint by itself instead of asking the
// packages that write them: a mistake there shall not hide itself here.
//
// Invariants:
//
//   - Read-Only: files are opened with O_RDONLY and read with pread. Nothing is mapped (a file that is
//     cut meanwhile gives an error and no SIGBUS), no lock is taken, nothing is created.
//   - Constant memory: a store is read front to back through windows. What is kept grows with the number of
//     queues, not with that of messages: a few hundred bytes a queue, and 4 bytes a hash slot of one index file.
//   - Moving target: beside a running broker only what was complete when reading began is judged.
//     Store.InUse says that there is one.
//   - Bounded by the file: no length field makes it allocate more than maxRecord.
package inspect

import "errors"

// Errors; they come wrapped with the facts.
var (
	// ErrNoStore: the folder holds nothing that could be a store.
	ErrNoStore = errors.New("inspect: no store folder")
	// ErrDLedger: the folder holds DLedger's log, which is not read.
	ErrDLedger = errors.New("inspect: the log is DLedger's, which is not read")
	// ErrLayout: the log's files don't tell how large a segment is.
	ErrLayout = errors.New("inspect: segment size unknown")
	// ErrStop ends a walk early when a visitor returns it; the walk then returns nil.
	ErrStop = errors.New("inspect: stop")
)

const (
	// maxRecord is the largest record that is believed, bytes. Both brokers' frames end at 16 MiB.
	maxRecord = 64 << 20
	// windowSize is how much is read at once, bytes.
	windowSize = 1 << 20
	// pageSize is what power loss takes or leaves whole, bytes.
	pageSize = 4096
)
