package inspect

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"raftmq/commitlog/consumequeue"
)

// place is where a finding must be.
type place struct {
	kind   Kind
	file   string
	offset int64
}

// expect compares what was found with the places, in any order; nothing else may be damaged. Notices don't count.
func expect(t *testing.T, found []Finding, want ...place) {
	t.Helper()
	left := map[place]int{}
	for _, p := range want {
		left[p]++
	}
	for _, f := range found {
		if f.Notice {
			continue
		}
		p := place{f.Kind, f.File, f.Offset}
		if left[p] == 0 {
			t.Errorf("not expected: %s", f.String())
			continue
		}
		left[p]--
	}
	for p, n := range left {
		if n > 0 {
			t.Errorf("not found: %s %s at %d", p.kind, p.file, p.offset)
		}
	}
}

// killed is a golden store of a broker that was killed, to be damaged.
type killed struct {
	t    *testing.T
	dir  string
	m    *manifest
	last int // the last record
}

func (k *killed) path(elements ...string) string {
	return filepath.Join(append([]string{k.dir}, elements...)...)
}

// segment is the file and offset of a physical offset.
func segment(phy int64) (string, int64) {
	return fmt.Sprintf("commitlog/%020d", phy-phy%goldenSegment), phy % goldenSegment
}

func (k *killed) poke(phy int64, b []byte) {
	file, at := segment(phy)
	poke(k.t, k.path(file), at, b)
}

// at is the place of record i.
func (k *killed) at(kind Kind, i int) place {
	file, off := segment(k.m.Messages[i].CommitLogOffset)
	return place{kind, file, off}
}

func (k *killed) end() int64 {
	return k.m.Messages[k.last].CommitLogOffset + int64(k.m.Messages[k.last].Size)
}

// lastUnits visits the last unit of each queue: its file and the unit's offset in it.
func (k *killed) lastUnits(visit func(queue, file string, at int64)) {
	for name, q := range k.m.ConsumeQueues {
		if len(q.Entries) == 0 {
			continue
		}
		for i := len(q.Files) - 1; i >= 0; i-- {
			if n := q.Files[i].Entries; n > 0 {
				visit(name, "consumequeue/"+name+"/"+q.Files[i].File, (n-1)*20)
				break
			}
		}
	}
}

func (k *killed) remove(elements ...string) {
	if err := os.RemoveAll(k.path(elements...)); err != nil {
		k.t.Fatal(err)
	}
}

// missingFrom are the places of the units of records from phy on, one for each queue file: neighbours are told
// together. Without any queue file left their size is taken to be RocketMQ's default.
func (k *killed) missingFrom(phy, fileSize int64) (list []place) {
	seen := map[string]bool{}
	for _, m := range k.m.Messages {
		if m.CommitLogOffset < phy {
			continue
		}
		from := m.QueueOffset * 20 / fileSize * fileSize
		file := fmt.Sprintf("consumequeue/%s/%d/%020d", m.Topic, m.QueueID, from)
		if !seen[file] {
			seen[file] = true
			list = append(list, place{KindUnitMissing, file, m.QueueOffset*20 - from})
		}
	}
	return list
}

// body is where a record's body begins, both hosts IPv4.
const body = 88

