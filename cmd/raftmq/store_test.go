package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
)

// goldenStore unpacks a store that a RocketMQ broker wrote.
func goldenStore(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open("../../commitlog/inspect/testdata/store-" + name + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		b, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// goldenManifest is what an independent reader found in it.
func goldenManifest(t *testing.T, name string, v any) {
	t.Helper()
	f, err := os.Open("../../commitlog/inspect/testdata/store-" + name + ".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(z).Decode(v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// storeCommand runs "raftmq store ..." and returns what it printed and its exit status.
func storeCommand(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(append([]string{"store"}, args...))
	err := root.Execute()
	if err != nil && !errors.Is(err, errReported) {
		errs.WriteString(err.Error())
	}
	return out.String(), errs.String(), exitStatus(err)
}

// TestStoreDumpJSON: each message of the manifest, all its fields under the same names, and the other parts by their numbers.
func TestStoreDumpJSON(t *testing.T) {
	const name = "4.9.4-clean"
	dir := goldenStore(t, name)
	var m struct {
		Messages      []map[string]any
		ConsumeQueues map[string]struct{ Entries [][4]float64 }
		IndexFiles    []struct{ Entries [][5]float64 }
		Checkpoint    map[string]any
		Config        map[string]string
	}
	goldenManifest(t, name, &m)

	lines := jsonLines(t, "dump", dir, "--json", "--body", "text")
	if len(lines) != len(m.Messages) {
		t.Fatalf("%d records, want %d", len(lines), len(m.Messages))
	}
	for i, want := range m.Messages {
		for key, w := range want {
			got, ok := lines[i][key]
			switch key {
			case "bodySha256", "inflatedSha256", "propertiesRaw", "delayLevel", "bornHost", "storeHost", "body", "bodyBase64":
				continue // not printed, or another spelling
			}
			if !ok || fmt.Sprint(got) != fmt.Sprint(w) {
				t.Errorf("record %d: %s is %v, want %v", i, key, got, w)
			}
		}
		if w, ok := want["body"]; ok && lines[i]["body"] != w {
			t.Errorf("record %d: body %v, want %v", i, lines[i]["body"], w)
		}
	}

	units := 0
	for _, q := range m.ConsumeQueues {
		units += len(q.Entries)
	}
	lines = jsonLines(t, "dump", dir, "--json", "--what", "queues")
	if len(lines) != units {
		t.Errorf("%d units, want %d", len(lines), units)
	}
	for _, l := range lines {
		want := m.ConsumeQueues[fmt.Sprintf("%v/%v", l["topic"], l["queueId"])].Entries[int(l["index"].(float64))]
		if got := [4]any{l["index"], l["commitLogOffset"], l["size"], l["tagsCode"]}; got != [4]any{want[0], want[1], want[2], want[3]} {
			t.Errorf("unit %v, want %v", got, want)
		}
	}

	entries := 0
	for _, f := range m.IndexFiles {
		entries += len(f.Entries) - 1
	}
	lines = jsonLines(t, "dump", dir, "--json", "--what", "index")
	if len(lines) != entries+len(m.IndexFiles) {
		t.Errorf("%d lines for %d entries", len(lines), entries)
	}

	lines = jsonLines(t, "dump", dir, "--json", "--what", "checkpoint")
	got := lines[0]["checkpoint"].(map[string]any)
	for _, key := range []string{"physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp", "size"} {
		if got[key] != m.Checkpoint[key] {
			t.Errorf("%s is %v, want %v", key, got[key], m.Checkpoint[key])
		}
	}

	lines = jsonLines(t, "dump", dir, "--json", "--what", "config")
	if len(lines) != len(m.Config) {
		t.Errorf("%d configuration files, want %d", len(lines), len(m.Config))
	}
	for _, l := range lines {
		if name := l["file"].(string); l["text"] != m.Config[name] || l["value"] == nil {
			t.Errorf("%s differs", name)
		}
	}
}

func jsonLines(t *testing.T, args ...string) (lines []map[string]any) {
	t.Helper()
	out, errs, status := storeCommand(t, args...)
	if status != 0 || errs != "" {
		t.Fatalf("%v: status %d, %s", args, status, errs)
	}
	for line := range strings.Lines(out) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, v)
	}
	return lines
}

func TestStoreDumpFilters(t *testing.T) {
	dir := goldenStore(t, "4.9.4-clean")
	all := jsonLines(t, "dump", dir, "--json")
	count := func(keep func(map[string]any) bool) (n int) {
		for _, l := range all {
			if keep(l) {
				n++
			}
		}
		return n
	}
	offset := func(l map[string]any) int { return int(l["commitLogOffset"].(float64)) }
	middle := offset(all[70])
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"--topic", "GoldenRoll"}, 69},
		{[]string{"--topic", "GoldenA", "--queue", "3"}, 4},
		{[]string{"--queue", "1"}, count(func(l map[string]any) bool { return l["queueId"].(float64) == 1 })},
		{[]string{"--limit", "5"}, 5},
		{[]string{"--from", fmt.Sprint(middle)}, len(all) - 70},
		{[]string{"--from", fmt.Sprint(middle + 1)}, len(all) - 71},
		{[]string{"--to", fmt.Sprint(middle)}, 70},
		{[]string{"--from", fmt.Sprint(middle), "--to", fmt.Sprint(offset(all[90]))}, 20},
		{[]string{"--from", "99999999"}, 0},
		{[]string{"--topic", "none"}, 0},
	} {
		lines := jsonLines(t, append([]string{"dump", dir, "--json"}, tt.args...)...)
		if len(lines) != tt.want {
			t.Errorf("%v: %d records, want %d", tt.args, len(lines), tt.want)
		}
		table, _, _ := storeCommand(t, append([]string{"dump", dir}, tt.args...)...)
		if n := strings.Count(table, "\n"); n != tt.want+1 {
			t.Errorf("%v: table of %d lines, want %d and a head", tt.args, n, tt.want)
		}
	}
	if lines := jsonLines(t, "dump", dir, "--json", "--limit", "1", "--body", "hex"); lines[0]["bodyHex"] != hex.EncodeToString([]byte("0")) {
		t.Errorf("body %v", lines[0]["bodyHex"])
	}
	if out, _, _ := storeCommand(t, "dump", dir, "--limit", "1", "--body", "hex"); !strings.Contains(out, "30 ") || !strings.Contains(out, "|0|") {
		t.Errorf("hex dump:\n%s", out)
	}
	if n := len(jsonLines(t, "dump", dir, "--json", "--what", "queues", "--topic", "GoldenRoll", "--limit", "7")); n != 7 {
		t.Errorf("%d units, want 7", n)
	}
	if n := len(jsonLines(t, "dump", dir, "--json", "--what", "index", "--from", fmt.Sprint(middle), "--limit", "7")); n != 7+2 {
		t.Errorf("%d index lines, want 7 entries and 2 headers", n)
	}
}

