package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"raftmq/commitlog/inspect"
	"raftmq/fsm/metadata"
)

// transactionGroup is RocketMQ's group whose offset in the half topic is how far all transactions have ended.
const (
	transactionGroup = "CID_RMQ_SYS_TRANS"
	halfTopic        = "RMQ_SYS_TRANS_HALF_TOPIC"
)

// configFiles are the tables as files of RocketMQ's config folder (its ConfigManager's), by name. A topic that has
// queues in the store but no configuration, as the broker's own may, gets one, so that it can be read.
func configFiles(t *metadata.Tables, queues []inspect.Queue) (map[string][]byte, error) {
	// The exported form, since it lists all of them.
	b, err := t.Export()
	if err != nil {
		return nil, err
	}
	var all struct {
		Topics, Groups             []json.RawMessage
		TopicVersion, GroupVersion metadata.DataVersion
		Offsets                    []struct {
			Topic  string `json:"t"`
			Group  string `json:"g"`
			Queue  int64  `json:"q"`
			Offset int64  `json:"o"`
		}
		Delay        []struct{ Level, Offset int64 }
		Transactions *struct{ Progress int64 }
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("tables: %w", err)
	}
	offsets := map[string]map[int64]int64{}
	put := func(key string, queue, offset int64) {
		if offsets[key] == nil {
			offsets[key] = map[int64]int64{}
		}
		offsets[key][queue] = offset
	}
	for _, o := range all.Offsets {
		put(o.Topic+"@"+o.Group, o.Queue, o.Offset)
	}
	if all.Transactions != nil && all.Transactions.Progress > 0 {
		put(halfTopic+"@"+transactionGroup, 0, all.Transactions.Progress)
	}
	delay := map[int64]int64{}
	for _, d := range all.Delay {
		delay[d.Level] = d.Offset
	}
	topics, err := byName(all.Topics, "topicName")
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		entry, ok := topics[q.Topic].(map[string]any)
		if !ok {
			entry = map[string]any{"order": false, "perm": 6, "readQueueNums": int32(0), "topicFilterType": "SINGLE_TAG", "topicName": q.Topic,
				"topicSysFlag": 0, "writeQueueNums": int32(0)}
			topics[q.Topic] = entry
		}
		if have, made := entry["readQueueNums"].(int32); made && q.ID >= have {
			entry["readQueueNums"], entry["writeQueueNums"] = q.ID+1, q.ID+1
		}
	}
	groups, err := byName(all.Groups, "groupName")
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"topics.json":            fastjson(map[string]any{"dataVersion": all.TopicVersion, "topicConfigTable": topics}),
		"subscriptionGroup.json": fastjson(map[string]any{"dataVersion": all.GroupVersion, "subscriptionGroupTable": groups}),
		"consumerOffset.json":    fastjson(map[string]any{"offsetTable": offsets}),
		"delayOffset.json":       fastjson(map[string]any{"offsetTable": delay}),
	}, nil
}

// byName is a table's entries under their names.
func byName(list []json.RawMessage, field string) (map[string]any, error) {
	table := map[string]any{}
	for _, b := range list {
		entry := map[string]any{}
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(&entry); err != nil {
			return nil, fmt.Errorf("tables: %w", err)
		}
		name, ok := entry[field].(string)
		if !ok {
			return nil, fmt.Errorf("tables: an entry without %s", field)
		}
		table[name] = entry
	}
	return table, nil
}

// fastjson writes a value the way RocketMQ's configuration files are written: one tab a level, a line for each member
// of an object, keys in alphabetical order; but maps with integer keys have these bare and in one line. v is made of
// map[string]any, maps with integer keys, and what encoding/json writes in one line.
func fastjson(v any) []byte { return appendFastjson(nil, v, 0) }

func appendFastjson(dst []byte, v any, level int) []byte {
	switch m := v.(type) {
	case metadata.DataVersion:
		return appendFastjson(dst, map[string]any{"counter": m.Counter, "timestamp": m.Timestamp}, level)
	case map[string]map[int64]int64:
		members := map[string]any{}
		for k, inner := range m {
			members[k] = inner
		}
		return appendFastjson(dst, members, level)
	case map[int64]int64:
		if len(m) == 0 {
			return append(dst, "{}"...)
		}
		dst = append(dst, '{')
		for i, k := range slices.Sorted(maps.Keys(m)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, k, 10)
			dst = strconv.AppendInt(append(dst, ':'), m[k], 10)
		}
		return append(appendLine(dst, level), '}')
	case map[string]any:
		if len(m) == 0 {
			return append(dst, "{}"...)
		}
		dst = append(dst, '{')
		for i, k := range slices.Sorted(maps.Keys(m)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendLine(dst, level+1)
			dst = append(appendScalar(dst, k), ':')
			dst = appendFastjson(dst, m[k], level+1)
		}
		return append(appendLine(dst, level), '}')
	}
	return appendScalar(dst, v)
}

func appendLine(dst []byte, level int) []byte {
	return append(append(dst, '\n'), strings.Repeat("\t", level)...)
}

// appendScalar writes a string, number or boolean; without the escapes for HTML, which fastjson does not know.
func appendScalar(dst []byte, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("scalars marshal: %v", err))
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
