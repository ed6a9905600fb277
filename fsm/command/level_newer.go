//go:build raftmq_newer

package command

// Newest is one more than it should be: this build stands for the raftmq after this one.
const Newest Level = 3
