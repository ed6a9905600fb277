package broker

import (
	"strconv"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/metadata"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// maxPullMessages bounds one answer, whatever the client asks for.
const maxPullMessages = 1024

// pull is one PULL_MESSAGE on its way. It is pooled; its header is a view of the request until
// it is parked, then of own.
type pull struct {
	b *Broker
	r transport.Responder
	h remoting.PullHeader
	// java: a client that says in a pull what kind of filter it has, and checks tags itself.
	java bool

	match func(tagsCode int64) bool
	wants func(properties []byte) bool // of an SQL92 expression
	// home and slow are the group's brokerId and whichBrokerWhenConsumeSlowly.
	home, slow int64

	req  store.GetRequest
	res  store.GetResult
	read time.Time     // when
	took time.Duration // and how long it took

	resp    remoting.Command
	ext     [4]remoting.Field
	numbers [4 * 20]byte
	release func() // method value, made once

	// While parked; guarded by pollList.mu.
	own        []byte // what h points to
	deadline   time.Time
	queue      *pollQueue
	heapIndex  int
	prev, next *pull // in queue
	connPrev   *pull // of the same connection
	connNext   *pull
}

func newPull(b *Broker) *pull {
	p := &pull{b: b}
	p.release = p.onReleased
	return p
}

// free gives p back; nobody may hold it any more.
func (p *pull) free() {
	p.r, p.h, p.match, p.wants = transport.Responder{}, remoting.PullHeader{}, nil, nil
	p.req = store.GetRequest{}
	p.resp = remoting.Command{}
	p.queue = nil
	if cap(p.own) > keptScratch {
		p.own = nil
	}
	p.b.pulls.Put(p)
}

// onReleased is called when the records are with the kernel.
func (p *pull) onReleased() {
	p.res.Release()
	p.free()
}

// handlePull serves PULL_MESSAGE and LITE_PULL_MESSAGE (RocketMQ PullMessageProcessor) on the
// connection's reader. Followers serve it too: they show what they have applied.
func (b *Broker) handlePull(r transport.Responder, cmd *remoting.Command) {
	p := b.pulls.Get().(*pull)
	p.r, p.java = r, cmd.Language == remoting.LanguageJava
	if err := p.h.Decode(cmd); err != nil {
		p.refuse(refuse(remoting.ResponseSystemError, "%v", err))
		return
	}
	if f := p.check(); f != nil {
		p.refuse(f)
		return
	}
	if p.h.SysFlag&remoting.PullFlagCommitOffset != 0 && p.h.CommitOffset >= 0 && b.leads() {
		b.gather.add(p.h.ConsumerGroup, p.h.Topic, p.h.QueueID, p.h.CommitOffset, nil)
	}
	if p.h.SysFlag&remoting.PullFlagSuspend != 0 && p.h.SuspendTimeoutMillis > 0 {
		p.deadline = time.Now().Add(min(time.Duration(p.h.SuspendTimeoutMillis)*time.Millisecond, maxSuspend))
	} else {
		p.deadline = time.Time{}
	}
	p.run(!p.deadline.IsZero())
}

// check is the order of checks of PullMessageProcessor.processRequest (wire notes §7.2). It fills p.match in.
func (p *pull) check() *refusal {
	b, h := p.b, &p.h
	if b.recovering() {
		return refuse(remoting.ResponseServiceNotAvailable, "service not available now. This node has not heard of a leader since it started.")
	}
	group, ok := b.groupConfig(h.ConsumerGroup)
	if !ok {
		return p.unknown(remoting.ResponseSubscriptionGroupNotExist, "subscription group [%s] does not exist, %s", h.ConsumerGroup, faqHint)
	}
	if !group.ConsumeEnable {
		return refuse(remoting.ResponseNoPermission, "subscription group no permission, %s", h.ConsumerGroup)
	}
	p.home, p.slow = group.BrokerID, group.WhichBrokerWhenConsumeSlowly
	topic, ok := b.cfg.Tables.TopicBytes(h.Topic)
	if !ok {
		return p.unknown(remoting.ResponseTopicNotExist, "topic[%s] not exist, apply first please! %s", h.Topic, faqHint)
	}
	if topic.Perm&metadata.PermRead == 0 {
		return refuse(remoting.ResponseNoPermission, "the topic[%s] pulling message is forbidden", h.Topic)
	}
	if h.QueueID < 0 || int(h.QueueID) >= topic.ReadQueueNums {
		return p.unknown(remoting.ResponseSystemError, "queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d] consumer:[/%s]",
			h.QueueID, h.Topic, topic.ReadQueueNums, p.r.Conn.RemoteAddr())
	}
	if h.SysFlag&remoting.PullFlagSubscription != 0 {
		return p.checkCarried()
	}
	return p.checkHeartbeat(group.ConsumeBroadcastEnable)
}

// checkCarried takes the expression that the request carries.
func (p *pull) checkCarried() *refusal {
	var err error
	p.match, p.wants = nil, nil
	switch {
	case isSQL(p.h.ExpressionType):
		p.wants, err = p.b.filters.sql(p.h.Subscription)
	case isTag(p.h.ExpressionType):
		p.match, err = p.b.filters.tag(p.h.Subscription)
	default:
		return noFilter(p.h.ExpressionType)
	}
	if err != nil {
		return refuse(remoting.ResponseSubscriptionParseFailed, "parse the consumer's subscription failed")
	}
	return nil
}

// checkHeartbeat takes the subscription that the group's heartbeats told.
func (p *pull) checkHeartbeat(broadcastEnabled bool) *refusal {
	sub, online, broadcasting := p.b.cfg.Groups.Lookup(p.h.ConsumerGroup, p.h.Topic)
	switch {
	case !online:
		return refuse(remoting.ResponseSubscriptionNotExist, "the consumer's group info not exist%s", faqHint)
	case broadcasting && !broadcastEnabled:
		return refuse(remoting.ResponseNoPermission, "the consumer group[%s] can not consume by broadcast way", p.h.ConsumerGroup)
	case sub == nil:
		return refuse(remoting.ResponseSubscriptionNotExist, "the consumer's subscription not exist%s", faqHint)
	case sub.Version < p.h.SubVersion && p.java && isTag(sub.ExpressionType) && len(p.h.ExpressionType) > 0 && isTag(p.h.ExpressionType):
		// The client has another subscription than it told, or, which is usual, one that is equal and has a new version:
		// every rebalance gives it one, and a Java 5.x client whose heartbeat is under way just then tells it 30 s later
		// only. Refusing with 25, as RocketMQ does, stops it for so long. Tags are checked by clients too, so
		// unfiltered is always right. (Go clients say TAG in pulls whatever they subscribed to.)
		p.match, p.wants = nil, nil
		return nil
	case sub.Version < p.h.SubVersion:
		return refuse(remoting.ResponseSubscriptionNotLatest, "the consumer's subscription not latest")
	case sub.Unreadable:
		return refuse(remoting.ResponseFilterDataNotExist, "The broker's consumer filter data is not exist!Your expression may be wrong!")
	case !isTag(sub.ExpressionType) && !isSQL(sub.ExpressionType):
		return noFilter(sub.ExpressionType)
	}
	p.match, p.wants = sub.Match, sub.MatchProperties
	return nil
}

// unknown refuses for want of a table entry. A node that is not the leader may just not have it yet
// (Never-Guess): the client asks again.
func (p *pull) unknown(code int32, format string, args ...any) *refusal {
	if p.b.authoritative() {
		return refuse(code, format, args...)
	}
	f := refuse(code, format, args...)
	f.remark = "service not available now. This node may be behind: " + f.remark
	f.code = remoting.ResponseServiceNotAvailable
	return f
}

func (p *pull) refuse(f *refusal) {
	r := p.r
	p.free()
	emptyExt(r, f.code, f.remark)
}

// get reads the queue at the pull's offset.
func (p *pull) get() {
	p.req = store.GetRequest{
		Topic: p.h.Topic, QueueID: p.h.QueueID, Offset: p.h.QueueOffset, MaxMsgs: int(min(max(p.h.MaxMsgNums, 1), maxPullMessages)),
		MinFloor: p.b.cfg.Tables.QueueFloor(p.h.Topic, p.h.QueueID), Match: p.match, MatchProperties: p.wants,
	}
	began := time.Now()
	p.b.cfg.Store.Get(&p.req, &p.res)
	p.read = time.Now()
	p.took = p.read.Sub(began)
	p.b.counting.slowGet.Observe(p.took.Milliseconds())
}

// run reads and answers, or parks the pull when there is nothing to answer yet.
func (p *pull) run(mayPark bool) {
	if !p.b.cfg.Store.Flags().Readable() {
		p.refuse(refuse(remoting.ResponseSystemError, "store getMessage return null"))
		return
	}
	p.get()
	code, next := verdict(&p.res, p.h.QueueOffset, p.res.Status != store.Found && p.b.authoritative())
	if mayPark && p.wants != nil && p.res.Status == store.NoMatchedMessage && next >= p.res.MaxOffset {
		// Every message wakes a pull with an SQL92 expression. One that is not wanted is passed over here, not by the client.
		p.h.QueueOffset, p.req.Offset = next, next
		code = remoting.ResponsePullNotFound
	}
	if mayPark && (code == remoting.ResponsePullNotFound || code == codeBehind) {
		p.res.Release()
		if code == codeBehind {
			p.deadline = earlier(p.deadline, time.Now().Add(behindWait))
		}
		p.b.polls.park(p)
		return
	}
	// What is acknowledged and not yet dispatched is there in a moment: 19 would tell a reader that it has seen all (F94).
	if code == codeBehind || code == remoting.ResponsePullNotFound && next < p.res.MaxOffset {
		code = remoting.ResponsePullRetryImmediately
	}
	suggest := int64(0)
	if code == remoting.ResponseSuccess || p.res.Status == store.NoMatchedMessage {
		suggest = p.suggest() // others have to do with the queue's ends, about which the leader knows best
	}
	p.answer(code, next, suggest)
}

// behindWait is how long a pull for something that this node does not have is parked at most: the answer sends the
// client to broker id 0.
const behindWait = time.Second

// codeBehind stands for an offset that this node does not have but the leader may.
const codeBehind int32 = -1

// verdict turns a store status into code and nextBeginOffset (wire notes §7.3). Only an authoritative
// node says that an offset is wrong; another one may be behind, so it never moves a consumer (Never-Guess).
func verdict(res *store.GetResult, offset int64, authoritative bool) (code int32, next int64) {
	next = res.NextBeginOffset
	switch res.Status {
	case store.Found:
		return remoting.ResponseSuccess, next
	case store.NoMatchedMessage, store.MessageWasRemoving:
		return remoting.ResponsePullRetryImmediately, next
	case store.OffsetFoundNull, store.OffsetOverflowOne:
		return remoting.ResponsePullNotFound, next
	case store.NoMatchedLogicQueue, store.NoMessageInQueue:
		if offset == 0 {
			return remoting.ResponsePullNotFound, 0
		}
	}
	if !authoritative {
		return codeBehind, offset
	}
	return remoting.ResponsePullOffsetMoved, next
}

// statusNames are the remarks of pull answers (RocketMQ GetMessageStatus).
var statusNames = [...]string{
	store.Found:               "FOUND",
	store.NoMatchedMessage:    "NO_MATCHED_MESSAGE",
	store.MessageWasRemoving:  "MESSAGE_WAS_REMOVING",
	store.OffsetFoundNull:     "OFFSET_FOUND_NULL",
	store.OffsetOverflowBadly: "OFFSET_OVERFLOW_BADLY",
	store.OffsetOverflowOne:   "OFFSET_OVERFLOW_ONE",
	store.OffsetTooSmall:      "OFFSET_TOO_SMALL",
	store.NoMatchedLogicQueue: "NO_MESSAGE_IN_QUEUE", // RocketMQ's lookup makes the queue, so it never says NO_MATCHED_LOGIC_QUEUE
	store.NoMessageInQueue:    "NO_MESSAGE_IN_QUEUE",
}

// answer writes what p.res holds. p belongs to the connection afterwards.
func (p *pull) answer(code int32, next, suggest int64) {
	c := &p.b.counters
	if code == remoting.ResponseSuccess {
		c.pullFound.Add(1)
		c.pulledMessages.Add(uint64(p.res.Count))
		c.pulledBytes.Add(uint64(p.res.Bytes))
		count := p.b.counting.pull(p.h.Topic, p.h.ConsumerGroup, p.h.QueueID)
		p.b.counting.got(count, int64(p.res.Count), int64(p.res.Bytes), p.took,
			p.res.BehindBytes, p.read.UnixMilli()-p.res.LastStored)
		if p.res.ColdCount > 0 {
			p.b.counting.cold(count, int64(p.res.ColdCount), int64(p.res.ColdBytes))
		}
	} else {
		c.pullMiss.Add(1)
	}
	p.head(code, statusNames[p.res.Status], suggest, next, p.res.MinOffset, p.res.MaxOffset)
	if len(p.res.Buffers) > 0 {
		p.r.ReplyViews(&p.resp, p.res.Buffers, p.release)
		return
	}
	p.r.Reply(&p.resp)
	p.onReleased()
}

// answerRetry tells the client to ask again at once at the same offset, at broker id suggest. For a pull that
// was parked: p.res holds nothing.
func (p *pull) answerRetry(suggest int64) {
	minOffset, maxOffset := p.b.bounds(p.queue.topic, p.queue.id)
	p.head(remoting.ResponsePullRetryImmediately, "", suggest, p.h.QueueOffset, minOffset, maxOffset)
	p.r.Reply(&p.resp)
	p.free()
}

// head fills the response in without allocating.
func (p *pull) head(code int32, remark string, suggest, next, minOffset, maxOffset int64) {
	text := p.numbers[:0]
	field := func(i int, key string, n int64) {
		start := len(text)
		text = strconv.AppendInt(text, n, 10)
		p.ext[i] = remoting.Field{Key: key, Value: text[start:len(text):len(text)]}
	}
	field(0, "suggestWhichBrokerId", suggest)
	field(1, "nextBeginOffset", next)
	field(2, "maxOffset", maxOffset)
	field(3, "minOffset", minOffset)
	p.resp = remoting.Command{Code: code, Remark: remark, Ext: p.ext[:]}
}

// bounds are a queue's first and next offset, as consumers see them.
func (b *Broker) bounds(topic string, queueID int32) (minOffset, maxOffset int64) {
	floor := b.cfg.Tables.QueueFloor([]byte(topic), queueID)
	return max(b.cfg.Store.MinOffset(topic, queueID), floor), max(b.cfg.Store.MaxOffset(topic, queueID), floor)
}
