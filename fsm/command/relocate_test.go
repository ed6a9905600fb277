package command

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"
)

// one returns the only command of an entry.
func one(t testing.TB, encoded []byte) Command {
	t.Helper()
	r, err := NewReader(append(AppendEntryHead(nil), encoded...))
	if err != nil {
		t.Fatal(err)
	}
	c, ok, err := r.Next()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return c
}

// The layouts are part of the format: nodes of other versions read them.
func TestRelocationLayout(t *testing.T) {
	d := AppendDelayDeliver(nil, &DelayDeliver{Level: 3, Expected: 7, Next: 9, Count: 2, Records: []byte("ab")})
	if want := "\x0c\x01\x00\x00\x00\x1a" + "\x00\x00\x00\x03" + "\x00\x00\x00\x00\x00\x00\x00\x07" + "\x00\x00\x00\x00\x00\x00\x00\x09" + "\x00\x00\x00\x02ab"; string(d) != want {
		t.Errorf("delivery\n got %q\nwant %q", d, want)
	}
	e := AppendTransactionEnd(nil, &TransactionEnd{Outcome: RolledBack, Half: 258, Count: 1, Records: []byte("r")})
	if want := "\x0d\x01\x00\x00\x00\x0e" + "\x02" + "\x00\x00\x00\x00\x00\x00\x01\x02" + "\x00\x00\x00\x01r"; string(e) != want {
		t.Errorf("end\n got %q\nwant %q", e, want)
	}
	if got, err := one(t, d).DelayDeliver(); err != nil || got.Level != 3 || got.Expected != 7 || got.Next != 9 || got.Count != 2 || string(got.Records) != "ab" {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := one(t, e).TransactionEnd(); err != nil || got.Outcome != RolledBack || got.Half != 258 || got.Count != 1 || string(got.Records) != "r" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestRelocationMalformed(t *testing.T) {
	d := one(t, AppendDelayDeliver(nil, &DelayDeliver{Level: 1, Expected: 0, Next: 1, Count: 1, Records: []byte("r")})).Payload
	e := one(t, AppendTransactionEnd(nil, &TransactionEnd{Outcome: Committed, Count: 1, Records: []byte("r")})).Payload
	for name, tc := range map[string]struct {
		payload []byte
		corrupt func(b []byte) []byte
	}{
		"delivery cut in its head":     {d, func(b []byte) []byte { return b[:23] }},
		"delivery of level 0":          {d, func(b []byte) []byte { b[3] = 0; return b }},
		"delivery that goes nowhere":   {d, func(b []byte) []byte { b[19] = 0; return b }},
		"delivery from below 0":        {d, func(b []byte) []byte { b[4] = 0xFF; return b }},
		"delivery, absurd count":       {d, func(b []byte) []byte { binary.BigEndian.PutUint32(b[20:], 1<<31); return b }},
		"delivery, bytes of no record": {d, func(b []byte) []byte { b[23] = 0; return b }},
		"delivery, no bytes":           {d, func(b []byte) []byte { return b[:24] }},
		"end cut in its head":          {e, func(b []byte) []byte { return b[:12] }},
		"end of no kind":               {e, func(b []byte) []byte { b[0] = 0; return b }},
		"end of a newer kind":          {e, func(b []byte) []byte { b[0] = 4; return b }},
		"end of an offset below 0":     {e, func(b []byte) []byte { b[1] = 0x80; return b }},
		"end, absurd count":            {e, func(b []byte) []byte { b[9] = 0x7F; return b }},
	} {
		t.Run(name, func(t *testing.T) {
			c := Command{Payload: tc.corrupt(bytes.Clone(tc.payload))}
			var err error
			if tc.payload[0] == 0 {
				_, err = c.DelayDeliver()
			} else {
				_, err = c.TransactionEnd()
			}
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func FuzzRelocation(f *testing.F) {
	f.Add(one(f, AppendDelayDeliver(nil, &DelayDeliver{Level: 1, Expected: 4, Next: 6, Count: 2, Records: []byte("records")})).Payload)
	f.Add(one(f, AppendTransactionEnd(nil, &TransactionEnd{Outcome: GivenUp, Half: 5, Count: 1, Records: []byte("r")})).Payload)
	f.Fuzz(func(t *testing.T, b []byte) {
		c := Command{Payload: b}
		if d, err := c.DelayDeliver(); err == nil && !bytes.Equal(one(t, AppendDelayDeliver(nil, &d)).Payload, b) {
			t.Errorf("delivery changed: %+v", d)
		}
		if e, err := c.TransactionEnd(); err == nil && !bytes.Equal(one(t, AppendTransactionEnd(nil, &e)).Payload, b) {
			t.Errorf("end changed: %+v", e)
		}
	})
}

func TestParseDelayLevels(t *testing.T) {
	levels, err := ParseDelayLevels(DefaultDelayLevels)
	if err != nil || len(levels) != 18 || levels[0] != time.Second || levels[3] != 30*time.Second || levels[17] != 2*time.Hour {
		t.Errorf("default: %v %v", levels, err)
	}
	levels, err = ParseDelayLevels("  2d\t1h ")
	if err != nil || len(levels) != 2 || levels[0] != 48*time.Hour || levels[1] != time.Hour {
		t.Errorf("two levels: %v %v", levels, err)
	}
	for _, text := range []string{"", " ", "s", "0s", "-1s", "1", "1ms", "1.5s", "1w", "1S", "5000000000s", "9999999d", "1s,2s"} {
		if levels, err := ParseDelayLevels(text); !errors.Is(err, ErrDelayLevels) {
			t.Errorf("%q: %v %v", text, levels, err)
		}
	}
	if got := (Settings{}).DelayLevels(); len(got) != 18 {
		t.Errorf("settings of an older cluster: %v", got)
	}
	if got := (Settings{MessageDelayLevel: "3s"}).DelayLevels(); len(got) != 1 || got[0] != 3*time.Second {
		t.Errorf("settings with one level: %v", got)
	}
}

func FuzzParseDelayLevels(f *testing.F) {
	f.Add(DefaultDelayLevels)
	f.Add("1d 1x")
	f.Fuzz(func(t *testing.T, text string) {
		levels, err := ParseDelayLevels(text)
		for _, l := range levels {
			if l <= 0 {
				t.Errorf("%q: level of %v", text, l)
			}
		}
		if err != nil && levels != nil {
			t.Errorf("%q: levels and an error", text)
		}
	})
}
