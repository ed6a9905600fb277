package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"raftmq/commitlog/record"
)

func storedRecord(change func(m *record.Message)) []byte {
	m := record.Message{Topic: []byte("T"), QueueID: 1, Body: []byte("body"), BornTimestamp: bornTime, StoreTimestamp: 5, Flag: 7, PhyOffset: 1000, QueueOffset: 3,
		Properties: []byte("A\x011\x02ID\x017F00000100002EEB0000000000000000\x02B\x012\x02"), BornHost: netip.MustParseAddrPort("10.0.0.1:1"), StoreHost: netip.MustParseAddrPort("10.0.0.2:2")}
	if change != nil {
		change(&m)
	}
	return record.Append(nil, &m)
}

// TestCompareStored: every byte counts but those that differ between any two runs.
func TestCompareStored(t *testing.T) {
	q := storedQueue{"T", 1}
	store := func(records ...[]byte) map[storedQueue]*stored {
		return map[storedQueue]*stored{q: {records: records, units: []string{"unit 0: size 1, tags code 0"}}}
	}
	for name, tc := range map[string]struct {
		change                  func(m *record.Message)
		same, reordered, differ int
	}{
		"nothing":        {nil, 1, 0, 0},
		"place and time": {func(m *record.Message) { m.PhyOffset, m.StoreTimestamp = 2000, 6 }, 1, 0, 0},
		"hosts":          {func(m *record.Message) { m.BornHost, m.StoreHost = netip.MustParseAddrPort("1.2.3.4:9"), m.BornHost }, 1, 0, 0},
		"id": {func(m *record.Message) {
			m.Properties = []byte(strings.Replace(string(m.Properties), "2EEB", "AAAA", 1))
		}, 1, 0, 0},
		"order": {func(m *record.Message) {
			m.Properties = []byte("B\x012\x02A\x011\x02ID\x017F00000100002EEB0000000000000000\x02")
		}, 0, 1, 0},
		"no separator":      {func(m *record.Message) { m.Properties = m.Properties[:len(m.Properties)-1] }, 0, 0, 1},
		"property":          {func(m *record.Message) { m.Properties[2] = '2' }, 0, 0, 1},
		"body":              {func(m *record.Message) { m.Body = []byte("bodY") }, 0, 0, 1},
		"flag":              {func(m *record.Message) { m.Flag = 8 }, 0, 0, 1},
		"system flag":       {func(m *record.Message) { m.SysFlag = 1 }, 0, 0, 1},
		"client's born":     {func(m *record.Message) { m.BornTimestamp = 1 }, 0, 0, 1},
		"queue offset":      {func(m *record.Message) { m.QueueOffset = 4 }, 0, 0, 1},
		"reconsumed":        {func(m *record.Message) { m.ReconsumeTimes = 1 }, 0, 0, 1},
		"prepared":          {func(m *record.Message) { m.PreparedTransactionOffset = 9 }, 0, 0, 1},
		"longer properties": {func(m *record.Message) { m.Properties = append(m.Properties, "C\x01\x02"...) }, 0, 0, 1},
	} {
		r := compareStored(store(storedRecord(nil)), store(storedRecord(tc.change)))
		if r.same != tc.same || r.reordered != tc.reordered || len(r.differ) != tc.differ || len(r.where) != tc.differ || tc.differ > 0 && !r.where["records of T/1"] {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := compareStored(store(storedRecord(nil), storedRecord(nil)), store(storedRecord(nil))); r.same != 1 || len(r.differ) != 1 {
		t.Errorf("one record more: %+v", r)
	}
	other := store(storedRecord(nil))
	other[q].units = []string{"unit 0: size 1, tags code 5"}
	if r := compareStored(store(storedRecord(nil)), other); !r.where["consume queue T/1"] || len(r.where) != 1 {
		t.Errorf("another tags code: %+v", r)
	}
	if r := compareStored(store(storedRecord(nil)), nil); !r.where["records of T/1"] || !r.where["consume queue T/1"] {
		t.Errorf("nothing there: %+v", r)
	}
}

// TestReadStore reads a log of two files with a filler between them.
func TestReadStore(t *testing.T) {
	dir := t.TempDir()
	const segment = 1 << 10
	var file []byte
	at := func(base int64) []byte {
		return storedRecord(func(m *record.Message) { m.PhyOffset = base })
	}
	var want [][]byte
	for len(file)+2*len(at(0)) < segment {
		want = append(want, at(int64(len(file))))
		file = append(file, want[len(want)-1]...)
	}
	file = append(file, make([]byte, segment-len(file))...)
	copy(file[len(want)*len(want[0]):], record.AppendBlank(nil, segment-len(want)*len(want[0])))
	second := make([]byte, segment)
	want = append(want, at(segment))
	copy(second, want[len(want)-1])
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "commitlog"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "commitlog", "00000000000000000000"), file, 0o644))
	must(os.WriteFile(filepath.Join(dir, "commitlog", "00000000000000001024"), second, 0o644))
	got, err := readStore(dir)
	must(err)
	s := got[storedQueue{"T", 1}]
	if len(got) != 1 || s == nil || len(s.units) != 0 || !slices.EqualFunc(s.records, want, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Errorf("read %+v, want %d records", got, len(want))
	}
	if _, err := readStore(t.TempDir()); err == nil {
		t.Error("an empty folder is a store")
	}
}
