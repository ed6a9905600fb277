package command

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

func entryOf(t testing.TB) []byte {
	b := AppendEntryHead(nil)
	b, start := BeginAppend(b)
	b = append(b, "record-onerecord-two"...)
	b = EndAppend(b, start, 2)
	b, err := AppendJSON(b, KindTopicPut, TopicPut{Topic: TopicConfig{TopicName: "T", ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6}, OnlyIfAbsent: true, Millis: 7})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEntry(t *testing.T) {
	b := entryOf(t)
	if n := Count(b); n != 2 {
		t.Fatalf("%d commands, want 2", n)
	}
	r, err := NewReader(b)
	if err != nil {
		t.Fatal(err)
	}
	c, ok, err := r.Next()
	if err != nil || !ok || c.Kind != KindAppend {
		t.Fatalf("first command: %+v %v %v", c, ok, err)
	}
	records, n, err := c.Records()
	if err != nil || n != 2 || string(records) != "record-onerecord-two" {
		t.Fatalf("records %q %d %v", records, n, err)
	}
	c, ok, err = r.Next()
	if err != nil || !ok || c.Kind != KindTopicPut || !bytes.Contains(c.Payload, []byte(`"topicName":"T"`)) {
		t.Fatalf("second command: %+v %v %v", c, ok, err)
	}
	if _, ok, err := r.Next(); ok || err != nil {
		t.Fatalf("after the last command: %v %v", ok, err)
	}
}

func TestBadEntries(t *testing.T) {
	for name, tc := range map[string]struct {
		corrupt func([]byte) []byte
		want    error
	}{
		"empty":            {func([]byte) []byte { return nil }, ErrMalformed},
		"other magic":      {func(b []byte) []byte { b[0] ^= 1; return b }, ErrMalformed},
		"newer envelope":   {func(b []byte) []byte { b[1] = 2; return b }, ErrUnknown},
		"unknown kind":     {func(b []byte) []byte { b[2] = 200; return b }, ErrUnknown},
		"kind zero":        {func(b []byte) []byte { b[2] = 0; return b }, ErrUnknown},
		"newer command":    {func(b []byte) []byte { b[3] = 9; return b }, ErrUnknown},
		"length too large": {func(b []byte) []byte { binary.BigEndian.PutUint32(b[4:], 1<<31); return b }, ErrMalformed},
		"cut in a head":    {func(b []byte) []byte { return b[:5] }, ErrMalformed},
		"cut in a payload": {func(b []byte) []byte { return b[:len(b)-1] }, ErrMalformed},
		"no records":       {func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 0); return b }, ErrMalformed},
		"absurd count":     {func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 1<<30); return b }, ErrMalformed},
		"append too short": {func(b []byte) []byte { return append(AppendEntryHead(nil), 1, 1, 0, 0, 0, 1, 0) }, ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			if err := walk(tc.corrupt(entryOf(t))); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func walk(b []byte) error {
	r, err := NewReader(b)
	if err != nil {
		return err
	}
	for {
		c, ok, err := r.Next()
		if err != nil || !ok {
			return err
		}
		if c.Kind == KindAppend {
			if _, _, err := c.Records(); err != nil {
				return err
			}
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(entryOf(f))
	f.Add(AppendEntryHead(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := Count(b)
		if walk(b) != nil {
			return
		}
		// A whole entry is exactly its head and its commands, and Count agrees.
		again := AppendEntryHead(nil)
		r, _ := NewReader(b)
		walked := 0
		for c, ok, _ := r.Next(); ok; c, ok, _ = r.Next() {
			again = append(again, byte(c.Kind), c.Version)
			again = binary.BigEndian.AppendUint32(again, uint32(len(c.Payload)))
			again = append(again, c.Payload...)
			walked++
		}
		if !bytes.Equal(again, b) || walked != n {
			t.Fatalf("decode∘encode changed %x to %x, %d commands counted as %d", b, again, walked, n)
		}
	})
}

func BenchmarkEncodeEntry(b *testing.B) {
	record := make([]byte, 1024)
	buf := make([]byte, 0, 2<<20)
	b.SetBytes(1024)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n%256 == 0 {
			buf = AppendEntryHead(buf[:0])
		}
		var start int
		buf, start = BeginAppend(buf)
		buf = append(buf, record...)
		buf = EndAppend(buf, start, 1)
		n++
	}
}
