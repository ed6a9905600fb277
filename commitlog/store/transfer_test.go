package store

import (
	"testing"
)

// TestTransferLimits is the batch-full rule of the format notes' §8.1, and what counts as read from disk.
func TestTransferLimits(t *testing.T) {
	leakCheck(t)
	const size = 91 + 1 + 10_000 // of a record
	cfg := testConfig(t, t.TempDir())
	cfg.SegmentSize, cfg.QueueFileSize, cfg.HotBytes = 1<<20, 6_000_000, 20*size+size/2
	s := open(t, cfg)
	index := uint64(0)
	put := func(topic string, n, size int) {
		for range n {
			index++
			apply(t, s, index, command{topic: topic, bodies: [][]byte{body(size)}})
		}
	}
	put("A", 40, 10_000) // the last 20 are hot
	settle(t, s)
	var res GetResult
	check := func(name string, req GetRequest, count, cold int, lagging bool) {
		t.Helper()
		req.Topic = []byte("A")
		s.Get(&req, &res)
		if res.Status != Found || res.Count != count || res.ColdCount != cold || res.ColdBytes != cold*size || res.Lagging != lagging ||
			res.NextBeginOffset != req.Offset+int64(count) {
			t.Errorf("%s: %v, %d messages, %d cold (%d bytes), lagging %v, next %d; want %d, %d, %v", name, res.Status, res.Count, res.ColdCount, res.ColdBytes,
				res.Lagging, res.NextBeginOffset, count, cold, lagging)
		}
	}
	check("on disk: 65,536 bytes", GetRequest{MaxMsgs: 32}, 6, 6, true)
	check("in memory: no limit reached", GetRequest{Offset: 20, MaxMsgs: 32}, 20, 0, false)
	check("in memory, as asked for", GetRequest{Offset: 20, MaxMsgs: 3}, 3, 0, false)
	// The limit is that of the message that comes next.
	check("from disk into memory", GetRequest{Offset: 15, MaxMsgs: 32}, 25, 5, false)
	check("own limit", GetRequest{MaxMsgs: 10, MaxBytes: 1 << 20}, 10, 10, true)
	if st := s.Stats(); st.ColdReads != 3 || st.ColdMessages != 21 || st.ColdBytes != 21*size {
		t.Errorf("cold reads %d, messages %d, bytes %d", st.ColdReads, st.ColdMessages, st.ColdBytes)
	}
	if !s.Hot(20*size) || s.Hot(19*size) {
		t.Error("what is hot is not what Get says")
	}

	// Counts, with messages small enough.
	put("B", 100, 10)
	settle(t, s)
	req := GetRequest{Topic: []byte("B"), MaxMsgs: 1000}
	if s.Get(&req, &res); res.Count != 32 || res.NextBeginOffset != 32 {
		t.Errorf("%d messages in memory, want 32", res.Count)
	}
	put("A", 30, 10_000)
	settle(t, s)
	if s.Get(&req, &res); res.Count != 8 || res.ColdCount != 8 || !res.Lagging {
		t.Errorf("%d messages on disk, want 8", res.Count)
	}
	// No limit holds back the first message, nor counts what does not match.
	none := req
	none.Match = func(int64) bool { return false }
	if s.Get(&none, &res); res.Status != NoMatchedMessage || res.ColdCount != 0 || !res.Lagging || res.NextBeginOffset != 100 {
		t.Errorf("%+v", res)
	}
	put("C", 1, 300_000)
	settle(t, s)
	if s.Get(&GetRequest{Topic: []byte("C"), MaxMsgs: 32}, &res); res.Count != 1 {
		t.Errorf("a message larger than the limit: %v", res.Status)
	}
	res.Release()
}

// TestTransferSettings: they are the operator's.
func TestTransferSettings(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	cfg.HotBytes, cfg.TransferOnDisk, cfg.TransferInMemory = -1, Transfer{Msgs: 3}, Transfer{Bytes: 1, Msgs: 1}
	s := open(t, cfg)
	apply(t, s, 1, command{topic: "A", bodies: [][]byte{body(1), body(2), body(3), body(4)}})
	settle(t, s)
	var res GetResult
	defer res.Release()
	if s.Get(&GetRequest{Topic: []byte("A"), MaxMsgs: 32}, &res); res.Count != 3 || res.ColdCount != 3 || s.cfg.TransferOnDisk.Bytes != 65536 {
		t.Errorf("%d messages, %+v", res.Count, s.cfg.TransferOnDisk)
	}
}
