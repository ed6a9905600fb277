package fsm

import (
	"fmt"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
)

// relocate applies a command that stores records and changes a table: all of it, or, when the table refuses,
// nothing (F15, F17). begin is called before the first record, if there is one.
func (f *FSM) relocate(c command.Command, begin func() error) (result command.Result, err error) {
	switch c.Kind {
	case command.KindDelayDeliver:
		d, err := c.DelayDeliver()
		if err != nil {
			return result, err
		}
		if result.Err = f.cfg.Tables.CheckDelay(d.Level, d.Expected); result.Err != nil {
			return result, nil
		}
		if result, err = f.appendEach(d.Records, d.Count, begin); err != nil {
			return result, err
		}
		f.cfg.Tables.AdvanceDelay(d.Level, d.Next)
		return result, nil
	case command.KindTransactionEnd:
		e, err := c.TransactionEnd()
		if err != nil {
			return result, err
		}
		if result.Err = f.cfg.Tables.CheckHalf(e.Half); result.Err != nil {
			return result, nil
		}
		if result, err = f.appendEach(e.Records, e.Count, begin); err != nil {
			return result, err
		}
		f.cfg.Tables.EndHalf(e.Half)
		return result, nil
	}
	return result, fmt.Errorf("%w: kind %d", command.ErrUnknown, c.Kind)
}

// appendEach appends n records of any queues, in order, and returns the first one's offsets.
func (f *FSM) appendEach(records []byte, n int, begin func() error) (first command.Result, err error) {
	if n == 0 {
		return first, nil
	}
	if err := begin(); err != nil {
		return first, err
	}
	for i := range n {
		size, err := record.Check(records, false)
		if err != nil {
			return first, fmt.Errorf("%w: record %d of %d: %w", command.ErrMalformed, i+1, n, err)
		}
		v := record.View(records[:size])
		at, err := f.cfg.Store.Append(v.Topic(), v.QueueID(), v, 1)
		if err != nil {
			return first, err
		}
		if i == 0 {
			first = command.Result{QueueOffset: at.QueueOffset, PhyOffset: at.PhyOffset}
		}
		records = records[size:]
	}
	if len(records) > 0 {
		return first, fmt.Errorf("%w: %d bytes behind %d records", command.ErrMalformed, len(records), n)
	}
	return first, nil
}
