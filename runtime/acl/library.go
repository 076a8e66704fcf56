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

	mu          sync.Mutex
	processCall *C.struct_call // for calls without context, in turn, under mu; nil once closed
	contexts    int            // open contexts, during which the library cannot be closed
}

// initMutex is held during aclInit and its counterpart, which must not run in parallel.
var initMutex sync.Mutex

// Open loads AscendCL and initializes it for the process. Open uses the first library that can be loaded and has all
// required symbols. The error is a *LoadError that lists the attempts, or the *Error of aclInit. Call Open before the
// process forks, because loading starts threads.
//
// Each Open takes one reference to AscendCL, which the engine in this process may be using too. Close gives the
// reference back and does not finalize AscendCL for the engine. The library itself stays loaded for good.
func Open(o Options) (*Library, error) {
	initMutex.Lock()
	defer initMutex.Unlock()
	loadErr := &LoadError{}
	for _, name := range o.candidateLibraries() {
		l, attempt := loadLibrary(name, o.hiddenSymbols)
		if l == nil {
			loadErr.Attempts = append(loadErr.Attempts, attempt)
			continue
		}
		err := l.callError(l.processCall, C.call_init(l.processCall), "aclInit", "config=NULL")
		if failed := (*Error)(nil); errors.As(err, &failed) && failed.Code != repeatInitialize {
			l.freeAPI()
			if failed.Code != compilingStub {
				return nil, fmt.Errorf("%s: %w", l.info.Library, err)
			}
			// a stub for linking, not for running: the real library may be later on the path
			loadErr.Attempts = append(loadErr.Attempts, Attempt{Library: name, Reason: err.Error()})
			continue
		}
		l.readVersions()
		return l, nil
	}
	return nil, loadErr
}

// loadLibrary opens a library and finds the symbols. If required symbols are missing, the Attempt lists them.
func loadLibrary(name string, hidden []string) (*Library, Attempt) {
	loaded, err := sharedlib.Load(name)
	if err != nil {
		return nil, Attempt{Library: name, Reason: err.Error()}
	}
	l := &Library{api: C.acl_api_new(), info: Info{Library: loaded.File, Signals: loaded.Signals}}
	l.processCall = C.call_new(l.api, 1)
	missing, absent := loaded.Resolve(unsafe.Pointer(l.api), listSymbols(), hidden)
	if len(missing) != 0 {
		l.freeAPI()
		return nil, Attempt{Library: name, Missing: missing}
	}
	l.info.Missing = absent
	return l, Attempt{}
}

func listSymbols() []sharedlib.Symbol {
	var list []sharedlib.Symbol
	for i := C.size_t(0); ; i++ {
		s := C.acl_symbol(i)
		if s == nil {
			return list
		}
		list = append(list, sharedlib.Symbol{Name: C.GoString(s.name), Required: s.required != 0, Offset: uintptr(s.offset)})
	}
}

// freeAPI frees the binding's memory; the library itself stays loaded.
func (l *Library) freeAPI() {
	C.call_delete(l.processCall)
	C.free(unsafe.Pointer(l.api))
	l.processCall, l.api = nil, nil
}

// readVersions reads the versions that the library reports. A field that the library does not report stays empty,
// because nothing depends on these fields.
func (l *Library) readVersions() {
	var v struct{ major, minor, patch C.int32_t }
	if C.call_version(l.processCall, &v.major, &v.minor, &v.patch) == 0 {
		l.info.ACL = ACLVersion{int32(v.major), int32(v.minor), int32(v.patch)}
	}
	var text [256]C.char
	if C.call_soc_name(l.processCall, &text[0], C.size_t(len(text))) == 0 {
		l.info.SoC = C.GoString(&text[0])
	}
	text[0] = 0
	name := C.CString("runtime")
	defer C.free(unsafe.Pointer(name))
	if C.call_package_version(l.processCall, name, &text[0]) == 0 {
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

// HasSymbol reports whether the library has a symbol that the binding uses.
func (l *Library) HasSymbol(symbol string) bool { return !slices.Contains(l.info.Missing, symbol) }

// Close gives back the reference of Open. While a context is open, the error is ErrBusy. A second Close does nothing.
func (l *Library) Close() error {
	initMutex.Lock()
	defer initMutex.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.processCall == nil {
		return nil
	}
	if l.contexts != 0 {
		return fmt.Errorf("%w: %d contexts are open: close them first", ErrBusy, l.contexts)
	}
	var left C.uint64_t
	code := C.call_finalize_reference(l.processCall, &left)
	if code == C.CALL_NO_SYMBOL {
		// An old release has only aclFinalize, which would end AscendCL for the engine as well.
		code = 0
	}
	err := l.callError(l.processCall, code, "aclFinalizeReference", "")
	if err == nil {
		l.freeAPI()
	}
	return err
}

// callWithoutContext makes a call that needs no context.
func (l *Library) callWithoutContext(symbol string, f func(*C.struct_call) C.int, format string, args ...any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.processCall == nil {
		return fmt.Errorf("%w: the library was closed before the call of %s", ErrClosed, symbol)
	}
	return l.callError(l.processCall, f(l.processCall), symbol, format, args...)
}

// callError converts the result of a call to an error; nil for success.
func (l *Library) callError(c *C.struct_call, code C.int, symbol, format string, args ...any) error {
	switch code {
	case 0:
		return nil
	case C.CALL_STRAY_THREAD:
		return fmt.Errorf("%w: %s(%s)", ErrWrongThread, symbol, fmt.Sprintf(format, args...))
	case C.CALL_NO_SYMBOL:
		return &MissingError{Symbol: symbol, Library: l.info.Library}
	}
	return &Error{
		Code: Code(code), Call: symbol, Args: fmt.Sprintf(format, args...), Message: C.GoString(&c.message[0]),
	}
}

// addContext and release count the open contexts.
func (l *Library) addContext() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.processCall == nil {
		return fmt.Errorf("%w: the library", ErrClosed)
	}
	l.contexts++
	return nil
}

func (l *Library) removeContext() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contexts--
}
