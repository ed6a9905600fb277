package sql92

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"strconv"
	"strings"

	"raftmq/commitlog/record"
)

type constant struct{ value value }

func (n *constant) eval([]byte) (value, error) { return n.value, nil }

type property struct{ name string }

func (n *property) eval(properties []byte) (value, error) {
	text, ok := record.Property(properties, n.name)
	if !ok {
		return value{}, nil
	}
	return value{kind: kindString, text: text}, nil
}

// cast makes a property a condition: RocketMQ's properties are texts and so never true.
type cast struct{ property *property }

func (n *cast) eval(properties []byte) (value, error) {
	v, err := n.property.eval(properties)
	if err != nil || v.kind == kindNull {
		return value{}, err
	}
	return boolean(false), nil
}

// negative is the unary minus; of what is no number it is unknown.
type negative struct{ of node }

func (n *negative) eval(properties []byte) (value, error) {
	v, err := n.of.eval(properties)
	switch {
	case err != nil:
		return value{}, err
	case v.kind == kindInt:
		v.number = int64(int32(-v.number))
	case v.kind == kindLong:
		v.number = -v.number
	case v.kind == kindDouble:
		v.double = -v.double
	default:
		return value{}, nil
	}
	return v, nil
}

type inverse struct{ of node }

func (n *inverse) eval(properties []byte) (value, error) {
	v, err := n.of.eval(properties)
	if err != nil || v.kind == kindNull {
		return value{}, err
	}
	return boolean(!v.truth), nil
}

type logic struct {
	left, right node
	and         bool
}

func (n *logic) eval(properties []byte) (value, error) {
	unknown := false
	for _, side := range [...]node{n.left, n.right} {
		v, err := side.eval(properties)
		if err != nil {
			return value{}, err
		}
		if v.kind == kindNull {
			unknown = true
		} else if v.truth != n.and {
			return v, nil // false decides AND, true decides OR
		}
	}
	if unknown {
		return value{}, nil
	}
	return boolean(n.and), nil
}

type equal struct{ left, right node }

func (n *equal) eval(properties []byte) (value, error) {
	l, err := n.left.eval(properties)
	if err != nil {
		return value{}, err
	}
	r, err := n.right.eval(properties)
	switch {
	case err != nil:
		return value{}, err
	case l.kind == kindNull && r.kind == kindNull:
		return boolean(true), nil
	case l.kind == kindNull:
		return value{}, nil
	case r.kind == kindNull:
		return boolean(false), nil
	}
	c, err := compare(l, r)
	if err == errNoOrder {
		return boolean(false), nil
	}
	return boolean(c == 0), err
}

type order struct {
	left, right node
	less, same  bool // less: < and <=; same: equal ones too
}

func (n *order) eval(properties []byte) (value, error) {
	l, err := n.left.eval(properties)
	if err != nil || l.kind == kindNull {
		return value{}, err
	}
	r, err := n.right.eval(properties)
	if err != nil || r.kind == kindNull {
		return value{}, err
	}
	if l.kind == kindString && r.kind == kindString {
		if l, err = l.to(kindDouble); err != nil {
			return value{}, err
		}
		if r, err = r.to(kindDouble); err != nil {
			return value{}, err
		}
	}
	c, err := compare(l, r)
	if err == errNoOrder {
		return boolean(false), nil
	}
	return boolean(c == 0 && n.same || c < 0 && n.less || c > 0 && !n.less), err
}

// member is IN.
type member struct {
	property *property
	texts    []string
	not      bool
}

func (n *member) eval(properties []byte) (value, error) {
	v, err := n.property.eval(properties)
	if err != nil || v.kind == kindNull {
		return value{}, err
	}
	for _, t := range n.texts {
		if string(v.text) == t {
			return boolean(!n.not), nil
		}
	}
	return boolean(n.not), nil
}

// part is CONTAINS, STARTSWITH and ENDSWITH of 5.x.
type part struct {
	left  node
	where string
	text  string
	not   bool
}

func (n *part) eval(properties []byte) (value, error) {
	v, err := n.left.eval(properties)
	if err != nil || v.kind != kindString || n.text == "" {
		return boolean(false), err
	}
	found := false
	switch n.where {
	case "CONTAINS":
		found = indexOf(v.text, n.text) >= 0
	case "STARTSWITH":
		found = len(v.text) >= len(n.text) && string(v.text[:len(n.text)]) == n.text
	case "ENDSWITH":
		found = len(v.text) >= len(n.text) && string(v.text[len(v.text)-len(n.text):]) == n.text
	}
	return boolean(found != n.not), nil
}

func indexOf(text []byte, part string) int {
	for i := 0; i+len(part) <= len(text); i++ {
		if string(text[i:i+len(part)]) == part {
			return i
		}
	}
	return -1
}

