package store

import (
	"bytes"
	"errors"
	"testing"

	"raftmq/commitlog/record"
)

// smallLog is two segments of 512 bytes.
func smallLog() []byte {
	var b []byte
	add := func(n int) {
		rec := (&command{topic: "A", bodies: [][]byte{body(n)}}).records()
		record.PatchOffsets(rec, 0, int64(len(b)))
		b = append(b, rec...)
	}
	add(50)
	add(200)
	fill := 512 - len(b)
	b = append(record.AppendBlank(b, fill), make([]byte, fill-record.BlankMinSize)...)
	add(100)
	return b
}

// FuzzChain: whatever comes, cut anywhere, only checked bytes get through, in order; a whole
// log gets through whole, however it is cut.
func FuzzChain(f *testing.F) {
	good := smallLog()
	f.Add(good, 0, 7)
	f.Add(good, 150, 100)
	f.Add(good[:512], 1, 1)
	f.Add(make([]byte, 100), 50, 3)
	f.Add(record.AppendBlank(nil, 512), 4, 9)
	f.Fuzz(func(t *testing.T, b []byte, cut, piece int) {
		if cut < 0 || cut > len(b) || piece < 1 {
			return
		}
		run := func(cut, piece int) (out []byte, err error) {
			c := chain{segment: 512, to: int64(len(b)), sink: func(p []byte) error { out = append(out, p...); return nil }}
			for rest := b; len(rest) > 0 && err == nil; {
				n := min(piece, len(rest))
				if len(rest) == len(b) && cut > 0 {
					n = cut
				}
				err = c.write(rest[:n])
				rest = rest[n:]
			}
			if err == nil {
				err = c.end()
			}
			return out, err
		}
		whole, wholeErr := run(0, len(b)+1)
		pieces, piecesErr := run(cut, piece)
		if !bytes.HasPrefix(b, whole) || !bytes.Equal(whole, pieces) || (wholeErr == nil) != (piecesErr == nil) {
			t.Fatalf("whole: %d bytes, %v; in pieces: %d bytes, %v", len(whole), wholeErr, len(pieces), piecesErr)
		}
		if wholeErr == nil && len(whole) != len(b) || wholeErr != nil && !errors.Is(wholeErr, ErrInstall) {
			t.Fatalf("%d of %d bytes, %v", len(whole), len(b), wholeErr)
		}
		if bytes.Equal(b, good) && wholeErr != nil {
			t.Fatal(wholeErr)
		}
	})
}
