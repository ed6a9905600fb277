package inspect

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"raftmq/commitlog/record"
)

// hostText is how the manifests write a host: IPv6 without shortening.
func hostText(h netip.AddrPort) string {
	if h.Addr().Is4() {
		return h.String()
	}
	b := h.Addr().As16()
	var parts []string
	for i := 0; i < len(b); i += 2 {
		parts = append(parts, fmt.Sprintf("%x", int(b[i])<<8|int(b[i+1])))
	}
	return strings.Join(parts, ":") + ":" + strconv.Itoa(int(h.Port()))
}

func TestGoldenRecords(t *testing.T) {
	for _, name := range goldenNames {
		t.Run(name, func(t *testing.T) {
			m := readManifest(t, name)
			s := open(t, unpack(t, name))
			if s.Format != RocketMQ || s.SegmentSize != goldenSegment || s.QueueFileSize != goldenQueueFile || s.Abort != m.Abort || s.InUse.Running {
				t.Errorf("store is %s, segments of %d, queue files of %d, abort %v, in use %+v", s.Format, s.SegmentSize, s.QueueFileSize, s.Abort, s.InUse)
			}
			got := records(t, s)
			if len(got) != len(m.Messages) || len(got) == 0 {
				t.Fatalf("%d records, want %d", len(got), len(m.Messages))
			}
			for i := range got {
				r, w := &got[i], m.Messages[i]
				var have = w
				have.Topic, have.QueueID, have.QueueOffset, have.CommitLogOffset, have.Size = string(r.Topic), r.QueueID, r.QueueOffset, r.PhyOffset, r.Size
				have.Magic, have.MsgID = fmt.Sprintf("%08X", r.Magic), string(record.AppendMessageID(nil, r.StoreHost, r.PhyOffset))
				have.UniqKey, have.Tags, have.Keys = text(r, "UNIQ_KEY"), text(r, "TAGS"), text(r, "KEYS")
				have.TagsHash = record.TagsCode(r.Properties)
				have.Flag, have.SysFlag, have.BornTimestamp, have.StoreTimestamp = r.Flag, r.SysFlag, r.BornTimestamp, r.StoreTimestamp
				have.BornHost, have.StoreHost = hostText(r.BornHost), hostText(r.StoreHost)
				have.ReconsumeTimes, have.PreparedTransactionOffset, have.BodyCRC, have.BodyLength = r.ReconsumeTimes, r.PreparedTransactionOffset, r.BodyCRC, len(r.Body)
				have.PropertiesRaw = string(r.Properties)
				sum := sha256.Sum256(r.Body)
				have.BodySha256 = hex.EncodeToString(sum[:])
				if !reflect.DeepEqual(have, w) {
					t.Errorf("record %d:\n%+v\nwant\n%+v", i, have, w)
				}
				if r.Damage != "" || r.Offset != r.PhyOffset%goldenSegment || r.File != fmt.Sprintf("commitlog/%020d", r.PhyOffset-r.Offset) {
					t.Errorf("record at %d: damage %q, in %s at %d", r.PhyOffset, r.Damage, r.File, r.Offset)
				}
			}
		})
	}
}

func text(r *Record, name string) *string {
	v, ok := record.Property(r.Properties, name)
	if !ok {
		return nil
	}
	s := string(v)
	return &s
}

func TestGoldenQueues(t *testing.T) {
	ext := 0
	for _, name := range goldenNames {
		t.Run(name, func(t *testing.T) {
			m := readManifest(t, name)
			s := open(t, unpack(t, name))
			if len(s.Queues) != len(m.ConsumeQueues) {
				t.Fatalf("%d queues, want %d", len(s.Queues), len(m.ConsumeQueues))
			}
			n := 0
			for i := range s.Queues {
				q := &s.Queues[i]
				w := m.ConsumeQueues[fmt.Sprintf("%s/%d", q.Topic, q.ID)]
				got := units(t, s, q.Topic, q.ID)
				if len(got) != len(w.Entries) || len(q.Files) != len(w.Files) {
					t.Errorf("%s/%d: %d units in %d files, want %d in %d", q.Topic, q.ID, len(got), len(q.Files), len(w.Entries), len(w.Files))
					continue
				}
				for k, u := range got {
					if have := [4]int64{u.Index, u.PhyOffset, int64(u.Size), u.TagsCode}; have != w.Entries[k] {
						t.Errorf("%s/%d: unit %v, want %v", q.Topic, q.ID, have, w.Entries[k])
					}
					if b := peek(t, filepath.Join(s.Dir, u.File), u.Offset, 20); string(b) != string(unitBytes(u.PhyOffset, u.Size, u.TagsCode)) {
						t.Errorf("%s/%d unit %d is not in %s at %d", q.Topic, q.ID, u.Index, u.File, u.Offset)
					}
					n++
				}
				ext += checkExtUnits(t, s, m, q, got)
			}
			if n == 0 {
				t.Fatal("no units")
			}
		})
	}
	if ext < 100 {
		t.Fatalf("only %d extension units", ext)
	}
}

