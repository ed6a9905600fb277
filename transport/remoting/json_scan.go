package remoting

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks over JSON text without building a tree. It takes what fastjson
// takes of a header: blanks anywhere and raw control characters inside strings; it
// refuses what is not JSON otherwise.
type scanner struct {
	text []byte
	pos  int
	// arena receives unescaped strings; nil means none was given.
	arena *[]byte
}

// maxDepth bounds nesting of values that are skipped.
const maxDepth = 64

// arenaChunk is the smallest size of a fresh arena.
const arenaChunk = 4096

func (s *scanner) fail(what string) error {
	return fmt.Errorf("%s at byte %d of %d", what, s.pos, len(s.text))
}

// skipBlanks moves to the next byte that is not white space and returns it, 0 at
// the end of the text.
func (s *scanner) skipBlanks() byte {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// next skips blanks and takes one byte.
func (s *scanner) next() byte {
	c := s.skipBlanks()
	if s.pos < len(s.text) {
		s.pos++
	}
	return c
}

// specials marks the high bit of each byte of w that is a quote or a backslash.
// A borrow can mark a byte above a real hit too, so only the lowest mark counts.
func specials(w uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	q := w ^ '"'*ones
	b := w ^ '\\'*ones
	return ((q-ones)&^q | (b-ones)&^b) & highs
}

// str reads a string whose opening quote is the next byte after blanks.
func (s *scanner) str() ([]byte, error) {
	if s.skipBlanks() != '"' {
		return nil, s.fail("string expected")
	}
	s.pos++
	return s.strBody()
}

// plainEnd returns the index of the first quote or backslash at or after i, the
// text's length if there is none.
func plainEnd(text []byte, i int) int {
	for i+8 <= len(text) {
		if m := specials(binary.LittleEndian.Uint64(text[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(text) && text[i] != '"' && text[i] != '\\' {
		i++
	}
	return i
}

// strBody reads the rest of a string after its opening quote. The result is a view
// of the text, or of the arena when the string has escapes.
func (s *scanner) strBody() ([]byte, error) {
	start := s.pos
	i := plainEnd(s.text, start)
	switch {
	case i == len(s.text):
		return nil, s.fail("unfinished string")
	case s.text[i] == '"':
		s.pos = i + 1
		return s.text[start:i:i], nil
	}
	return s.unescape(start, i)
}

// reserve makes room for n bytes in the arena. A full arena is replaced, not
// copied, so that views of the old one stay valid.
func (s *scanner) reserve(n int) []byte {
	if s.arena == nil {
		s.arena = new([]byte)
	}
	if cap(*s.arena)-len(*s.arena) < n {
		*s.arena = make([]byte, 0, max(n, arenaChunk))
	}
	return *s.arena
}

// unescape reads a string from start whose first backslash is at i.
func (s *scanner) unescape(start, i int) ([]byte, error) {
	// What is left of the text bounds this string: an escape is never shorter than
	// what it stands for.
	buf := s.reserve(len(s.text) - start)
	from := len(buf)
	buf = append(buf, s.text[start:i]...)
	for i+1 < len(s.text) && s.text[i] == '\\' {
		var n int
		if buf, n = appendEscape(buf, s.text[i:]); n == 0 {
			s.pos = i
			return nil, s.fail("unknown escape")
		}
		run := i + n
		i = plainEnd(s.text, run)
		buf = append(buf, s.text[run:i]...)
	}
	if i >= len(s.text) || s.text[i] != '"' {
		return nil, s.fail("unfinished string")
	}
	s.pos = i + 1
	*s.arena = buf
	return buf[from:len(buf):len(buf)], nil
}

// appendEscape appends what the escape at the head of text stands for and returns
// its length in text, 0 when it is none.
func appendEscape(dst, text []byte) ([]byte, int) {
	switch text[1] {
	case '"', '\\', '/', '\'':
		return append(dst, text[1]), 2
	case 'b':
		return append(dst, '\b'), 2
	case 'f':
		return append(dst, '\f'), 2
	case 'n':
		return append(dst, '\n'), 2
	case 'r':
		return append(dst, '\r'), 2
	case 't':
		return append(dst, '\t'), 2
	case 'u':
		if len(text) >= 6 && text[2] == '0' && text[3] == '0' && text[4] == '0' && '0' <= text[5] && text[5] <= '9' {
			return append(dst, text[5]-'0'), 6 // \u0001 and \u0002 delimit properties
		}
		r := hex4(text[2:])
		if r < 0 {
			return dst, 0
		}
		if !utf16.IsSurrogate(r) {
			return utf8.AppendRune(dst, r), 6
		}
		if len(text) >= 12 && text[6] == '\\' && text[7] == 'u' {
			if pair := utf16.DecodeRune(r, hex4(text[8:])); pair != utf8.RuneError {
				return utf8.AppendRune(dst, pair), 12
			}
		}
		return utf8.AppendRune(dst, utf8.RuneError), 6
	}
	return dst, 0
}

// hex4 reads four hex digits, -1 when they are none.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// valueKind tells what scalar or structure a value was.
type valueKind uint8

const (
	kindString valueKind = iota
	kindNumber
	kindBool
	kindNull
	kindNested // object or array
)

// value reads any value. For a string the result is its content, otherwise the text
// as it stands.
func (s *scanner) value() ([]byte, valueKind, error) {
	switch c := s.skipBlanks(); {
	case c == '"':
		s.pos++
		v, err := s.strBody()
		return v, kindString, err
	case c == '{' || c == '[':
		from := s.pos
		err := s.skipNested(0)
		return s.text[from:s.pos:s.pos], kindNested, err
	case c == 't':
		v, err := s.literal("true")
		return v, kindBool, err
	case c == 'f':
		v, err := s.literal("false")
		return v, kindBool, err
	case c == 'n':
		v, err := s.literal("null")
		return v, kindNull, err
	default:
		v, err := s.number()
		return v, kindNumber, err
	}
}

func (s *scanner) literal(want string) ([]byte, error) {
	end := s.pos + len(want)
	if end > len(s.text) || string(s.text[s.pos:end]) != want {
		return nil, s.fail("value expected")
	}
	v := s.text[s.pos:end:end]
	s.pos = end
	return v, nil
}

// number takes -?digits[.digits][e[+-]digits].
func (s *scanner) number() ([]byte, error) {
	from := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	first := s.peek()
	n := s.digits()
	if n == 0 || n > 1 && first == '0' {
		return nil, s.fail("value expected")
	}
	if s.peek() == '.' {
		s.pos++
		if s.digits() == 0 {
			return nil, s.fail("digit expected")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if s.digits() == 0 {
			return nil, s.fail("digit expected")
		}
	}
	return s.text[from:s.pos:s.pos], nil
}

func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *scanner) digits() int {
	from := s.pos
	for s.pos < len(s.text) && s.text[s.pos]-'0' <= 9 {
		s.pos++
	}
	return s.pos - from
}

// skipString passes over a string after its opening quote; escapes are checked but
// not written anywhere.
func (s *scanner) skipString() error {
	var sink [utf8.UTFMax]byte
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case '"':
			s.pos++
			return nil
		case '\\':
			if s.pos+1 == len(s.text) {
				return s.fail("unfinished string")
			}
			_, n := appendEscape(sink[:0], s.text[s.pos:])
			if n == 0 {
				return s.fail("unknown escape")
			}
			s.pos += n
		default:
			s.pos++
		}
	}
	return s.fail("unfinished string")
}

// skipNested passes over the object or array that begins at pos.
func (s *scanner) skipNested(depth int) error {
	if depth == maxDepth {
		return s.fail("nested too deeply")
	}
	open := s.next()
	end := byte(']')
	if open == '{' {
		end = '}'
	}
	if s.skipBlanks() == end {
		s.pos++
		return nil
	}
	for {
		if open == '{' {
			if s.next() != '"' {
				return s.fail("string expected")
			}
			if err := s.skipString(); err != nil {
				return err
			}
			if s.next() != ':' {
				return s.fail("colon expected")
			}
		}
		if err := s.skipValue(depth); err != nil {
			return err
		}
		switch s.next() {
		case ',':
		case end:
			return nil
		default:
			return s.fail("comma expected")
		}
	}
}

func (s *scanner) skipValue(depth int) error {
	switch s.skipBlanks() {
	case '"':
		s.pos++
		return s.skipString()
	case '{', '[':
		return s.skipNested(depth + 1)
	}
	_, _, err := s.value()
	return err
}

// end refuses anything but blanks behind the value that was read.
func (s *scanner) end() error {
	if s.skipBlanks(); s.pos != len(s.text) {
		return s.fail("end expected")
	}
	return nil
}

// object walks over the members of the object that follows: member is called with
// each key and must consume the value.
func (s *scanner) object(member func(key []byte) error) error {
	if s.next() != '{' {
		return s.fail("object expected")
	}
	if s.skipBlanks() == '}' {
		s.pos++
		return nil
	}
	for {
		key, err := s.str()
		if err != nil {
			return err
		}
		if s.next() != ':' {
			return s.fail("colon expected")
		}
		if err := member(key); err != nil {
			return err
		}
		switch s.next() {
		case ',':
		case '}':
			return nil
		default:
			return s.fail("comma expected")
		}
	}
}