// damageCases are the ways in which golden/damage.py damages a killed store, in the order of the recovery
// files, and where the damage is.
var damageCases = map[string]func(k *killed) []place{
	"asis": func(k *killed) []place { return nil },
	"torn": func(k *killed) []place {
		k.poke(k.end()-10, make([]byte, 10))
		return []place{k.at(KindProperties, k.last)}
	},
	"crc": func(k *killed) []place {
		k.poke(k.m.Messages[k.last].CommitLogOffset+body, []byte{0xFF})
		return []place{k.at(KindCRC, k.last)}
	},
	"crcmid": func(k *killed) []place {
		k.poke(k.m.Messages[k.last-3].CommitLogOffset+body, []byte{0xFF})
		return []place{k.at(KindCRC, k.last-3)}
	},
	"size": func(k *killed) []place {
		m := k.m.Messages[k.last]
		k.poke(m.CommitLogOffset, binary.BigEndian.AppendUint32(nil, uint32(m.Size+7)))
		return []place{k.at(KindLength, k.last)}
	},
	"garbage": func(k *killed) []place {
		k.poke(k.end(), []byte(strings.Repeat("\xAB", 64)))
		file, off := segment(k.end())
		return []place{{KindMagic, file, off}}
	},
	"nocq": func(k *killed) []place {
		k.remove("consumequeue")
		return k.missingFrom(0, consumequeue.DefaultFileSize)
	},
	"noindex": func(k *killed) []place {
		k.remove("index")
		return []place{{KindIndexMissing, "index", 0}}
	},
	"nocheckpoint": func(k *killed) []place {
		k.remove("checkpoint")
		return []place{{KindCheckpoint, "checkpoint", 0}}
	},
	"noabort": func(k *killed) []place {
		k.remove("abort")
		return []place{{KindAbort, "abort", 0}}
	},
	"noabortcq": func(k *killed) []place {
		k.remove("abort")
		k.remove("consumequeue")
		return append(k.missingFrom(0, consumequeue.DefaultFileSize), place{KindAbort, "abort", 0})
	},
	"shortcq": func(k *killed) (list []place) {
		k.lastUnits(func(_, file string, at int64) {
			poke(k.t, k.path(file), at, make([]byte, 20))
			list = append(list, place{KindUnitMissing, file, at})
		})
		return list
	},
	"longcq": func(k *killed) (list []place) {
		k.lastUnits(func(queue, file string, at int64) {
			if queue == "GoldenRoll/0" {
				poke(k.t, k.path(file), at+20, unitBytes(k.end()+5000, 200, 0))
				list = append(list, place{KindUnitBehindLog, file, at + 20})
			}
		})
		return list
	},
	"lostseg": func(k *killed) (list []place) {
		from := k.m.Messages[k.last].CommitLogOffset / goldenSegment * goldenSegment
		k.remove("commitlog", fmt.Sprintf("%020d", from))
		k.remove("commitlog", fmt.Sprintf("%020d", from+goldenSegment))
		for _, p := range k.missingFrom(from, goldenQueueFile) {
			list = append(list, place{KindUnitBehindLog, p.file, p.offset})
		}
		// The entries of these records are the index's last ones.
		for _, f := range k.m.IndexFiles {
			for i, e := range f.Entries {
				if i > 0 && e[2] >= from {
					list = append(list, place{KindIndexBehindLog, "index/" + f.File, 40 + 4*goldenSlots + 20*int64(i)})
					break
				}
			}
		}
		for i, t := range []int64{k.m.Checkpoint.PhysicMsgTimestamp, k.m.Checkpoint.LogicsMsgTimestamp, k.m.Checkpoint.IndexMsgTimestamp} {
			if t > k.newest(from) {
				list = append(list, place{KindCheckpointAhead, "checkpoint", int64(8 * i)})
			}
		}
		if off := k.m.Checkpoint.At32; off > from {
			list = append(list, place{KindCheckpointAhead, "checkpoint", 32})
		}
		return list
	},
	"cpeq":    func(k *killed) []place { return k.checkpoint(3000) },
	"cpbelow": func(k *killed) []place { return k.checkpoint(2999) },
	"cplate":  func(k *killed) []place { return k.checkpoint(1e9) },
}

// newest is the store time of the newest record below phy.
func (k *killed) newest(phy int64) (t int64) {
	for _, m := range k.m.Messages {
		if m.CommitLogOffset < phy {
			t = max(t, m.StoreTimestamp)
		}
	}
	return t
}

// checkpoint removes the index and sets the checkpoint to so many ms after the third segment's first record.
func (k *killed) checkpoint(after int64) []place {
	k.remove("index")
	var t int64
	for _, m := range k.m.Messages {
		if m.CommitLogOffset >= 2*goldenSegment {
			t = m.StoreTimestamp + after
			break
		}
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(t))
	poke(k.t, k.path("checkpoint"), 0, append(append(b, b...), make([]byte, 8)...))
	list := []place{{KindIndexMissing, "index", 0}}
	if t > k.newest(k.end()) {
		list = append(list, place{KindCheckpointAhead, "checkpoint", 0}, place{KindCheckpointAhead, "checkpoint", 8})
	}
	return list
}

// TestDamagedKilledStores: all ways in which the recovery files were made, on both versions.
func TestDamagedKilledStores(t *testing.T) {
	if len(damageCases) != 17 {
		t.Fatalf("%d cases", len(damageCases))
	}
	for _, version := range []string{"4.9.4", "5.3.3"} {
		m := readManifest(t, version+"-killed")
		for name, damage := range damageCases {
			t.Run(version+"/"+name, func(t *testing.T) {
				k := &killed{t: t, dir: unpack(t, version+"-killed"), m: m, last: len(m.Messages) - 1}
				want := damage(k)
				found, _ := verify(t, k.dir)
				expect(t, found, want...)
				if name == "cplate" && len(want) != 3 {
					t.Errorf("the checkpoint is not ahead")
				}
			})
		}
	}
}
