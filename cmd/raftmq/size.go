package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// sizeValue is a flag value of bytes: digits alone, or with B, KiB, MiB or GiB.
type sizeValue int64

// sizeVar registers a size flag.
func sizeVar(fs *pflag.FlagSet, p *int64, name string, value int64, usage string) {
	*p = value
	fs.Var((*sizeValue)(p), name, usage)
}

// Set parses s.
func (v *sizeValue) Set(s string) error {
	n, err := parseSize(s)
	if err != nil {
		return err
	}
	*v = sizeValue(n)
	return nil
}

// String writes the size with the largest unit that leaves no remainder.
func (v *sizeValue) String() string { return formatSize(int64(*v)) }

// Type names the value in help texts.
func (v *sizeValue) Type() string { return "size" }

var sizeUnits = [...]struct {
	name  string
	bytes int64
}{{"gib", gib}, {"mib", mib}, {"kib", kib}, {"b", 1}}

func parseSize(s string) (int64, error) {
	digits, unit := strings.ToLower(strings.TrimSpace(s)), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(digits, u.name); ok {
			digits, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is no size: allowed are bytes such as 6000000, or a number with KiB, MiB or GiB such as 64MiB", s)
	}
	return int64(n) * unit, nil
}

func formatSize(n int64) string {
	for _, u := range sizeUnits[:3] {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + strings.ToUpper(u.name[:1]) + "iB"
		}
	}
	return strconv.FormatInt(n, 10)
}
