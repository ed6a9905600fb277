package main

import (
	"encoding/binary"
	"strings"

	"raftmq/transport/remoting"
)

// step is one request. {NAME.FIELD} in a value or the body is an ext field of the answer to an earlier step that noted it; {NAME.position} is
// where in the log the message is whose msgId was noted.
type step struct {
	name  string
	code  int32
	ext   []string // keys and values
	body  string
	names bool     // asked of the name server
	conn  string   // which connection; "" is the usual one
	note  []string // fields of the answer that later steps use
	until func(resp *remoting.Command) bool
}

// bornTime is when clients made their messages.
const bornTime = 1796000000000

const (
	one = "\x01" // between a property's name and its value
	two = "\x02" // behind each
)

func topic(name, queues string, more ...string) []string {
	return append([]string{"topic", name, "defaultTopic", "TBW102", "readQueueNums", queues, "writeQueueNums", queues, "perm", "6",
		"topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false"}, more...)
}

func message(topic, queue, properties string, more ...string) []string {
	return append([]string{"producerGroup", "cmp_pg", "topic", topic, "defaultTopic", "TBW102", "defaultTopicQueueNums", "4", "queueId", queue, "sysFlag", "0",
		"bornTimestamp", "1796000000000", "flag", "7", "properties", properties, "reconsumeTimes", "0", "unitMode", "false", "batch", "false"}, more...)
}

func pull(topic, queue, offset string, more ...string) []string {
	return append([]string{"consumerGroup", "cmp_cg", "topic", topic, "queueId", queue, "queueOffset", offset, "maxMsgNums", "32", "sysFlag", "4", "commitOffset", "0",
		"suspendTimeoutMillis", "0", "subscription", "*", "subVersion", "0", "expressionType", "TAG"}, more...)
}

func queue(topic, id string, more ...string) []string {
	return append([]string{"topic", topic, "queueId", id}, more...)
}

func group(more ...string) []string { return append([]string{"consumerGroup", "cmp_cg"}, more...) }

func end(half, outcome string, more ...string) []string {
	return append([]string{"producerGroup", "cmp_pg", "tranStateTableOffset", "{" + half + ".queueOffset}", "commitLogOffset", "{" + half + ".position}",
		"commitOrRollback", outcome, "fromTransactionCheck", "false", "msgId", "x", "transactionId", "x"}, more...)
}

func sendBack(level string) []string {
	return []string{"group", "cmp_cg", "offset", "{send.position}", "delayLevel", level, "originMsgId", "{send.msgId}", "originTopic", "CmpA", "unitMode", "false", "maxReconsumeTimes", "16"}
}

// property finds a message's properties in the form that a send has.
func property(pairs ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(pairs[i] + one + pairs[i+1] + two)
	}
	return b.String()
}

// batch is the body of a batch message (MessageDecoder.encodeMessages).
func batch(bodies ...string) string {
	var out []byte
	for _, body := range bodies {
		properties := property("UNIQ_KEY", strings.Repeat("B", 31)+body[len(body)-1:])
		e := binary.BigEndian.AppendUint32(nil, uint32(4+4+4+4+4+len(body)+2+len(properties)))
		e = append(e, make([]byte, 4+4+4)...) // magic, CRC, flag
		e = binary.BigEndian.AppendUint32(e, uint32(len(body)))
		e = append(e, body...)
		e = binary.BigEndian.AppendUint16(e, uint16(len(properties)))
		out = append(append(out, e...), properties...)
	}
	return string(out)
}

func value(key, want string) func(*remoting.Command) bool {
	return func(r *remoting.Command) bool { return r.GetString(key) == want }
}

func success(r *remoting.Command) bool { return r.Code == remoting.ResponseSuccess }

const (
	heartbeat = `{"clientID":"cmp@1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"cmp_cg","messageModel":"CLUSTERING",` +
		`"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1,"tagsSet":[],"topic":"CmpA"}],"unitMode":false}],"producerDataSet":[{"groupName":"cmp_pg"}]}`
	queues = `{"clientId":"cmp@1","consumerGroup":"cmp_cg","mqSet":[{"brokerName":"peer-a","queueId":0,"topic":"CmpA"},{"brokerName":"peer-a","queueId":1,"topic":"CmpA"}]}`
	other  = `{"clientId":"cmp@2","consumerGroup":"cmp_cg","mqSet":[{"brokerName":"peer-a","queueId":0,"topic":"CmpA"}]}`
)

var unique = strings.Repeat("A", 31)

