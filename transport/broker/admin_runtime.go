package broker

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/metadata"
	"raftmq/transport"
	"raftmq/transport/broker/stats"
	"raftmq/transport/remoting"
)

const expiryScan = 10 // seconds

// housekeep expires members and samples counters, once a second; it ends with the broker.
func (b *Broker) housekeep() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	b.sample(0)
	for turns := 1; ; turns++ {
		select {
		case <-tick.C:
			b.sample(turns)
			b.makeTraceTopic()
			if turns%expiryScan == 0 {
				b.cfg.Groups.Expire()
				b.expireLocks()
			}
		case <-b.ctx.Done():
			return
		}
	}
}

// makeTraceTopic proposes the topic of message traces if it is wanted and missing. Before the cluster has settings no topic can be made.
func (b *Broker) makeTraceTopic() {
	if !b.cfg.TraceTopicEnable || !b.authoritative() {
		return
	}
	if _, ok := b.cfg.Tables.Settings(); !ok {
		return
	}
	if f := b.topics.require(rwTopic(metadata.TraceTopic, 1)); f != nil {
		b.logger.Debug("trace topic was not proposed, it will be tried again", "reason", f.remark)
	}
}

// runtimeInfo serves GET_BROKER_RUNTIME_INFO with the keys that tools read (wire notes §9.3, format notes §11.1). Of the
// thread pools that this broker does not have the queues are empty; what waits for a leader stands for the send queue.
func (b *Broker) runtimeInfo(r transport.Responder, _ *remoting.Command) {
	table := map[string]string{
		"brokerVersionDesc": "V" + strings.ReplaceAll(remoting.VersionName(b.cfg.Version), ".", "_"),
		"brokerVersion":     strconv.Itoa(int(b.cfg.Version)),
		"brokerActive":      strconv.FormatBool(b.leads()),
		"bootTimestamp":     strconv.FormatInt(b.start.UnixMilli(), 10),
		"runtime":           runtimeText(b.cfg.Now().Sub(b.start)),

		"heldWrites": strconv.FormatInt(b.held.pending.Load(), 10), "parkedPulls": strconv.FormatInt(b.polls.parked.Load(), 10),
	}
	for _, key := range zeroRuntimeKeys {
		table[key] = "0"
	}
	b.fillTraffic(table)
	b.fillStore(table)
	successBody(r, (&remoting.KVTable{Table: table}).Encode())
}

// fillTraffic fills in what was put and got.
func (b *Broker) fillTraffic(table map[string]string) {
	c, st := &b.counting, b.cfg.Store.Stats()
	put := max(st.PutMessages, 1) // as RocketMQ, which divides by it
	given := c.rates.TPS(false, rateGiven)
	for key, text := range map[string]string{
		"putTps": c.rates.TPS(false, ratePut), "getFoundTps": c.rates.TPS(false, rateFound), "getMissTps": c.rates.TPS(false, rateMiss),
		"getTotalTps":      c.rates.TPS(true, rateFound, rateMiss),
		"getTransferedTps": given, "getTransferredTps": given, // 4.9 and 5.x spelling

		"putMessageEntireTimeMax":  strconv.FormatInt(c.puts.Slowest(), 10),
		"putMessageTimesTotal":     strconv.FormatUint(put, 10),
		"putMessageFailedTimes":    strconv.FormatUint(b.counters.failedWrites.Load(), 10),
		"putMessageSizeTotal":      strconv.FormatUint(st.PutBytes, 10),
		"putMessageAverageSize":    stats.JavaDouble(float64(st.PutBytes) / float64(put)),
		"putMessageDistributeTime": c.puts.Distribution(),
		"putLatency99":             fmt.Sprintf("%.2f", c.puts.Percentile(0.99)), "putLatency999": fmt.Sprintf("%.2f", c.puts.Percentile(0.999)),
		"getMessageEntireTimeMax": strconv.FormatInt(c.slowGet.Value(), 10),

		"msgPutTotalTodayNow": strconv.FormatUint(st.PutMessages, 10),
		"msgGetTotalTodayNow": strconv.FormatUint(b.counters.pulledMessages.Load(), 10),

		"sendThreadPoolQueueSize": strconv.FormatInt(b.held.pending.Load(), 10), "sendThreadPoolQueueCapacity": strconv.Itoa(b.cfg.MaxHeldWrites),
		"pageCacheLockTimeMills": strconv.FormatInt(b.cfg.Store.LockTime().Milliseconds(), 10),
	} {
		table[key] = text
	}
	c.totals.fill(table)
}

