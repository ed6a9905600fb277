package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"raftmq/commitlog/inspect"
)

// unitLine is a consume queue unit as JSON.
type unitLine struct {
	Topic           string   `json:"topic"`
	QueueID         int32    `json:"queueId"`
	Index           int64    `json:"index"`
	CommitLogOffset int64    `json:"commitLogOffset"`
	Size            int32    `json:"size"`
	TagsCode        int64    `json:"tagsCode"`
	Filler          bool     `json:"filler,omitempty"`
	Ext             *extLine `json:"ext,omitempty"`
	File            string   `json:"file"`
	Offset          int64    `json:"offset"`
}

// extLine is the extension of a unit.
type extLine struct {
	Address        int64  `json:"address"`
	Size           int32  `json:"size"`
	TagsCode       int64  `json:"tagsCode"`
	StoreTimestamp int64  `json:"msgStoreTime"`
	Bitmap         string `json:"bitmap"`
	File           string `json:"file"`
	Offset         int64  `json:"offset"`
}

func (d *dumper) queues() error {
	if !d.asJSON {
		if err := d.row("TOPIC", "QUEUE", "UNIT", "OFFSET", "SIZE", "TAGS CODE", "FILE", "AT"); err != nil {
			return err
		}
	}
	f := inspect.QueueFilter{Topic: d.topic, QueueID: d.queueID(), From: d.from, To: d.to, Limit: d.limit}
	return d.s.Units(f, func(q *inspect.Queue, u inspect.Unit) error {
		if !d.asJSON {
			return d.row(q.Topic, q.ID, u.Index, u.PhyOffset, u.Size, u.TagsCode, u.File, u.Offset)
		}
		l := unitLine{Topic: q.Topic, QueueID: q.ID, Index: u.Index, CommitLogOffset: u.PhyOffset, Size: u.Size, TagsCode: u.TagsCode,
			Filler: u.IsFiller(), File: u.File, Offset: u.Offset}
		if e := u.Ext; e != nil {
			l.Ext = &extLine{Address: e.Address, Size: e.Size, TagsCode: e.TagsCode, StoreTimestamp: e.StoreTimestamp, Bitmap: hex.EncodeToString(e.Bitmap),
				File: e.File, Offset: e.Offset}
		}
		return d.enc.Encode(l)
	})
}

// indexFileLine is an index file's header as JSON.
type indexFileLine struct {
	File           string `json:"file"`
	Size           int64  `json:"size"`
	Slots          int64  `json:"slots"`
	MaxEntries     int64  `json:"maxEntries"`
	BeginTimestamp int64  `json:"beginTimestamp"`
	EndTimestamp   int64  `json:"endTimestamp"`
	BeginPhyOffset int64  `json:"beginPhyOffset"`
	EndPhyOffset   int64  `json:"endPhyOffset"`
	HashSlotCount  int32  `json:"hashSlotCount"`
	IndexCount     int32  `json:"indexCount"`
}

// indexEntryLine is one of its entries.
type indexEntryLine struct {
	File      string `json:"file"`
	Index     int64  `json:"index"`
	KeyHash   int32  `json:"keyHash"`
	PhyOffset int64  `json:"phyOffset"`
	Seconds   int32  `json:"timeDiffSeconds"`
	Previous  int32  `json:"previous"`
}

