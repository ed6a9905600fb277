package raftnode

import "errors"

// ErrLogDamaged: entries that this node may have acknowledged, or its term and vote, are not on its disk as they were written. It takes no part any more: it cannot know what it
// has promised (Never-Guess). The others can fill it again as a newcomer.
var ErrLogDamaged = errors.New("raftnode: the Raft log is damaged")
