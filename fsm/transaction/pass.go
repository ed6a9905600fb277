package transaction

import (
	"context"
	"errors"
	"strconv"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
)

var halfTopic = []byte(metadata.HalfTopic)

// pass looks once at every open half message that is there when it begins.
func (s *Service) pass(ctx context.Context) error {
	p := &pass{Service: s, begin: s.cfg.Now()}
	s.forgetEnded()
	end := s.cfg.Store.ReadableOffset(metadata.HalfTopic, 0)
	var res store.GetResult
	defer res.Release()
	defer func() { s.noteUnreadable(p.unreadable) }()
	for next := s.cfg.Tables.NextOpenHalf(0); next < end && ctx.Err() == nil; next = s.cfg.Tables.NextOpenHalf(next) {
		s.cfg.Store.Get(&store.GetRequest{Topic: halfTopic, Offset: next, MaxMsgs: batchMessages, MaxBytes: batchBytes}, &res)
		switch res.Status {
		case store.Found:
		case store.OffsetTooSmall, store.MessageWasRemoving:
			s.logger.Warn("half messages are no longer in the log", "from", next, "to", res.NextBeginOffset)
			if err := p.count(ctx, command.TransactionCheck{LostBelow: res.NextBeginOffset}); err != nil {
				return err
			}
			next = res.NextBeginOffset
			continue
		default:
			if s.cfg.Store.Replacing() {
				return errors.New("transaction: half messages cannot be read, the log is being replaced")
			}
			// Damaged here, and being repaired (the store says where): it has its turn later, and holds nobody up. Or the store closes.
			p.unreadable++
			next++
			continue
		}
		next = res.NextBeginOffset
		if err := p.batch(ctx, res.Buffers); err != nil {
			return err
		}
	}
	return nil
}

// noteUnreadable tells when half messages begin and cease to be unreadable on this node.
func (s *Service) noteUnreadable(n int) {
	switch was := s.unreadable.Swap(int64(n)); {
	case n > 0 && was == 0:
		s.logger.Error("half messages are damaged on this node, their producers are asked when they are repaired; others are not held up", "half-messages", n)
	case n == 0 && was > 0:
		s.logger.Info("all half messages can be read again")
	}
}

// pass is one pass on its way.
type pass struct {
	*Service
	begin      time.Time
	unreadable int
}

// batch looks at the half messages of a few buffers.
func (p *pass) batch(ctx context.Context, buffers [][]byte) error {
	var checked []int64
	for _, b := range buffers {
		for len(b) > 0 {
			v := record.View(b)
			v = v[:v.Size():v.Size()]
			b = b[len(v):]
			asked, err := p.consider(ctx, v)
			if err != nil {
				return err
			}
			if asked {
				checked = append(checked, v.QueueOffset())
			}
		}
	}
	if len(checked) == 0 {
		return nil
	}
	if err := p.count(ctx, command.TransactionCheck{Checked: checked}); err != nil {
		return err
	}
	select {
	case <-time.After(pace):
	case <-ctx.Done():
	}
	return nil
}

// consider asks about one half message, gives it up, or lets it be.
func (p *pass) consider(ctx context.Context, v record.View) (asked bool, err error) {
	half := v.QueueOffset()
	age := p.age(v)
	if p.cfg.Tables.HalfEnded(half) || age < p.immunity(v) {
		return false, nil
	}
	times := p.cfg.Tables.HalfChecks(half)
	if age >= p.cfg.MaxAge {
		return false, p.giveUp(ctx, v, times)
	}
	if !p.due(half) {
		return false, nil
	}
	if times >= p.cfg.MaxCheck {
		return false, p.giveUp(ctx, v, times)
	}
	if !p.cfg.Checker.CheckTransaction(v, times+1) {
		p.unasked.Add(1)
		return false, nil
	}
	p.checks.Add(1)
	p.noteAsked(half)
	return true, nil
}

// age of a half message when the pass began.
func (p *pass) age(v record.View) time.Duration {
	age := p.begin.Sub(time.UnixMilli(v.StoreTimestamp()))
	if age < -clockTolerance {
		return max(p.cfg.Timeout, p.immunity(v))
	}
	return age
}