// errNoOrder: values of types that are never equal and have no order; that is false.
var errNoOrder = errors.New("sql92: operands of different types")

// compare orders two values of one type, or of two of which one can be made the other.
func compare(l, r value) (int, error) {
	var err error
	switch {
	case l.kind == r.kind:
	case l.kind == kindString:
		l, err = l.to(r.kind)
	case r.kind == kindString && l.kind == kindBool:
		return 0, errEvaluate // RocketMQ casts the wrong one
	case r.kind == kindString:
		r, err = r.to(l.kind)
	case l.kind == kindBool || r.kind == kindBool:
		return 0, errNoOrder
	default: // numbers: the wider kind
		wide := max(l.kind, r.kind)
		if l, err = l.to(wide); err == nil {
			r, err = r.to(wide)
		}
	}
	if err != nil {
		return 0, err
	}
	switch l.kind {
	case kindBool:
		return cmp.Compare(number(l.truth), number(r.truth)), nil
	case kindDouble:
		return compareDoubles(l.double, r.double), nil
	case kindString:
		return bytes.Compare(l.text, r.text), nil
	}
	return cmp.Compare(l.number, r.number), nil
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// compareDoubles is Java's Double.compare: NaN is above all and equal to itself, and -0 is below 0.
func compareDoubles(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	rank := func(f float64) int {
		switch {
		case math.IsNaN(f):
			return 1
		case f == 0 && math.Signbit(f):
			return -1
		}
		return 0
	}
	return cmp.Compare(rank(a), rank(b))
}

// to makes a value one of another kind.
func (v value) to(k kind) (value, error) {
	switch {
	case v.kind == k:
		return v, nil
	case v.kind != kindString && k == kindDouble:
		return value{kind: k, double: float64(v.number)}, nil
	case v.kind != kindString:
		v.kind = k
		return v, nil
	case k == kindBool:
		return boolean(len(v.text) == 4 && strings.EqualFold(string(v.text), "true")), nil
	case k == kindDouble:
		f, err := parseDouble(v.text)
		return value{kind: k, double: f}, err
	}
	bits := 64
	if k == kindInt {
		bits = 32
	}
	n, ok := parseInteger(v.text, bits)
	if !ok {
		return value{}, errEvaluate
	}
	return value{kind: k, number: n}, nil
}

// parseInteger is Java's Long.valueOf or Integer.valueOf: a sign and digits. No error is made for what is none.
func parseInteger(text []byte, bits int) (int64, bool) {
	digits := text
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		digits = text[1:]
	}
	if len(digits) == 0 {
		return 0, false
	}
	n := uint64(0)
	limit := uint64(1) << (bits - 1) // of negative ones
	if text[0] != '-' {
		limit--
	}
	for _, c := range digits {
		if !digit(c) || n > limit/10 {
			return 0, false
		}
		if n = n*10 + uint64(c-'0'); n > limit {
			return 0, false
		}
	}
	if text[0] == '-' {
		return int64(-n), true
	}
	return int64(n), true
}

// maxDouble bounds the text of a double: longer ones are no numbers that anybody writes.
const maxDouble = 512

// parseDouble is Java's Double.valueOf: blanks around it are cut, a suffix f or d is allowed, so are NaN, Infinity and
// hexadecimal floats with an exponent.
func parseDouble(text []byte) (float64, error) {
	for len(text) > 0 && text[0] <= ' ' {
		text = text[1:]
	}
	for len(text) > 0 && text[len(text)-1] <= ' ' {
		text = text[:len(text)-1]
	}
	if len(text) == 0 || len(text) > maxDouble {
		return 0, errEvaluate
	}
	plain := text
	if plain[0] == '+' || plain[0] == '-' {
		plain = plain[1:]
	}
	sign := 1.0
	if text[0] == '-' {
		sign = -1
	}
	switch string(plain) {
	case "NaN":
		return math.NaN(), nil
	case "Infinity":
		return math.Inf(1) * sign, nil
	}
	hex := len(plain) > 2 && plain[0] == '0' && plain[1]|0x20 == 'x'
	exponent := false
	for i, c := range plain {
		switch {
		case digit(c), c == '.', c == '+', c == '-':
		case c|0x20 == 'e' && !hex:
		case hex && (i == 1 || c|0x20 >= 'a' && c|0x20 <= 'f' && !exponent):
		case hex && c|0x20 == 'p':
			exponent = true
		case i == len(plain)-1 && i > 0 && (c|0x20 == 'f' || c|0x20 == 'd'):
			text = text[:len(text)-1]
		default:
			return 0, errEvaluate
		}
	}
	if hex && !exponent {
		return 0, errEvaluate
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, errEvaluate
	}
	return f, nil
}
