//go:build cgo && linux

package comm

/*
#cgo CFLAGS: -std=c11 -O2 -Wall -Wextra -Werror
#include <stdlib.h>
#include "calls.h"
#include "open.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/sharedlib"
)

// A Library is the loaded HCCL. The methods may be called from any goroutine that has the arguments.
type Library struct {
	api     *C.struct_hccl_api
	info    Info
	descMax int

	mu     sync.Mutex
	closed bool
	open   map[acl.DeviceID]*openObjects
}

// openObjects counts the open objects of a device, because memory is registered per device. The library's lock guards
// the counts.
type openObjects struct {
	regions map[Memory]struct{}
	comms   int
}

var (
	// openMutex guards the environment variables that the library reads when it is loaded.
	openMutex sync.Mutex
	// initMutex is held while a communicator is made: HCCL's functions for that are not safe in parallel.
	initMutex sync.Mutex
)

// Open loads HCCL. Open uses the first library that can be loaded and has the functions of a sequence. If there is
// none, the error is a *LoadError that lists the attempts. Call Open before the process forks, and before acl.Open,
// which may load HCCL: timeouts count only if kvferry sets them earlier.
//
// The library itself stays loaded for good; Close frees the binding's own memory.
func Open(o Options) (*Library, error) {
	if err := o.fillDefaults(); err != nil {
		return nil, err
	}
	openMutex.Lock()
	defer openMutex.Unlock()
	candidates := o.candidateLibraries()
	resident := slices.ContainsFunc(candidates, sharedlib.IsLoaded)
	timeout, err := timeoutVariable.resolveValue(o.RDMATimeout, resident)
	if err != nil {
		return nil, err
	}
	retries, err := retriesVariable.resolveValue(o.RDMARetries, resident)
	if err != nil {
		return nil, err
	}
	loadErr := &LoadError{}
	for _, name := range candidates {
		l, attempt := loadLibrary(name, o)
		if l == nil {
			loadErr.Attempts = append(loadErr.Attempts, attempt)
			continue
		}
		timeoutVariable.loadedSince, retriesVariable.loadedSince = true, true
		l.descMax = o.DescMax
		l.info.RDMATimeout, l.info.RDMARetries, l.info.IntraRoCE, l.info.IntraPCIe = timeout, retries, intraRoCE(),
			intraPCIe()
		return l, nil
	}
	timeoutVariable.unsetIfOurs()
	retriesVariable.unsetIfOurs()
	return nil, loadErr
}

// loadLibrary opens a library and finds the symbols. If symbols of both sequences are missing, the Attempt lists them.
func loadLibrary(name string, o Options) (*Library, Attempt) {
	loaded, err := sharedlib.Load(name)
	if err != nil {
		return nil, Attempt{Library: name, Reason: err.Error()}
	}
	l := &Library{api: C.hccl_api_new(), open: map[acl.DeviceID]*openObjects{}}
	l.info = Info{Library: loaded.File, Signals: loaded.Signals}
	var list []sharedlib.Symbol
	for _, s := range listSymbols() {
		list = append(list, s.Symbol)
	}
	_, l.info.Missing = loaded.Resolve(unsafe.Pointer(l.api), list, o.hiddenSymbols)
	var refused []string
	if l.info.Sequence, refused = chooseSequence(o.Sequence, l.info.Missing); l.info.Sequence == 0 {
		l.freeAPI()
		return nil, Attempt{Library: name, Missing: refused}
	}
	l.info.CANN = sharedlib.ToolkitVersion("hcomm")
	if l.info.CANN == "" {
		l.info.CANN = sharedlib.ToolkitVersion("hccl")
	}
	l.info.Capability = uint32(C.hccl_capability(l.api))
	return l, Attempt{}
}

// A groupSymbol is a function that the binding may call.
type groupSymbol struct {
	sharedlib.Symbol
	group C.int
}

func listSymbols() []groupSymbol {
	var list []groupSymbol
	for i := C.size_t(0); ; i++ {
		s := C.hccl_symbol(i)
		if s == nil {
			return list
		}
		list = append(list, groupSymbol{sharedlib.Symbol{Name: C.GoString(s.name), Offset: uintptr(s.offset)}, s.group})
	}
}

// chooseSequence returns the sequence for which the library has all functions: the wanted one, otherwise the newer one.
// If there is none, the result is zero and the missing functions: functions that are always needed, and the functions
// of each sequence.
func chooseSequence(want Sequence, missing []string) (s Sequence, refused []string) {
	lacks := map[C.int][]string{}
	for _, s := range listSymbols() {
		if slices.Contains(missing, s.Name) {
			lacks[s.group] = append(lacks[s.group], s.Name)
		}
	}
	always, global, exchange := lacks[C.GROUP_ALWAYS], lacks[C.GROUP_GLOBAL], lacks[C.GROUP_EXCHANGE]
	makers := []string{
		"HcclCommInitClusterInfoConfig", "HcclCommInitClusterInfo", "HcclCommInitRootInfoConfig", "HcclCommInitRootInfo",
	}
	if !slices.ContainsFunc(makers, func(name string) bool { return !slices.Contains(missing, name) }) {
		exchange = append(exchange, makers[0])
	}
	allowsGlobal, allowsExchange := want != Exchange, want != Global
	switch {
	case allowsGlobal && len(global) == 0:
		s = Global
	case allowsExchange && len(exchange) == 0:
		s = Exchange
	}
	if s != 0 && len(always) == 0 {
		return s, nil
	}
	refused = always
	if s == 0 && allowsGlobal {
		refused = append(refused, global...)
	}
	if s == 0 && allowsExchange {
		refused = append(refused, exchange...)
	}
	return 0, refused
}

// Info returns what Open found.
func (l *Library) Info() Info {
	info := l.info
	info.Missing, info.Signals = slices.Clone(info.Missing), slices.Clone(info.Signals)
	return info
}

// HasSymbol reports whether the library has a symbol that the binding uses.
func (l *Library) HasSymbol(symbol string) bool { return !slices.Contains(l.info.Missing, symbol) }

// DescMax returns the largest number of descriptors that Put and Get accept.
func (l *Library) DescMax() int { return l.descMax }

// Close frees the binding's memory. While a region or a communicator is open, the error is ErrBusy. A second Close does
// nothing.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for device, objects := range l.open {
		if len(objects.regions) != 0 || objects.comms != 0 {
			return fmt.Errorf("%w: device %d has %d regions and %d communicators: close them first", ErrBusy, device,
				len(objects.regions), objects.comms)
		}
	}
	if !l.closed {
		l.closed = true
		l.freeAPI()
	}
	return nil
}

func (l *Library) freeAPI() {
	C.free(unsafe.Pointer(l.api))
	l.api = nil
}

// objectsOn returns the open objects of a device. The caller holds the lock.
func (l *Library) objectsOn(device acl.DeviceID) *openObjects {
	if l.open[device] == nil {
		l.open[device] = &openObjects{regions: map[Memory]struct{}{}}
	}
	return l.open[device]
}

// callError converts the result of a call to an error; nil for success. The caller runs on the thread of the failed
// call.
func (l *Library) callError(at acl.CurrentThread, code C.int, symbol, format string, args ...any) error {
	switch code {
	case 0:
		return nil
	case C.CALL_NO_SYMBOL:
		return &MissingError{Symbol: symbol, Library: l.info.Library}
	}
	e := &Error{Code: Code(code), Call: symbol, Args: fmt.Sprintf(format, args...), Message: at.TakeMessage()}
	if _, ok := codes[e.Code]; !ok && e.Message == "" {
		e.Message = C.GoString(C.hccl_error_string(l.api, code))
	}
	return e
}
