//go:build cgo && linux

package acl

/*
#cgo CFLAGS: -std=c11 -O2 -Wall -Wextra -Werror
#include <stdlib.h>
#include "calls.h"
#include "open.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/sharedlib"
)

// A Library is AscendCL, loaded and initialized. The methods may be called from any goroutine. Calls that need a
// context go through NewContext.
type Library struct {
	api  *C.struct_acl_api
	info Info

	mu       sync.Mutex
	process  *C.struct_call // for calls without context, in turn, under mu; nil once closed
	contexts int            // open contexts, during which the library cannot be closed
}

// opening is held during aclInit and its counterpart, which must not run in parallel.
var opening sync.Mutex

// Open loads AscendCL and initializes it for the process. Open uses the first library that can be loaded and has all
// required symbols. The error is a *LoadError that lists the attempts, or the *Error of aclInit. Call Open before the
// process forks, because loading starts threads.
//
// Each Open takes one reference to AscendCL, which the engine in this process may be using too. Close gives the
// reference back and does not finalize AscendCL for the engine. The library itself stays loaded for good.
func Open(o Options) (*Library, error) {
	opening.Lock()
	defer opening.Unlock()
	missed := &LoadError{}
	for _, name := range o.candidates() {
		l, attempt := load(name, o.hidden)
		if l == nil {
			missed.Tried = append(missed.Tried, attempt)
			continue
		}
		err := l.answer(l.process, C.call_init(l.process), "aclInit", "config=NULL")
		if failed := (*Error)(nil); errors.As(err, &failed) && failed.Code != repeatInitialize {
			l.discard()
			if failed.Code != compilingStub {
				return nil, fmt.Errorf("%s: %w", l.info.Library, err)
			}
			// a stub for linking, not for running: the real library may be later on the path
			missed.Tried = append(missed.Tried, Attempt{Library: name, Reason: err.Error()})
			continue
		}
		l.learn()
		return l, nil
	}
	return nil, missed
}

// load opens a library and finds the symbols. If required symbols are missing, the Attempt lists them.
func load(name string, hidden []string) (*Library, Attempt) {
	loaded, err := sharedlib.Load(name)
	if err != nil {
		return nil, Attempt{Library: name, Reason: err.Error()}
	}
	l := &Library{api: C.acl_api_new(), info: Info{Library: loaded.File, Signals: loaded.Signals}}
	l.process = C.call_new(l.api, 1)
	missing, absent := loaded.Resolve(unsafe.Pointer(l.api), symbols(), hidden)
	if len(missing) != 0 {
		l.discard()
		return nil, Attempt{Library: name, Missing: missing}
	}
	l.info.Missing = absent
	return l, Attempt{}
}

func symbols() []sharedlib.Symbol {
	var list []sharedlib.Symbol
	for i := C.size_t(0); ; i++ {
		s := C.acl_symbol(i)
		if s == nil {
			return list
		}
		list = append(list, sharedlib.Symbol{Name: C.GoString(s.name), Required: s.required != 0, Offset: uintptr(s.offset)})
	}
}

// discard frees the binding's memory; the library itself stays loaded.
func (l *Library) discard() {
	C.call_delete(l.process)
	C.free(unsafe.Pointer(l.api))
	l.process, l.api = nil, nil
}

// learn reads the versions that the library reports. A field that the library does not report stays empty, because
// nothing depends on these fields.
func (l *Library) learn() {
	var v struct{ major, minor, patch C.int32_t }
	if C.call_version(l.process, &v.major, &v.minor, &v.patch) == 0 {
		l.info.ACL = ACLVersion{int32(v.major), int32(v.minor), int32(v.patch)}
	}
	var text [256]C.char
	if C.call_soc_name(l.process, &text[0], C.size_t(len(text))) == 0 {
		l.info.SoC = C.GoString(&text[0])
	}
	text[0] = 0
	name := C.CString("runtime")
	defer C.free(unsafe.Pointer(name))
	if C.call_package_version(l.process, name, &text[0]) == 0 {
		l.info.CANN = C.GoString(&text[0])
	} else {
		l.info.CANN = sharedlib.ToolkitVersion("runtime")
	}
}

// Info returns what Open found.
func (l *Library) Info() Info {
	info := l.info
	info.Missing, info.Signals = slices.Clone(info.Missing), slices.Clone(info.Signals)
	return info
}

// Has reports whether the library has a symbol that the binding uses.
func (l *Library) Has(symbol string) bool { return !slices.Contains(l.info.Missing, symbol) }

// Close gives back the reference of Open. While a context is open, the error is ErrBusy. A second Close does nothing.
func (l *Library) Close() error {
	opening.Lock()
	defer opening.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.process == nil {
		return nil
	}
	if l.contexts != 0 {
		return fmt.Errorf("%w: %d contexts are open: close them first", ErrBusy, l.contexts)
	}
	var left C.uint64_t
	code := C.call_finalize_reference(l.process, &left)
	if code == C.CALL_NO_SYMBOL {
		// An old release has only aclFinalize, which would end AscendCL for the engine as well.
		code = 0
	}
	err := l.answer(l.process, code, "aclFinalizeReference", "")
	if err == nil {
		l.discard()
	}
	return err
}

// call makes a call that needs no context.
func (l *Library) call(symbol string, f func(*C.struct_call) C.int, format string, args ...any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.process == nil {
		return fmt.Errorf("%w: the library, before %s", ErrClosed, symbol)
	}
	return l.answer(l.process, f(l.process), symbol, format, args...)
}

// answer converts the result of a call to an error; nil for success.
func (l *Library) answer(c *C.struct_call, code C.int, symbol, format string, args ...any) error {
	switch code {
	case 0:
		return nil
	case C.CALL_STRAY_THREAD:
		return fmt.Errorf("%w: %s(%s)", ErrStray, symbol, fmt.Sprintf(format, args...))
	case C.CALL_NO_SYMBOL:
		return &MissingError{Symbol: symbol, Library: l.info.Library}
	}
	return &Error{
		Code: Code(code), Call: symbol, Args: fmt.Sprintf(format, args...), Message: C.GoString(&c.message[0]),
	}
}

// hold and release count the open contexts.
func (l *Library) hold() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.process == nil {
		return fmt.Errorf("%w: the library", ErrClosed)
	}
	l.contexts++
	return nil
}

func (l *Library) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contexts--
}
