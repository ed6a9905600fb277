package remoting

import (
	"bytes"
	"math"
)

// parseInt reads a decimal number with an optional sign, as Java's Long.parseLong
// does, without allocating.
func parseInt(b []byte) (int64, bool) {
	neg := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		neg = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 19 {
		return parseLongInt(b, neg)
	}
	var n uint64
	for _, ch := range b {
		d := uint64(ch - '0')
		if d > 9 {
			return 0, false
		}
		n = n*10 + d
	}
	if neg {
		if n > 1<<63 {
			return 0, false
		}
		return -int64(n), true
	}
	return int64(n), n <= math.MaxInt64
}

// parseLongInt handles the rare numbers that 19 digits do not hold: leading zeros.
func parseLongInt(b []byte, neg bool) (int64, bool) {
	if len(b) == 0 || b[0] == '-' || b[0] == '+' {
		return 0, false
	}
	b = bytes.TrimLeft(b, "0")
	if len(b) == 0 {
		return 0, true
	}
	if len(b) > 19 {
		return 0, false
	}
	n, ok := parseInt(b)
	if neg {
		if !ok && string(b) == "9223372036854775808" {
			return math.MinInt64, true
		}
		n = -n
	}
	return n, ok
}

// parseInt32 is parseInt for numbers that must fit 32 bits.
func parseInt32(b []byte) (int32, bool) {
	n, ok := parseInt(b)
	return int32(n), ok && n >= math.MinInt32 && n <= math.MaxInt32
}

// parseBool follows Java's Boolean.parseBoolean: true in any case, else false.
func parseBool(b []byte) bool {
	return len(b) == 4 && b[0]|0x20 == 't' && b[1]|0x20 == 'r' && b[2]|0x20 == 'u' && b[3]|0x20 == 'e'
}
