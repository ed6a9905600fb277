package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// vector is the format notes' example record; both hosts IPv4.
const vector = "0000007ADAA320A73610A68600000003000000000000000000000007" + "00000000000004D200000000" +
	"00000174876E8000C0A8010A0000D43100000174876E807B0A00000100002A9F000000000000000000000000" +
	"0000000568656C6C6F09546F70696354657374" + "00115441475301546167" + "41024B455953016B31"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func example() Message {
	return Message{
		Topic: []byte("TopicTest"), QueueID: 3, QueueOffset: 7, PhyOffset: 1234,
		BornTimestamp: 1600000000000, BornHost: netip.MustParseAddrPort("192.168.1.10:54321"),
		StoreTimestamp: 1600000000123, StoreHost: netip.MustParseAddrPort("10.0.0.1:10911"),
		Body: []byte("hello"), Properties: []byte("TAGS\x01TagA\x02KEYS\x01k1"),
	}
}

func TestVector(t *testing.T) {
	m := example()
	want := unhex(t, vector)
	got := Append(nil, &m)
	if !bytes.Equal(got, want) {
		t.Fatalf("got  %X\nwant %X", got, want)
	}
	if m.Size() != 122 || len(got) != 122 {
		t.Fatalf("size %d, %d bytes; want 122", m.Size(), len(got))
	}
	v4 := m
	m.BornHost = netip.MustParseAddrPort("[fd00::2]:54321")
	m.StoreHost = netip.MustParseAddrPort("[fd00::1]:10911")
	m.SysFlag = SysFlagCommit
	b := Append(nil, &m)
	if len(b) != 146 || View(b).SysFlag() != 0x38 {
		t.Fatalf("IPv6: %d bytes, sysFlag %#x; want 146, 0x38", len(b), View(b).SysFlag())
	}
	// The flag is the hosts' business: a stale bit of the caller must not survive.
	v4.SysFlag = 0x30
	if got := View(Append(nil, &v4)).SysFlag(); got != 0 {
		t.Fatalf("sysFlag %#x with IPv4 hosts", got)
	}
	v4.Magic = MagicV2
	if b := Append(nil, &v4); len(b) != 123 {
		t.Fatalf("v2: %d bytes, want 123", len(b))
	}
}

func TestHashes(t *testing.T) {
	for s, want := range map[string]int32{
		"TagA": 2598919, "TagB": 2598920, "a": 97, "": 0, "order-pay": -392735319, "Aa": 2112, "BB": 2112,
		"polygenelubricants": -2147483648, "TopicTest#k1": 2746024,
		"空": 31354, "😀": 31*0xD83D + 0xDE00,
	} {
		if got := JavaHash(s); got != want {
			t.Errorf("JavaHash(%q) = %d, want %d", s, got, want)
		}
		if got := JavaHash([]byte(s)); got != want {
			t.Errorf("JavaHash([]byte %q) = %d, want %d", s, got, want)
		}
	}
	if got := BodyCRC([]byte("hello")); got != 0x3610A686 {
		t.Errorf("CRC hello %#x", got)
	}
	if got := BodyCRC([]byte("123456789")); got != 0x4BF43926 {
		t.Errorf("CRC 123456789 %#x", got)
	}
	if got := BodyCRC(nil); got != 0 {
		t.Errorf("CRC of nothing %#x", got)
	}
	if got := TagsCode([]byte("TAGS\x01order-pay\x02")); got != -392735319 {
		t.Errorf("TagsCode %d", got)
	}
	if got := TagsCode([]byte("KEYS\x01a")); got != 0 {
		t.Errorf("TagsCode without tags %d", got)
	}
	if got := AppendBlank(nil, 100); !bytes.Equal(got, unhex(t, "00000064CBD43194")) {
		t.Errorf("blank %X", got)
	}
}

