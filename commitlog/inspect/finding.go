package inspect

import (
	"fmt"
	"strings"
)

// Kind is a kind of damage. The texts are part of the JSON output.
type Kind string

// Kinds of damage.
const (
	// Files of any part.
	KindFileName   Kind = "file-name"   // a file or folder that does not belong there
	KindFileSize   Kind = "file-size"   // odd size
	KindFileEmpty  Kind = "file-empty"  // no bytes at all
	KindSegmentGap Kind = "segment-gap" // segments are missing between two
	KindFileGap    Kind = "file-gap"    // the same for queue and journal files

	// The log.
	KindMagic      Kind = "record-magic"      // neither a record nor a filler where one must begin
	KindLength     Kind = "record-length"     // lengths that contradict each other or the file
	KindHost       Kind = "record-host"       // a port above 65535
	KindCRC        Kind = "record-crc"        // the body does not match its checksum
	KindPhyOffset  Kind = "record-offset"     // a record that says it is elsewhere
	KindTopic      Kind = "record-topic"      // a name that can't be a topic
	KindProperties Kind = "record-properties" // zeroes where properties should be: a torn write
	KindFiller     Kind = "filler-length"     // a filler that does not end with its segment
	KindFillerData Kind = "filler-bytes"      // bytes in a filler that are not zero
	KindHole       Kind = "log-hole"          // zeroes, and records behind them
	KindGarbage    Kind = "log-garbage"       // bytes behind the last record that are none
	KindQueueJump  Kind = "queue-offset"      // the log's queue offsets of one queue are not consecutive
	KindStoreTime  Kind = "store-time"        // a store time below the one before

	// Consume queues.
	KindUnitMissing   Kind = "unit-missing"    // a record without its unit
	KindUnitFiller    Kind = "unit-filler"     // a filler unit where a record's unit should be
	KindUnitForeign   Kind = "unit-foreign"    // a unit that points to a record of another place
	KindUnitNowhere   Kind = "unit-nowhere"    // a unit that points to no record
	KindUnitBehindLog Kind = "unit-behind-log" // a unit that points behind the log's end
	KindUnitSize      Kind = "unit-size"       // wrong size
	KindUnitTags      Kind = "unit-tags"       // wrong tags code
	KindUnitHole      Kind = "unit-hole"       // zero units, and units behind them
	KindExtUnit       Kind = "ext-unit"        // extension unit missing or wrong

	// The key index.
	KindIndexHeader    Kind = "index-header"     // header and entries differ
	KindIndexSlot      Kind = "index-slot"       // a slot that does not name its newest entry
	KindIndexChain     Kind = "index-chain"      // an entry that does not name the one before it in its slot
	KindIndexLoop      Kind = "index-loop"       // an entry that names itself or a later one
	KindIndexMissing   Kind = "index-missing"    // a record's key without an entry
	KindIndexNowhere   Kind = "index-nowhere"    // an entry that points to no record
	KindIndexForeign   Kind = "index-foreign"    // an entry that points to a record without such a key
	KindIndexDouble    Kind = "index-double"     // a second entry for a key of a record
	KindIndexBehindLog Kind = "index-behind-log" // an entry that points behind the log's end
	KindIndexTime      Kind = "index-time"       // an entry whose time is not the record's

	// The rest.
	KindCheckpoint      Kind = "checkpoint-missing"
	KindCheckpointAhead Kind = "checkpoint-ahead" // it names what the log does not have
	KindCheckpointValue Kind = "checkpoint-value" // an impossible time
	KindAbort           Kind = "abort-missing"    // no abort file, but the store was not stopped cleanly
	KindConfig          Kind = "config"           // a file that does not parse
	KindMeta            Kind = "store-json"
	KindJournalRecord   Kind = "journal-record" // a journal record that does not verify
	KindJournalOrder    Kind = "journal-order"  // one that does not follow the one before
	KindJournalBytes    Kind = "journal-bytes"  // the log's bytes are not those that the journal names
	KindJournalEnd      Kind = "journal-end"    // log bytes that no journal record names, or the reverse
	KindRecoveryPoint   Kind = "recovery-point" // damaged, or ahead of log or journal
	KindQueuePoint      Kind = "queue-point"    // the same for the queues' point
	KindIndexPoint      Kind = "index-point"    // the same for the key index's point
	KindInstalling      Kind = "installing"     // an installation of the log was interrupted
	KindTornTail        Kind = "torn-tail"      // what the next start cuts off, nothing acknowledged is in it
)

