package broker

import (
	"strconv"
	"sync"
	"time"

	"raftmq/fsm/metadata"
	"raftmq/transport/broker/stats"
)

// counting is what this broker counts for the statistics of RocketMQ's tools. A send and a pull look their items up once
// and add to them; nothing here allocates once a topic, group and queue are known.
type counting struct {
	items     stats.Items
	puts      stats.Puts
	slowGet   stats.Max // ms
	rates     stats.Rates
	brokerPut *stats.Item
	brokerGet *stats.Item
	// brokerCold and coldSize count what was read from disk.
	brokerCold, coldSize *stats.Item

	mu     sync.RWMutex
	topics map[string]*topicCount
	pulls  map[pullKey]*pullCount

	totals dayTotals
}

// topicCount is where puts to a topic are counted.
type topicCount struct {
	nums, size *stats.Item
	// queues are of the schedule topic only, as in RocketMQ: by queue id.
	queues []queueCount
}

type queueCount struct{ nums, size *stats.Item }

type pullKey struct {
	topic, group string
	queueID      int32
}

// pullCount is where a group's pulls from a queue are counted.
type pullCount struct {
	coldNums, coldSize                                                      *stats.Item
	groupNums, groupSize, queueNums, queueSize, latency, fallSize, fallTime *stats.Item
}

func (c *counting) init(cluster string) {
	c.topics, c.pulls = map[string]*topicCount{}, map[pullKey]*pullCount{}
	c.brokerPut, c.brokerGet = c.items.Get(stats.BrokerPutNums, cluster), c.items.Get(stats.BrokerGetNums, cluster)
	c.brokerCold, c.coldSize = c.items.Get(stats.BrokerColdNums, cluster), c.items.Get(stats.BrokerColdSize, cluster)
}