// checkView compares every View method with the decoded fields.
func checkView(t testing.TB, b []byte, m *Message) {
	t.Helper()
	v := View(b)
	got := Message{
		Topic: v.Topic(), QueueID: v.QueueID(), Flag: v.Flag(), QueueOffset: v.QueueOffset(), PhyOffset: v.PhyOffset(),
		SysFlag: v.SysFlag(), BornTimestamp: v.BornTimestamp(), BornHost: v.BornHost(), StoreTimestamp: v.StoreTimestamp(),
		StoreHost: v.StoreHost(), ReconsumeTimes: v.ReconsumeTimes(), PreparedTransactionOffset: v.PreparedTransactionOffset(),
		BodyCRC: v.BodyCRC(), Magic: v.Magic(), Body: v.Body(), Properties: v.Properties(),
	}
	if !reflect.DeepEqual(got, *m) {
		t.Fatalf("view %+v\ndecoded %+v", got, *m)
	}
}

func TestViewAndPatch(t *testing.T) {
	hosts := []netip.AddrPort{{}, netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("[::1]:65535"),
		netip.MustParseAddrPort("[::ffff:1.2.3.4]:80")}
	for _, magic := range []uint32{MagicV1, MagicV2} {
		for _, born := range hosts {
			for _, store := range hosts {
				m := example()
				m.Magic, m.BornHost, m.StoreHost, m.ReconsumeTimes, m.PreparedTransactionOffset = magic, born, store, 5, 99
				b := Append([]byte("junk"), &m)[4:]
				PatchOffsets(b, 1<<40, 1<<41)
				PatchStoreTimestamp(b, 77)
				var got Message
				n, err := Decode(b, &got)
				if err != nil || n != len(b) || n != m.Size() {
					t.Fatalf("%v %v: size %d, %v", born, store, n, err)
				}
				if got.QueueOffset != 1<<40 || got.PhyOffset != 1<<41 || got.StoreTimestamp != 77 || got.PreparedTransactionOffset != 99 {
					t.Fatalf("patched: %+v", got)
				}
				checkView(t, b, &got)
			}
		}
	}
}

func TestCorrupt(t *testing.T) {
	tests := []struct {
		name    string
		corrupt func([]byte) []byte
		want    error
		size    int
	}{
		{"whole", func(b []byte) []byte { return b }, nil, 122},
		{"more behind", func(b []byte) []byte { return append(b, 1, 2, 3) }, nil, 122},
		{"nothing", func(b []byte) []byte { return nil }, ErrTruncated, 0},
		{"half a header", func(b []byte) []byte { return b[:7] }, ErrTruncated, 0},
		{"header only", func(b []byte) []byte { return b[:8] }, ErrTruncated, 122},
		{"last byte missing", func(b []byte) []byte { return b[:121] }, ErrTruncated, 122},
		{"zeros", func(b []byte) []byte { clear(b); return b }, ErrMagic, 0},
		{"magic", func(b []byte) []byte { b[7]++; return b }, ErrMagic, 0},
		{"v2 magic on v1", func(b []byte) []byte { b[7] = 0xAB; return b }, ErrLength, 122},
		{"size negative", func(b []byte) []byte { b[0] = 0x80; return b }, ErrLength, 0},
		{"size below minimum", func(b []byte) []byte { b[3] = MinSize - 1; return b }, ErrLength, 0},
		{"size one less", func(b []byte) []byte { b[3]--; return b }, ErrLength, 121},
		{"size one more", func(b []byte) []byte { b[3]++; return append(b, 0) }, ErrLength, 123},
		{"born IPv6 flag", func(b []byte) []byte { b[39] |= 0x10; return b }, ErrLength, 122},
		{"hosts exceed size", func(b []byte) []byte {
			b = append(b[:MinSize], 0)
			b[3] = MinSize + 1
			b[39] |= 0x30
			return b
		}, ErrLength, MinSize + 1},
		{"born port", func(b []byte) []byte { b[52] = 1; return b }, ErrHost, 122},
		{"store port", func(b []byte) []byte { b[69] = 1; return b }, ErrHost, 122},
		{"body length negative", func(b []byte) []byte { b[84] = 0xFF; return b }, ErrLength, 122},
		{"body length high", func(b []byte) []byte { b[87] = 200; return b }, ErrLength, 122},
		{"topic length negative", func(b []byte) []byte { b[93] = 0x80; return b }, ErrLength, 122},
		{"topic length high", func(b []byte) []byte { b[93] = 100; return b }, ErrLength, 122},
		{"topic length low", func(b []byte) []byte { b[93]--; return b }, ErrLength, 122},
		{"properties length", func(b []byte) []byte { b[104]++; return b }, ErrLength, 122},
		{"properties negative", func(b []byte) []byte { b[103] = 0x80; return b }, ErrLength, 122},
		{"body bit", func(b []byte) []byte { b[88] ^= 1; return b }, ErrCRC, 122},
		{"stored crc", func(b []byte) []byte { b[8] ^= 0x80; return b }, ErrCRC, 122},
		{"crc zeroed", func(b []byte) []byte { clear(b[8:12]); return b }, ErrCRC, 122},
		{"blank", func(b []byte) []byte { return append(AppendBlank(nil, 100), make([]byte, 92)...) }, ErrBlank, 100},
		{"blank of 8", func(b []byte) []byte { return AppendBlank(nil, 8) }, ErrBlank, 8},
		{"blank of 7", func(b []byte) []byte { return AppendBlank(nil, 7) }, ErrLength, 0},
		{"blank cut", func(b []byte) []byte { return AppendBlank(nil, 9) }, ErrTruncated, 9},
		{"blank negative", func(b []byte) []byte { return AppendBlank(nil, -1) }, ErrLength, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.corrupt(unhex(t, vector))
			m := Message{Flag: 4711}
			n, err := Decode(b, &m)
			if !errors.Is(err, tt.want) || n != tt.size {
				t.Fatalf("Decode: %d, %v; want %d, %v", n, err, tt.size, tt.want)
			}
			if err != nil && m.Flag != 4711 {
				t.Error("message was touched in spite of the error")
			}
			if cn, cerr := Check(b, true); cn != n || !errors.Is(cerr, tt.want) {
				t.Errorf("Check: %d, %v", cn, cerr)
			}
			cn, cerr := Check(b, false)
			if errors.Is(tt.want, ErrCRC) {
				if cerr != nil {
					t.Errorf("Check without crc: %v", cerr)
				}
			} else if cn != n || !errors.Is(cerr, tt.want) {
				t.Errorf("Check without crc: %d, %v", cn, cerr)
			}
		})
	}
}

