package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"raftmq/commitlog/record"
	"raftmq/transport/remoting"
)

// What differs between any two runs against the same broker.
var rules = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{1,3}(\.\d{1,3}){3}(:\d+)?`), "ADDRESS"},
	{regexp.MustCompile(`[0-9A-F]{32,}`), "ID"},
	{regexp.MustCompile(`\b1[78]\d{11}\b`), "TIME"},
}

func plain(text string) string {
	for _, r := range rules {
		text = r.pattern.ReplaceAllString(text, r.with)
	}
	return text
}

// positions are ext fields that name a place in the log or a moment.
var positions = []string{"commitLogOffset", "storeTimestamp", "indexLastUpdatePhyoffset", "indexLastUpdateTimestamp", "transactionId"}

// normal is an answer as lines that can be compared. An answer's body is decoded if its code says how.
func normal(code int32, resp *remoting.Command) []string {
	lines := []string{fmt.Sprintf("code %d, remark %q", resp.Code, plain(resp.Remark))}
	for _, f := range resp.Ext {
		value := plain(string(f.Value))
		if slices.Contains(positions, f.Key) && value != "" {
			value = "SOME"
		}
		lines = append(lines, f.Key+" = "+value)
	}
	return append(lines, body(code, resp)...)
}

func body(code int32, resp *remoting.Command) []string {
	if len(resp.Body) == 0 {
		return nil
	}
	switch code {
	case remoting.RequestPullMessage, remoting.RequestViewMessageByID, remoting.RequestQueryMessage:
		return records(resp.Body)
	case remoting.RequestGetRouteInfoByTopic:
		return decoded(resp.Body, new(remoting.TopicRouteData))
	case remoting.RequestGetTopicStatsInfo:
		return decoded(resp.Body, new(remoting.TopicStatsTable))
	case remoting.RequestGetConsumeStats:
		return decoded(resp.Body, new(remoting.ConsumeStats))
	case remoting.RequestLockBatchMQ:
		return decoded(resp.Body, new(remoting.LockBatchResponse))
	case remoting.RequestGetBrokerClusterInfo:
		return decoded(resp.Body, new(remoting.ClusterInfo))
	}
	var tree any
	if json.Unmarshal(resp.Body, &tree) != nil {
		return []string{"body " + plain(string(resp.Body))}
	}
	text, err := json.Marshal(tree) // keys in order
	if err != nil {
		return []string{"body " + err.Error()}
	}
	return []string{"body " + plain(string(text))}
}

// decoded prints what a body says whatever the order of its maps.
func decoded(b []byte, into interface{ Decode([]byte) error }) []string {
	if err := into.Decode(b); err != nil {
		return []string{fmt.Sprintf("body that cannot be read: %v: %s", err, plain(string(b)))}
	}
	if s, ok := into.(*remoting.TopicStatsTable); ok {
		slices.SortFunc(s.OffsetTable, func(a, b remoting.TopicStats) int { return int(a.Queue.QueueID - b.Queue.QueueID) })
	}
	if s, ok := into.(*remoting.ConsumeStats); ok {
		slices.SortFunc(s.OffsetTable, func(a, b remoting.QueueConsumeStats) int { return int(a.Queue.QueueID - b.Queue.QueueID) })
		s.ConsumeTPS = 0
	}
	if s, ok := into.(*remoting.LockBatchResponse); ok {
		slices.SortFunc(s.LockOKMQSet, func(a, b remoting.MessageQueue) int { return int(a.QueueID - b.QueueID) })
	}
	return []string{"body " + plain(fmt.Sprintf("%+v", into))}
}

// records prints stored records. Log positions and what hangs on them differ, as a log has other records too.
func records(b []byte) (lines []string) {
	for len(b) > 0 {
		var m record.Message
		n, err := record.Decode(b, &m)
		if err != nil {
			return append(lines, fmt.Sprintf("record that cannot be read: %v", err))
		}
		b = b[n:]
		text := string(m.Body)
		if len(text) > 64 {
			text = fmt.Sprintf("%q… (%d bytes)", text[:64], len(text))
		}
		properties := strings.Split(strings.TrimSuffix(string(m.Properties), "\x02"), "\x02")
		slices.Sort(properties) // a hash map's order
		lines = append(lines, plain(fmt.Sprintf("record %s/%d@%d flag %d sysFlag %#x reconsumed %d prepared %t CRC %08x magic %08x body %q properties %q", m.Topic, m.QueueID,
			m.QueueOffset, m.Flag, m.SysFlag, m.ReconsumeTimes, m.PreparedTransactionOffset != 0, m.BodyCRC, m.Magic, text, properties)))
	}
	return lines
}
