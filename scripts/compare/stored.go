package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"raftmq/commitlog/inspect"
	"raftmq/commitlog/record"
)

// queue is a queue's name in a store.
type storedQueue struct {
	topic string
	id    int32
}

func (q storedQueue) String() string { return fmt.Sprintf("%s/%d", q.topic, q.id) }

// stored is what a store has in one queue.
type stored struct {
	records [][]byte // as they are in the log, in its order
	units   []string // of the consume queue, without where the record is
}

// readStore reads all records and units below a folder.
func readStore(dir string) (map[storedQueue]*stored, error) {
	s, err := inspect.Open(dir, inspect.Options{})
	if err != nil {
		return nil, err
	}
	out := map[storedQueue]*stored{}
	at := func(topic string, id int32) *stored {
		q := storedQueue{topic, id}
		if out[q] == nil {
			out[q] = &stored{}
		}
		return out[q]
	}
	var files openFiles
	defer files.close()
	err = s.Records(inspect.RecordFilter{}, func(r *inspect.Record) error {
		f, err := files.open(filepath.Join(s.Dir, r.File))
		if err != nil {
			return err
		}
		raw := make([]byte, r.Size)
		if _, err := f.ReadAt(raw, r.Offset); err != nil {
			return fmt.Errorf("%s at %d: %w", r.File, r.Offset, err)
		}
		q := at(string(r.Topic), r.QueueID)
		q.records = append(q.records, raw)
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	err = s.Units(inspect.QueueFilter{}, func(q *inspect.Queue, u inspect.Unit) error {
		tags := fmt.Sprint(u.TagsCode)
		if q.Topic == record.ScheduleTopic {
			tags = "SOME" // when it is due
		}
		have := at(q.Topic, q.ID)
		have.units = append(have.units, fmt.Sprintf("unit %d: size %d, tags code %s", u.Index, u.Size, tags))
		return nil
	})
	return out, err
}

// openFiles keeps files open.
type openFiles map[string]*os.File

func (o *openFiles) open(path string) (*os.File, error) {
	if f := (*o)[path]; f != nil {
		return f, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if *o == nil {
		*o = openFiles{}
	}
	(*o)[path] = f
	return f, nil
}

func (o *openFiles) close() {
	for _, f := range *o {
		_ = f.Close()
	}
}

var idPattern = regexp.MustCompile(`[0-9A-F]{32}`)

// masked is a record without what differs from run to run: hosts, its place and its times in the log, and ids in its properties. A born
// time that a client gave stays.
func masked(raw []byte) []byte {
	b := bytes.Clone(raw)
	v := record.View(b)
	born, store := 8, 8
	if v.SysFlag()&0x10 != 0 {
		born = 20
	}
	if v.SysFlag()&0x20 != 0 {
		store = 20
	}
	copy(v.Properties(), idPattern.ReplaceAll(v.Properties(), []byte("IDIDIDIDIDIDIDIDIDIDIDIDIDIDIDID")))
	if v.PreparedTransactionOffset() != 0 {
		binary.BigEndian.PutUint64(b[60+born+store:], 1)
	}
	if v.BornTimestamp() != bornTime {
		binary.BigEndian.PutUint64(b[40:], 0)
	}
	clear(b[28:36])                   // physical offset
	clear(b[48 : 48+born])            // born host
	clear(b[48+born : 56+born+store]) // store time and host
	return b
}

// sorted is a masked record with its properties in the order of their names.
func sorted(b []byte) []byte {
	b = bytes.Clone(b)
	props := record.View(b).Properties()
	parts := strings.Split(strings.TrimSuffix(string(props), two), two)
	slices.Sort(parts)
	copy(props, strings.Join(parts, two))
	return b
}

// storedReport is how two stores compare.
type storedReport struct {
	same, reordered int             // records with the same bytes; with the same but for the order of properties
	differ          []string        // lines
	where           map[string]bool // records and consume queues that differ, as storedDifferences names them
}

func compareStored(theirs, ours map[storedQueue]*stored) (r storedReport) {
	r.where = map[string]bool{}
	names := map[storedQueue]bool{}
	for _, m := range []map[storedQueue]*stored{theirs, ours} {
		for q := range m {
			names[q] = true
		}
	}
	all := make([]storedQueue, 0, len(names))
	for q := range names {
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b storedQueue) int { return strings.Compare(a.String(), b.String()) })
	for _, q := range all {
		want, got := theirs[q], ours[q]
		if want == nil {
			want = &stored{}
		}
		if got == nil {
			got = &stored{}
		}
		for i := range max(len(want.records), len(got.records)) {
			r.one(q, i, at(want.records, i), at(got.records, i))
		}
		if d := difference(want.units, got.units); d != "" {
			r.differ = append(r.differ, fmt.Sprintf("consume queue %s:\n%s", q, d))
			r.where["consume queue "+q.String()] = true
		}
	}
	return r
}

func at(records [][]byte, i int) []byte {
	if i < len(records) {
		return records[i]
	}
	return nil
}

func (r *storedReport) one(q storedQueue, i int, want, got []byte) {
	var a, b []byte
	if want != nil && got != nil {
		if a, b = masked(want), masked(got); bytes.Equal(a, b) {
			r.same++
			return
		}
		if bytes.Equal(sorted(a), sorted(b)) {
			r.reordered++
			return
		}
	}
	lines := func(raw []byte) []string {
		if raw == nil {
			return nil
		}
		v := record.View(raw)
		return append(records(raw), fmt.Sprintf("size %d, born %v, properties text %q", v.Size(), v.BornTimestamp() == bornTime, plain(string(v.Properties()))))
	}
	r.where["records of "+q.String()] = true
	r.differ = append(r.differ, fmt.Sprintf("record %d of %s:\n%s", i, q, difference(lines(want), lines(got))))
}

// compareStores compares the stores below two folders and prints what differs; what is listed may.
func compareStores(theirs, ours string) (good bool, err error) {
	a, err := readStore(theirs)
	b, err2 := readStore(ours)
	if err := errors.Join(err, err2); err != nil {
		return false, err
	}
	r := compareStored(a, b)
	wrong, listed := 0, 0
	for _, d := range r.differ {
		fmt.Println(d)
	}
	for name := range r.where {
		if storedDifferences[name] == "" {
			wrong++
		}
	}
	for name, reason := range storedDifferences {
		if r.where[name] {
			listed++
			fmt.Printf("%s: differ as listed: %s\n", name, reason)
		} else {
			wrong++
			fmt.Printf("%s: no difference any more; listed as: %s\n", name, reason)
		}
	}
	fmt.Printf("%d stored records have the same bytes, %d the same with properties in another order (times, hosts, ids and positions apart); %d queues' differ as listed, %d differ\n",
		r.same, r.reordered, listed, wrong)
	return wrong == 0 && r.same > 0, nil
}
