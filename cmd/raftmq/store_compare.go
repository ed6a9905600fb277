package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"raftmq/commitlog/inspect"
	"raftmq/commitlog/record"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// compareOptions are compare's flags.
type compareOptions struct {
	storeFlags
	broker  string
	every   int64
	noKeys  bool
	timeout time.Duration
}

func newStoreCompareCommand() *cobra.Command {
	var o compareOptions
	cmd := &cobra.Command{
		Use:   "compare DIR",
		Short: "Check that a broker serves what a store folder holds",
		Long: `Asks a broker for every record of a store folder, by its message id, by its keys and by its place in its queue, and compares
the bytes; and for the range of each queue. The broker may be RocketMQ or RaftMQ, running on a copy of the folder or
on one that the messages were brought to. What the broker has beyond the folder is no difference.

Exit status: 0 it serves all of it, 1 something differs, 2 folder or broker can't be read.`,
		Example: "  raftmq store compare /var/lib/raftmq --broker 127.0.0.1:10911",
		Args:    oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.broker == "" {
				return unreadable(flagError{"broker", o.broker, "is required"})
			}
			if o.every < 1 {
				return unreadable(flagError{"every", o.every, "allowed are 1 and more"})
			}
			s, err := o.open(cmd, args[0], "compare")
			if err != nil {
				return unreadable(err)
			}
			ctx, cancel := untilSignal(cmd)
			defer cancel()
			dialling, stop := context.WithTimeout(ctx, o.timeout)
			c, err := client.Dial(dialling, o.broker)
			stop()
			if err != nil {
				return unreadable(err)
			}
			p := &comparison{o: &o, s: s, broker: c, out: cmd.OutOrStdout()}
			err = p.run(ctx)
			_ = c.Close()
			return unreadable(err)
		},
	}
	o.register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&o.broker, "broker", "", "the broker's `address` for clients (required)")
	fs.Int64Var(&o.every, "every", 1, "ask for every `n`-th record only by id and key; queues are always read whole")
	fs.BoolVar(&o.noKeys, "no-keys", false, "don't ask by key: the broker keeps no index")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long an answer may take")
	return cmd
}

// comparison asks one broker.
type comparison struct {
	o      *compareOptions
	s      *inspect.Store
	broker *client.Client
	out    io.Writer

	records, byID, byKey, byOffset, queues int64
	differences                            int64
}

// maxDifferences ends the comparison: more tell nothing new.
const maxDifferences = 100

var errDiffers = errors.New("the broker serves something else")

func (p *comparison) run(ctx context.Context) error {
	err := p.s.Records(inspect.RecordFilter{}, func(r *inspect.Record) error {
		p.records++
		if r.Damage != "" || (p.records-1)%p.o.every != 0 {
			return ctx.Err()
		}
		return p.record(ctx, r)
	}, nil)
	if err == nil {
		err = p.eachQueue(ctx)
	}
	if err != nil && !errors.Is(err, errDiffers) {
		return err
	}
	verdict := "serves all of it"
	if p.differences > 0 {
		verdict = fmt.Sprintf("%d differences", p.differences)
	}
	if _, err := fmt.Fprintf(p.out, "%s: %s; %d records: %d by id, %d by key, %d by offset in %d queues\n", p.o.broker, verdict, p.records, p.byID, p.byKey,
		p.byOffset, p.queues); err != nil {
		return err
	}
	if p.differences > 0 {
		return &statusError{statusDamaged, errors.Join(errReported, errDiffers)}
	}
	return nil
}

// differs tells of a difference; an error when there are enough.
func (p *comparison) differs(format string, args ...any) error {
	p.differences++
	fmt.Fprintf(p.out, format+"\n", args...)
	if p.differences >= maxDifferences {
		return errDiffers
	}
	return nil
}

// invoke asks and returns the answer whatever its code.
func (p *comparison) invoke(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.timeout)
	defer cancel()
	resp, err := p.broker.Invoke(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", remoting.RequestCodeName(cmd.Code), err)
	}
	return resp, nil
}

