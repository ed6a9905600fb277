package inspect

import (
	"strconv"
	"time"

	"raftmq/commitlog/record"
)

// delayLevels is RocketMQ's default messageDelayLevel.
func delayLevels() []time.Duration {
	const s, m, h = time.Second, time.Minute, time.Hour
	return []time.Duration{1 * s, 5 * s, 10 * s, 30 * s, 1 * m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m, 7 * m, 8 * m, 9 * m, 10 * m, 20 * m, 30 * m, 1 * h, 2 * h}
}

// tagsCode is what a record's unit must have (RocketMQ's CommitLog.checkMessageAndReturnSize): the hash of TAGS, or
// in the schedule topic the time it is due.
func (s *Store) tagsCode(v record.View) int64 {
	props := v.Properties()
	if levels := s.opts.DelayLevels; string(v.Topic()) == record.ScheduleTopic && len(levels) > 0 {
		if text, ok := record.Property(props, record.PropertyDelay); ok {
			if level, err := strconv.ParseInt(string(text), 10, 32); err == nil && level > 0 {
				return v.StoreTimestamp() + levels[min(int(level), len(levels))-1].Milliseconds()
			}
		}
	}
	return record.TagsCode(props)
}