func TestStoreVerifyStatus(t *testing.T) {
	dir := goldenStore(t, "4.9.4-clean")
	out, errs, status := storeCommand(t, "verify", dir)
	if status != 0 || errs != "" || !strings.Contains(out, "clean; 143 records in 4 segments [0, 230854)") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	path := filepath.Join(dir, "commitlog/00000000000000000000")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[88] ^= 1 // first byte of the first body
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	out, errs, status = storeCommand(t, "verify", dir)
	if status != 1 || errs != "" || !strings.Contains(out, "record-crc") || !strings.Contains(out, "commitlog/00000000000000000000 at 0 (233 bytes)") ||
		!strings.Contains(out, "1 damaged places (record-crc 1)") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	out, _, status = storeCommand(t, "verify", "--json", dir)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var finding struct {
		Kind, File     string
		Offset, Length int64
	}
	var end struct {
		Summary struct{ Damaged, Records int64 }
	}
	if err := errors.Join(json.Unmarshal([]byte(lines[0]), &finding), json.Unmarshal([]byte(lines[len(lines)-1]), &end)); err != nil {
		t.Fatal(err)
	}
	if status != 1 || finding.Kind != "record-crc" || finding.Length != 233 || end.Summary.Damaged != 1 || end.Summary.Records != 143 {
		t.Errorf("status %d\n%s", status, out)
	}
	// The record still can be seen, with what is wrong.
	out, errs, status = storeCommand(t, "dump", dir, "--json", "--limit", "1")
	if status != 0 || !strings.Contains(out, `"damage":"record-crc"`) || !strings.Contains(errs, "record-crc") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
}

