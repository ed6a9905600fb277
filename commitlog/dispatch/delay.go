package dispatch

import (
	"strconv"
	"time"

	"raftmq/commitlog/record"
)

// Levels are the delays of levels 1, 2, … (RocketMQ's messageDelayLevel). The table decides
// bytes of the schedule topic's queues, so all nodes of a cluster should have the same.
type Levels []time.Duration

// DefaultLevels is RocketMQ's table,
// "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".
func DefaultLevels() Levels {
	const s, m, h = time.Second, time.Minute, time.Hour
	return Levels{1 * s, 5 * s, 10 * s, 30 * s, 1 * m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m,
		7 * m, 8 * m, 9 * m, 10 * m, 20 * m, 30 * m, 1 * h, 2 * h}
}

// TagsCode is what a record's consume queue unit carries: the Java hash of TAGS, but for a
// delayed message in the schedule topic the time it is due, ms (RocketMQ's CommitLog,
// checkMessageAndReturnSize). A level above the table counts as its last one; a DELAY that is
// no positive number is none.
func (l Levels) TagsCode(v record.View) int64 {
	props := v.Properties()
	if string(v.Topic()) == record.ScheduleTopic && len(l) > 0 {
		if text, ok := record.Property(props, record.PropertyDelay); ok {
			level, err := strconv.ParseInt(string(text), 10, 32)
			if err == nil && level > 0 {
				return v.StoreTimestamp() + l[min(int(level), len(l))-1].Milliseconds()
			}
		}
	}
	return record.TagsCode(props)
}