// checkExtUnits compares the extension of a queue, read in order and by address.
func checkExtUnits(t *testing.T, s *Store, m *manifest, q *Queue, units []Unit) (n int) {
	t.Helper()
	w := m.ConsumeQueueExt[fmt.Sprintf("%s/%d", q.Topic, q.ID)]
	byAddress := map[int64]bool{}
	err := s.ExtUnits(q.Topic, q.ID, func(u ExtUnit) error {
		if n >= len(w.Units) {
			t.Errorf("%s/%d: extension unit %+v is too much", q.Topic, q.ID, u)
			return ErrStop
		}
		have := [5]any{number(u.Address), number(int64(u.Size)), number(u.TagsCode), number(u.StoreTimestamp), hex.EncodeToString(u.Bitmap)}
		if have != w.Units[n] {
			t.Errorf("%s/%d: extension unit %v, want %v", q.Topic, q.ID, have, w.Units[n])
		}
		byAddress[u.Address] = true
		n++
		return nil
	})
	if err != nil || n != len(w.Units) {
		t.Errorf("%s/%d: %d extension units, want %d; %v", q.Topic, q.ID, n, len(w.Units), err)
	}
	for _, u := range units {
		if isExtAddress(u.TagsCode) != (u.Ext != nil) || u.Ext != nil && !byAddress[u.Ext.Address] {
			t.Errorf("%s/%d: unit %d with tags code %d has extension %+v", q.Topic, q.ID, u.Index, u.TagsCode, u.Ext)
		}
	}
	return n
}

