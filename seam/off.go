//go:build !raftmq_seam

package seam

// Built tells whether this is a server with the seam.
const Built = false

// On tells whether a bug is planted.
func On(Bug) bool { return false }

// Often is true at each n-th call of the process, if the bug is planted.
func Often(Bug, uint32) bool { return false }

// Shadow is the folder of the shadow that is to be kept, "" for none.
func Shadow() string { return "" }
