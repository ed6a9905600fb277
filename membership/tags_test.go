package membership

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// fullTags has every field set.
var fullTags = Tags{NodeID: "n1", Incarnation: "i7", ClusterName: "C", ClusterID: "id", Group: "broker-a", ClientAddr: "127.0.0.1:9876", RaftAddr: "127.0.0.1:9877",
	HTTPAddr: "[::1]:9879", Version: "0.1.0", BootstrapExpect: 3, HasData: true, LeaderTerm: 300, Level: 2, ClusterLevel: 1}

// TestTagsFormat holds version 1 still: nodes of different versions read each other.
func TestTagsFormat(t *testing.T) {
	for _, tt := range []struct {
		name    string
		tags    Tags
		leaving bool
		hex     string
	}{
		{"all", fullTags, true, "01" + "010143" + "02026964" + "030862726f6b65722d61" + "040e3132372e302e302e313a39383736" + "050e3132372e302e302e313a39383737" +
			"060a5b3a3a315d3a39383739" + "0705302e312e30" + "0b026937" + "080103" + "090103" + "0a02ac02" + "0c0102" + "0d0101"},
		{"none", Tags{NodeID: "n1"}, false, "01"},
		{"data", Tags{NodeID: "n1", HasData: true}, false, "01" + "090101"},
		{"fetches", Tags{NodeID: "n1", HasData: true, FetchesLog: true}, false, "01" + "090109"},
		{"full disk", Tags{NodeID: "n1", HasData: true, DiskFull: true}, true, "01" + "090107"},
	} {
		b, err := encodeTags(tt.tags, tt.leaving)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(b); got != tt.hex {
			t.Errorf("%s:\n got  %s\n want %s", tt.name, got, tt.hex)
		}
		got, leaving, err := decodeTags("n1", b)
		if got != tt.tags || leaving != tt.leaving || err != nil {
			t.Errorf("%s: %+v, %v, %v", tt.name, got, leaving, err)
		}
	}
}

func TestTagsDecodeErrors(t *testing.T) {
	for _, tt := range []struct{ name, hex, says string }{
		{"nothing", "", "none"},
		{"newer version", "02", "version 2"},
		{"field without length", "0101", "past the end"},
		{"field past the end", "01010243", "past the end"},
		{"length of ten bytes", "0101ffffffffffffffffffff01", "past the end"},
		{"length near 2^64", "0101ffffffffffffffffff0143", "past the end"},
		{"number with a tail", "0108020303", "no number"},
		{"number unfinished", "01080180", "no number"},
		{"number empty", "010800", "no number"},
		{"expect beyond reason", "010805ffffffff0f", "bootstrap-expect"},
		{"level beyond reason", "010c05ffffffff0f", "feature level"},
	} {
		b, _ := hex.DecodeString(tt.hex)
		_, _, err := decodeTags("n1", b)
		if !errors.Is(err, ErrBadTags) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	// A field of a later version is skipped.
	b, _ := hex.DecodeString("01" + "63025858" + "010143")
	if got, _, err := decodeTags("n1", b); err != nil || got != (Tags{NodeID: "n1", ClusterName: "C"}) {
		t.Errorf("unknown field: %+v, %v", got, err)
	}
}

func TestTagsEncodeErrors(t *testing.T) {
	for name, tags := range map[string]Tags{
		"too long":   {ClusterName: strings.Repeat("c", maxTags)},
		"no text":    {Group: "\xff"},
		"negative":   {BootstrapExpect: -1},
		"no level":   {Level: -1},
		"just above": {ClusterName: strings.Repeat("c", maxTags-3)},
	} {
		if _, err := encodeTags(tags, false); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if b, err := encodeTags(Tags{ClusterName: strings.Repeat("c", maxTags-4)}, false); err != nil || len(b) != maxTags {
		t.Errorf("exactly %d: %d bytes, %v", maxTags, len(b), err)
	}
}

func FuzzDecodeTags(f *testing.F) {
	full, _ := encodeTags(fullTags, true)
	f.Add(full)
	f.Add([]byte{1})
	f.Add([]byte{1, 9, 1, 1, 9, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		tags, leaving, err := decodeTags("n1", b)
		if err != nil {
			if !errors.Is(err, ErrBadTags) {
				t.Fatalf("error %v", err)
			}
			return
		}
		again, err := encodeTags(tags, leaving)
		if err != nil {
			return // text that we would not send ourselves, or more of it
		}
		if got, l, err := decodeTags("n1", again); got != tags || l != leaving || err != nil {
			t.Fatalf("%+v, %v became %+v, %v, %v", tags, leaving, got, l, err)
		}
	})
}
