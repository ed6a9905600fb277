package keyindex

import (
	"math"
	"unicode/utf8"
)

// javaHash continues String.hashCode over the UTF-16 units of UTF-8 text. Invalid UTF-8
// counts as U+FFFD a byte.
func javaHash[T string | []byte](h int32, s T) int32 {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			h = 31*h + int32(c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		i += n
		if r > 0xFFFF {
			r -= 0x10000
			h = 31*h + (0xD800 + r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + r
	}
	return h
}

// keyHash is the hash of "topic#key" as entries hold it, never negative; topicHash is
// javaHash(0, topic). (RocketMQ's IndexFile.indexKeyHashMethod: the one value without an
// absolute value becomes 0.)
func keyHash[T string | []byte](topicHash int32, key T) int32 {
	h := javaHash(31*topicHash+'#', key)
	if h == math.MinInt32 {
		return 0
	}
	return max(h, -h)
}

// nextKey splits the first token off a KEYS property. Tokens are separated by single spaces;
// key is empty when there is none left.
func nextKey(keys []byte) (key, rest []byte) {
	start := 0
	for start < len(keys) && keys[start] == ' ' {
		start++
	}
	end := start
	for end < len(keys) && keys[end] != ' ' {
		end++
	}
	return keys[start:end], keys[end:]
}
