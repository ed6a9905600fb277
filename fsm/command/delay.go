package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DefaultDelayLevels is RocketMQ's messageDelayLevel.
const DefaultDelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

// MaxDelayLevels bounds the number of levels: each is a queue of the schedule topic.
const MaxDelayLevels = 64

const maxDelay = 10 * 365 * 24 * time.Hour

// ErrDelayLevels: a text that is no messageDelayLevel.
var ErrDelayLevels = errors.New("command: illegal delay levels")

// ParseDelayLevels reads RocketMQ's messageDelayLevel: whole numbers with a unit (s, m, h, d), separated by
// spaces; the first is level 1.
func ParseDelayLevels(text string) ([]time.Duration, error) {
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields) > MaxDelayLevels {
		return nil, fmt.Errorf("%w: %d levels, must be 1 to %d", ErrDelayLevels, len(fields), MaxDelayLevels)
	}
	levels := make([]time.Duration, len(fields))
	for i, f := range fields {
		unit, ok := delayUnits[f[len(f)-1]]
		n, err := strconv.ParseInt(f[:len(f)-1], 10, 32)
		if !ok || err != nil || n < 1 || time.Duration(n) > maxDelay/unit {
			return nil, fmt.Errorf("%w: level %d is %q; wanted is a number and s, m, h or d, such as 30s, at most ten years", ErrDelayLevels, i+1, f)
		}
		levels[i] = time.Duration(n) * unit
	}
	return levels, nil
}

var delayUnits = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
