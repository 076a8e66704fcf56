//go:build cgo && linux

package libnixl

/*
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"
)

// UCX is the plug-in with the backend that moves memory between processes.
const UCX = "UCX"

// AgentOptions describes an agent.
type AgentOptions struct {
	// Name is the name by which peers know the agent. Agents that meet must have different names. A name has 1 to 255
	// bytes and no NUL.
	Name string
	// Plugin makes the backend; UCX if empty.
	Plugin string
	// Params are the plug-in's parameters, for example UCX's engine_config: "TLS=tcp".
	Params map[string]string
}

const nameMax = 255

// An Agent is an end of transfers, with a single backend. Only one goroutine may use an Agent at a time: see the
// package comment.
type Agent struct {
	library      *Library
	name         string
	handle       *C.struct_agent // nil: closed
	busy         atomic.Bool     // a call is in progress
	openChildren int             // memory and transfers that are open
}

// NewAgent makes an agent and its backend. The call takes tens of milliseconds and opens a dozen files or more.
func (l *Library) NewAgent(o AgentOptions) (*Agent, error) {
	if o.Plugin == "" {
		o.Plugin = UCX
	}
	if err := checkName("name of an agent", o.Name); err != nil {
		return nil, err
	}
	params, err := l.newParams(o.Params)
	if err != nil {
		return nil, err
	}
	defer C.nixl_call_params_free(l.api, params)
	name, plugin := C.CString(o.Name), C.CString(o.Plugin)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(plugin))
	var made *C.struct_agent
	var at *C.char
	l.agentMutex.Lock()
	defer l.agentMutex.Unlock()
	status := C.nixl_call_agent(l.api, name, plugin, params, &made, &at)
	if err := callError(status, at, "name=%q plugin=%s params=%v", o.Name, o.Plugin, o.Params); err != nil {
		return nil, err
	}
	return &Agent{library: l, name: o.Name, handle: made}, nil
}

// checkName refuses a name that C would read as a different name.
func checkName(what, name string) error {
	if name == "" || len(name) > nameMax || strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("%w: %s %q; give 1 to %d bytes without NUL", ErrInvalid, what, name, nameMax)
	}
	return nil
}

func (l *Library) newParams(list map[string]string) (C.nixl_handle, error) {
	var params C.nixl_handle
	var at *C.char
	if err := callError(C.nixl_call_params(l.api, &params, &at), at, ""); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(list)) {
		k, v := C.CString(key), C.CString(list[key])
		status := C.nixl_call_param(l.api, params, k, v, &at)
		C.free(unsafe.Pointer(k))
		C.free(unsafe.Pointer(v))
		if err := callError(status, at, "key=%q value=%q", key, list[key]); err != nil {
			C.nixl_call_params_free(l.api, params)
			return nil, err
		}
	}
	return params, nil
}

// enterCall begins a call and leave ends it.
func (a *Agent) enterCall() error {
	if !a.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: %s", ErrShared, a.name)
	}
	if a.handle == nil {
		a.leaveCall()
		return fmt.Errorf("%w: agent %s", ErrClosed, a.name)
	}
	return nil
}

func (a *Agent) leaveCall() { a.busy.Store(false) }

// callError converts the status of a call of the agent to an error. The caller has entered the agent.
func (a *Agent) callError(status C.int, format string, args ...any) error {
	if status == C.NIXL_SUCCESS {
		return nil
	}
	return callError(status, a.handle.at, "agent=%q "+format, append([]any{a.name}, args...)...)
}

// Name returns the name by which peers know the agent.
func (a *Agent) Name() string { return a.name }

// Close destroys the agent: this process takes no part in any transfer of the agent any more. While memory or a
// transfer is open, the error is ErrBusy. After any further error the library may still have the agent, but the Agent
// cannot be used.
func (a *Agent) Close() error {
	if err := a.enterCall(); err != nil {
		return err
	}
	defer a.leaveCall()
	if a.openChildren > 0 {
		return fmt.Errorf("%w: agent %s has %d open memories and transfers; close them first", ErrBusy, a.name, a.openChildren)
	}
	made := a.handle
	a.library.agentMutex.Lock()
	defer a.library.agentMutex.Unlock()
	status := C.nixl_call_agent_free(made)
	a.handle = nil
	if status == C.NIXL_SUCCESS {
		return nil
	}
	return callError(status, made.at, "agent=%q", a.name)
}

// Metadata returns the bytes that a peer has to pass to LoadMetadata in order to reach the memory that is registered
// now.
func (a *Agent) Metadata() ([]byte, error) {
	if err := a.enterCall(); err != nil {
		return nil, err
	}
	defer a.leaveCall()
	var data unsafe.Pointer
	var bytes C.size_t
	if err := a.callError(C.nixl_call_metadata(a.handle, &data, &bytes), ""); err != nil {
		return nil, err
	}
	defer C.free(data)
	if bytes > MetadataMax {
		return nil, fmt.Errorf("%w: the metadata of agent %s has %d bytes, but the limit is %d: register fewer ranges",
			ErrInvalid, a.name, bytes, MetadataMax)
	}
	return C.GoBytes(data, C.int(bytes)), nil
}

// MetadataMax bounds the bytes that LoadMetadata accepts; a range of memory has some hundred.
const MetadataMax = 1 << 20

// LoadMetadata loads a peer's metadata and returns the peer's name. The library believes the bytes without a check, so
// the bytes must come from a trusted source.
func (a *Agent) LoadMetadata(metadata []byte) (peer string, err error) {
	if len(metadata) == 0 || len(metadata) > MetadataMax {
		return "", fmt.Errorf("%w: metadata of %d bytes; give 1 to %d", ErrInvalid, len(metadata), MetadataMax)
	}
	if err := a.enterCall(); err != nil {
		return "", err
	}
	defer a.leaveCall()
	var name *C.char
	status := C.nixl_call_load(a.handle, unsafe.Pointer(unsafe.SliceData(metadata)), C.size_t(len(metadata)), &name)
	if err := a.callError(status, "bytes=%d", len(metadata)); err != nil {
		return "", err
	}
	defer C.free(unsafe.Pointer(name))
	return C.GoString(name), nil
}

// ForgetPeer disconnects a peer and drops its metadata. Transfers to that peer fail from then on.
func (a *Agent) ForgetPeer(peer string) error {
	return a.callWithPeer(peer, func(name *C.char) C.int { return C.nixl_call_forget(a.handle, name) })
}

// ConnectPeer starts to connect to a peer with loaded metadata, so that the first transfer is faster. The call does not
// wait.
func (a *Agent) ConnectPeer(peer string) error {
	return a.callWithPeer(peer, func(name *C.char) C.int { return C.nixl_call_connect(a.handle, name) })
}

// callWithPeer makes a call that takes the name of a peer.
func (a *Agent) callWithPeer(peer string, call func(name *C.char) C.int) error {
	if err := checkName("peer", peer); err != nil {
		return err
	}
	if err := a.enterCall(); err != nil {
		return err
	}
	defer a.leaveCall()
	name := C.CString(peer)
	defer C.free(unsafe.Pointer(name))
	return a.callError(call(name), "peer=%q", peer)
}
