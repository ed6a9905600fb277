package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"raftmq/commitlog/inspect"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
)

// TestConfigFilesForm: the text is RocketMQ's, byte for byte, but for the order of map entries, which RocketMQ leaves open.
func TestConfigFilesForm(t *testing.T) {
	const name = "4.9.4-clean"
	var m struct{ Config map[string]string }
	goldenManifest(t, name, &m)
	tables := metadata.New()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(tables.PutSettings(command.Settings{ClusterID: "c", ClusterName: "PeerCluster", BrokerName: "peer-a", SegmentSize: 65536, DefaultTopicQueues: 8}))
	var topics struct {
		DataVersion      metadata.DataVersion
		TopicConfigTable map[string]command.TopicConfig
	}
	var groups struct {
		DataVersion            metadata.DataVersion
		SubscriptionGroupTable map[string]command.GroupConfig
	}
	var offsets struct{ OffsetTable map[string]map[int32]int64 }
	var delays struct{ OffsetTable map[int]int64 }
	for file, v := range map[string]any{"topics.json": &topics, "subscriptionGroup.json": &groups, "consumerOffset.json": &offsets, "delayOffset.json": &delays} {
		b, err := inspect.StandardJSON([]byte(m.Config[file]))
		check(err)
		check(json.Unmarshal(b, v))
	}
	for _, c := range topics.TopicConfigTable {
		check(tables.PutTopic(command.TopicPut{Topic: c, Millis: topics.DataVersion.Timestamp}))
	}
	for _, g := range groups.SubscriptionGroupTable {
		check(tables.PutGroup(command.GroupPut{Group: g, Millis: groups.DataVersion.Timestamp}))
	}
	var commit command.OffsetsCommit
	for key, queues := range offsets.OffsetTable {
		topic, group, _ := strings.Cut(key, "@")
		for q, o := range queues {
			commit.Offsets = append(commit.Offsets, command.ConsumerOffset{Topic: topic, Group: group, QueueID: q, Offset: o})
		}
	}
	check(tables.CommitOffsets(commit))
	for level, o := range delays.OffsetTable {
		tables.AdvanceDelay(level, o)
	}
	files, err := configFiles(tables, []inspect.Queue{{Topic: "OwnTopic", ID: 2}, {Topic: "OwnTopic", ID: 1}, {Topic: "GoldenA", ID: 99}})
	check(err)
	if len(files) != 4 {
		t.Fatalf("%d files", len(files))
	}
	for file, text := range files {
		got, want := entryLines(string(text)), entryLines(m.Config[file])
		// What the tables have beside the golden ones: RocketMQ makes its own topics and groups when it starts.
		for _, w := range want {
			if !slices.Contains(got, w) && !strings.Contains(w, `"counter"`) && !strings.Contains(w, `"timestamp"`) {
				t.Errorf("%s lacks %q", file, w)
			}
		}
		if _, err := inspect.StandardJSON(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, file := range []string{"consumerOffset.json", "delayOffset.json"} {
		if got, want := entryLines(string(files[file])), entryLines(m.Config[file]); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", file, files[file], m.Config[file])
		}
	}
	var exported struct {
		TopicConfigTable map[string]command.TopicConfig
	}
	check(json.Unmarshal(files["topics.json"], &exported))
	if c := exported.TopicConfigTable["OwnTopic"]; c.ReadQueueNums != 3 || c.WriteQueueNums != 3 || c.Perm != 6 {
		t.Errorf("a topic without configuration: %+v", c)
	}
	if c := exported.TopicConfigTable["GoldenA"]; !reflect.DeepEqual(c, topics.TopicConfigTable["GoldenA"]) {
		t.Errorf("GoldenA became %+v", c)
	}
}

// entryLines are the lines of a file in an order of their own, without the commas that end them.
func entryLines(text string) []string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], ",")
	}
	slices.Sort(lines)
	return lines
}

