// Package sql92 compiles and evaluates the expressions with which consumers choose messages by their properties (RocketMQ's
// SqlFilter): a small part of SQL-92 with three-valued logic, where a property's text takes the type of what it is compared with.
// Oddities are RocketMQ's, held by testdata from the real thing: NOT binds tighter than a comparison, 0.0 is no
// number, a bare property is never true.
//
// The grammar is RocketMQ's own and fits a page, so it is written by hand; a general SQL parser would take a thousand things
// that RocketMQ refuses.
package sql92

import "errors"

// ErrSyntax: the text is no expression that RocketMQ would take.
var ErrSyntax = errors.New("sql92: illegal expression")

// errEvaluate: the operands of a message have no common type; it does not match.
var errEvaluate = errors.New("sql92: cannot be evaluated")

// Expression is a compiled expression. Safe for concurrent use.
type Expression struct{ root node }

// Compile reads an expression. The error wraps ErrSyntax and says where and what.
func Compile(text string) (*Expression, error) {
	p := parser{lexer: lexer{text: text}}
	root, err := p.parse()
	if err != nil {
		return nil, err
	}
	return &Expression{root}, nil
}

// Match reports whether a message with that properties text (record.Property) matches: the expression is true for it. Unknown and
// what cannot be evaluated do not match. It does not allocate.
func (e *Expression) Match(properties []byte) bool {
	v, err := e.root.eval(properties)
	return err == nil && v.kind == kindBool && v.truth
}

// kind of a value: null is SQL's unknown.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindInt  // fits 32 bits: a property is read as such
	kindLong // 64 bits
	kindDouble
	kindString
)

// value is what a node evaluates to.
type value struct {
	kind   kind
	truth  bool
	number int64
	double float64
	text   []byte
}

func boolean(b bool) value { return value{kind: kindBool, truth: b} }

// node is a part of an expression.
type node interface {
	eval(properties []byte) (value, error)
}

// isBoolean reports whether a node is a condition by itself (RocketMQ's BooleanExpression).
func isBoolean(n node) bool {
	switch n := n.(type) {
	case *constant:
		return n.value.kind == kindBool || n.value.kind == kindNull
	case *property, *negative:
		return false
	}
	return true
}
