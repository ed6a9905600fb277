package main

import (
	"syscall"

	"raftmq/commitlog/consumequeue"

	"github.com/hashicorp/go-hclog"
)

const (
	// ownFiles is what a node needs beside queue files and clients' connections: log segments, Raft's log, peers, HTTP.
	ownFiles = 512
	// manyConns is how many connections a node should take (10,000 and some more).
	manyConns = 10_500
)

// connectionLimit is how many clients' connections fit into the limit of open files beside everything else. Without one a flood of connections would
// leave no descriptor for the next segment of a log, and the node would stop.
func connectionLimit(files uint64, queueFiles int) int {
	return int(max(int64(min(files, 1<<30))-int64(queueFiles)-ownFiles, 64))
}

// descriptors returns the limit of connections, and says when it is low. Go has raised the soft limit of open files to the hard one.
func descriptors(logger hclog.Logger) int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		logger.Warn("the limit of open files is not known, so connections are not limited", "error", err)
		return 0
	}
	conns := connectionLimit(l.Cur, consumequeue.DefaultOpenFiles())
	if conns < manyConns {
		logger.Warn("the limit of open files is low: raise it to 65536 or more (ulimit -Hn, LimitNOFILE= of the systemd unit)", "open-files", l.Cur,
			"queue-files-at-once", consumequeue.DefaultOpenFiles(), "connections-at-once", conns)
	}
	return conns
}
