package broker

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"raftmq/fsm/metadata"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

const (
	expiryScan   = 10 * time.Second
	samplePeriod = 5 * time.Second
	samplesKept  = 10*60/5 + 1
)

// sample is the counters at one time.
type sample struct {
	at                      time.Time
	put, found, miss, given uint64
}

// samples are the last ten minutes of counters, for TPS figures.
type samples struct {
	mu sync.Mutex
	s  []sample
}

func (b *Broker) sampleNow() sample {
	return sample{b.cfg.Now(), b.cfg.Store.Stats().PutMessages, b.counters.pullFound.Load(), b.counters.pullMiss.Load(), b.counters.pulledMessages.Load()}
}

func (s *samples) add(x sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.s) == samplesKept {
		s.s = append(s.s[:0], s.s[1:]...)
	}
	s.s = append(s.s, x)
}

// tps is the rate over the last 10 s, minute and ten minutes, as RocketMQ prints it.
func (s *samples) tps(now sample, of func(sample) uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, window := range []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute} {
		rate := 0.0
		for _, old := range s.s {
			if d := now.at.Sub(old.at); d > 0 && d <= window+samplePeriod {
				rate = float64(of(now)-of(old)) / d.Seconds()
				break
			}
		}
		out = append(out, strconv.FormatFloat(rate, 'f', -1, 64))
	}
	return strings.Join(out, " ")
}

// housekeep expires members and samples counters; it ends with the broker.
func (b *Broker) housekeep() {
	expiry, tick := time.NewTicker(expiryScan), time.NewTicker(samplePeriod)
	defer expiry.Stop()
	defer tick.Stop()
	b.samples.add(b.sampleNow())
	for {
		select {
		case <-expiry.C:
			b.cfg.Groups.Expire()
		case <-tick.C:
			b.samples.add(b.sampleNow())
		case <-b.ctx.Done():
			return
		}
	}
}

// runtimeInfo serves GET_BROKER_RUNTIME_INFO with the keys that tools read (wire notes §9.3). What this
// broker has no counterpart of (thread pool queues, page cache lock) is 0.
func (b *Broker) runtimeInfo(r transport.Responder, _ *remoting.Command) {
	st, now := b.cfg.Store.Stats(), b.sampleNow()
	found, miss := func(s sample) uint64 { return s.found }, func(s sample) uint64 { return s.miss }
	given := b.samples.tps(now, func(s sample) uint64 { return s.given })
	average := 0.0
	if st.PutMessages > 0 {
		average = float64(st.PutBytes) / float64(st.PutMessages)
	}
	table := map[string]string{
		"brokerVersionDesc": "V" + strings.ReplaceAll(remoting.VersionName(b.cfg.Version), ".", "_"),
		"brokerVersion":     strconv.Itoa(int(b.cfg.Version)),
		"brokerActive":      strconv.FormatBool(b.authoritative()),
		"bootTimestamp":     strconv.FormatInt(b.start.UnixMilli(), 10),
		"runtime":           runtimeText(now.at.Sub(b.start)),

		"putTps":              b.samples.tps(now, func(s sample) uint64 { return s.put }),
		"getFoundTps":         b.samples.tps(now, found),
		"getMissTps":          b.samples.tps(now, miss),
		"getTotalTps":         b.samples.tps(now, func(s sample) uint64 { return s.found + s.miss }),
		"getTransferedTps":    given, // 4.9 spelling
		"getTransferredTps":   given,
		"msgPutTotalTodayNow": strconv.FormatUint(st.PutMessages, 10),
		"msgGetTotalTodayNow": strconv.FormatUint(now.given, 10),

		"putMessageTimesTotal":  strconv.FormatUint(max(st.PutMessages, 1), 10),
		"putMessageFailedTimes": strconv.FormatUint(b.counters.failedWrites.Load(), 10),
		"putMessageSizeTotal":   strconv.FormatUint(st.PutBytes, 10),
		"putMessageAverageSize": strconv.FormatFloat(average, 'f', -1, 64),

		"commitLogMinOffset":       strconv.FormatInt(st.MinOffset, 10),
		"commitLogMaxOffset":       strconv.FormatInt(st.MaxOffset, 10),
		"dispatchBehindBytes":      strconv.FormatInt(st.MaxOffset-st.DispatchedTo, 10),
		"remainHowManyDataToFlush": strconv.FormatInt(st.MaxOffset-st.FlushedTo, 10) + " B",

		"heldWrites": strconv.FormatInt(b.held.pending.Load(), 10), "parkedPulls": strconv.FormatInt(b.polls.parked.Load(), 10),
	}
	for level := range b.maxDelayLevel() {
		if end := b.cfg.Store.MaxOffset(metadata.ScheduleTopic, level); end > 0 {
			table[fmt.Sprintf("scheduleMessageOffset_%d", level+1)] = fmt.Sprintf("%d,%d", b.cfg.Tables.DelayProgress(int(level+1)), end)
		}
	}
	for _, key := range zeroRuntimeKeys {
		table[key] = "0"
	}
	successBody(r, (&remoting.KVTable{Table: table}).Encode())
}

