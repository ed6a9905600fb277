package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"raftmq/commitlog/record"
)

// query returns the physical offsets of what Query finds.
func query(t testing.TB, s *Store, q QueryRequest) (offsets []int64) {
	t.Helper()
	offsets, _ = queryExt(t, s, q)
	return offsets
}

// queryExt also returns the index's state as an answer tells it.
func queryExt(t testing.TB, s *Store, q QueryRequest) (offsets []int64, ext goldenExt) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	res, err := s.Query(ctx, q)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	defer res.Release()
	for _, b := range res.Records {
		offsets = append(offsets, record.View(b).PhyOffset())
	}
	if !slices.IsSorted(offsets) {
		t.Fatalf("%+v: %v not in order", q, offsets)
	}
	ext.IndexLastUpdatePhyoffset = json.Number(strconv.FormatInt(res.LastUpdatePhyOffset, 10))
	ext.IndexLastUpdateTimestamp = json.Number(strconv.FormatInt(res.LastUpdateTimestamp, 10))
	return offsets, ext
}

// checkKeys asks for every key.
func (m *model) checkKeys(t testing.TB, s *Store) {
	t.Helper()
	if s.index == nil {
		return
	}
	type key struct{ topic, key string }
	byKey, unique := map[key][]int64{}, map[key][]int64{}
	for k, records := range m.queues {
		topic, _, _ := strings.Cut(k, "/")
		for _, r := range records {
			for _, text := range strings.Fields(r.keys) {
				byKey[key{topic, text}] = append(byKey[key{topic, text}], r.phy)
			}
			if r.uniq != "" {
				unique[key{topic, r.uniq}] = append(unique[key{topic, r.uniq}], r.phy)
			}
		}
	}
	for k, want := range byKey {
		slices.Sort(want)
		q := QueryRequest{Topic: k.topic, Key: k.key, Max: 1000, End: math.MaxInt64}
		got := query(t, s, q)
		if len(got) == 0 || len(got) < min(len(want), maxQueryMsgs) {
			t.Fatalf("%+v: %d records, want %d", k, len(got), len(want))
		}
		got = slices.DeleteFunc(got, func(phy int64) bool { return !s.assignsQueueOffset(t, phy) })
		if len(got) > len(want) || !slices.Equal(got, want[len(want)-len(got):]) {
			t.Fatalf("%+v: %v, want the last of %v", k, got, want)
		}
	}
	for k, want := range unique {
		slices.Sort(want)
		q := QueryRequest{Topic: k.topic, Key: k.key, Unique: true, Max: 32, End: math.MaxInt64}
		got := slices.DeleteFunc(query(t, s, q), func(phy int64) bool { return !s.assignsQueueOffset(t, phy) })
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: %v, want %v", k, got, want)
		}
	}
}

// assignsQueueOffset tells records that the model knows from others.
func (s *Store) assignsQueueOffset(t testing.TB, phy int64) bool {
	t.Helper()
	b, release, err := s.RecordAt(phy)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	return record.AssignsQueueOffset(record.View(b).SysFlag())
}

// waitIndexed waits until the index has come to the published end.
func waitIndexed(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		turned := s.index.turn.next()
		err := s.index.wait(ctx, s.log.MaxOffset())
		if err == nil {
			return
		}
		select {
		case <-turned: // it was too far behind for a query to wait
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// TestGoldenIndex: from RocketMQ's log the index builds RocketMQ's files, byte for byte but for
// the names, which are times.
func TestGoldenIndex(t *testing.T) {
	for _, name := range []string{"store-4.9.4-clean", "store-4.9.4-killed", "store-4.9.4-ipv6", "store-5.3.3-clean", "store-5.3.3-killed"} {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			s := installed(t, g)
			waitIndexed(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			var want, got []string
			for file := range g {
				if strings.HasPrefix(file, "index/") {
					want = append(want, file)
				}
			}
			slices.Sort(want)
			got, err := filepath.Glob(filepath.Join(s.cfg.Dir, "index", "*"))
			if err != nil || len(got) != len(want) || len(want) == 0 {
				t.Fatalf("files %v, want %v: %v", got, want, err)
			}
			for i, file := range got {
				if len(filepath.Base(file)) != len("yyyyMMddHHmmssSSS") {
					t.Errorf("file name %s", file)
				}
				b, err := os.ReadFile(file)
				if err != nil || string(b) != string(g[want[i]]) {
					t.Errorf("%s differs from %s: %v", file, want[i], err)
				}
			}
		})
	}
}

// goldenQuery is a query by key and what a running RocketMQ broker answered.
type goldenQuery struct {
	Topic, Key       string
	Begin, End       int64
	MaxNum           int
	Unique           bool
	Code             int
	CommitLogOffsets []int64
	Ext              goldenExt
}

type goldenExt struct{ IndexLastUpdatePhyoffset, IndexLastUpdateTimestamp json.Number }

// cutBehind ends the log behind the record at an offset.
func (g golden) cutBehind(t *testing.T, last int64) {
	t.Helper()
	b := g[fmt.Sprintf("commitlog/%020d", last-last%testSegment)]
	n, err := record.Check(b[last%testSegment:], true)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[last%testSegment+int64(n):])
}

