package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// plainFlagError says of a flag's value that its parser refused what is allowed, in words for people: strconv's and time's texts
// are for programmers. Other errors stay as they are.
func plainFlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	f := invalid.GetFlag()
	allowed := ""
	switch kind := f.Value.Type(); {
	case strings.HasPrefix(kind, "int"):
		allowed = "allowed is a whole number"
	case strings.HasPrefix(kind, "uint"):
		allowed = "allowed is a whole number, not below 0"
	case strings.HasPrefix(kind, "float"):
		allowed = "allowed is a number"
	case kind == "duration":
		allowed = "allowed is a number with a unit, such as 500ms, 30s, 5m or 72h"
	case kind == "bool":
		allowed = "allowed are true and false"
	default: // our own types say it themselves
		return flagError{f.Name, invalid.GetValue(), strings.TrimPrefix(errors.Unwrap(invalid).Error(), strconv.Quote(invalid.GetValue())+" ")}
	}
	if errors.Is(err, strconv.ErrRange) {
		allowed = "is out of range, " + allowed
	}
	return flagError{f.Name, invalid.GetValue(), allowed}
}
