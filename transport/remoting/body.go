package remoting

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The body types below read with Decode and write with Encode. Their fields stand in
// the alphabetical order in which fastjson writes keys. Decode is lenient: unknown
// keys are ignored, absent ones keep Java's defaults, and map keys may lack their
// quotes, as fastjson leaves them out for numbers; its error is ErrBody. Encode writes
// compact standard JSON, maps sorted by key.

// decodeBody reads JSON into v, which describes what for errors.
func decodeBody(body []byte, v any, what string) error {
	if !json.Valid(body) {
		body = quoteKeys(body)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %s of %d bytes: %v", ErrBody, what, len(body), err)
	}
	return nil
}

// encodeBody writes v, whose types all marshal, without escaping for HTML: the Go
// client cuts pieces out of the text.
func encodeBody(v any) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("remoting: body types marshal: %v", err))
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// quoteKeys puts quotes around bare map keys, {0:"a"} → {"0":"a"}, and copies all
// else; whether the result is JSON is left to the parser.
func quoteKeys(text []byte) []byte {
	out := make([]byte, 0, len(text)+16)
	var open []byte
	key := false // a key may begin here
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '"':
			s := scanner{text: text, pos: i + 1}
			if s.skipString() != nil {
				return append(out, text[i:]...)
			}
			out = append(out, text[i:s.pos]...)
			i, key = s.pos, false
			continue
		case c == '{' || c == '[':
			open = append(open, c)
			key = c == '{'
		case (c == '}' || c == ']') && len(open) > 0:
			open = open[:len(open)-1]
		case c == ',':
			key = len(open) > 0 && open[len(open)-1] == '{'
		case key && isBare(c):
			from := i
			for i < len(text) && isBare(text[i]) {
				i++
			}
			out = append(out, '"')
			out = append(out, text[from:i]...)
			out = append(out, '"')
			key = false
			continue
		}
		out = append(out, c)
		i++
	}
	return out
}

func isBare(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '-' || c == '_'
}

// list keeps a nil slice from becoming null, which some clients do not take.
func list[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

// MessageQueue names one queue of a topic at one broker name.
type MessageQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

// DataVersion numbers a table's content (RocketMQ DataVersion).
type DataVersion struct {
	Counter      int64  `json:"counter"`
	StateVersion *int64 `json:"stateVersion,omitempty"` // 5.x
	Timestamp    int64  `json:"timestamp"`              // ms since the epoch
}

// TopicList is the body of the topic list answers (206, 224, 304, 305, 311 to 313).
type TopicList struct {
	BrokerAddr string   `json:"brokerAddr,omitempty"` // 304 only
	TopicList  []string `json:"topicList"`
}

// Decode reads b from body.
func (b *TopicList) Decode(body []byte) error {
	*b = TopicList{}
	return decodeBody(body, b, "topic list")
}

// Encode returns the body.
func (b *TopicList) Encode() []byte {
	c := *b
	c.TopicList = list(c.TopicList)
	return encodeBody(&c)
}

// KVTable is the body of GET_BROKER_RUNTIME_INFO (28) and GET_KVLIST_BY_NAMESPACE (219).
type KVTable struct {
	Table map[string]string `json:"table"`
}

// Decode reads b from body.
func (b *KVTable) Decode(body []byte) error {
	*b = KVTable{}
	return decodeBody(body, b, "key-value table")
}

// Encode returns the body.
func (b *KVTable) Encode() []byte {
	c := *b
	if c.Table == nil {
		c.Table = map[string]string{}
	}
	return encodeBody(&c)
}