var steps = []step{
	// Topics.
	{name: "create topic", code: 17, ext: topic("CmpA", "2")},
	{name: "create topic again", code: 17, ext: topic("CmpA", "2")},
	{name: "create topic, illegal name", code: 17, ext: topic("Cmp A", "2")},
	{name: "create topic, system's", code: 17, ext: topic("TBW102", "2")},
	{name: "create topic, long name", code: 17, ext: topic(strings.Repeat("x", 128), "2")},
	{name: "create group", code: 200, body: `{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"cmp_cg","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}`},
	{name: "route", code: 105, names: true, ext: []string{"topic", "CmpA"}, until: success},
	{name: "route, unknown topic", code: 105, names: true, ext: []string{"topic", "CmpNone"}},
	{name: "cluster", code: 106, names: true},
	{name: "topics of the cluster called nothing", code: 224, names: true, ext: []string{"cluster", "nothing"}},
	// Sends.
	{name: "send", code: 10, ext: message("CmpA", "0", property("UNIQ_KEY", unique+"1", "KEYS", "k1 k2", "TAGS", "A", "mine", "x", "WAIT", "true")), body: "body 1", note: []string{"msgId"}},
	{name: "send v2", code: 310, ext: []string{"a", "cmp_pg", "b", "CmpA", "c", "TBW102", "d", "4", "e", "0", "f", "0", "g", "1796000000000", "h", "3", "i", property("UNIQ_KEY", unique+"2", "TAGS", "B"), "j", "0", "k", "false", "l", "0", "m", "false"}, body: "body 2"},
	{name: "send, no properties", code: 10, ext: message("CmpA", "1", ""), body: "body 3"},
	{name: "send, empty body", code: 10, ext: message("CmpA", "1", property("UNIQ_KEY", unique+"4"))},
	{name: "send, compressed flag", code: 10, ext: message("CmpA", "1", property("UNIQ_KEY", unique+"5"), "sysFlag", "1"), body: "not really"},
	{name: "send, queue beyond", code: 10, ext: message("CmpA", "9", ""), body: "x"},
	{name: "send, body too large", code: 10, ext: message("CmpA", "0", ""), body: strings.Repeat("x", 4<<20+1)},
	{name: "send, properties too long", code: 10, ext: message("CmpA", "0", property("long", strings.Repeat("x", 33000))), body: "x"},
	{name: "send, topic too long", code: 10, ext: message(strings.Repeat("y", 128), "0", ""), body: "x"},
	{name: "send, illegal topic", code: 10, ext: message("a b", "0", ""), body: "x"},
	{name: "send, system topic", code: 10, ext: message("SCHEDULE_TOPIC_XXXX", "0", ""), body: "x"},
	{name: "send, TBW102", code: 10, ext: message("TBW102", "0", ""), body: "x"},
	{name: "send, creates topic", code: 10, ext: message("CmpAuto", "0", property("UNIQ_KEY", unique+"6")), body: "auto"},
	{name: "send, unknown default topic", code: 10, ext: message("CmpNever", "0", "", "defaultTopic", "CmpNone"), body: "x"},
	{name: "send batch", code: 320, ext: []string{"a", "cmp_pg", "b", "CmpA", "c", "TBW102", "d", "4", "e", "0", "f", "0", "g", "1796000000000", "h", "3", "i", "", "j", "0", "k", "false", "l", "0", "m", "true"}, body: batch("batch 1", "batch 2")},
	{name: "send delayed", code: 10, ext: message("CmpA", "0", property("UNIQ_KEY", unique+"7", "DELAY", "5")), body: "delayed"},
	{name: "send delayed, level beyond", code: 10, ext: message("CmpA", "0", property("UNIQ_KEY", unique+"8", "DELAY", "99")), body: "delayed far"},
	{name: "send half", code: 10, ext: message("CmpA", "1", property("UNIQ_KEY", unique+"9", "TRAN_MSG", "true", "PGROUP", "cmp_pg"), "sysFlag", "4"), body: "half", note: []string{"queueOffset", "msgId"}},
	{name: "send retry of a group", code: 10, ext: message("%RETRY%cmp_cg", "0", property("UNIQ_KEY", unique+"R", "ORIGIN_MESSAGE_ID", "x"), "reconsumeTimes", "1", "maxReconsumeTimes", "16"), body: "again"},
	{name: "send retry beyond its times", code: 10, ext: message("%RETRY%cmp_cg", "0", property("UNIQ_KEY", unique+"D"), "reconsumeTimes", "17", "maxReconsumeTimes", "16"), body: "dead"},
	{name: "auto-created route", code: 105, names: true, ext: []string{"topic", "CmpAuto"}, until: success},
	// Offsets of queues.
	{name: "max offset", code: 30, ext: queue("CmpA", "0"), until: value("offset", "4")},
	{name: "max offset, unknown topic", code: 30, ext: queue("CmpNone", "0")},
	{name: "min offset", code: 31, ext: queue("CmpA", "0")},
	{name: "earliest store time, unknown topic", code: 32, ext: queue("CmpNone", "0")},
	{name: "offset by time, long ago", code: 29, ext: queue("CmpA", "0", "timestamp", "0")},
	{name: "offset by time, to come", code: 29, ext: queue("CmpA", "0", "timestamp", "9999999999999")},
	{name: "topic statistics", code: 202, ext: []string{"topic", "CmpA"}},
	{name: "topic statistics, unknown topic", code: 202, ext: []string{"topic", "CmpNone"}},
	// Records.
	{name: "pull", code: 11, ext: pull("CmpA", "0", "0"), until: success},
	{name: "pull, other queue", code: 11, ext: pull("CmpA", "1", "0"), until: success},
	{name: "pull, one tag", code: 11, ext: pull("CmpA", "0", "0", "subscription", "B")},
	{name: "pull, no such tag", code: 11, ext: pull("CmpA", "0", "0", "subscription", "Z")},
	{name: "pull, one message", code: 11, ext: pull("CmpA", "0", "1", "maxMsgNums", "1")},
	{name: "pull at the end", code: 11, ext: pull("CmpA", "0", "4")},
	{name: "pull beyond", code: 11, ext: pull("CmpA", "0", "100")},
	{name: "pull below", code: 11, ext: pull("CmpA", "0", "-1")},
	{name: "pull, queue beyond", code: 11, ext: pull("CmpA", "9", "0")},
	{name: "pull, unknown topic", code: 11, ext: pull("CmpNone", "0", "0")},
	{name: "pull, auto-created", code: 11, ext: pull("CmpAuto", "0", "0"), until: success},
	{name: "pull what waits for its time", code: 11, ext: pull("SCHEDULE_TOPIC_XXXX", "4", "0"), until: success},
	{name: "pull what waits longest", code: 11, ext: pull("SCHEDULE_TOPIC_XXXX", "17", "0"), until: success},
	{name: "pull half messages", code: 11, ext: pull("RMQ_SYS_TRANS_HALF_TOPIC", "0", "0"), until: success},
	{name: "pull retries", code: 11, ext: pull("%RETRY%cmp_cg", "0", "0"), until: success},
	{name: "pull dead letters", code: 11, ext: pull("%DLQ%cmp_cg", "0", "0"), until: success},
	{name: "pull, not in a heartbeat", code: 11, ext: pull("CmpA", "0", "0", "sysFlag", "0")},
	{name: "query by key", code: 12, ext: []string{"topic", "CmpA", "key", "k2", "maxNum", "32", "beginTimestamp", "0", "endTimestamp", "9999999999999"}, until: success},
	{name: "query by unique key", code: 12, ext: []string{"topic", "CmpA", "key", unique + "1", "maxNum", "32", "beginTimestamp", "0", "endTimestamp", "9999999999999", "_UNIQUE_KEY_QUERY", "true"}},
	{name: "query by a key that none has", code: 12, ext: []string{"topic", "CmpA", "key", "none", "maxNum", "32", "beginTimestamp", "0", "endTimestamp", "9999999999999"}},
	{name: "view, far beyond", code: 33, ext: []string{"offset", "999999999"}},
	// Members.
	{name: "heartbeat", code: 34, body: heartbeat},
	{name: "consumers", code: 38, ext: group()},
	{name: "consumers of nobody", code: 38, ext: []string{"consumerGroup", "nobody_cg"}},
	{name: "pull as a heartbeat says", code: 11, ext: pull("CmpA", "0", "0", "sysFlag", "0", "subVersion", "1")},
	{name: "consumer connections of nobody", code: 203, ext: []string{"consumerGroup", "nobody_cg"}},
	{name: "producer connections of nobody", code: 204, ext: []string{"producerGroup", "nobody_pg"}},
	{name: "lock", code: 41, body: queues, until: func(r *remoting.Command) bool { return strings.Contains(string(r.Body), "queueId") }},
	{name: "lock what another has", code: 41, body: other},
	{name: "unlock", code: 42, body: queues},
	{name: "lock what is free again", code: 41, body: other},
	{name: "check client configuration", code: 46, body: `{"clientId":"cmp@1","group":"cmp_cg","subscriptionData":{"topic":"CmpA","subString":"a > 1","expressionType":"SQL92"}}`},
	// Consumer offsets.
	{name: "consumer offset, none", code: 14, ext: group(queue("CmpA", "0")...)},
	{name: "consumer offset, none and no guess", code: 14, ext: group(queue("CmpA", "0", "setZeroIfNotFound", "false")...)},
	{name: "commit", code: 15, ext: group(queue("CmpA", "0", "commitOffset", "2")...)},
	{name: "consumer offset", code: 14, ext: group(queue("CmpA", "0")...), until: value("offset", "2")},
	{name: "commit back", code: 15, ext: group(queue("CmpA", "0", "commitOffset", "1")...)},
	{name: "consumer offset, back", code: 14, ext: group(queue("CmpA", "0")...), until: value("offset", "1")},
	{name: "consumer offset, unknown topic", code: 14, ext: group(queue("CmpNone", "0")...)},
	{name: "progress", code: 208, ext: group("topic", "CmpA")},
	{name: "progress of nobody", code: 208, ext: []string{"consumerGroup", "nobody_cg"}},
	{name: "groups of the topic", code: 300, ext: []string{"topic", "CmpA"}},
	{name: "clone offsets", code: 314, ext: []string{"srcGroup", "cmp_cg", "destGroup", "cmp_copy_cg", "topic", "CmpA", "offline", "false"}},
	{name: "consumer offset of the copy", code: 14, ext: []string{"consumerGroup", "cmp_copy_cg", "topic", "CmpA", "queueId", "0"}, until: value("offset", "1")},
	// Send-back, ends of transactions.
	{name: "send back, unknown group", code: 36, ext: []string{"group", "nobody_cg", "offset", "0", "delayLevel", "1", "originMsgId", "x", "originTopic", "CmpA", "unitMode", "false", "maxReconsumeTimes", "16"}},
	{name: "send back, no message there", code: 36, ext: []string{"group", "cmp_cg", "offset", "999999999", "delayLevel", "1", "originMsgId", "x", "originTopic", "CmpA", "unitMode", "false", "maxReconsumeTimes", "16"}},
	{name: "end of no transaction", code: 37, ext: []string{"producerGroup", "cmp_pg", "tranStateTableOffset", "0", "commitLogOffset", "999999999", "commitOrRollback", "8", "fromTransactionCheck", "false", "msgId", "x", "transactionId", "x"}},
	{name: "send half, to be rolled back", code: 10, ext: message("CmpA", "1", property("UNIQ_KEY", unique+"E", "TRAN_MSG", "true", "PGROUP", "cmp_pg"), "sysFlag", "4"), body: "half 2", note: []string{"queueOffset", "msgId"}},
	{name: "commit by another group", code: 37, ext: end("send half", "8", "producerGroup", "other_pg")},
	{name: "commit, another place", code: 37, ext: end("send half", "8", "tranStateTableOffset", "77")},
	{name: "commit transaction", code: 37, ext: end("send half", "8")},
	{name: "roll back", code: 37, ext: end("send half, to be rolled back", "12")},
	{name: "pull what was committed", code: 11, ext: pull("CmpA", "1", "3"), until: success},
	{name: "send back", code: 36, ext: sendBack("0")},
	{name: "send back, level given", code: 36, ext: sendBack("3")},
	{name: "send back to the dead letters", code: 36, ext: sendBack("-1")},
	{name: "pull dead letters, with another", code: 11, ext: pull("%DLQ%cmp_cg", "0", "1"), until: success},
	{name: "view by position", code: 33, ext: []string{"offset", "{send.position}"}},
	{name: "send delayed by a second", code: 10, ext: message("CmpA", "1", property("UNIQ_KEY", unique+"F", "DELAY", "1", "TAGS", "late")), body: "a second later"},
	{name: "pull what was delayed", code: 11, ext: pull("CmpA", "1", "4"), until: success},
	// Name server's tables.
	{name: "put KV", code: 100, names: true, ext: []string{"namespace", "CMP", "key", "k", "value", "v"}},
	{name: "get KV", code: 101, names: true, ext: []string{"namespace", "CMP", "key", "k"}, until: success},
	{name: "get KV, none", code: 101, names: true, ext: []string{"namespace", "CMP", "key", "none"}},
	{name: "delete KV", code: 102, names: true, ext: []string{"namespace", "CMP", "key", "k"}},
	// The end.
	{name: "request nobody knows", code: 9999},
	{name: "delete group", code: 207, ext: []string{"groupName", "cmp_copy_cg"}},
	{name: "delete topic", code: 215, ext: []string{"topic", "CmpAuto"}},
	{name: "delete topic, unknown", code: 215, ext: []string{"topic", "CmpNone"}},
	{name: "delete topic, system's", code: 215, ext: []string{"topic", "TBW102"}},
	{name: "max offset of a deleted topic", code: 30, ext: queue("CmpAuto", "0")},
	{name: "unregister", code: 35, ext: []string{"clientID", "cmp@1", "consumerGroup", "cmp_cg", "producerGroup", "cmp_pg"}},
	{name: "consumers who left", code: 38, ext: group()},
}
