package mappedfile

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard runs f and turns a page fault on mapped memory inside it into ErrFault: a disk that
// fails under a mapping is an error of this node, not a crash (F37). Faults on nil pointers
// and the like panic on.
func Guard(f func() error) (err error) {
	defer CatchFault(ArmFault(), &err)
	return f()
}

// ArmFault and CatchFault are Guard for hot paths, without a closure:
//
//	func touch(…) (err error) {
//		defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
//
// ArmFault makes faults of this goroutine panics and returns the setting before.
func ArmFault() bool { return debug.SetPanicOnFault(true) }

// CatchFault must be deferred directly. It restores the setting and sets *err when the
// function panics by a fault at an address outside the first page.
func CatchFault(before bool, err *error) {
	debug.SetPanicOnFault(before)
	switch r := recover().(type) {
	case nil:
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		if r.Addr() < PageSize {
			panic(r)
		}
		*err = fmt.Errorf("%w: address %#x: %w", ErrFault, r.Addr(), r)
	default:
		panic(r)
	}
}