func TestFastjsonEmpty(t *testing.T) {
	files, err := configFiles(metadata.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(files["consumerOffset.json"]), "{\n\t\"offsetTable\":{}\n}"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := string(files["delayOffset.json"]), "{\n\t\"offsetTable\":{}\n}"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestStoreExportConfig: the tables of a node that was killed, with the changes since its last snapshot.
func TestStoreExportConfig(t *testing.T) {
	t.Parallel()
	dir, port := filepath.Join(t.TempDir(), "data"), freePorts(t, 3)
	s := startServer(t, serverArgs(dir, port, "--bootstrap-expect", "1")...)
	s.ready(port)
	at := fmt.Sprintf("--name-servers=127.0.0.1:%d", port)
	mustRun(t, "", "topic", "create", "orders", "--queues", "1", at)
	mustRun(t, "one\ntwo\nthree\n", "produce", "--topic", "orders", at)
	mustRun(t, "", "consume", "--topic", "orders", "--group", "billing", "--from", "first", "--max", "2", at)
	out := filepath.Join(t.TempDir(), "config")
	if _, errs, status := storeCommand(t, "export-config", dir, "--out", out); status != 2 || !strings.Contains(errs, "stop the node first") {
		t.Errorf("running node: status %d, %s", status, errs)
	}
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.done
	before := folderState(t, dir)
	text, errs, status := storeCommand(t, "export-config", dir, "--out", out)
	if status != 0 || errs != "" || !strings.Contains(text, "as of raft index") {
		t.Fatalf("status %d\n%s%s", status, text, errs)
	}
	if after := folderState(t, dir); !reflect.DeepEqual(before, after) {
		t.Errorf("the node's folder changed:\n%v\n%v", before, after)
	}
	var topics struct {
		TopicConfigTable map[string]command.TopicConfig
	}
	var groups struct{ SubscriptionGroupTable map[string]any }
	var offsets struct{ OffsetTable map[string]map[string]int64 }
	for file, v := range map[string]any{"topics.json": &topics, "subscriptionGroup.json": &groups, "consumerOffset.json": &offsets} {
		b, err := os.ReadFile(filepath.Join(out, file))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = inspect.StandardJSON(b); err == nil {
			err = json.Unmarshal(b, v)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if c := topics.TopicConfigTable["orders"]; c.ReadQueueNums != 1 || topics.TopicConfigTable["TBW102"].TopicName != "TBW102" {
		t.Errorf("topics %+v", topics)
	}
	if groups.SubscriptionGroupTable["billing"] == nil {
		t.Errorf("groups %v", groups)
	}
	if got := offsets.OffsetTable["orders@billing"]["0"]; got != 2 {
		t.Errorf("offset %d, want 2: %v", got, offsets)
	}
	if _, errs, status := storeCommand(t, "export-config", filepath.Join(dir, "store"), "--out", out); status != 2 || !strings.Contains(errs, "not a node's data folder") {
		t.Errorf("a store alone: status %d, %s", status, errs)
	}
}

// folderState is what a folder holds: path to size and time of change.
func folderState(t *testing.T, dir string) map[string]string {
	t.Helper()
	state := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			state[path] = fmt.Sprint(info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestStoreCompare: a node serves its own store; what another folder holds it does not.
func TestStoreCompare(t *testing.T) {
	t.Parallel()
	dir, port := filepath.Join(t.TempDir(), "data"), freePorts(t, 3)
	s := startServer(t, serverArgs(dir, port, "--bootstrap-expect", "1")...)
	s.ready(port)
	at := fmt.Sprintf("--name-servers=127.0.0.1:%d", port)
	broker := fmt.Sprintf("--broker=127.0.0.1:%d", port)
	mustRun(t, strings.Repeat("message\n", 100), "produce", "--topic", "t", "--key", "k", at)
	out, _, status := storeCommand(t, "compare", dir, broker, "--no-keys")
	if status != 0 || !strings.Contains(out, "serves all of it; 100 records: 100 by id, 0 by key, 100 by offset") {
		t.Errorf("status %d\n%s", status, out)
	}
	out, _, status = storeCommand(t, "compare", dir, broker, "--no-keys", "--every", "7")
	if status != 0 || !strings.Contains(out, "15 by id") {
		t.Errorf("status %d\n%s", status, out)
	}
	out, _, status = storeCommand(t, "compare", goldenStore(t, "4.9.4-ext"), broker, "--no-keys")
	if status != 1 || !strings.Contains(out, "differences") || !strings.Contains(out, "by id") {
		t.Errorf("another store: status %d\n%s", status, out)
	}
	for _, args := range [][]string{{dir}, {dir, "--broker=127.0.0.1:1"}, {dir, broker, "--every", "0"}} {
		if _, errs, status := storeCommand(t, append([]string{"compare"}, args...)...); status != 2 || errs == "" {
			t.Errorf("%v: status %d, %q", args, status, errs)
		}
	}
}