func TestStoreStrict(t *testing.T) {
	dir := goldenStore(t, "4.9.4-clean")
	if err := os.WriteFile(filepath.Join(dir, "index", "notes"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _, status := storeCommand(t, "verify", dir); status != 0 || !strings.Contains(out, "notice") {
		t.Errorf("status %d\n%s", status, out)
	}
	if _, _, status := storeCommand(t, "verify", "--strict", dir); status != 1 {
		t.Errorf("status %d with --strict", status)
	}
}

// TestStoreUnreadable: status 2 whenever a store could not be read, and never for damage.
func TestStoreUnreadable(t *testing.T) {
	empty := t.TempDir()
	for _, args := range [][]string{
		{"verify", empty}, {"stat", empty}, {"dump", empty}, {"verify", filepath.Join(empty, "none")}, {"verify"}, {"verify", "a", "b"},
		{"verify", "--none", empty}, {"dump", empty, "--what", "nothing"}, {"dump", empty, "--body", "x"}, {"verify", empty, "--delay-levels", "1x"},
		{"verify", empty, "--index-slots", "-1"}, {"dump", empty, "--from", "-1"},
	} {
		if out, errs, status := storeCommand(t, args...); status != 2 || errs == "" || out != "" {
			t.Errorf("%v: status %d, %q, %q", args, status, out, errs)
		}
	}
	dledger := filepath.Join(goldenStore(t, "4.9.4-dledger"), "broker0")
	if _, errs, status := storeCommand(t, "verify", dledger); status != 2 || !strings.Contains(errs, "DLedger") {
		t.Errorf("DLedger: status %d, %q", status, errs)
	}
	if out, _, status := storeCommand(t, "dump", dledger, "--what", "queues"); status != 0 || !strings.Contains(out, "GoldenA") {
		t.Errorf("DLedger's queues: status %d", status)
	}
}

func TestStoreStat(t *testing.T) {
	dir := goldenStore(t, "5.3.3-killed")
	out, errs, status := storeCommand(t, "stat", dir)
	for _, want := range []string{"rocketmq", "no, and the last stop was not clean", "5 of 64 KiB, offsets 0 to 249440", "115 of", "3 files, 240 entries of 99 in a file, 50 slots", "GoldenRoll"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if status != 0 || errs != "" {
		t.Errorf("status %d, %s", status, errs)
	}
	out, _, _ = storeCommand(t, "stat", dir, "--json", "--quick")
	var st struct {
		SegmentSize int64
		Log         struct{ Counted bool }
		Topics      []struct{ Topic string }
	}
	if err := json.Unmarshal([]byte(out), &st); err != nil || st.SegmentSize != 65536 || st.Log.Counted || len(st.Topics) != 6 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestStoreOfRaftMQ: a store of ours, by its own folder and by a node's, while it is open and afterwards.
func TestStoreOfRaftMQ(t *testing.T) {
	node := t.TempDir()
	s, err := store.Open(store.Config{Dir: filepath.Join(node, "store"), SegmentSize: 65536, QueueFileSize: 1000, MessageIndexEnable: true, MaxHashSlotNum: 50, MaxIndexNum: 100, OnFatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	for i := range 10 {
		b := record.Append(nil, &record.Message{Topic: []byte("T"), BornHost: host, StoreHost: host, StoreTimestamp: 1_600_000_000_000, Body: []byte("hello"), Properties: []byte("KEYS\x01k")})
		err := s.BeginEntry(uint64(i+1), 1)
		if err == nil {
			_, err = s.Append([]byte("T"), 0, b, 1)
		}
		if err = errors.Join(err, s.EndEntry()); err != nil {
			t.Fatal(err)
		}
	}
	s.Publish()
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	out, errs, status := storeCommand(t, "verify", node)
	if _, err := os.Stat("/proc/locks"); err == nil && (status != 0 || !strings.Contains(errs, "moving target") || !strings.Contains(out, "10 records") || !strings.Contains(out, "a broker is running")) {
		t.Errorf("running: status %d\n%s%s", status, out, errs)
	}
	if out, errs, status := storeCommand(t, "verify", "-q", node); status != 0 || errs != "" || out == "" {
		t.Errorf("quiet: status %d\n%s%s", status, out, errs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{node, filepath.Join(node, "store")} {
		out, errs, status := storeCommand(t, "verify", dir)
		if status != 0 || errs != "" || !strings.Contains(out, "10 records in 1 segments") || !strings.Contains(out, "10 journal records") {
			t.Errorf("%s: status %d\n%s%s", dir, status, out, errs)
		}
	}
	lines := jsonLines(t, "dump", node, "--json", "--what", "journal", "--limit", "3")
	if len(lines) != 3 || lines[2]["raftIndex"] != 3.0 || lines[2]["kind"] != "entry" {
		t.Errorf("journal %v", lines)
	}
}

func TestParseDelayLevels(t *testing.T) {
	got, err := parseDelayLevels(" 1s 5m  2h 1d ")
	if want := []time.Duration{time.Second, 5 * time.Minute, 2 * time.Hour, 24 * time.Hour}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := parseDelayLevels(""); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"1", "x", "-1s", "0s"} {
		if _, err := parseDelayLevels(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
