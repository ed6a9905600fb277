// Package seam is what the fault harness needs inside the server: planted bugs, which prove that the harness would notice real ones, and
// (package shadow) what is durable of a node's files, from which the harness makes those that a loss of power would have left.
//
// A server has none of it unless it is built with the tag raftmq_seam: On and Often are constant false without it, and the compiler
// drops what depends on them.
package seam

// Bug is a bug that can be planted. Each breaks one promise in one place.
type Bug string

// Bugs.
const (
	// AckUncommitted: a leader that loses its leadership acknowledges what it had in flight.
	AckUncommitted Bug = "ack-uncommitted"
	// SkipRaftSync: the Raft log is acknowledged before it is synced.
	SkipRaftSync Bug = "skip-raft-sync"
	// SkipLogSync: commit log and journal count as flushed, and are not.
	SkipLogSync Bug = "skip-log-sync"
	// SkipSnapshotFlush: a snapshot lets the Raft log go before what it made of the entries is flushed.
	SkipSnapshotFlush Bug = "skip-snapshot-flush"
	// SkipNameSync: a file counts as durable before its name in the folder is.
	SkipNameSync Bug = "skip-name-sync"
	// ApplyTwice: the first entry after a restart is applied twice.
	ApplyTwice Bug = "apply-twice"
	// ApplyUncommitted: a leader applies and dispatches entries before a majority has them.
	ApplyUncommitted Bug = "apply-uncommitted"
	// LoseQueueOffset: a restored snapshot forgets where the queues go on.
	LoseQueueOffset Bug = "lose-queue-offset"
	// StaleReads: a node that was deposed, or knows no leader, answers for the tables all the same.
	StaleReads Bug = "stale-reads"
	// ForgetDelay: a new leader starts from an older progress of the delay levels.
	ForgetDelay Bug = "forget-delay"
	// EarlyDelay: a delayed message comes a second early.
	EarlyDelay Bug = "early-delay"
	// ReuseOffset: now and then a queue offset is given twice.
	ReuseOffset Bug = "reuse-offset"
	// SkipPreVote: a node that was cut off deposes the leader when it comes back.
	SkipPreVote Bug = "skip-pre-vote"
	// RefuseStored: now and then a send is stored and refused all the same.
	RefuseStored Bug = "refuse-stored"
	// AckOffset: a consumer offset is acknowledged before it is replicated.
	AckOffset Bug = "ack-offset"
	// OffsetBack: now and then a consumer offset moves back.
	OffsetBack Bug = "offset-back"
	// HalfVisible: now and then a half message is stored in its real topic at once.
	HalfVisible Bug = "half-visible"
	// DropEnd: now and then the end of a transaction is answered and dropped, and so is every later one.
	DropEnd Bug = "drop-end"
	// DoubleSend: now and then a message is stored twice.
	DoubleSend Bug = "double-send"
	// SwapBatch: now and then the messages of a batch are stored in another order.
	SwapBatch Bug = "swap-batch"
	// HalfBatch: now and then the last message of a batch is left out.
	HalfBatch Bug = "half-batch"
	// WrongByte: now and then a node writes another byte than its peers.
	WrongByte Bug = "wrong-byte"
	// ServeDamage: what the log holds is served unchecked, and checked at no other time.
	ServeDamage Bug = "serve-damage"
	// EarlyTrim: messages expire before their time.
	EarlyTrim Bug = "early-trim"
	// TruncateLog: a node that starts cuts its commit log where it is damaged, and what lies behind counts as never written.
	TruncateLog Bug = "truncate-log"
	// TruncateRaftLog: a node that starts cuts its Raft log where it is damaged, and with it what it has applied from there on.
	TruncateRaftLog Bug = "truncate-raft-log"
	// SkipInstall: a node far behind takes a snapshot's tables for all that it lacks.
	SkipInstall Bug = "skip-install"
	// TwoOwners: a queue that a consumer owns is given to any other that asks.
	TwoOwners Bug = "two-owners"
)

// Bugs are all of them.
func Bugs() []Bug {
	return []Bug{AckUncommitted, SkipRaftSync, SkipLogSync, SkipSnapshotFlush, SkipNameSync, ApplyTwice, ApplyUncommitted, LoseQueueOffset, StaleReads, ForgetDelay,
		EarlyDelay, ReuseOffset, SkipPreVote, RefuseStored, AckOffset, OffsetBack, HalfVisible, DropEnd, DoubleSend, SwapBatch, HalfBatch, WrongByte,
		ServeDamage, EarlyTrim, TruncateLog, TruncateRaftLog, SkipInstall, TwoOwners}
}

// Tag is the build tag.
const Tag = "raftmq_seam"

// Environment variables of a server that was built with the tag.
const (
	// BugEnv names the bug that is planted; an unknown one ends the process.
	BugEnv = "RMQ_SEAM_BUG"
	// ShadowEnv, if set, is the folder of the shadow (package shadow) that the server is to keep.
	ShadowEnv = "RMQ_SEAM_SHADOW"
)
