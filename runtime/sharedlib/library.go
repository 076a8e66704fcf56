//go:build cgo && linux

package sharedlib

/*
#cgo CFLAGS: -std=c11 -O2 -Wall -Wextra -Werror
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "loader.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"slices"
	"unsafe"
)

// A Library is a loaded library. A library is never unloaded, because libraries of CANN have threads, thread-local
// data and exit handlers.
type Library struct {
	handle unsafe.Pointer

	File string // the file that was loaded

	// Signals lists the signals for which loading has installed a handler that does not run on the alternate stack. A
	// Go program aborts when a handler without the alternate stack runs on a thread of Go, so the caller should log
	// the signals.
	Signals []int
}

// Load loads the library at path, a file or a bare name. The error is the loader's. A caller must load libraries
// before the process forks, because loading may start threads. The library's symbols become global, because plug-ins
// look for the symbols.
func Load(path string) (*Library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text [1024]C.char
	before := riskySignals()
	handle := C.loader_open(name, &text[0], C.size_t(len(text)))
	if handle == nil {
		return nil, errors.New(C.GoString(&text[0]))
	}
	C.loader_origin(handle, &text[0], C.size_t(len(text)))
	l := &Library{handle: handle, File: cmp.Or(C.GoString(&text[0]), path)}
	for _, signal := range riskySignals() {
		if !slices.Contains(before, signal) {
			l.Signals = append(l.Signals, signal)
		}
	}
	return l, nil
}

// IsLoaded reports whether the library at path is already loaded in this process.
func IsLoaded(path string) bool {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	return C.loader_resident(name) != 0
}

// A Symbol is a function that a binding may call.
type Symbol struct {
	Name     string
	Required bool    // without it the library is refused
	Offset   uintptr // offset of the function's pointer in the binding's table
}

// Resolve stores the address of each symbol in a table in C memory. The results are the required and the optional
// symbols that the library lacks; symbols in hidden count as lacking, for tests of old releases. Pointers of these
// symbols are not changed.
func (l *Library) Resolve(table unsafe.Pointer, symbols []Symbol, hidden []string) (required, optional []string) {
	for _, s := range symbols {
		name := C.CString(s.Name)
		address := C.loader_symbol(l.handle, name)
		C.free(unsafe.Pointer(name))
		switch {
		case address != nil && !slices.Contains(hidden, s.Name):
			*(*unsafe.Pointer)(unsafe.Add(table, s.Offset)) = address
		case s.Required:
			required = append(required, s.Name)
		default:
			optional = append(optional, s.Name)
		}
	}
	return required, optional
}

func riskySignals() []int {
	var risky [C.SIGNALS + 1]C.uint8_t
	C.loader_signals(&risky[0])
	var list []int
	for number, is := range risky {
		if is != 0 {
			list = append(list, number)
		}
	}
	return list
}
