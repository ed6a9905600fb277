package record

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goldenMessage is one message of a manifest.
type goldenMessage struct {
	Topic                     string
	QueueID                   int32
	QueueOffset               int64
	CommitLogOffset           int64
	Size                      int
	Magic, MsgID              string
	TagsHash                  int64
	Flag, SysFlag             int32
	BornTimestamp             int64
	BornHost                  string
	StoreTimestamp            int64
	StoreHost                 string
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	BodyCRC                   uint32
	BodyLength                int
	Properties                map[string]string
	PropertiesRaw             string
	Body, BodyBase64          *string
	BodySha256                string
}

type goldenSegment struct {
	File    string
	Size    int
	Records int
	End     int64
	Blank   *struct{ Position, Size int }
	Stop    *struct{ Position int }
}

type golden struct {
	Segments []goldenSegment
	Messages []goldenMessage
	files    map[string][]byte // commit log segments
}

func goldenStores(t testing.TB) map[string]golden {
	t.Helper()
	names, err := filepath.Glob("testdata/store-*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("no golden stores: %v", err)
	}
	stores := map[string]golden{}
	for _, name := range names {
		var g golden
		b, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(b, &g)
		}
		if err == nil {
			g.files, err = readSegments(strings.TrimSuffix(name, ".json") + ".tar.gz")
		}
		if err != nil {
			t.Fatal(err)
		}
		stores[strings.TrimSuffix(filepath.Base(name), ".json")] = g
	}
	return stores
}

func readSegments(name string) (map[string][]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if dir, file := path.Split(path.Clean(h.Name)); dir == "commitlog/" {
			if files[file], err = io.ReadAll(r); err != nil {
				return nil, err
			}
		}
	}
}

