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

// A Library is HCCL, loaded. Its methods may be called from any goroutine that has what they ask for.
type Library struct {
	api     *C.struct_hccl_api
	info    Info
	descMax int

	mu     sync.Mutex
	closed bool
	live   map[acl.DeviceID]*live
}

// live is what is open on one device, under the library's lock: registries of memory are for each device.
type live struct {
	regions map[Memory]struct{}
	comms   int
}

var (
	// opening guards the environment that the library is loaded with.
	opening sync.Mutex
	// initialising is the lock of the process around every making of a communicator: HCCL's are not safe
	// beside one another.
	initialising sync.Mutex
)

// Open loads HCCL. It fails with a *LoadError that names what was looked for and where. The first library that
// opens and has the functions of one of the sequences is taken. Call it before the process forks, and before
// acl.Open, which may bring HCCL in: its timeouts count only where they are set before it is loaded.
//
// The library itself stays loaded for good; Close frees what is ours.
func Open(o Options) (*Library, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	opening.Lock()
	defer opening.Unlock()
	candidates := o.candidates()
	resident := slices.ContainsFunc(candidates, sharedlib.Resident)
	timeout, err := timeoutVariable.settle(o.RDMATimeout, resident)
	if err != nil {
		return nil, err
	}
	retries, err := retriesVariable.settle(o.RDMARetries, resident)
	if err != nil {
		return nil, err
	}
	missed := &LoadError{}
	for _, name := range candidates {
		l, attempt := load(name, o)
		if l == nil {
			missed.Tried = append(missed.Tried, attempt)
			continue
		}
		timeoutVariable.counts, retriesVariable.counts = true, true
		l.descMax = o.DescMax
		l.info.RDMATimeout, l.info.RDMARetries, l.info.IntraRoCE, l.info.IntraPCIe = timeout, retries, intraRoCE(),
			intraPCIe()
		return l, nil
	}
	timeoutVariable.withdraw()
	retriesVariable.withdraw()
	return nil, missed
}

// load opens one library and finds its symbols. Without those of a sequence there is an Attempt instead.
func load(name string, o Options) (*Library, Attempt) {
	loaded, err := sharedlib.Open(name)
	if err != nil {
		return nil, Attempt{Library: name, Reason: err.Error()}
	}
	l := &Library{api: C.hccl_api_new(), live: map[acl.DeviceID]*live{}}
	l.info = Info{Library: loaded.File, Signals: loaded.Signals}
	var list []sharedlib.Symbol
	for _, s := range symbols() {
		list = append(list, s.Symbol)
	}
	_, l.info.Missing = loaded.Resolve(unsafe.Pointer(l.api), list, o.hidden)
	var refused []string
	if l.info.Sequence, refused = choose(o.Sequence, l.info.Missing); l.info.Sequence == 0 {
		l.discard()
		return nil, Attempt{Library: name, Missing: refused}
	}
	l.info.CANN = sharedlib.ToolkitVersion("hcomm")
	if l.info.CANN == "" {
		l.info.CANN = sharedlib.ToolkitVersion("hccl")
	}
	l.info.Capability = uint32(C.hccl_capability(l.api))
	return l, Attempt{}
}

// A symbol is a function that the binding may call.
type symbol struct {
	sharedlib.Symbol
	group C.int
}

func symbols() []symbol {
	var list []symbol
	for i := C.size_t(0); ; i++ {
		s := C.hccl_symbol(i)
		if s == nil {
			return list
		}
		list = append(list, symbol{sharedlib.Symbol{Name: C.GoString(s.name), Offset: uintptr(s.offset)}, s.group})
	}
}

// choose takes the sequence that the library has all functions for: the one that is wanted, or else the newer one if it
// has both. If it has none, zero, and what it lacks: of what is always needed, and of each sequence.
func choose(want Sequence, missing []string) (s Sequence, refused []string) {
	lacks := map[C.int][]string{}
	for _, s := range symbols() {
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
	takesGlobal, takesExchange := want != Exchange, want != Global
	switch {
	case takesGlobal && len(global) == 0:
		s = Global
	case takesExchange && len(exchange) == 0:
		s = Exchange
	}
	if s != 0 && len(always) == 0 {
		return s, nil
	}
	refused = always
	if s == 0 && takesGlobal {
		refused = append(refused, global...)
	}
	if s == 0 && takesExchange {
		refused = append(refused, exchange...)
	}
	return 0, refused
}

// Info is what was found at Open.
func (l *Library) Info() Info {
	info := l.info
	info.Missing, info.Signals = slices.Clone(info.Missing), slices.Clone(info.Signals)
	return info
}

// Has reports whether the library has a symbol that the binding uses.
func (l *Library) Has(symbol string) bool { return !slices.Contains(l.info.Missing, symbol) }

// DescMax is the most descriptors that Put and Get take.
func (l *Library) DescMax() int { return l.descMax }

// Close frees what the binding has of the library. It refuses with ErrBusy while a region or a communicator is
// open. A second Close does nothing.
func (l *Library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for device, on := range l.live {
		if len(on.regions) != 0 || on.comms != 0 {
			return fmt.Errorf("%w: device %d has %d regions and %d communicators: close them first", ErrBusy, device,
				len(on.regions), on.comms)
		}
	}
	if !l.closed {
		l.closed = true
		l.discard()
	}
	return nil
}

func (l *Library) discard() {
	C.free(unsafe.Pointer(l.api))
	l.api = nil
}

// on is what is open on a device; under the lock.
func (l *Library) on(device acl.DeviceID) *live {
	if l.live[device] == nil {
		l.live[device] = &live{regions: map[Memory]struct{}{}}
	}
	return l.live[device]
}

// answer makes an error of what a call answered; nil for success. It must run on the thread of the call.
func (l *Library) answer(at acl.Current, code C.int, symbol, format string, args ...any) error {
	switch code {
	case 0:
		return nil
	case C.CALL_NO_SYMBOL:
		return &MissingError{Symbol: symbol, Library: l.info.Library}
	}
	e := &Error{Code: Code(code), Call: symbol, Args: fmt.Sprintf(format, args...), Message: at.Message()}
	if _, ok := codes[e.Code]; !ok && e.Message == "" {
		e.Message = C.GoString(C.hccl_error_string(l.api, code))
	}
	return e
}
