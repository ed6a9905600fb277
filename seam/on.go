//go:build raftmq_seam

package seam

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
)

// Built tells whether this is a server with the seam.
const Built = true

// planted is the bug of this process; it is the same from start to end.
var planted = sync.OnceValue(func() Bug {
	b := Bug(os.Getenv(BugEnv))
	if b != "" && !slices.Contains(Bugs(), b) {
		// A proof with a misspelt bug would prove nothing.
		fmt.Fprintf(os.Stderr, "seam: %s names no bug: %q\n", BugEnv, b)
		os.Exit(2)
	}
	return b
})

// calls counts for Often.
var calls atomic.Uint32

// On tells whether a bug is planted.
func On(b Bug) bool { return planted() == b }

// Often is true at each n-th call of the process, if the bug is planted.
func Often(b Bug, n uint32) bool { return On(b) && calls.Add(1)%n == 0 }

// Shadow is the folder of the shadow that is to be kept, "" for none.
func Shadow() string { return os.Getenv(ShadowEnv) }