// TestGoldenKeyQueries asks what RocketMQ brokers were asked about the same bytes. Where they are
// wrong, ours is right, and only there it differs: they give out records of another key with
// the same hash (F41), a record twice that has two such keys, and miss a record by up to a
// second at the begin of the time range, as entries keep seconds.
func TestGoldenKeyQueries(t *testing.T) {
	for _, version := range []string{"4.9.4", "5.3.3"} {
		t.Run(version, func(t *testing.T) {
			var want struct {
				ByKey    []goldenQuery
				ViewByID []struct {
					Offset           int64
					Code             int
					CommitLogOffsets []int64
				}
			}
			b, err := os.ReadFile("testdata/keys-" + version + ".json")
			if err == nil {
				err = json.Unmarshal(b, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			last, err := want.ByKey[0].Ext.IndexLastUpdatePhyoffset.Int64()
			if err != nil {
				t.Fatal(err)
			}
			g := readGolden(t, "store-"+version+"-clean")
			g.cutBehind(t, last)
			s := installed(t, g)
			same, foreign, missed := 0, 0, 0
			for _, w := range want.ByKey {
				q := QueryRequest{Topic: w.Topic, Key: w.Key, Unique: w.Unique, Max: w.MaxNum, Begin: w.Begin, End: w.End}
				got, ext := queryExt(t, s, q)
				if ext != w.Ext && (len(got) > 0) == (w.Code == 0) {
					t.Errorf("%+v: index at %+v", w, ext)
				}
				theirs := slices.Compact(slices.Clone(w.CommitLogOffsets))
				right := slices.DeleteFunc(slices.Clone(theirs), func(phy int64) bool { return !hasKey(t, s, phy, w.Topic, w.Key) })
				switch {
				case slices.Equal(got, right) && len(right) == len(w.CommitLogOffsets):
					same++
				case slices.Equal(got, right):
					foreign++
				case w.Code == 22 && len(got) > 0 && inRange(t, s, got, w.Begin, w.End+999):
					missed++ // the seconds of End count to their end, as theirs do
				case w.MaxNum == 1 && len(right) == 0 && len(got) == 1:
					foreign++ // theirs was of another key
				default:
					t.Errorf("%+v: %v, right is %v", w, got, right)
				}
				for _, phy := range got {
					if !hasKey(t, s, phy, w.Topic, w.Key) {
						t.Errorf("%+v: %d has another key", w, phy)
					}
				}
			}
			t.Logf("%d answers are the same, %d of theirs have other keys, %d of theirs lack a record", same, foreign, missed)
			if same < 100 || foreign == 0 || missed == 0 {
				t.Errorf("%d same, %d with foreign keys, %d with missing records", same, foreign, missed)
			}
			for _, w := range want.ViewByID {
				b, release, err := s.RecordAt(w.Offset)
				if err == nil {
					if got := record.View(b).PhyOffset(); len(w.CommitLogOffsets) == 0 || got != w.CommitLogOffsets[0] {
						t.Errorf("view of %d: record at %d", w.Offset, got)
					}
					release()
				} else if len(w.CommitLogOffsets) > 0 || !errors.Is(err, ErrNotFound) {
					t.Errorf("view of %d: %v", w.Offset, err)
				}
			}
		})
	}
}

func hasKey(t *testing.T, s *Store, phy int64, topic, key string) bool {
	t.Helper()
	b, release, err := s.RecordAt(phy)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	v := record.View(b)
	uniqKey, keys := indexKeys(v)
	return string(v.Topic()) == topic && (string(uniqKey) == key || slices.Contains(strings.Fields(string(keys)), key))
}

func inRange(t *testing.T, s *Store, offsets []int64, begin, end int64) bool {
	t.Helper()
	for _, phy := range offsets {
		b, release, err := s.RecordAt(phy)
		if err != nil {
			t.Fatal(err)
		}
		stored := record.View(b).StoreTimestamp()
		release()
		if stored < begin || stored > end {
			return false
		}
	}
	return true
}
