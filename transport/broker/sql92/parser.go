package sql92

import (
	"math"
	"strconv"
)

// maxDepth bounds nesting: expressions come from clients.
const maxDepth = 200

type parser struct {
	lexer
	now   token
	depth int
}

func (p *parser) parse() (node, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	n, err := p.or()
	if err != nil {
		return nil, err
	}
	return p.condition(n) // what follows is not looked at, as in RocketMQ
}

func (p *parser) advance() (err error) {
	p.now, err = p.next()
	return err
}

func (p *parser) unexpected() error {
	if p.now.kind == tokenEnd {
		return p.fail(p.now.at, "it ends too early")
	}
	return p.fail(p.now.at, "%q is not expected here", p.now.text)
}

func (p *parser) isKey(key string) bool { return p.now.kind == tokenWord && p.now.key == key }
func (p *parser) isSymbol(symbol string) bool {
	return p.now.kind == tokenSymbol && p.now.text == symbol
}

// condition makes n something that is true or false: a bare property is one too.
func (p *parser) condition(n node) (node, error) {
	if isBoolean(n) {
		return n, nil
	}
	if prop, ok := n.(*property); ok {
		return &cast{prop}, nil
	}
	return nil, p.fail(p.now.at, "what is before is no condition")
}

func (p *parser) or() (node, error)  { return p.logic("OR", p.and) }
func (p *parser) and() (node, error) { return p.logic("AND", p.equality) }

func (p *parser) logic(key string, part func() (node, error)) (node, error) {
	left, err := part()
	for err == nil && p.isKey(key) {
		if err = p.advance(); err != nil {
			break
		}
		var right node
		if right, err = part(); err != nil {
			break
		}
		if left, err = p.condition(left); err != nil {
			break
		}
		if right, err = p.condition(right); err != nil {
			break
		}
		left = &logic{left: left, right: right, and: key == "AND"}
	}
	return left, err
}

func (p *parser) equality() (node, error) {
	left, err := p.comparison()
	for err == nil {
		switch {
		case p.isSymbol("="), p.isSymbol("<>"):
			different := p.isSymbol("<>")
			if err = p.advance(); err != nil {
				break
			}
			var right node
			if right, err = p.comparison(); err != nil {
				break
			}
			if err = p.checkEqual(left, right); err != nil {
				break
			}
			left = negated(&equal{left, right}, different)
		case p.isKey("IS"):
			if err = p.advance(); err != nil {
				break
			}
			not := p.isKey("NOT")
			if not {
				if err = p.advance(); err != nil {
					break
				}
			}
			if !p.isKey("NULL") {
				return nil, p.unexpected()
			}
			err = p.advance()
			left = negated(&equal{left, &constant{}}, not)
		default:
			return left, nil
		}
	}
	return nil, err
}

func negated(n node, not bool) node {
	if not {
		return &inverse{n}
	}
	return n
}

func (p *parser) checkEqual(left, right node) error {
	l, isL := left.(*constant)
	r, isR := right.(*constant)
	switch {
	case isL && l.value.kind == kindNull, isR && r.value.kind == kindNull:
		return p.fail(p.now.at, "NULL cannot be compared, use IS NULL")
	case isL && isR && l.value.kind == kindBool && r.value.kind != kindBool:
		return p.fail(p.now.at, "TRUE and FALSE cannot be compared with that")
	}
	return nil
}

// checkOrdered refuses what has no order.
func (p *parser) checkOrdered(n node) error {
	if c, ok := n.(*constant); ok {
		if c.value.kind == kindInt || c.value.kind == kindLong || c.value.kind == kindDouble {
			return nil
		}
		return p.fail(p.now.at, "only numbers and properties have an order")
	}
	if isBoolean(n) {
		return p.fail(p.now.at, "a condition has no order")
	}
	return nil
}

func (p *parser) comparison() (node, error) {
	left, err := p.unary()
	for err == nil {
		not, before := false, *p
		switch {
		case p.now.kind == tokenSymbol && (p.now.text == ">" || p.now.text == ">=" || p.now.text == "<" || p.now.text == "<="):
			left, err = p.ordered(left)
			continue
		case p.isKey("NOT"):
			not = true
			if err = p.advance(); err != nil {
				return nil, err
			}
		}
		switch {
		case p.isKey("BETWEEN"):
			left, err = p.between(left, not)
		case p.isKey("IN"):
			left, err = p.in(left, not)
		case p.isKey("CONTAINS"), p.isKey("STARTSWITH"), p.isKey("ENDSWITH"):
			left, err = p.substring(left, not)
		default:
			*p = before // a NOT that belongs to nothing ends the expression
			return left, nil
		}
	}
	return nil, err
}

