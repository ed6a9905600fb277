package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// JavaHash is String.hashCode over the UTF-16 units of UTF-8 text. Invalid UTF-8 counts as
// U+FFFD a byte.
func JavaHash[T string | []byte](s T) int32 {
	var h int32
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

// TagsCode is the Java hash of TAGS sign-extended, 0 when absent (not the delay exception,
// which needs the level table: store.md §2.8 of the format notes).
func TagsCode(props []byte) int64 {
	tags, ok := Property(props, PropertyTags)
	if !ok {
		return 0
	}
	return int64(JavaHash(tags))
}

// ErrTagExpression: a tag subscription that names no tag.
var ErrTagExpression = errors.New("record: illegal tag expression")

// TagFilter is a tag subscription: the set of hashes of its tags. The zero value matches all.
// Hash equality may let a foreign tag through; clients compare the text again.
type TagFilter struct{ codes []int32 } // sorted, without duplicates

// ParseTagFilter reads `A || B`; empty and `*` match everything (RocketMQ's FilterAPI).
func ParseTagFilter(expression string) (TagFilter, error) {
	if expression == "" || expression == "*" {
		return TagFilter{}, nil
	}
	var codes []int32
	for tag := range strings.SplitSeq(expression, "||") {
		if tag = strings.TrimSpace(tag); tag != "" {
			codes = append(codes, JavaHash(tag))
		}
	}
	if len(codes) == 0 {
		return TagFilter{}, fmt.Errorf("%w %q", ErrTagExpression, expression)
	}
	return NewTagFilter(codes), nil
}

// NewTagFilter is a filter of given hashes (a subscription's codeSet); none matches all.
func NewTagFilter(codes []int32) TagFilter {
	codes = slices.Clone(codes)
	slices.Sort(codes)
	return TagFilter{codes: slices.Compact(codes)}
}

// All tells whether the filter matches everything.
func (f TagFilter) All() bool { return len(f.codes) == 0 }

// Match decides by the tags code of a consume queue unit.
func (f TagFilter) Match(tagsCode int64) bool {
	if len(f.codes) == 0 {
		return true
	}
	_, found := slices.BinarySearch(f.codes, int32(tagsCode))
	return found
}
