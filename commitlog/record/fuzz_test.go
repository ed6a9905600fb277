package record

import (
	"bytes"
	"strings"
	"testing"
)

// seedRecords adds every golden record to a corpus.
func seedRecords(f *testing.F, add func(m *Message, rec []byte)) {
	for _, g := range goldenStores(f) {
		for _, seg := range g.Segments {
			b := g.files[seg.File]
			for len(b) > 0 {
				var m Message
				n, err := Decode(b, &m)
				if err != nil {
					break
				}
				add(&m, b[:n])
				b = b[n:]
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	seedRecords(f, func(_ *Message, rec []byte) {
		if len(rec) < 2000 {
			f.Add(rec)
		}
	})
	f.Add(AppendBlank(nil, 8))
	m := example()
	m.Magic = MagicV2
	f.Add(Append(nil, &m))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Message
		n, err := Decode(b, &m)
		if cn, cerr := Check(b, true); cn != n || (cerr == nil) != (err == nil) {
			t.Fatalf("Decode: %d, %v; Check: %d, %v", n, err, cn, cerr)
		}
		if err != nil {
			return
		}
		if n > len(b) || n != m.Size() {
			t.Fatalf("size %d of %d bytes, message %d", n, len(b), m.Size())
		}
		checkView(t, b[:n], &m)
		if again := Append(nil, &m); !bytes.Equal(again, b[:n]) {
			t.Fatalf("encodes to\n%X\nwas\n%X", again, b[:n])
		}
	})
}

func FuzzProperties(f *testing.F) {
	seedRecords(f, func(m *Message, _ []byte) { f.Add(m.Properties, "TAGS") })
	f.Add([]byte("\x01\x02\x02a\x01"), "a")
	f.Fuzz(func(t *testing.T, props []byte, name string) {
		var last, all []byte
		found := false
		RangeProperties(props, func(n, v []byte) bool {
			if len(n) == 0 || len(v) == 0 || bytes.IndexByte(n, NameValueSeparator) >= 0 || bytes.IndexByte(v, PropertySeparator) >= 0 {
				t.Fatalf("pair %q %q", n, v)
			}
			if string(n) == name {
				last, found = v, true
			}
			all = AppendProperty(all, n, v)
			return true
		})
		if got, ok := Property(props, name); ok != found || !bytes.Equal(got, last) {
			t.Fatalf("Property %q %v, range %q %v", got, ok, last, found)
		}
		stored := AppendStoredProperties(nil, props, "c")
		if again := AppendStoredProperties(nil, stored, "c"); !bytes.Equal(stored, again) {
			t.Fatalf("stored %q, again %q", stored, again)
		}
		if _, ok := Property(stored, PropertyWait); ok {
			t.Fatal("WAIT was stored")
		}
		if got, _ := Property(stored, PropertyCluster); string(got) != "c" {
			t.Fatalf("cluster %q", got)
		}
		if name != PropertyWait && name != PropertyCluster {
			if got, ok := Property(stored, name); ok != found || !bytes.Equal(got, last) {
				t.Fatalf("stored %q %v, was %q %v", got, ok, last, found)
			}
		}
		if JavaHash(props) != JavaHash(string(props)) {
			t.Fatal("hash of bytes and of text differ")
		}
	})
}

func FuzzBatch(f *testing.F) {
	seedRecords(f, func(m *Message, _ []byte) {
		if len(m.Body) < 500 {
			b := AppendBatchEntry(nil, BatchEntry{Flag: m.Flag, Body: m.Body, Properties: m.Properties})
			f.Add(AppendBatchEntry(b, BatchEntry{Body: []byte("x")}))
		}
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			e, rest, err := NextBatchEntry(b)
			if err != nil {
				return
			}
			entry := bytes.Clone(b[:len(b)-len(rest)])
			again := AppendBatchEntry(nil, e)
			clear(entry[4:12]) // magic and CRC are ignored
			if !bytes.Equal(again, entry) {
				t.Fatalf("encodes to\n%X\nwas\n%X", again, entry)
			}
			b = rest
		}
	})
}

func FuzzMessageID(f *testing.F) {
	seedRecords(f, func(m *Message, _ []byte) { f.Add(string(AppendMessageID(nil, m.StoreHost, m.PhyOffset))) })
	f.Add("00000000000000000000FFFF0102030400002A9F00000000000004D2")
	f.Fuzz(func(t *testing.T, id string) {
		h, off, err := ParseMessageID(id)
		if err != nil {
			return
		}
		if got := AppendMessageID(nil, h, off); string(got) != string(bytes.ToUpper([]byte(id))) {
			t.Fatalf("%s, was %s", got, id)
		}
	})
}

func FuzzTagFilter(f *testing.F) {
	f.Add("TagA", "TagB", "TagC")
	f.Add("*", "", "空")
	f.Fuzz(func(t *testing.T, a, b, other string) {
		expression := a + "||" + b
		filter, err := ParseTagFilter(expression)
		if err != nil {
			return
		}
		in := false
		for _, tag := range strings.Split(expression, "||") {
			if tag = strings.TrimSpace(tag); tag != "" {
				in = in || JavaHash(tag) == JavaHash(other)
				if !filter.Match(int64(JavaHash(tag))) {
					t.Fatalf("%q does not match %q", expression, tag)
				}
			}
		}
		if got := filter.Match(int64(JavaHash(other))); got != in && !filter.All() {
			t.Fatalf("%q and %q: %v", expression, other, got)
		}
	})
}
