package sql92

import (
	"fmt"
	"strings"
)

type tokenKind uint8

const (
	tokenEnd  tokenKind = iota
	tokenWord           // keyword or identifier
	tokenInteger
	tokenFloat
	tokenString
	tokenSymbol
)

type token struct {
	kind tokenKind
	text string // of a string: what it says
	key  string // of a word: in capitals, if it is a keyword
	at   int
}

var keywords = map[string]bool{"NOT": true, "AND": true, "OR": true, "BETWEEN": true, "IN": true, "IS": true, "TRUE": true, "FALSE": true,
	"NULL": true, "CONTAINS": true, "STARTSWITH": true, "ENDSWITH": true}

type lexer struct {
	text string
	pos  int
}

func (l *lexer) fail(at int, format string, args ...any) error {
	return fmt.Errorf("%w: at character %d: %s", ErrSyntax, at+1, fmt.Sprintf(format, args...))
}

// next reads one token.
func (l *lexer) next() (token, error) {
	if err := l.skip(); err != nil {
		return token{}, err
	}
	at := l.pos
	if at == len(l.text) {
		return token{at: at}, nil
	}
	switch c := l.text[at]; {
	case letter(c):
		for l.pos < len(l.text) && (letter(l.text[l.pos]) || digit(l.text[l.pos])) {
			l.pos++
		}
		t := token{kind: tokenWord, text: l.text[at:l.pos], at: at}
		if key := strings.ToUpper(t.text); keywords[key] {
			t.key = key
		}
		return t, nil
	case digit(c) || c == '.' && at+1 < len(l.text) && digit(l.text[at+1]):
		return l.number(), nil
	case c == '\'':
		return l.string()
	}
	for _, s := range [...]string{"<>", ">=", "<=", "=", ">", "<", "(", ")", ",", "+", "-"} {
		if strings.HasPrefix(l.text[at:], s) {
			l.pos += len(s)
			return token{kind: tokenSymbol, text: s, at: at}, nil
		}
	}
	return token{}, l.fail(at, "%q is no part of an expression", l.text[at:at+1])
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c == '$' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// skip passes over blanks and comments.
func (l *lexer) skip() error {
	for l.pos < len(l.text) {
		rest := l.text[l.pos:]
		switch {
		case strings.IndexByte(" \t\n\r\f", rest[0]) >= 0:
			l.pos++
		case strings.HasPrefix(rest, "--"):
			end := strings.IndexAny(rest, "\r\n")
			if end < 0 {
				return nil // no comment without the end of its line: two signs
			}
			l.pos += end + 1
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return l.fail(l.pos, "a comment does not end")
			}
			l.pos += 2 + end + 2
		default:
			return nil
		}
	}
	return nil
}

// number reads an integer, 0 or without a leading one and perhaps with an L, or a float with a point, an exponent or both.
func (l *lexer) number() token {
	at := l.pos
	digits := func(from int) int {
		for from < len(l.text) && digit(l.text[from]) {
			from++
		}
		return from
	}
	end := digits(at)
	float := false
	if end < len(l.text) && l.text[end] == '.' {
		end, float = digits(end+1), true
	}
	if end < len(l.text) && l.text[end]|0x20 == 'e' {
		from := end + 1
		if from < len(l.text) && (l.text[from] == '+' || l.text[from] == '-') {
			from++
		}
		if to := digits(from); to > from {
			end, float = to, true
		}
	}
	if float {
		l.pos = end
		return token{kind: tokenFloat, text: l.text[at:end], at: at}
	}
	if l.text[at] == '0' {
		l.pos = at + 1
		return token{kind: tokenInteger, text: "0", at: at}
	}
	t := token{kind: tokenInteger, text: l.text[at:end], at: at}
	if end < len(l.text) && l.text[end]|0x20 == 'l' {
		end++
	}
	l.pos = end
	return t
}

// string reads a literal; two quotes are one.
func (l *lexer) string() (token, error) {
	at := l.pos
	var b strings.Builder
	for i := at + 1; i < len(l.text); i++ {
		if l.text[i] != '\'' {
			b.WriteByte(l.text[i])
			continue
		}
		if i+1 < len(l.text) && l.text[i+1] == '\'' {
			b.WriteByte('\'')
			i++
			continue
		}
		l.pos = i + 1
		return token{kind: tokenString, text: b.String(), at: at}, nil
	}
	return token{}, l.fail(at, "a string does not end")
}
