// Package consumequeue keeps the queues of a store: for each topic and queue id a file
// sequence of 20-byte units, one a message, that say where the n-th message of the queue is
// in the commit log (RocketMQ's ConsumeQueue, same folders, same bytes):
//
//	<dir>/<topic>/<queue id>/<20 digits>   unit n at byte 20·n of the queue's address space
//
// A Queue is one of them, a Set all of them. Units come only from Batch, which the dispatch
// goroutine owns; any number of goroutines read. The package knows units and places, not
// records: it does not read the commit log, and it keeps no consumer's progress.
//
// Invariants:
//
//   - The log is the truth. A queue holds nothing that cannot be built again from the log: when Open
//     answers ErrDamaged the owner clears the set and dispatches from the log's start, and a unit that
//     contradicts its record is written again (Rewrite) by who reads the log.
//   - A unit is written by position, so building it twice changes nothing.
//   - Units without holes: the units from Min to Max are those of consecutive queue offsets
//     and their physical offsets increase.
//   - Point: all units of records that begin below Point.PhyOffset are durable. Only these
//     are believed by Open; what is behind them is cut off and zeroed.
//   - Views-Are-Counted: units are read through counted views only.
//   - No file outside the folder: topics are checked by ValidTopic before they name one.
package consumequeue

import "errors"

// Errors; they come wrapped with the facts.
var (
	// ErrDamaged: files are missing, odd or contradict the recovery point. Clear and rebuild.
	ErrDamaged = errors.New("consumequeue: damaged")
	// ErrTopic: the name can't be a topic, and so no folder.
	ErrTopic = errors.New("consumequeue: illegal topic name")
	// ErrQueueID: a negative queue id.
	ErrQueueID = errors.New("consumequeue: illegal queue id")
	// ErrOrder: a queue offset that would leave a hole.
	ErrOrder = errors.New("consumequeue: queue offset out of order")
	// ErrRange: a unit outside of [Min, Max).
	ErrRange = errors.New("consumequeue: no such unit")
	// ErrClosed: the set or the queue was closed or cleared.
	ErrClosed = errors.New("consumequeue: closed")
)

// MaxTopicLen is the longest topic, in bytes: what fits a file name. The broker's own limits
// (127, and 255 for retry topics) are not above it.
const MaxTopicLen = 255

// ValidTopic tells whether a name consists of RocketMQ's topic characters, [%|a-zA-Z0-9_-],
// and can be a folder: such a name is never empty, `.`, `..` or a path.
func ValidTopic[T string | []byte](topic T) bool {
	if len(topic) == 0 || len(topic) > MaxTopicLen {
		return false
	}
	for i := 0; i < len(topic); i++ {
		switch c := topic[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			c == '_', c == '-', c == '%', c == '|':
		default:
			return false
		}
	}
	return true
}
