package commitlog

import (
	"errors"
	"fmt"

	"raftmq/commitlog/mappedfile"
)

// Sum is a CRC-32C over the published bytes [from, to) as they were applied: of whole entries the journal has it, so a log of any
// length costs 64 bytes an entry to read and not its own bytes. What the journal has no whole record of (the ends of the range, a part of what an
// installation brought) is read. Two logs with equal sums were fed the same bytes; whether the bytes are still what
// they were is Verify's question.
func (l *Log) Sum(from, to int64) (uint32, error) {
	if from < l.FileMin() || to > l.MaxOffset() || from > to {
		return 0, fmt.Errorf("%w: sum of [%d, %d), the log is [%d, %d)", mappedfile.ErrOutOfRange, from, to, l.FileMin(), l.MaxOffset())
	}
	l.published.Lock()
	end := l.published.pos
	l.published.Unlock()
	pos, err := l.journal.search(end, func(r *journalRecord) bool { return r.end > from })
	if err != nil {
		return 0, err
	}
	var sum uint32
	at := from
	for ; at < to && pos < end; pos += journalRecordSize {
		r, err := l.journal.read(pos)
		if errors.Is(err, mappedfile.ErrOutOfRange) && pos < l.journal.MinOffset() {
			continue // deleted meanwhile: its bytes are read, if they are still there
		}
		if err != nil {
			return 0, l.journal.corrupt(pos, err)
		}
		if r.start >= to {
			break
		}
		if r.start >= at && r.end <= to {
			if sum, err = l.ChecksumFrom(sum, at, r.start); err != nil {
				return 0, err
			}
			sum = CombineSums(sum, r.crc, r.end-r.start)
			at = r.end
		}
	}
	return l.ChecksumFrom(sum, at, to)
}

// AppliedFrom is the published offset from which on every byte was applied entry by entry, so that sums of it cost no reading of the log. What came with an installation is below. The
// first call reads the journal, later ones what is new of it.
func (l *Log) AppliedFrom() (int64, error) {
	l.published.Lock()
	end := l.published.pos
	l.published.Unlock()
	in := &l.installed
	in.Lock()
	defer in.Unlock()
	for in.pos = max(in.pos, l.journal.MinOffset()); in.pos < end; in.pos += journalRecordSize {
		r, err := l.journal.read(in.pos)
		if errors.Is(err, mappedfile.ErrOutOfRange) && in.pos < l.journal.MinOffset() {
			continue // deleted meanwhile
		}
		if err != nil {
			return 0, l.journal.corrupt(in.pos, err)
		}
		if r.kind == kindInstall {
			in.end = r.end
		}
	}
	return max(in.end, l.log.MinOffset()), nil
}

// castagnoliPoly is CRC-32C's polynomial, bit-reversed, without its highest term.
const castagnoliPoly = 0x82f63b78

// powers[k] is x^(2^k) modulo the polynomial.
var powers = func() (p [64]uint32) {
	p[0] = 1 << 30
	for k := 1; k < len(p); k++ {
		p[k] = multiply(p[k-1], p[k-1])
	}
	return p
}()

// multiply multiplies two polynomials over GF(2) modulo CRC-32C's; the highest bit is x^0.
func multiply(a, b uint32) (product uint32) {
	for bit := uint32(1 << 31); a != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
			a &^= bit
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= castagnoliPoly
		}
	}
	return product
}

// CombineSums is the CRC-32C of two byte strings, one behind the other, from the sum of each and the length of the second: appending n
// bytes multiplies the first sum by x^(8n).
func CombineSums(first, second uint32, secondLen int64) uint32 {
	for k := 3; secondLen > 0; k, secondLen = k+1, secondLen>>1 {
		if secondLen&1 != 0 {
			first = multiply(powers[k], first)
		}
	}
	return first ^ second
}