// immunity is the age before which a half message is let be.
func (p *pass) immunity(v record.View) time.Duration {
	if text, ok := record.Property(v.Properties(), record.PropertyCheckImmunity); ok {
		if seconds, err := strconv.ParseInt(string(text), 10, 32); err == nil && seconds >= 0 {
			return time.Duration(seconds) * time.Second
		}
	}
	return p.cfg.Timeout
}

// count makes checks part of the tables.
func (p *pass) count(ctx context.Context, c command.TransactionCheck) error {
	encoded, err := command.AppendJSON(nil, command.KindTransactionCheck, c)
	if err != nil {
		return err
	}
	return p.propose(ctx, &proposal{encode: func(dst []byte, _ int64) []byte { return append(dst, encoded...) }})
}

// giveUp moves a half message to TRANS_CHECK_MAX_TIME_TOPIC, whose first use creates it.
func (p *pass) giveUp(ctx context.Context, v record.View, times int) error {
	var m record.Message
	if _, err := record.Decode(v, &m); err != nil {
		p.logger.Error("half message is damaged on this node", "queue-offset", v.QueueOffset(), "phy-offset", v.PhyOffset(), "error", err)
		return nil // another leader has it whole
	}
	if _, ok := p.cfg.Tables.Topic(metadata.CheckMaxTopic); !ok {
		if err := p.createTopic(ctx); err != nil {
			return err
		}
	}
	m.Topic, m.QueueID = []byte(metadata.CheckMaxTopic), 0
	if props := withCheckTimes(m.Properties, times); len(props) <= record.MaxPropertiesLen {
		m.Properties = props
	}
	end := command.TransactionEnd{Outcome: command.GivenUp, Half: v.QueueOffset(), Count: 1, Records: record.Append(nil, &m)}
	err := p.propose(ctx, &proposal{encode: func(dst []byte, storeMillis int64) []byte {
		record.PatchStoreTimestamps(end.Records, storeMillis)
		return command.AppendTransactionEnd(dst, &end)
	}})
	switch {
	case errors.Is(err, metadata.ErrTransactionEnded):
		return nil
	case err != nil:
		return err
	}
	p.givenUp.Add(1)
	p.logger.Warn("half message is given up", "queue-offset", v.QueueOffset(), "phy-offset", v.PhyOffset(), "checks", times)
	return nil
}

func withCheckTimes(props []byte, times int) []byte {
	out := record.AppendPropertiesWithout(nil, props, record.PropertyCheckTimes)
	return record.AppendProperty(out, record.PropertyCheckTimes, strconv.Itoa(times))
}

func (p *pass) createTopic(ctx context.Context) error {
	put := command.TopicPut{OnlyIfAbsent: true, Millis: p.cfg.Now().UnixMilli(), Topic: command.TopicConfig{TopicName: metadata.CheckMaxTopic,
		ReadQueueNums: 1, WriteQueueNums: 1, Perm: metadata.PermRead | metadata.PermWrite, TopicFilterType: "SINGLE_TAG"}}
	encoded, err := command.AppendJSON(nil, command.KindTopicPut, put)
	if err != nil {
		return err
	}
	return p.propose(ctx, &proposal{encode: func(dst []byte, _ int64) []byte { return append(dst, encoded...) }})
}

// propose waits until the command is applied, refused or lost, or ctx is done.
func (p *pass) propose(ctx context.Context, pr *proposal) error {
	pr.done = make(chan error, 1)
	if err := p.cfg.Propose(pr); err != nil {
		return err
	}
	select {
	case err := <-pr.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// proposal is a command on its way.
type proposal struct {
	encode func(dst []byte, storeMillis int64) []byte
	done   chan error
}

// AppendCommand implements raftnode.Proposal.
func (p *proposal) AppendCommand(dst []byte, storeMillis int64) []byte {
	return p.encode(dst, storeMillis)
}

// Done implements raftnode.Proposal.
func (p *proposal) Done(entryResult any, i int, err error) {
	_, err = command.ResultOf(entryResult, i, err)
	p.done <- err
}
