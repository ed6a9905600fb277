//go:build !raftmq_older && !raftmq_newer

package command

// Newest is the highest feature level that this raftmq can apply. Tests of upgrades build a raftmq that knows one level less, or one more, with the tags
// raftmq_older and raftmq_newer.
const Newest Level = 2
