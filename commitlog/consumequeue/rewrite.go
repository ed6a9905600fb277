package consumequeue

import (
	"errors"
	"fmt"

	"raftmq/commitlog/mappedfile"
)

// Rewrite puts u in the place of unit n, which exists and is damaged, beside readers and Batch. u is the unit that Batch wrote there once:
// it follows from the log. It is durable with the next Flush. ErrRange when there is no such unit.
func (s *Set) Rewrite(q *Queue, n int64, u Unit) error {
	q.rw.RLock()
	defer q.rw.RUnlock()
	if lo, hi := q.min.Load(), q.max.Load(); n < lo || n >= hi {
		return fmt.Errorf("%w: %s/%d offset %d, has [%d, %d)", ErrRange, q.topic, q.id, n, lo, hi)
	}
	s.touch(q)
	defer s.touch(q) // a flush that ran meanwhile has taken the mark off
	for {
		files, err := q.pool.get(q)
		if err != nil {
			return err
		}
		err = files.Overwrite(AppendUnit(nil, u), n*UnitSize)
		if errors.Is(err, mappedfile.ErrClosed) {
			continue // by the pool, just now; or for good, which get will say
		}
		if err != nil {
			return fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
		}
		return nil
	}
}
