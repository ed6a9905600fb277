package remoting

import (
	"fmt"
	"strconv"
)

// maxExtFields bounds the ext map of one frame: the widest request known has about
// twenty, and a hostile header of a few MiB must not become millions of fields.
const maxExtFields = 1024

// decodeJSONHeader reads a JSON header (RocketMQ RemotingCommand as fastjson and the
// Go client write it) into c, whose fields are at their defaults.
func decodeJSONHeader(header []byte, c *Command, scratch *[]byte) error {
	s := scanner{text: header, arena: scratch}
	err := s.object(func(key []byte) error { return s.headerMember(key, c) })
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrHeader, err)
	}
	return nil
}

func (s *scanner) headerMember(key []byte, c *Command) error {
	switch string(key) {
	case "code":
		return s.headerInt(&c.Code)
	case "version":
		return s.headerInt(&c.Version)
	case "opaque":
		return s.headerInt(&c.Opaque)
	case "flag":
		return s.headerInt(&c.Flag)
	case "language":
		v, kind, err := s.value()
		switch {
		case err != nil:
			return err
		case kind == kindString:
			c.Language = languageOf(v)
		case kind == kindNumber:
			c.Language = languageNumber(v)
		}
		return nil
	case "remark":
		v, kind, err := s.value()
		if err == nil && kind != kindNull {
			c.Remark = internRemark(v)
		}
		return err
	case "extFields":
		return s.extFields(c)
	}
	return s.skipValue(0)
}

// headerInt reads a number, or a number in quotes; null leaves the default.
func (s *scanner) headerInt(to *int32) error {
	v, kind, err := s.value()
	if err != nil || kind == kindNull {
		return err
	}
	n, ok := parseInt32(v)
	if !ok || kind != kindNumber && kind != kindString {
		return s.fail("32-bit number expected")
	}
	*to = n
	return nil
}

// extFields reads the ext map. Numbers, booleans and nested values become the text
// they are written as, null values are left out, as fastjson does for a map of
// strings.
func (s *scanner) extFields(c *Command) error {
	if s.skipBlanks() == 'n' {
		_, err := s.literal("null")
		return err
	}
	if c.Ext == nil {
		c.startExt()
	}
	return s.object(func(key []byte) error {
		v, kind, err := s.value()
		if err != nil || kind == kindNull {
			return err
		}
		if len(c.Ext) == maxExtFields {
			return s.fail("more ext fields than allowed")
		}
		c.Ext = append(c.Ext, Field{Key: internKey(key), Value: v})
		return nil
	})
}

// appendJSONHeader appends c's header the way a Java broker's fastjson does: keys in
// alphabetical order, absent ones left out.
func appendJSONHeader(dst []byte, c *Command) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(c.Code), 10)
	if c.Ext != nil {
		dst = append(dst, `,"extFields":{`...)
		for i := range c.Ext {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSONString(dst, c.Ext[i].Key)
			dst = append(dst, ':')
			dst = appendJSONString(dst, c.Ext[i].Value)
		}
		dst = append(dst, '}')
	}
	return appendJSONHeaderTail(dst, c.Flag, c.Language, c.Opaque, c.Remark, c.Version)
}

// appendJSONHeaderTail appends all that follows the ext map.
func appendJSONHeaderTail(dst []byte, flag int32, language uint8, opaque int32, remark string, version int32) []byte {
	dst = append(dst, `,"flag":`...)
	dst = strconv.AppendInt(dst, int64(flag), 10)
	dst = append(dst, `,"language":"`...)
	dst = append(dst, LanguageName(language)...)
	dst = append(dst, `","opaque":`...)
	dst = strconv.AppendInt(dst, int64(opaque), 10)
	if remark != "" {
		dst = append(dst, `,"remark":`...)
		dst = appendJSONString(dst, remark)
	}
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	dst = strconv.AppendInt(dst, int64(version), 10)
	return append(dst, '}')
}

// appendJSONInt appends the opening of a member up to the value's quote, then n.
func appendJSONInt(dst []byte, opening string, n int64) []byte {
	dst = append(dst, opening...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '"')
}

const upperHex = "0123456789ABCDEF"

// mustEscape marks the bytes that a JSON string may not hold as they are.
var mustEscape = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// appendJSONString appends v in quotes. Only quotes, backslashes and control
// characters are escaped, in fastjson's spelling; every other byte passes.
func appendJSONString[T string | []byte](dst []byte, v T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(v); i++ {
		c := v[i]
		if !mustEscape[c] {
			continue
		}
		dst = append(dst, v[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', upperHex[c>>4], upperHex[c&15])
		}
	}
	dst = append(dst, v[from:]...)
	return append(dst, '"')
}
