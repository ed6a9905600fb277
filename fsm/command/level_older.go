//go:build raftmq_older

package command

// Newest is one less than it should be: this build stands for the raftmq before this one.
const Newest Level = 1