// topic finds a topic's counters. It keeps nothing of the name.
func (c *counting) topic(topic []byte, queues int32) *topicCount {
	c.mu.RLock()
	t := c.topics[string(topic)]
	c.mu.RUnlock()
	if t != nil {
		return t
	}
	name := string(topic)
	t = &topicCount{nums: c.items.Get(stats.TopicPutNums, name), size: c.items.Get(stats.TopicPutSize, name)}
	if name == metadata.ScheduleTopic {
		for id := range queues {
			key := name + "@" + strconv.Itoa(int(id))
			t.queues = append(t.queues, queueCount{c.items.Get(stats.QueuePutNums, key), c.items.Get(stats.QueuePutSize, key)})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics[name] = t
	return t
}

// put counts messages of one send. The items are those of topic.
func (c *counting) put(t *topicCount, queueID int32, messages, bytes int64) {
	t.nums.AddTimes(messages, 1)
	t.size.Add(bytes)
	c.brokerPut.AddTimes(messages, 1)
	if int(queueID) < len(t.queues) {
		q := t.queues[queueID]
		q.nums.AddTimes(messages, 1)
		q.size.Add(bytes)
	}
}

// pull finds the counters of a group in a queue.
func (c *counting) pull(topic, group []byte, queueID int32) *pullCount {
	c.mu.RLock()
	p := c.pulls[pullKey{string(topic), string(group), queueID}]
	c.mu.RUnlock()
	if p != nil {
		return p
	}
	k := pullKey{string(topic), string(group), queueID}
	id := strconv.Itoa(int(queueID))
	ofGroup, ofQueue, byQueue := k.topic+"@"+k.group, k.topic+"@"+id+"@"+k.group, id+"@"+k.topic+"@"+k.group
	p = &pullCount{
		groupNums: c.items.Get(stats.GroupGetNums, ofGroup), groupSize: c.items.Get(stats.GroupGetSize, ofGroup),
		queueNums: c.items.Get(stats.QueueGetNums, ofQueue), queueSize: c.items.Get(stats.QueueGetSize, ofQueue),
		coldNums: c.items.Get(stats.GroupColdNums, ofGroup), coldSize: c.items.Get(stats.GroupColdSize, ofGroup),
		latency: c.items.Get(stats.GroupGetLatency, byQueue), fallSize: c.items.Get(stats.GroupFallSize, byQueue), fallTime: c.items.Get(stats.GroupFallTime, byQueue),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulls[k] = p
	return p
}

// cold counts messages of a pull that no longer counted as in memory.
func (c *counting) cold(p *pullCount, messages, bytes int64) {
	p.coldNums.AddTimes(messages, 1)
	p.coldSize.Add(bytes)
	c.brokerCold.AddTimes(messages, 1)
	c.coldSize.Add(bytes)
}

// got counts a pull that found messages: how long the read took, and how far behind the log's end its last message is in bytes and
// the clock in time.
func (c *counting) got(p *pullCount, messages, bytes int64, took time.Duration, behindBytes, behindMillis int64) {
	p.groupNums.AddTimes(messages, 1)
	p.groupSize.Add(bytes)
	p.queueNums.AddTimes(messages, 1)
	p.queueSize.Add(bytes)
	p.latency.Add(took.Milliseconds())
	p.fallSize.Set(behindBytes)
	p.fallTime.Set(behindMillis)
	c.brokerGet.AddTimes(messages, 1)
}

// sentBack counts a message that a group sent back.
func (c *counting) sentBack(topic, group string) {
	c.items.Get(stats.SendBackNums, topic+"@"+group).Add(1)
}

// Places of the counters in stats.Rates.
const (
	ratePut = iota
	rateFound
	rateMiss
	rateGiven
)

// sample is called once a second. turns counts the calls.
func (b *Broker) sample(turns int) {
	c, now := &b.counting, b.cfg.Now()
	put, given := int64(b.cfg.Store.Stats().PutMessages), int64(b.counters.pulledMessages.Load())
	c.rates.Sample(now, put, int64(b.counters.pullFound.Load()), int64(b.counters.pullMiss.Load()), given)
	c.totals.turn(now, put, given)
	if turns > 0 && turns%10 == 0 {
		c.items.Sample(now)
	}
	if turns > 0 && turns%60 == 0 {
		b.minute()
	}
}

// minute ends a minute of put times. It is told when there was anything (RocketMQ's [STORETPS] and [PAGECACHERT] lines).
func (b *Broker) minute() {
	c := &b.counting
	puts := c.puts.Turn()
	put, found, miss, given := c.rates.Rate(ratePut), c.rates.Rate(rateFound), c.rates.Rate(rateMiss), c.rates.Rate(rateGiven)
	if puts == 0 && put == 0 && found == 0 && given == 0 {
		return
	}
	b.logger.Info("traffic of the last minute", "puts", puts, "put-tps", put, "get-found-tps", found, "get-miss-tps", miss, "transferred-tps", given,
		"put-p99-ms", c.puts.Percentile(0.99), "put-times", c.puts.Distribution())
}

// dayTotals are the totals at the last two midnights (BrokerStats).
type dayTotals struct {
	mu                                                 sync.Mutex
	day                                                int // of the year, of the last turn
	putYesterday, putToday, givenYesterday, givenToday int64
}

// turn notes the totals when a day begins, local time.
func (d *dayTotals) turn(now time.Time, put, given int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	day := now.YearDay()
	if d.day != 0 && d.day != day {
		d.putYesterday, d.givenYesterday = d.putToday, d.givenToday
		d.putToday, d.givenToday = put, given
	}
	d.day = day
}

func (d *dayTotals) fill(table map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, n := range map[string]int64{"msgPutTotalYesterdayMorning": d.putYesterday, "msgPutTotalTodayMorning": d.putToday,
		"msgGetTotalYesterdayMorning": d.givenYesterday, "msgGetTotalTodayMorning": d.givenToday} {
		table[key] = strconv.FormatInt(n, 10)
	}
}