// fillStore fills in where the store stands.
func (b *Broker) fillStore(table map[string]string) {
	st, space := b.cfg.Store.Stats(), b.cfg.Store.Space()
	ratio := stats.JavaDouble(space.CommitLog.Ratio())
	for key, text := range map[string]string{
		"commitLogMinOffset":                         strconv.FormatInt(st.MinOffset, 10),
		"commitLogMaxOffset":                         strconv.FormatInt(st.MaxOffset, 10),
		"commitLogDiskRatio":                         ratio,
		"commitLogDiskRatio_" + space.CommitLog.Path: ratio,
		"consumeQueueDiskRatio":                      stats.JavaDouble(space.ConsumeQueue.Ratio()),
		"commitLogDirCapacity":                       fmt.Sprintf("Total : %s, Free : %s.", gibibytes(space.CommitLog.Total), gibibytes(space.CommitLog.Free)),
		"earliestMessageTimeStamp":                   strconv.FormatInt(b.earliestStored(st), 10),
		"dispatchBehindBytes":                        strconv.FormatInt(st.MaxOffset-st.DispatchedTo, 10),
		"remainHowManyDataToFlush":                   strconv.FormatInt(st.MaxOffset-st.FlushedTo, 10) + " B",
		"remainTransientStoreBufferNumbs":            strconv.Itoa(freeBuffers(st)),
		"remainHowManyDataToCommit":                  strconv.FormatInt(st.Uncommitted, 10) + " B",
		"runningFlags":                               b.cfg.Store.Flags().String(),
	} {
		table[key] = text
	}
	for level := range b.maxDelayLevel() {
		if end := b.cfg.Store.MaxOffset(metadata.ScheduleTopic, level); end > 0 {
			table[fmt.Sprintf("scheduleMessageOffset_%d", level+1)] = fmt.Sprintf("%d,%d", b.cfg.Tables.DelayProgress(int(level+1)), end)
		}
	}
}

// freeBuffers is how many buffers of the transient store pool are free; RocketMQ's number where there is no pool.
func freeBuffers(st store.Stats) int {
	if st.FreeBuffers < 0 {
		return math.MaxInt32
	}
	return st.FreeBuffers
}

// gibibytes prints a size as RocketMQ's MixAll.humanReadableByteCount does for disks.
func gibibytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	size, unit := float64(n), 0
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}

// earliestStored is the store time of the log's first record, -1 without one.
func (b *Broker) earliestStored(st store.Stats) int64 {
	rec, release, err := b.cfg.Store.RecordAt(st.MinOffset)
	if err != nil {
		return -1
	}
	defer release()
	return record.View(rec).StoreTimestamp()
}

// zeroRuntimeKeys must be there for clusterList, brokerStatus and the dashboard, and say nothing here.
var zeroRuntimeKeys = [...]string{
	"sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize", "pullThreadPoolQueueCapacity", "pullThreadPoolQueueHeadWaitTimeMills",
	"queryThreadPoolQueueSize", "queryThreadPoolQueueCapacity", "queryThreadPoolQueueHeadWaitTimeMills",
	"EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", "ackThreadPoolQueueSize", "ackThreadPoolQueueCapacity", "ackThreadPoolQueueHeadWaitTimeMills",
	"timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps",
	"dispatchMaxBuffer", "startAcceptSendRequestTimeStamp",
}

// brokerStats serves VIEW_BROKER_STATS_DATA: one item's minute, hour and day, of this node.
func (b *Broker) brokerStats(r transport.Responder, cmd *remoting.Command) {
	name, key := cmd.GetString("statsName"), cmd.GetString("statsKey")
	item := b.counting.items.Find(name, key)
	if item == nil {
		emptyExt(r, remoting.ResponseSystemError, fmt.Sprintf("The stats <%s> <%s> not exist", name, key))
		return
	}
	minute, hour, day := item.Windows()
	replyJSON(r, remoting.BrokerStatsData{Minute: statsItem(minute), Hour: statsItem(hour), Day: statsItem(day)})
}

func statsItem(w stats.Window) remoting.BrokerStatsItem {
	return remoting.BrokerStatsItem{Sum: w.Sum, TPS: w.TPS, Average: w.Average}
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
	id, role := int64(0), "SYNC_MASTER" // a message is on a majority before it is acknowledged
	if !b.leads() {
		id, role = max(b.cfg.BrokerIDOf(b.nodeOfAddr()), 1), "SLAVE"
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
		"enablePropertyFilter": "true", "longPollingEnable": "true", "slaveReadEnable": strconv.FormatBool(b.cfg.SlaveReadEnable),
		"traceTopicEnable": strconv.FormatBool(b.cfg.TraceTopicEnable),
		// mqadmin's exportConfigs fails without these, and exportMetrics takes the last for the number of CPUs.
		"brokerRole": role, "filterServerNums": "0", "traceOn": "true", "msgTraceTopicName": metadata.TraceTopic, "useTLS": "false",
		"clientCallbackExecutorThreads": strconv.Itoa(runtime.NumCPU()),
	})
	maps.Copy(lines, b.cfg.Tables.KVNamespace(metadata.SettingsNamespace))
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
