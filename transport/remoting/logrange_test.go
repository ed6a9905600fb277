package remoting

import (
	"errors"
	"testing"
)

func logRangeRequest(fields ...string) *Command {
	cmd := &Command{Code: RequestLogRange}
	for i := 0; i < len(fields); i += 2 {
		cmd.Set(fields[i], fields[i+1])
	}
	return cmd
}

// TestLogRange: what is set is read, and what is no range is refused.
func TestLogRange(t *testing.T) {
	for _, want := range []LogRange{{}, {Offset: 5, Length: 1 << 62}, {Offset: 1, Peer: "n2/ab", Done: true}} {
		cmd := logRangeRequest()
		want.SetExt(cmd)
		if got, err := DecodeLogRange(cmd); err != nil || got != want {
			t.Errorf("%+v: got %+v, %v", want, got, err)
		}
	}
	for _, fields := range [][]string{{}, {"offset", "1"}, {"offset", "-1", "length", "1"}, {"offset", "1", "length", "-1"}, {"offset", "x", "length", "1"},
		{"offset", "9223372036854775807", "length", "1"}} {
		if _, err := DecodeLogRange(logRangeRequest(fields...)); !errors.Is(err, ErrFieldValue) {
			t.Errorf("%q: %v", fields, err)
		}
	}
	want := LogRangeAnswer{Offset: 7, CRC: 0xfedcba98, MinOffset: 3, MaxOffset: 1 << 40}
	cmd := &Command{}
	want.SetExt(cmd)
	if got, err := DecodeLogRangeAnswer(cmd); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if got := cmd.GetString("crc32c"); got != "fedcba98" {
		t.Errorf("crc32c %q", got)
	}
}

// FuzzLogRange: no value of a field panics, and what decodes survives a second time.
func FuzzLogRange(f *testing.F) {
	f.Add("0", "1048576", "n1", "true", "00000000")
	f.Add("-1", "", "", "", "zz")
	f.Fuzz(func(t *testing.T, offset, length, peer, done, crc string) {
		if l, err := DecodeLogRange(logRangeRequest("offset", offset, "length", length, "peer", peer, "done", done)); err == nil {
			again := logRangeRequest()
			l.SetExt(again)
			if got, err := DecodeLogRange(again); err != nil || got != l {
				t.Fatalf("%+v, then %+v, %v", l, got, err)
			}
		}
		if a, err := DecodeLogRangeAnswer(logRangeRequest("offset", offset, "minOffset", length, "maxOffset", offset, "crc32c", crc)); err == nil {
			again := logRangeRequest()
			a.SetExt(again)
			if got, err := DecodeLogRangeAnswer(again); err != nil || got != a {
				t.Fatalf("%+v, then %+v, %v", a, got, err)
			}
		}
	})
}