// record asks for one record by id and by its keys.
func (p *comparison) record(ctx context.Context, r *inspect.Record) error {
	cmd := &remoting.Command{Code: remoting.RequestViewMessageByID}
	(&remoting.ViewMessageHeader{Offset: r.PhyOffset, Topic: string(r.Topic)}).Encode(cmd)
	resp, err := p.invoke(ctx, cmd)
	if err != nil {
		return err
	}
	p.byID++
	if resp.Code != remoting.ResponseSuccess || !sameRecord(resp.Body, r) {
		if err := p.differs("by id %s: %s", record.AppendMessageID(nil, r.StoreHost, r.PhyOffset), answerText(resp)); err != nil {
			return err
		}
	}
	if p.o.noKeys || record.TransactionType(r.SysFlag) == record.SysFlagRollback {
		return nil
	}
	if key, ok := record.Property(r.Properties, record.PropertyUniqKey); ok {
		if err := p.key(ctx, r, string(key), true); err != nil {
			return err
		}
	}
	keys, _ := record.Property(r.Properties, record.PropertyKeys)
	for key := range bytes.SplitSeq(keys, []byte(" ")) {
		if len(key) == 0 {
			continue
		}
		if err := p.key(ctx, r, string(key), false); err != nil {
			return err
		}
	}
	return nil
}

// key looks for the record among those that the broker finds by a key. It looks in a short time around
// the record's, since a broker answers with a bounded number.
func (p *comparison) key(ctx context.Context, r *inspect.Record, key string, unique bool) error {
	cmd := &remoting.Command{Code: remoting.RequestQueryMessage}
	(&remoting.QueryMessageHeader{Topic: string(r.Topic), Key: key, MaxNum: 64, UniqueKey: unique,
		// Index entries have whole seconds, rounded down.
		BeginTimestamp: r.StoreTimestamp - 1000, EndTimestamp: r.StoreTimestamp + 1000}).Encode(cmd)
	resp, err := p.invoke(ctx, cmd)
	if err != nil {
		return err
	}
	p.byKey++
	found, others := false, 0
	for b := resp.Body; len(b) > 0; {
		n, err := record.Check(b, true)
		if err != nil {
			return p.differs("by key %s of %s: %v", key, r.Topic, err)
		}
		found = found || sameRecord(b[:n], r)
		b = b[n:]
		others++
	}
	if resp.Code == remoting.ResponseSuccess && (found || others >= 32) {
		return nil // with as many others it need not be among them
	}
	return p.differs("by key %s of %s at %d: %s, %d others", key, r.Topic, r.PhyOffset, answerText(resp), others)
}

func answerText(resp *remoting.Command) string {
	if resp.Code == remoting.ResponseSuccess {
		return "another record"
	}
	return remoting.ResponseCodeName(resp.Code) + " " + resp.Remark
}

// sameRecord compares a record's fields with encoded ones.
func sameRecord(b []byte, r *inspect.Record) bool {
	var m record.Message
	if n, err := record.Decode(b, &m); err != nil || n != r.Size {
		return false
	}
	w := &r.Message
	return bytes.Equal(m.Topic, w.Topic) && bytes.Equal(m.Body, w.Body) && bytes.Equal(m.Properties, w.Properties) &&
		m.QueueID == w.QueueID && m.QueueOffset == w.QueueOffset && m.PhyOffset == w.PhyOffset && m.Flag == w.Flag && m.SysFlag == w.SysFlag &&
		m.BornTimestamp == w.BornTimestamp && m.BornHost == w.BornHost && m.StoreTimestamp == w.StoreTimestamp && m.StoreHost == w.StoreHost &&
		m.ReconsumeTimes == w.ReconsumeTimes && m.PreparedTransactionOffset == w.PreparedTransactionOffset && m.Magic == w.Magic
}

// eachQueue reads every queue from end to end.
func (p *comparison) eachQueue(ctx context.Context) error {
	for i := range p.s.Queues {
		q := &p.s.Queues[i]
		low, end := int64(-1), int64(0)
		err := p.s.Units(inspect.QueueFilter{Topic: q.Topic, QueueID: &q.ID}, func(_ *inspect.Queue, u inspect.Unit) error {
			if u.IsFiller() {
				return nil
			}
			if low < 0 {
				low = u.Index
			}
			end = u.Index + 1
			return nil
		})
		if err != nil {
			return err
		}
		if low < 0 {
			continue
		}
		p.queues++
		if err := p.queue(ctx, q, low, end); err != nil {
			return err
		}
	}
	return nil
}