// zeroRuntimeKeys must be there for clusterList and the dashboard.
var zeroRuntimeKeys = [...]string{
	"sendThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills",
	"queryThreadPoolQueueSize", "queryThreadPoolQueueHeadWaitTimeMills", "EndTransactionQueueSize", "pageCacheLockTimeMills",
	"msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning",
	"dispatchMaxBuffer", "startAcceptSendRequestTimeStamp", "remainHowManyDataToCommit",
}

func runtimeText(d time.Duration) string {
	s := int64(d.Seconds())
	return fmt.Sprintf("[ %d days, %d hours, %d minutes, %d seconds ]", s/86400, s/3600%24, s/60%60, s%60)
}

// brokerConfig serves GET_BROKER_CONFIG: properties text, one key=value a line, sorted.
func (b *Broker) brokerConfig(r transport.Responder, _ *remoting.Command) {
	s, _ := b.cfg.Tables.Settings()
	flush := "ASYNC_FLUSH"
	if b.syncFlush() {
		flush = "SYNC_FLUSH"
	}
	id := int64(0)
	if !b.authoritative() {
		id = max(b.cfg.BrokerIDOf(b.nodeOfAddr()), 1)
	}
	lines := maps.Clone(b.cfg.Properties)
	if lines == nil {
		lines = map[string]string{}
	}
	maps.Copy(lines, map[string]string{
		"brokerClusterName": b.cfg.ClusterName, "brokerName": b.cfg.BrokerName, "brokerId": strconv.FormatInt(id, 10),
		"brokerIP1": b.cfg.StoreHost.Addr().String(), "listenPort": strconv.Itoa(int(b.cfg.StoreHost.Port())),
		"flushDiskType": flush, "maxMessageSize": strconv.Itoa(b.cfg.MaxMessageSize), "regionId": b.cfg.Region,
		"mappedFileSizeCommitLog": strconv.FormatInt(s.SegmentSize, 10), "autoCreateTopicEnable": strconv.FormatBool(s.AutoCreateTopic),
		"autoCreateSubscriptionGroup": strconv.FormatBool(s.AutoCreateGroup), "defaultTopicQueueNums": strconv.Itoa(s.DefaultTopicQueues),
		"enablePropertyFilter": "false", "longPollingEnable": "true", "slaveReadEnable": "true",
	})
	var body strings.Builder
	for _, key := range slices.Sorted(maps.Keys(lines)) {
		body.WriteString(key + "=" + propertyEscape.Replace(lines[key]) + "\n")
	}
	_, version := b.cfg.Tables.Topics()
	text := fmt.Sprintf(`{"counter":%d,"timestamp":%d}`, version.Counter, version.Timestamp)
	resp := remoting.Command{Body: []byte(body.String())}
	resp.Set("version", text)
	r.Reply(&resp)
}

var propertyEscape = strings.NewReplacer("\\", "\\\\", "\n", "\\n", "\r", "\\r")

// nodeOfAddr finds this node in the tables by its client address.
func (b *Broker) nodeOfAddr() string {
	for _, n := range b.cfg.Tables.Nodes() {
		if n.ClientAddr == b.cfg.StoreHost.String() {
			return n.ID
		}
	}
	return ""
}