func (d *dumper) index() error {
	files, err := d.s.IndexFiles()
	if err != nil {
		return err
	}
	n := int64(0)
	for i := range files {
		if d.limit > 0 && n >= d.limit {
			break
		}
		f := &files[i]
		if d.asJSON {
			err = d.enc.Encode(indexFileLine{f.Path, f.Size, f.Slots, f.MaxEntries, f.BeginTimestamp, f.EndTimestamp, f.BeginPhyOffset, f.EndPhyOffset,
				f.HashSlotCount, f.IndexCount})
		} else {
			err = d.indexHeader(f)
		}
		if err != nil {
			return err
		}
		err = d.s.IndexEntries(f, func(i int64, e inspect.IndexEntry) error {
			if e.PhyOffset < d.from || d.to > 0 && e.PhyOffset >= d.to {
				return nil
			}
			if d.limit > 0 && n >= d.limit {
				return inspect.ErrStop
			}
			n++
			if d.asJSON {
				return d.enc.Encode(indexEntryLine{f.Path, i, e.KeyHash, e.PhyOffset, e.Seconds, e.Previous})
			}
			return d.row(i, e.KeyHash, e.PhyOffset, e.Seconds, e.Previous)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) indexHeader(f *inspect.IndexFile) error {
	if err := d.rows.Flush(); err != nil {
		return err
	}
	slots := "an unknown number of"
	if f.Slots > 0 {
		slots = fmt.Sprint(f.Slots)
	}
	fmt.Fprintf(d.out, "%s: %d entries at most, %s slots; %d entries in %d slots, of records %d to %d stored %s to %s\n", f.Path, max(f.MaxEntries-1, 0), slots,
		max(f.IndexCount, 1)-1, f.HashSlotCount, f.BeginPhyOffset, f.EndPhyOffset, storeTime(f.BeginTimestamp), storeTime(f.EndTimestamp))
	return d.row("ENTRY", "KEY HASH", "OFFSET", "SECONDS", "PREVIOUS")
}

func (d *dumper) checkpoint() error {
	c, err := d.s.Checkpoint()
	if err != nil {
		return err
	}
	log, queues, index := d.s.Points()
	if d.asJSON {
		return d.enc.Encode(struct {
			Checkpoint    *inspect.Checkpoint    `json:"checkpoint"`
			RecoveryPoint *inspect.RecoveryPoint `json:"recoveryPoint,omitempty"`
			QueuePoint    *inspect.QueuePoint    `json:"queuePoint,omitempty"`
			IndexPoint    *inspect.IndexPoint    `json:"indexPoint,omitempty"`
			Abort         bool                   `json:"abort"`
		}{c, log, queues, index, d.s.Abort})
	}
	if c == nil {
		fmt.Fprintln(d.out, "there is no checkpoint")
	} else {
		for _, t := range []struct {
			name   string
			millis int64
		}{{"log flushed up to", c.PhysicMsgTimestamp}, {"queues built up to", c.LogicsMsgTimestamp}, {"index flushed up to", c.IndexMsgTimestamp}} {
			if err := d.row(t.name, t.millis, storeTime(t.millis)); err != nil {
				return err
			}
		}
		if c.MasterFlushedOffset != 0 || c.ConfirmPhyOffset != 0 {
			if err := errorsOf(d.row("master flushed offset", c.MasterFlushedOffset), d.row("confirm offset", c.ConfirmPhyOffset)); err != nil {
				return err
			}
		}
	}
	if log != nil {
		if err := errorsOf(d.row("log durable up to", log.LogEnd, fmt.Sprintf("raft index %d of term %d", log.RaftIndex, log.RaftTerm)),
			d.row("journal durable up to", log.JournalEnd)); err != nil {
			return err
		}
	}
	if queues != nil {
		if err := d.row("queues durable up to", queues.PhysicalOffset, fmt.Sprintf("%d units in %d queues", queues.Units, queues.Queues)); err != nil {
			return err
		}
	}
	if index != nil {
		return d.row("index durable up to", index.PhysicalOffset, fmt.Sprintf("%d files", index.Files))
	}
	return nil
}

// errorsOf is the first error of rows that were printed.
func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) config() error {
	files, err := d.s.Config(false)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Err != nil && !d.quiet {
			fmt.Fprintf(d.notes, "raftmq: config/%s does not parse: %v\n", f.Name, f.Err)
		}
		if d.asJSON {
			// The text as it is, and the same as standard JSON.
			err = d.enc.Encode(struct {
				File  string          `json:"file"`
				Text  string          `json:"text"`
				Value json.RawMessage `json:"value"`
			}{f.Name, string(f.Text), f.JSON})
		} else {
			_, err = fmt.Fprintf(d.out, "== config/%s\n%s\n", f.Name, f.Text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// journalLine is a journal record as JSON.
type journalLine struct {
	Kind           string `json:"kind"`
	RaftIndex      uint64 `json:"raftIndex"`
	RaftTerm       uint64 `json:"raftTerm"`
	Start          int64  `json:"start"`
	End            int64  `json:"end"`
	StoreTimestamp int64  `json:"lastStoreTimestamp"`
	Checksum       string `json:"checksum"`
	File           string `json:"file"`
	Offset         int64  `json:"offset"`
}

func (d *dumper) journal() error {
	if !d.asJSON {
		if err := d.row("RAFT INDEX", "TERM", "START", "END", "STORED", "CHECKSUM", "KIND", "FILE", "AT"); err != nil {
			return err
		}
	}
	n := int64(0)
	return d.s.Journal(func(r inspect.JournalRecord, damage error) error {
		if damage != nil {
			d.note(inspect.Finding{Kind: inspect.KindJournalRecord, File: r.File, Offset: r.Offset, Detail: damage.Error()})
			return nil
		}
		if r.End <= d.from || d.to > 0 && r.Start >= d.to {
			return nil
		}
		if d.limit > 0 && n >= d.limit {
			return inspect.ErrStop
		}
		n++
		kind := "entry"
		if r.Kind == 1 {
			kind = "installed"
		}
		sum := fmt.Sprintf("%08x", r.Checksum)
		if d.asJSON {
			return d.enc.Encode(journalLine{kind, r.RaftIndex, r.RaftTerm, r.Start, r.End, r.LastStoreTimestamp, sum, r.File, r.Offset})
		}
		return d.row(r.RaftIndex, r.RaftTerm, r.Start, r.End, time.UnixMilli(r.LastStoreTimestamp).Format("2006-01-02 15:04:05.000"), sum, kind, r.File, r.Offset)
	})
}
