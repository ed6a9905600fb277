package record

import "bytes"

// Separators of the properties text (RocketMQ's MessageDecoder).
const (
	NameValueSeparator = 0x01
	PropertySeparator  = 0x02
)

// ScheduleTopic holds delayed messages until they are due (RocketMQ's TopicValidator).
const ScheduleTopic = "SCHEDULE_TOPIC_XXXX"

// Property names the broker itself reads or writes (RocketMQ's MessageConst).
const (
	PropertyKeys    = "KEYS"
	PropertyTags    = "TAGS"
	PropertyWait    = "WAIT"
	PropertyDelay   = "DELAY"
	PropertyUniqKey = "UNIQ_KEY"
	PropertyCluster = "CLUSTER"
)

// nextProperty splits off the first piece of props. ok is false for a piece that is no pair:
// no 0x01, or an empty name or value. Such pieces count as absent, as in RocketMQ's parser.
func nextProperty(props []byte) (name, value, rest []byte, ok bool) {
	piece := props
	if i := bytes.IndexByte(props, PropertySeparator); i >= 0 {
		piece, rest = props[:i], props[i+1:]
	}
	i := bytes.IndexByte(piece, NameValueSeparator)
	if i <= 0 || i == len(piece)-1 {
		return nil, nil, rest, false
	}
	return piece[:i], piece[i+1:], rest, true
}

// RangeProperties calls f for each pair in stored order until it returns false. Slices are
// views of props. Malformed pieces are skipped; a trailing separator is allowed.
func RangeProperties(props []byte, f func(name, value []byte) bool) {
	for len(props) > 0 {
		name, value, rest, ok := nextProperty(props)
		if ok && !f(name, value) {
			return
		}
		props = rest
	}
}

// Property returns a property's value as a view; later duplicates win.
func Property(props []byte, name string) (value []byte, found bool) {
	for len(props) > 0 {
		n, v, rest, ok := nextProperty(props)
		if ok && string(n) == name {
			value, found = v, true
		}
		props = rest
	}
	return value, found
}

// AppendProperty appends one pair to the properties text props, with the separator between if
// one is needed and none after it (RocketMQ 4.9.4's form). Name and value are non-empty and
// hold no separator; an empty value is left out, since no reader would see it.
func AppendProperty[N, V string | []byte](props []byte, name N, value V) []byte {
	if len(name) == 0 || len(value) == 0 {
		return props
	}
	if len(props) > 0 && props[len(props)-1] != PropertySeparator {
		props = append(props, PropertySeparator)
	}
	props = append(props, name...)
	props = append(props, NameValueSeparator)
	return append(props, value...)
}

// AppendStoredProperties appends to dst the text that a 4.9.4 broker stores for a plain send
// whose request had the text props: WAIT is dropped whatever its value, CLUSTER is set to
// cluster, malformed and empty pairs vanish, no trailing separator. The client's order is
// kept and so are duplicates (readers take the last; RocketMQ's order is a hash map's).
// An empty cluster adds none.
func AppendStoredProperties(dst, props []byte, cluster string) []byte {
	return appendWithCluster(dst, props, cluster, true)
}

// AppendRequestProperties is AppendStoredProperties with WAIT kept: what a broker appends to
// each entry of a batch, and stores for delayed and half messages.
func AppendRequestProperties(dst, props []byte, cluster string) []byte {
	return appendWithCluster(dst, props, cluster, false)
}

func appendWithCluster(dst, props []byte, cluster string, dropWait bool) []byte {
	start := len(dst)
	for len(props) > 0 {
		name, value, rest, ok := nextProperty(props)
		if ok && !(dropWait && string(name) == PropertyWait) && string(name) != PropertyCluster {
			// AppendProperty's separator rule must see this text only, not what dst held before.
			dst = append(dst[:start], AppendProperty(dst[start:], name, value)...)
		}
		props = rest
	}
	return append(dst[:start], AppendProperty(dst[start:], PropertyCluster, cluster)...)
}

// JoinProperties appends a and b as one text, with a separator between if one is needed. It is
// how a batch entry's own properties (a, kept as they came) get the request's (b).
func JoinProperties(dst, a, b []byte) []byte {
	dst = append(dst, a...)
	if len(a) > 0 && len(b) > 0 && a[len(a)-1] != PropertySeparator {
		dst = append(dst, PropertySeparator)
	}
	return append(dst, b...)
}
