//go:build cgo && linux

package libnixl

/*
#cgo CFLAGS: -std=c11 -O2 -Wall -Wextra -Werror
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/sharedlib"
)

// A Library is the loaded libnixl. The methods may be called from any goroutine.
type Library struct {
	api  *C.struct_nixl_api
	info Info

	agentMutex sync.Mutex // held while an agent is made or destroyed, because both set up plug-ins and what these share
}

// openMutex is held while a library is loaded, because the environment is changed before that.
var openMutex sync.Mutex

// Open loads libnixl. Open uses the first library that can be loaded and has all symbols. If there is none, the error
// is a *LoadError that lists the attempts. The library stays loaded for good. Open changes the environment: see the
// package comment.
func Open(o Options) (*Library, error) {
	openMutex.Lock()
	defer openMutex.Unlock()
	for _, s := range envSettings {
		if _, isSet := os.LookupEnv(s.name); !isSet {
			if err := os.Setenv(s.name, s.value); err != nil {
				return nil, fmt.Errorf("libnixl: set %s: %w", s.name, err)
			}
		}
	}
	loadErr := &LoadError{}
	for _, name := range o.candidateLibraries() {
		loaded, err := sharedlib.Load(name)
		if err != nil {
			loadErr.Attempts = append(loadErr.Attempts, Attempt{Library: name, Reason: err.Error()})
			continue
		}
		l := &Library{api: C.nixl_api_new(), info: Info{Library: loaded.File, Signals: loaded.Signals}}
		if missing, _ := loaded.Resolve(unsafe.Pointer(l.api), listSymbols(), nil); len(missing) > 0 {
			C.free(unsafe.Pointer(l.api))
			loadErr.Attempts = append(loadErr.Attempts, Attempt{Library: name, Missing: missing})
			continue
		}
		return l, nil
	}
	return nil, loadErr
}

func listSymbols() []sharedlib.Symbol {
	var list []sharedlib.Symbol
	for i := C.size_t(0); ; i++ {
		s := C.nixl_symbol(i)
		if s == nil {
			return list
		}
		list = append(list, sharedlib.Symbol{Name: C.GoString(s.name), Required: true, Offset: uintptr(s.offset)})
	}
}

// Info returns what Open found.
func (l *Library) Info() Info {
	info := l.info
	info.Signals = slices.Clone(info.Signals)
	return info
}

// callError converts the status of a call to an error; nil for success.
func callError(status C.int, at *C.char, format string, args ...any) error {
	if status == C.NIXL_SUCCESS {
		return nil
	}
	return &Error{Call: C.GoString(at), Args: fmt.Sprintf(format, args...), Status: Status(status)}
}
