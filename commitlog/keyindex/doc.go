// Package keyindex finds messages by topic, key and store time: it maps the hash of
// "topic#key" to physical offsets of the commit log (RocketMQ's IndexService and IndexFile,
// same files, same bytes).
//
//	<dir>/<yyyyMMddHHmmssSSS>   local time of creation; older files are full
//
// It knows hashes and offsets, not records: two keys of one hash can't be told apart here, so
// whoever asks must compare topic and key with the record (F41). It doesn't read the log and
// has no goroutines.
//
// Invariants:
//
//   - The log is the truth. Files are believed only as far as the recovery point vouches for
//     them; from the first one that isn't what the point says on they are dropped, and From
//     tells where the log must be fed again (F43).
//   - Once-Per-Record: a record's keys are entered once, however often it is fed, in log order.
//     The content of the files follows from the log alone; only their names don't.
//   - Point-Behind-All: the point never names an entry that isn't durable.
//   - Entries are the source, slots are derived: a slot holds the last entry of its chain, so
//     only entries are flushed as they come; slots of the last file are made again by Open.
//   - Chains go back: an entry's predecessor has a smaller number. What breaks this is
//     ErrDamaged, never a loop and never a panic.
//   - Allocated-Before-Touched, Poisoned-For-Ever: as in mappedfile. Mapped bytes don't leave
//     the package; files are counted while a query reads them (Views-Are-Counted).
//
// One goroutine writes (Put, Commit), any number may call Find; Flush and DeleteBefore may run
// beside both, Reset and Repair must not run beside the writer.
package keyindex

import "errors"

// Errors; they come wrapped with the facts.
var (
	// ErrDamaged: bytes of a file contradict each other. Repair drops them.
	ErrDamaged = errors.New("keyindex: damaged")
	// ErrClosed: the index was closed.
	ErrClosed = errors.New("keyindex: closed")
	// ErrFailed: a sync or a page fault failed earlier, so nothing more is written.
	ErrFailed = errors.New("keyindex: stopped by an earlier error")
)
