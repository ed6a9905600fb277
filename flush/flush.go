// Package flush holds the two flush services of the commit log: group commit for
// SYNC_FLUSH and the timed loop for ASYNC_FLUSH, and their waiters. It sees only a Target.
package flush

// Target is what is flushed. Flush makes bytes durable when at least leastPages pages wait
// (0: any) and returns the durable end offset; it blocks.
type Target interface {
	Flush(leastPages int) (flushedTo int64, err error)
}