// TestF45ZeroCRC is F45: a body whose checksum happens to be 0 is checked like any other.
func TestF45ZeroCRC(t *testing.T) {
	// CRC-32 of FF FF FF FF is FFFFFFFF; of 9D 0A D9 6D it is 0 (the register's inverse).
	m := example()
	m.Body = []byte{0x9D, 0x0A, 0xD9, 0x6D}
	if BodyCRC(m.Body) != 0 {
		t.Fatalf("body has CRC %#x, the test wants 0", BodyCRC(m.Body))
	}
	b := Append(nil, &m)
	if _, err := Decode(b, &m); err != nil {
		t.Fatal(err)
	}
	b[88] ^= 1
	if _, err := Decode(b, &m); !errors.Is(err, ErrCRC) {
		t.Fatalf("damaged body with CRC 0: %v", err)
	}
}

func TestValidate(t *testing.T) {
	m := example()
	m.Topic = bytes.Repeat([]byte("t"), 128)
	if err := m.Validate(); !errors.Is(err, ErrLength) {
		t.Errorf("topic of 128: %v", err)
	}
	m.Magic = MagicV2
	if err := m.Validate(); err != nil {
		t.Errorf("topic of 128 in v2: %v", err)
	}
	m.Properties = []byte(strings.Repeat("p", 32768))
	if err := m.Validate(); !errors.Is(err, ErrLength) {
		t.Errorf("properties of 32768: %v", err)
	}
	m = example()
	m.Magic = MagicBlank
	if err := m.Validate(); !errors.Is(err, ErrMagic) {
		t.Errorf("blank magic: %v", err)
	}
}

func TestTransactionType(t *testing.T) {
	for flag, want := range map[int32]bool{0: true, 0x8: true, 0x4: false, 0xC: false, 0x301: true, 0x331 | 0x4: false} {
		if AssignsQueueOffset(flag) != want {
			t.Errorf("sysFlag %#x: %v", flag, !want)
		}
	}
}
