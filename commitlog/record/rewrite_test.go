package record

import (
	"net/netip"
	"testing"
)

func TestAppendPropertiesWithout(t *testing.T) {
	for name, tc := range map[string]struct{ dst, props, want string }{
		"nothing to drop":        {"", "a\x011\x02b\x012", "a\x011\x02b\x012"},
		"first, last, malformed": {"", "DELAY\x013\x02a\x011\x02junk\x02=\x02WAIT\x01true\x02", "a\x011"},
		"duplicates of both":     {"", "a\x011\x02WAIT\x01x\x02a\x012\x02WAIT\x01y", "a\x011\x02a\x012"},
		"after what is there":    {"x\x01y", "a\x011", "x\x01y\x02a\x011"},
		"only dropped ones":      {"", "WAIT\x01true\x02DELAY\x011\x02", ""},
		"a longer name stays":    {"", "DELAYED\x011", "DELAYED\x011"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := AppendPropertiesWithout([]byte(tc.dst), []byte(tc.props), PropertyDelay, PropertyWait); string(got) != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPatchStoreTimestamps(t *testing.T) {
	var b []byte
	for _, host := range []string{"10.0.0.1:1", "[::1]:2", "10.0.0.3:3"} {
		b = Append(b, &Message{Topic: []byte("T"), BornHost: netip.MustParseAddrPort(host), StoreHost: netip.MustParseAddrPort(host), Body: []byte(host)})
	}
	PatchStoreTimestamps(b, 77)
	n := 0
	for len(b) > 0 {
		var m Message
		size, err := Decode(b, &m)
		if err != nil || m.StoreTimestamp != 77 {
			t.Fatalf("record %d: store time %d, %v", n, m.StoreTimestamp, err)
		}
		b, n = b[size:], n+1
	}
	if n != 3 {
		t.Errorf("%d records", n)
	}
}
