package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// ConfigFile is one file of config/: JSON in RocketMQ's dialect.
type ConfigFile struct {
	Name string          // below config/
	Text []byte          // as it stands in the file
	JSON json.RawMessage // the same as standard JSON; nil if it does not parse
	Err  error           // why it does not: a *DialectError
}

// maxConfig is the largest configuration file that is read, bytes.
const maxConfig = 256 << 20

// Config reads the files of config/ in order of their names: the .json ones, and with backups also
// their .bak.
func (s *Store) Config(backups bool) ([]ConfigFile, error) {
	list, err := listDir(filepath.Join(s.Dir, configDir))
	if err != nil {
		return nil, err
	}
	var files []ConfigFile
	for _, fi := range list {
		name := fi.Name()
		if fi.IsDir() || !strings.HasSuffix(name, ".json") && (!backups || !strings.HasSuffix(name, ".json.bak")) {
			continue
		}
		text, err := readHead(filepath.Join(s.Dir, configDir, name), maxConfig)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f := ConfigFile{Name: name, Text: text}
		f.JSON, f.Err = StandardJSON(text)
		files = append(files, f)
	}
	return files, nil
}

// DialectError tells where a text is no JSON.
type DialectError struct {
	Offset int64 // byte in the text
	Err    error
}

func (e *DialectError) Error() string { return fmt.Sprintf("at byte %d: %s", e.Offset, e.Err) }

// Unwrap returns what is wrong.
func (e *DialectError) Unwrap() error { return e.Err }

// StandardJSON turns the text of a RocketMQ configuration file into standard JSON: fastjson writes
// maps with integer keys without quotes around these. Everything else must be JSON. The error is a
// *DialectError with the place in text.
func StandardJSON(text []byte) (json.RawMessage, error) {
	out := make([]byte, 0, len(text)+len(text)/16)
	var quotes []int64 // places in out where a quote was put in
	inString, escaped := false, false
	var before byte // last byte that is not space, outside of strings
	for i := 0; i < len(text); i++ {
		c := text[i]
		if inString {
			out = append(out, c)
			switch {
			case escaped:
				escaped = false
			case c == '\\':
				escaped = true
			case c == '"':
				inString = false
			}
			continue
		}
		if before == '{' || before == ',' {
			if n := integerKey(text[i:]); n > 0 {
				quotes = append(quotes, int64(len(out)), int64(len(out)+n+1))
				out = append(out, '"')
				out = append(out, text[i:i+n]...)
				out = append(out, '"')
				i += n - 1
				before = '"'
				continue
			}
		}
		out = append(out, c)
		switch c {
		case ' ', '\t', '\r', '\n':
		case '"':
			inString, before = true, c
		default:
			before = c
		}
	}
	var v json.RawMessage
	err := json.Unmarshal(out, &v)
	if err == nil {
		return v, nil
	}
	var syntax *json.SyntaxError
	at := int64(len(out))
	if errors.As(err, &syntax) && !strings.HasPrefix(syntax.Error(), "unexpected end") {
		at = max(syntax.Offset-1, 0) // it counts the byte it stumbled over
	}
	i, _ := slices.BinarySearch(quotes, at)
	return nil, &DialectError{Offset: min(at-int64(i), int64(len(text))), Err: err}
}

// integerKey is the length of an integer at the start of b that a colon follows, 0 when there is none.
func integerKey(b []byte) int {
	n := 0
	if n < len(b) && b[n] == '-' {
		n++
	}
	digits := n
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	if n == digits {
		return 0
	}
	for _, c := range b[n:] {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case ':':
			return n
		}
		return 0
	}
	return 0
}