func (p *parser) ordered(left node) (node, error) {
	o := order{left: left}
	o.less, o.same = p.now.text[0] == '<', len(p.now.text) == 2
	if err := p.advance(); err != nil {
		return nil, err
	}
	var err error
	if o.right, err = p.unary(); err != nil {
		return nil, err
	}
	return p.orderOf(o)
}

func (p *parser) orderOf(o order) (node, error) {
	if err := p.checkOrdered(o.left); err != nil {
		return nil, err
	}
	if err := p.checkOrdered(o.right); err != nil {
		return nil, err
	}
	return &o, nil
}

func (p *parser) between(left node, not bool) (node, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	low, err := p.unary()
	if err != nil {
		return nil, err
	}
	if !p.isKey("AND") {
		return nil, p.unexpected()
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	high, err := p.unary()
	if err != nil {
		return nil, err
	}
	l, isL := low.(*constant)
	h, isH := high.(*constant)
	if isL && isH {
		if bad := badBounds(l.value, h.value); bad != "" {
			return nil, p.fail(p.now.at, "%s", bad)
		}
	}
	// NOT BETWEEN is less or more; else not less and not more.
	first, err := p.orderOf(order{left: left, right: low, less: not, same: !not})
	if err != nil {
		return nil, err
	}
	second, err := p.orderOf(order{left: left, right: high, less: !not, same: !not})
	if err != nil {
		return nil, err
	}
	return &logic{left: first, right: second, and: !not}, nil
}

// badBounds says what is wrong with literal bounds.
func badBounds(low, high value) string {
	if low.kind == kindNull || high.kind == kindNull {
		return "the bounds of BETWEEN cannot be NULL"
	}
	if c, err := compare(high, low); err == nil && c < 0 {
		return "the lower bound of BETWEEN is above the upper one"
	}
	return ""
}

func (p *parser) in(left node, not bool) (node, error) {
	prop, ok := left.(*property)
	if err := p.advance(); err != nil {
		return nil, err
	}
	if !p.isSymbol("(") {
		return nil, p.unexpected()
	}
	n := &member{property: prop, not: not}
	for {
		if err := p.advance(); err != nil {
			return nil, err
		}
		if p.now.kind != tokenString {
			return nil, p.unexpected()
		}
		n.texts = append(n.texts, p.now.text)
		if err := p.advance(); err != nil {
			return nil, err
		}
		if !p.isSymbol(",") {
			break
		}
	}
	if !p.isSymbol(")") {
		return nil, p.unexpected()
	}
	if !ok {
		return nil, p.fail(p.now.at, "IN needs a property before it")
	}
	return n, p.advance()
}

func (p *parser) substring(left node, not bool) (node, error) {
	n := &part{left: left, where: p.now.key, not: not}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.now.kind != tokenString {
		return nil, p.unexpected()
	}
	n.text = p.now.text
	return n, p.advance()
}

func (p *parser) unary() (node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail(p.now.at, "it is nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	switch {
	case p.isSymbol("+"):
		if err := p.advance(); err != nil {
			return nil, err
		}
		return p.unary()
	case p.isSymbol("-"):
		if err := p.advance(); err != nil {
			return nil, err
		}
		n, err := p.unary()
		return &negative{n}, err
	case p.isKey("NOT"):
		if err := p.advance(); err != nil {
			return nil, err
		}
		n, err := p.unary()
		if err != nil {
			return nil, err
		}
		n, err = p.condition(n)
		return &inverse{n}, err
	}
	return p.primary()
}

func (p *parser) primary() (node, error) {
	t := p.now
	switch {
	case p.isSymbol("("):
		if err := p.advance(); err != nil {
			return nil, err
		}
		n, err := p.or()
		if err != nil {
			return nil, err
		}
		if !p.isSymbol(")") {
			return nil, p.unexpected()
		}
		return n, p.advance()
	case t.kind == tokenWord && t.key == "":
		return &property{t.text}, p.advance()
	case p.isKey("TRUE"), p.isKey("FALSE"):
		return &constant{boolean(t.key == "TRUE")}, p.advance()
	case p.isKey("NULL"):
		return &constant{}, p.advance()
	case t.kind == tokenString:
		return &constant{value{kind: kindString, text: []byte(t.text)}}, p.advance()
	case t.kind == tokenInteger:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			return nil, p.fail(t.at, "%s does not fit 64 bits", t.text)
		}
		v := value{kind: kindLong, number: n}
		if n <= math.MaxInt32 {
			v.kind = kindInt
		}
		return &constant{v}, p.advance()
	case t.kind == tokenFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil || f == 0 {
			return nil, p.fail(t.at, "%s is not between the least and the largest double", t.text)
		}
		return &constant{value{kind: kindDouble, double: f}}, p.advance()
	}
	return nil, p.unexpected()
}