// Finding is one damaged place, or some alike one behind the other.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Notice bool   `json:"notice,omitempty"` // worth knowing, but no damage
	File   string `json:"file"`             // relative to the store's root
	Offset int64  `json:"offset"`           // of its first byte in the file
	Length int64  `json:"length,omitempty"` // bytes, 0 when there is no telling
	Count  int64  `json:"count,omitempty"`  // how many places, if more than one

	PhyOffset   int64  `json:"physicalOffset,omitempty"` // what it is about in the log
	Topic       string `json:"topic,omitempty"`
	QueueID     int32  `json:"queueId,omitempty"`
	QueueOffset int64  `json:"queueOffset,omitempty"` // of the first place
	Detail      string `json:"detail"`
}

// String is the finding in one line.
func (f *Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s@%d", f.Kind, f.File, f.Offset)
	if f.Count > 1 {
		fmt.Fprintf(&b, " (%d)", f.Count)
	}
	fmt.Fprintf(&b, ": %s", f.Detail)
	return b.String()
}

// Summary is the result of Verify.
type Summary struct {
	Damaged  int64          `json:"damaged"` // places
	Notices  int64          `json:"notices"`
	ByKind   map[Kind]int64 `json:"byKind,omitempty"` // places, notices included
	Complete bool           `json:"complete"`         // false: a running broker's newest part was not judged
	JudgedTo int64          `json:"judgedTo"`         // physical offset up to which derived files were compared

	Segments       int   `json:"segments"`
	LogMin         int64 `json:"logMin"`
	LogEnd         int64 `json:"logEnd"`
	Records        int64 `json:"records"`
	Queues         int64 `json:"queues"`
	Units          int64 `json:"units"`   // of records in the log
	Expired        int64 `json:"expired"` // units and index entries of records that the log has no more
	Fillers        int64 `json:"fillerUnits"`
	ExtUnits       int64 `json:"extUnits,omitempty"`
	IndexFiles     int   `json:"indexFiles"`
	IndexEntries   int64 `json:"indexEntries"`
	JournalRecords int64 `json:"journalRecords,omitempty"`
	ConfigFiles    int   `json:"configFiles"`
	Millis         int64 `json:"millis"`
}

// maxAlike is how many findings of one kind in one file are reported one by one; the rest is counted.
const maxAlike = 1000

// reporter passes findings on, puts neighbours together and counts.
type reporter struct {
	out     func(Finding)
	summary *Summary
	alike   map[string]*Finding // kind and file, above maxAlike
	seen    map[string]int64
	order   []string
}

func newReporter(out func(Finding), s *Summary) *reporter {
	s.ByKind = map[Kind]int64{}
	return &reporter{out: out, summary: s, alike: map[string]*Finding{}, seen: map[string]int64{}}
}

func (r *reporter) add(f Finding) {
	n := max(f.Count, 1)
	r.summary.ByKind[f.Kind] += n
	if f.Notice {
		r.summary.Notices += n
	} else {
		r.summary.Damaged += n
	}
	key := string(f.Kind) + "\x00" + f.File
	if r.seen[key]++; r.seen[key] <= maxAlike {
		r.out(f)
		return
	}
	if rest := r.alike[key]; rest != nil {
		rest.Count += n
		return
	}
	f.Count, f.Length = n, 0
	f.Detail = "and more of this kind from here on; the first was: " + f.Detail
	r.alike[key] = &f
	r.order = append(r.order, key)
}

func (r *reporter) flush() {
	for _, key := range r.order {
		r.out(*r.alike[key])
	}
	r.order = nil
}
