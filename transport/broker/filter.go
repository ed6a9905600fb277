package broker

import (
	"sync"

	"raftmq/commitlog/record"
	"raftmq/transport/broker/sql92"
	"raftmq/transport/remoting"
)

const maxCachedFilters = 1024

// filterCache keeps compiled expressions by their text, as consumers that carry their
// expression send the same one with every pull.
type filterCache struct {
	mu sync.RWMutex
	m  map[string]func(tagsCode int64) bool // nil function: everything matches
	q  map[string]func(properties []byte) bool
}

// sql compiles an SQL92 expression; the error says what is wrong with it.
func (c *filterCache) sql(expression []byte) (func(properties []byte) bool, error) {
	c.mu.RLock()
	match, ok := c.q[string(expression)]
	c.mu.RUnlock()
	if ok {
		return match, nil
	}
	e, err := sql92.Compile(string(expression))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.q == nil || len(c.q) >= maxCachedFilters {
		c.q = map[string]func([]byte) bool{}
	}
	match = e.Match
	c.q[string(expression)] = match
	return match, nil
}

// tag compiles a tag expression; a nil function matches everything.
func (c *filterCache) tag(expression []byte) (func(tagsCode int64) bool, error) {
	c.mu.RLock()
	match, ok := c.m[string(expression)]
	c.mu.RUnlock()
	if ok {
		return match, nil
	}
	match, err := tagMatch(string(expression))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= maxCachedFilters {
		c.m = map[string]func(int64) bool{}
	}
	c.m[string(expression)] = match
	return match, nil
}

func tagMatch(expression string) (func(tagsCode int64) bool, error) {
	f, err := record.ParseTagFilter(expression)
	if err != nil {
		return nil, err
	}
	if f.All() {
		return nil, nil
	}
	return f.Match, nil
}

// isTag reports whether an expression type is the tag filter (RocketMQ ExpressionType.isTagType).
func isTag[T string | []byte](expressionType T) bool {
	return len(expressionType) == 0 || string(expressionType) == remoting.ExpressionTag
}

// isSQL reports whether an expression type is the property filter.
func isSQL[T string | []byte](expressionType T) bool {
	return string(expressionType) == remoting.ExpressionSQL92
}

// noFilter refuses a type of filter that there is not, in the words of a broker without property filters.
func noFilter[T string | []byte](expressionType T) *refusal {
	return refuse(remoting.ResponseSystemError, "The broker does not support consumer to filter message by %s", expressionType)
}
