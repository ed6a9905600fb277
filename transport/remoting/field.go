package remoting

import "fmt"

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