// goldenHost parses the manifest's form, in which IPv6 has no brackets.
func goldenHost(t testing.TB, s string) netip.AddrPort {
	t.Helper()
	i := strings.LastIndex(s, ":")
	if strings.Count(s, ":") > 1 {
		s = "[" + s[:i] + "]" + s[i:]
	}
	h, err := netip.ParseAddrPort(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestGolden decodes every record that RocketMQ wrote to the manifest's values and encodes it to
// the same bytes.
func TestGolden(t *testing.T) {
	for name, g := range goldenStores(t) {
		t.Run(name, func(t *testing.T) {
			next := 0
			for _, seg := range g.Segments {
				b := g.files[seg.File]
				if len(b) != seg.Size {
					t.Fatalf("segment %s has %d bytes, want %d", seg.File, len(b), seg.Size)
				}
				at, records := 0, 0
				for at < len(b) {
					var m Message
					n, err := Decode(b[at:], &m)
					if errors.Is(err, ErrBlank) {
						if seg.Blank == nil || *seg.Blank != (struct{ Position, Size int }{at, n}) {
							t.Fatalf("segment %s: filler of %d at %d, want %+v", seg.File, n, at, seg.Blank)
						}
						if !bytes.Equal(b[at:at+8], AppendBlank(nil, n)) {
							t.Fatalf("filler header %X", b[at:at+8])
						}
						at += n
						break
					}
					if seg.Stop != nil && at == seg.Stop.Position {
						if !errors.Is(err, ErrMagic) {
							t.Fatalf("segment %s ends at %d with %v", seg.File, at, err)
						}
						break
					}
					if err != nil {
						t.Fatalf("segment %s at %d: %v", seg.File, at, err)
					}
					rec := b[at : at+n]
					checkGolden(t, rec, &m, &g.Messages[next])
					if again := Append(nil, &m); !bytes.Equal(again, rec) {
						t.Fatalf("record at %d encodes to\n%X\nwas\n%X", at, again, rec)
					}
					next, records, at = next+1, records+1, at+n
				}
				if records != seg.Records {
					t.Errorf("segment %s: %d records, want %d", seg.File, records, seg.Records)
				}
			}
			if next != len(g.Messages) {
				t.Errorf("%d records, want %d", next, len(g.Messages))
			}
		})
	}
}

func checkGolden(t *testing.T, rec []byte, m *Message, want *goldenMessage) {
	t.Helper()
	checkView(t, rec, m)
	got := goldenMessage{
		Topic: string(m.Topic), QueueID: m.QueueID, QueueOffset: m.QueueOffset, CommitLogOffset: m.PhyOffset, Size: len(rec),
		Magic: fmt.Sprintf("%08X", m.Magic), MsgID: string(AppendMessageID(nil, m.StoreHost, m.PhyOffset)), TagsHash: TagsCode(m.Properties),
		Flag: m.Flag, SysFlag: m.SysFlag, BornTimestamp: m.BornTimestamp, BornHost: want.BornHost, StoreTimestamp: m.StoreTimestamp,
		StoreHost: want.StoreHost, ReconsumeTimes: m.ReconsumeTimes, PreparedTransactionOffset: m.PreparedTransactionOffset,
		BodyCRC: m.BodyCRC, BodyLength: len(m.Body), PropertiesRaw: string(m.Properties),
		Properties: want.Properties, Body: want.Body, BodyBase64: want.BodyBase64, BodySha256: want.BodySha256,
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", *want) {
		t.Fatalf("got  %+v\nwant %+v", got, *want)
	}
	if h := goldenHost(t, want.BornHost); h != m.BornHost {
		t.Errorf("born host %v, want %v", m.BornHost, h)
	}
	if h := goldenHost(t, want.StoreHost); h != m.StoreHost {
		t.Errorf("store host %v, want %v", m.StoreHost, h)
	}
	if host, off, err := ParseMessageID(want.MsgID); err != nil || host != m.StoreHost || off != m.PhyOffset {
		t.Errorf("message id %s: %v %d %v", want.MsgID, host, off, err)
	}
	if sum := sha256.Sum256(m.Body); hex.EncodeToString(sum[:]) != want.BodySha256 {
		t.Error("body differs")
	}
	if want.Body != nil && *want.Body != string(m.Body) || want.BodyBase64 != nil && *want.BodyBase64 != base64.StdEncoding.EncodeToString(m.Body) {
		t.Error("body text differs")
	}
	properties := map[string]string{}
	RangeProperties(m.Properties, func(name, value []byte) bool {
		properties[string(name)] = string(value) // later ones win
		return true
	})
	if fmt.Sprint(properties) != fmt.Sprint(want.Properties) {
		t.Errorf("properties %q, want %q", properties, want.Properties)
	}
	for name, value := range want.Properties {
		if got, ok := Property(m.Properties, name); !ok || string(got) != value {
			t.Errorf("property %s is %q, want %q", name, got, value)
		}
	}
	if tags, ok := want.Properties[PropertyTags]; ok {
		filter, err := ParseTagFilter("other || " + tags)
		if err != nil || !filter.Match(want.TagsHash) {
			t.Errorf("filter by %q does not match %d: %v", tags, want.TagsHash, err)
		}
	}
}

// TestGoldenStoredProperties: what a 4.9.4 broker stored for plain sends is what
// AppendStoredProperties makes of it again, whether the request had WAIT or not.
func TestGoldenStoredProperties(t *testing.T) {
	for name, g := range goldenStores(t) {
		if !strings.Contains(name, "4.9.4") {
			continue
		}
		plain := 0
		for _, m := range g.Messages {
			if m.Properties["CLUSTER"] == "" || m.Properties["WAIT"] != "" || strings.HasPrefix(m.Topic, "SCHEDULE") {
				continue
			}
			plain++
			request := AppendProperty([]byte(nil), "WAIT", "true")
			RangeProperties([]byte(m.PropertiesRaw), func(name, value []byte) bool {
				if string(name) != "CLUSTER" {
					request = AppendProperty(request, name, value)
				}
				return true
			})
			stored := AppendStoredProperties([]byte("before"), append(request, PropertySeparator), m.Properties["CLUSTER"])
			got, want := split(string(stored[len("before"):])), split(m.PropertiesRaw)
			if !slices.Equal(got, want) {
				t.Errorf("%s at %d: stored %q, want %q", name, m.CommitLogOffset, got, want)
			}
		}
		if plain < 5 {
			t.Errorf("%s: only %d plain messages", name, plain)
		}
	}
}

// split gives the pairs in an order that does not depend on a hash map's.
func split(s string) []string {
	list := strings.Split(s, "\x02")
	slices.Sort(list)
	return list
}
