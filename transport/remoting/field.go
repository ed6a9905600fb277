package remoting

import (
	"fmt"
	"strconv"
)

// fieldDecoder reads numbers out of ext fields and keeps the first that is none.
type fieldDecoder struct {
	bad *Field
}

func (d *fieldDecoder) int32(f *Field) int32 {
	n, ok := parseInt32(f.Value)
	if !ok {
		d.refuse(f)
		return 0
	}
	return n
}

func (d *fieldDecoder) int64(f *Field) int64 {
	n, ok := parseInt(f.Value)
	if !ok {
		d.refuse(f)
		return 0
	}
	return n
}

func (d *fieldDecoder) refuse(f *Field) {
	if d.bad == nil {
		d.bad = f
	}
}

func (d *fieldDecoder) err() error {
	if d.bad == nil {
		return nil
	}
	const shown = 64
	value := d.bad.Value
	if len(value) > shown {
		value = value[:shown]
	}
	return fmt.Errorf("%w: %s is %q, a number expected", ErrFieldValue, d.bad.Key, value)
}

func missing(key string) error { return fmt.Errorf("%w: %s", ErrFieldMissing, key) }

// headerReader reads the ext fields of one command and keeps the first error. Strings
// are copies. Absent strings are "", as a RocketMQ broker answers them case by case;
// a number that a broker needs is read with a need method.
type headerReader struct {
	c   *Command
	err error
}

func (r *headerReader) str(key string) string { return r.c.GetString(key) }

func (r *headerReader) bool(key string) bool { return parseBool(r.c.Get(key)) }

// int64 reads an optional number; absent is false and 0.
func (r *headerReader) int64(key string) (int64, bool) {
	v := r.c.Get(key)
	if v == nil {
		return 0, false
	}
	d := fieldDecoder{}
	n := d.int64(&Field{Key: key, Value: v})
	r.keep(d.err())
	return n, true
}

func (r *headerReader) int32(key string) (int32, bool) {
	v := r.c.Get(key)
	if v == nil {
		return 0, false
	}
	d := fieldDecoder{}
	n := d.int32(&Field{Key: key, Value: v})
	r.keep(d.err())
	return n, true
}

func (r *headerReader) needInt64(key string) int64 {
	n, ok := r.int64(key)
	if !ok {
		r.keep(missing(key))
	}
	return n
}

func (r *headerReader) needInt32(key string) int32 {
	n, ok := r.int32(key)
	if !ok {
		r.keep(missing(key))
	}
	return n
}

func (r *headerReader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// headerWriter collects ext fields.
type headerWriter struct {
	ext []Field
}

func newHeaderWriter() headerWriter { return headerWriter{ext: make([]Field, 0, 8)} }

func (w *headerWriter) str(key, value string) {
	w.ext = append(w.ext, Field{Key: key, Value: []byte(value)})
}

// optional leaves out an empty value.
func (w *headerWriter) optional(key, value string) {
	if value != "" {
		w.str(key, value)
	}
}

func (w *headerWriter) int(key string, n int64) { w.str(key, strconv.FormatInt(n, 10)) }

func (w *headerWriter) bool(key string, v bool) { w.str(key, strconv.FormatBool(v)) }