func number(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

func TestGoldenIndex(t *testing.T) {
	entries := 0
	for _, name := range goldenNames {
		t.Run(name, func(t *testing.T) {
			m := readManifest(t, name)
			s := open(t, unpack(t, name))
			files, err := s.IndexFiles()
			if err != nil || len(files) != len(m.IndexFiles) {
				t.Fatalf("%d files, want %d; %v", len(files), len(m.IndexFiles), err)
			}
			for i := range files {
				f, w := &files[i], m.IndexFiles[i]
				have := IndexHeader{w.BeginTimestamp, w.EndTimestamp, w.BeginPhyOffset, w.EndPhyOffset, w.HashSlotCount, w.IndexCount}
				if f.IndexHeader != have || f.Path != "index/"+w.File || f.Size != w.Size {
					t.Errorf("%s: %+v, want %+v", f.Path, f.IndexHeader, have)
				}
				if w.IndexCount > 1 && (f.Slots != w.Slots || f.MaxEntries != w.MaxEntries) {
					t.Errorf("%s: %d slots and %d entries, want %d and %d", f.Path, f.Slots, f.MaxEntries, w.Slots, w.MaxEntries)
				}
				err := s.IndexEntries(f, func(k int64, e IndexEntry) error {
					entries++
					if have := [5]int64{k, int64(e.KeyHash), e.PhyOffset, int64(e.Seconds), int64(e.Previous)}; have != w.Entries[k] {
						t.Errorf("%s: entry %v, want %v", f.Path, have, w.Entries[k])
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				slots := map[string]int32{}
				if err := s.IndexSlots(f, func(slot int64, entry int32) error {
					slots[strconv.FormatInt(slot, 10)] = entry
					return nil
				}); err != nil {
					t.Error(err)
				}
				if !reflect.DeepEqual(slots, w.SlotTable) {
					t.Errorf("%s: slots %v, want %v", f.Path, slots, w.SlotTable)
				}
			}
		})
	}
	if entries < 1000 {
		t.Fatalf("only %d entries", entries)
	}
}

func TestGoldenSmallFiles(t *testing.T) {
	for _, name := range goldenNames {
		t.Run(name, func(t *testing.T) {
			m := readManifest(t, name)
			s := open(t, unpack(t, name))
			c, err := s.Checkpoint()
			if err != nil {
				t.Fatal(err)
			}
			w := m.Checkpoint
			if *c != (Checkpoint{w.Size, w.PhysicMsgTimestamp, w.LogicsMsgTimestamp, w.IndexMsgTimestamp, w.At24, w.At32, w.RestIsZero}) {
				t.Errorf("checkpoint %+v, want %+v", c, w)
			}
			config, err := s.Config(false)
			if err != nil || len(config) != len(m.Config) || len(config) == 0 {
				t.Fatalf("%d configuration files, want %d; %v", len(config), len(m.Config), err)
			}
			for _, f := range config {
				if string(f.Text) != m.Config[f.Name] || f.Err != nil || !json.Valid(f.JSON) {
					t.Errorf("%s: %v", f.Name, f.Err)
				}
			}
		})
	}
}

// TestGoldenOffsets: what the dialect means.
func TestGoldenOffsets(t *testing.T) {
	s := open(t, unpack(t, "4.9.4-clean"))
	config, err := s.Config(false)
	if err != nil {
		t.Fatal(err)
	}
	var offsets struct {
		OffsetTable map[string]map[string]int64 `json:"offsetTable"`
	}
	for _, f := range config {
		if f.Name == "consumerOffset.json" {
			err = json.Unmarshal(f.JSON, &offsets)
		}
	}
	want := map[string]int64{"0": 2, "1": 2, "2": 1, "3": 2}
	if got := offsets.OffsetTable["GoldenA@golden_cg"]; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("offsets %v, want %v; %v", got, want, err)
	}
}

// TestGoldenVerify: what the independent reader finds no problem in is clean.
func TestGoldenVerify(t *testing.T) {
	clean := 0
	for _, name := range goldenNames {
		t.Run(name, func(t *testing.T) {
			m := readManifest(t, name)
			found, sum := verify(t, unpack(t, name))
			if len(m.Problems) == 0 {
				clean++
				for _, f := range found {
					t.Errorf("%s", f.String())
				}
			} else if len(found) == 0 {
				t.Errorf("nothing found, expected %v", m.Problems)
			}
			if sum.Records != int64(len(m.Messages)) || !sum.Complete || sum.Segments != len(m.Segments) {
				t.Errorf("%d records in %d segments, want %d in %d", sum.Records, sum.Segments, len(m.Messages), len(m.Segments))
			}
		})
	}
	if clean != 6 {
		t.Errorf("%d stores are clean, expected 6", clean)
	}
}

// TestGoldenStat compares counts and ranges.
func TestGoldenStat(t *testing.T) {
	for _, name := range goldenNames {
		t.Run(name, func(t *testing.T) {
			m := readManifest(t, name)
			st, err := open(t, unpack(t, name)).Stat(false)
			if err != nil {
				t.Fatal(err)
			}
			count, bytes := map[string]int64{}, int64(0)
			for _, r := range m.Messages {
				count[fmt.Sprintf("%s/%d", r.Topic, r.QueueID)]++
				bytes += int64(r.Size)
			}
			last := m.Messages[len(m.Messages)-1]
			if st.Log.Records != int64(len(m.Messages)) || st.Log.RecordBytes != bytes || st.Log.End != last.CommitLogOffset+int64(last.Size) ||
				st.Log.FirstTime != m.Messages[0].StoreTimestamp || st.Log.Damaged != 0 {
				t.Errorf("log %+v", st.Log)
			}
			queues := 0
			for _, topic := range st.Topics {
				for _, q := range topic.Queues {
					key := fmt.Sprintf("%s/%d", topic.Topic, q.ID)
					if q.Records != count[key] {
						t.Errorf("%s: %d records, want %d", key, q.Records, count[key])
					}
					delete(count, key)
					if w, ok := m.ConsumeQueues[key]; ok {
						queues++
						if n := int64(len(w.Entries)); n > 0 && q.Max != w.Entries[n-1][0]+1 {
							t.Errorf("%s: units up to %d, want %d", key, q.Max, w.Entries[n-1][0]+1)
						}
					}
				}
			}
			if len(count) > 0 || queues != len(m.ConsumeQueues) {
				t.Errorf("queues left: %v, %d of %d", count, queues, len(m.ConsumeQueues))
			}
		})
	}
}

// TestDLedger: its log is refused, the rest can be read.
func TestDLedger(t *testing.T) {
	root := unpack(t, "4.9.4-dledger")
	s := open(t, filepath.Join(root, "broker0"))
	if s.Format != DLedger {
		t.Fatalf("format %s", s.Format)
	}
	if _, err := s.Verify(func(Finding) {}); !errors.Is(err, ErrDLedger) {
		t.Errorf("verify: %v", err)
	}
	if err := s.Records(RecordFilter{}, func(*Record) error { return nil }, nil); !errors.Is(err, ErrDLedger) {
		t.Errorf("records: %v", err)
	}
	if len(units(t, s, "GoldenA", 0)) == 0 {
		t.Error("no units")
	}
	if st, err := s.Stat(false); err != nil || len(st.Topics) == 0 {
		t.Errorf("stat: %v", err)
	}
}

func TestNoStore(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrNoStore) {
		t.Errorf("empty folder: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, Options{}); !errors.Is(err, ErrNoStore) {
		t.Errorf("file: %v", err)
	}
}
