package commitlog

import (
	"errors"
	"time"

	"raftmq/commitlog/mappedfile"
)

// The pre-allocation service (RocketMQ's AllocateMappedFileService): one goroutine makes the next segment and the one after it
// ahead of need, and warms them if that is wished. The writer never waits for it: what is not there it makes by itself. So a
// file that can't be had must be known before an entry is proposed, and Prepared and Preparing tell.

// unlockAfter is how long a segment stays locked in memory after the writer has left it, as in RocketMQ.
const unlockAfter = 6 * time.Second

// prepareLoop makes files and reserves blocks ahead of the writer, so that Append finds them. Close
// joins it.
func (l *Log) prepareLoop() {
	const pause = time.Second // after an error; the writer tries by itself meanwhile
	var last string           // error told
	var unlock <-chan time.Time
	if l.cfg.Warm {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		unlock = tick.C
	}
	for {
		select {
		case <-l.stop:
			return
		case <-unlock:
			l.log.UnlockBehind(unlockAfter)
			continue
		case <-l.wake:
		}
		l.preparing.Store(max(1, int64(time.Since(l.began))))
		err := errors.Join(l.log.Prepare(), l.journal.Prepare())
		l.preparing.Store(0)
		if l.cfg.Prepared != nil {
			l.cfg.Prepared(err)
		}
		if err == nil {
			last = ""
			if l.cfg.Warm {
				l.warm()
			}
			continue
		}
		if errors.Is(err, mappedfile.ErrPoisoned) || errors.Is(err, mappedfile.ErrClosed) {
			return // the writer and the flusher report it
		}
		if text := err.Error(); text != last {
			l.logger.Warn("could not make the next segment ahead, trying on", "error", err)
			last = text
		}
		select {
		case <-l.stop:
			return
		case <-time.After(pause):
		}
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Preparing is how long the attempt to make segments ahead that is under way has lasted, 0 when none is.
func (l *Log) Preparing() time.Duration {
	since := l.preparing.Load()
	if since == 0 {
		return 0
	}
	return max(0, time.Since(l.began)-time.Duration(since))
}

// warm brings the segments that were made ahead into memory and locks them there. It is for speed only: what fails is told once.
func (l *Log) warm() {
	told := time.Now()
	err := l.log.Warm(func(file string, done, total int64) bool {
		if now := time.Now(); now.Sub(told) >= 2*time.Second {
			told = now
			l.logger.Info("warming the next segment", "file", file, "bytes", done, "of", total)
		}
		select {
		case <-l.stop:
			return false
		default:
			return true
		}
	})
	if err != nil && !l.warmTold {
		l.warmTold = true
		l.logger.Warn("segments are not warmed or not locked into memory (warmMapedFileEnable)", "error", err)
	}
}