// queue compares a queue's range, and what a consumer gets, with its units [low, end).
func (p *comparison) queue(ctx context.Context, q *inspect.Queue, low, end int64) error {
	gotLow, err := p.bound(ctx, remoting.RequestGetMinOffset, q)
	if err != nil {
		return err
	}
	gotEnd, err := p.bound(ctx, remoting.RequestGetMaxOffset, q)
	if err != nil {
		return err
	}
	if gotLow > low || gotEnd < end {
		if err := p.differs("%s/%d: the broker has offsets [%d, %d), the folder [%d, %d)", q.Topic, q.ID, gotLow, gotEnd, low, end); err != nil {
			return err
		}
	}
	pulled := pullCursor{p: p, q: q, next: low}
	return p.s.Units(inspect.QueueFilter{Topic: q.Topic, QueueID: &q.ID}, func(_ *inspect.Queue, u inspect.Unit) error {
		if u.IsFiller() {
			return nil
		}
		v, why, err := pulled.at(ctx, u.Index)
		if err != nil {
			return err
		}
		p.byOffset++
		switch {
		case v == nil:
			return p.differs("%s/%d offset %d: %s", q.Topic, q.ID, u.Index, why)
		case v.PhyOffset() != u.PhyOffset || int64(v.Size()) != int64(u.Size) || v.QueueOffset() != u.Index || string(v.Topic()) != q.Topic:
			return p.differs("%s/%d offset %d: the broker has the record at %d of %d bytes with offset %d, the folder that at %d of %d", q.Topic, q.ID, u.Index,
				v.PhyOffset(), v.Size(), v.QueueOffset(), u.PhyOffset, u.Size)
		}
		return nil
	})
}

func (p *comparison) bound(ctx context.Context, code int32, q *inspect.Queue) (int64, error) {
	cmd := &remoting.Command{Code: code}
	cmd.Set("topic", q.Topic)
	cmd.Set("queueId", strconv.Itoa(int(q.ID)))
	resp, err := p.invoke(ctx, cmd)
	what := fmt.Sprintf("%s of %s/%d", remoting.RequestCodeName(code), q.Topic, q.ID)
	if resp, err = invoked(what, resp, err); err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(resp.GetString("offset"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: answer without an offset: %w", what, err)
	}
	return n, nil
}

// pullCursor pulls a queue's records one after the other, some at once.
type pullCursor struct {
	p    *comparison
	q    *inspect.Queue
	next int64 // queue offset of the first record in rest
	rest []byte
}

// compareGroup pulls without leaving a trace: a system group, whose offsets are not committed.
const compareGroup = "TOOLS_CONSUMER"

// at returns the record of queue offset n, nil and why there is none. Offsets ascend from call to call.
func (c *pullCursor) at(ctx context.Context, n int64) (record.View, string, error) {
	if n != c.next || len(c.rest) == 0 {
		why, err := c.pull(ctx, n)
		if err != nil || why != "" {
			return nil, why, err
		}
	}
	size, err := record.Check(c.rest, true)
	if err != nil {
		c.rest = nil
		return nil, err.Error(), nil
	}
	v := record.View(c.rest[:size])
	c.rest = c.rest[size:]
	c.next = n + 1
	return v, "", nil
}

func (c *pullCursor) pull(ctx context.Context, n int64) (why string, err error) {
	cmd := &remoting.Command{Code: remoting.RequestPullMessage}
	cmd.Set("consumerGroup", compareGroup)
	cmd.Set("topic", c.q.Topic)
	cmd.Set("queueId", strconv.Itoa(int(c.q.ID)))
	cmd.Set("queueOffset", strconv.FormatInt(n, 10))
	cmd.Set("maxMsgNums", strconv.Itoa(pullMax))
	cmd.Set("sysFlag", strconv.Itoa(pullSubscription))
	cmd.Set("commitOffset", "0")
	cmd.Set("suspendTimeoutMillis", "0")
	cmd.Set("subscription", "*")
	cmd.Set("subVersion", "0")
	cmd.Set("expressionType", "TAG")
	resp, err := c.p.invoke(ctx, cmd)
	if err != nil {
		return "", err
	}
	c.rest, c.next = nil, n
	if resp.Code != remoting.ResponseSuccess || len(resp.Body) == 0 {
		return answerText(resp), nil
	}
	c.rest = resp.Body
	return "", nil
}
