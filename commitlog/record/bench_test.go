package record

import (
	"bytes"
	"fmt"
	"testing"
)

var benchSizes = []int{100, 1024, 16 << 10}

func benchMessage(body int) Message {
	m := example()
	m.Body = bytes.Repeat([]byte("b"), body)
	m.Properties = []byte("UNIQ_KEY\x01FD00000000000000000000000000000236595FFD2B27950AE7C10000\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster")
	return m
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			m := benchMessage(size)
			buf := make([]byte, 0, m.Size())
			b.SetBytes(int64(m.Size()))
			b.ReportAllocs()
			for b.Loop() {
				buf = Append(buf[:0], &m)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			m := benchMessage(size)
			rec := Append(nil, &m)
			b.SetBytes(int64(len(rec)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(rec, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCheckHeader(b *testing.B) {
	m := benchMessage(1024)
	rec := Append(nil, &m)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Check(rec, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTagsCode(b *testing.B) {
	m := benchMessage(0)
	b.ReportAllocs()
	for b.Loop() {
		if TagsCode(m.Properties) == 0 {
			b.Fatal("no tag")
		}
	}
}

func BenchmarkAppendStoredProperties(b *testing.B) {
	m := benchMessage(0)
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendStoredProperties(buf[:0], m.Properties, "DefaultCluster")
	}
}
