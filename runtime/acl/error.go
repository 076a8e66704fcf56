package acl

import (
	"errors"
	"fmt"
	"strings"
)

// An Error is a call of AscendCL that failed. errors.Is(err, class) tests its class.
type Error struct {
	Code    Code
	Call    string // the function of AscendCL
	Args    string // its arguments, as name=value
	Message string // the library's own text from the same thread; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s(%s): %s (%d, %v)", e.Call, e.Args, e.Code, int32(e.Code), e.Code.Class())
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if remedy := remedies[e.Code]; remedy != "" {
		fmt.Fprintf(&b, "; %s", remedy)
	}
	return b.String()
}

// Is reports whether target is the error's class.
func (e *Error) Is(target error) bool {
	class, ok := target.(Class)
	return ok && class == e.Code.Class()
}

// remedies holds advice for codes that an operator can do something about.
var remedies = map[Code]string{
	100039: "a stub library of CANN's devlib is on the search path: put the lib64 of the toolkit before it",
	107001: "see npu-smi info for the devices of this machine, and ASCEND_RT_VISIBLE_DEVICES for the visible ones",
	200002: "see npu-smi info for the devices of this machine, and ASCEND_RT_VISIBLE_DEVICES for the visible ones",
	207004: "no device is visible: check the driver, the container's devices and ASCEND_RT_VISIBLE_DEVICES",
	207006: "the process may not use the device: check the process's group, and the devices of the container",
}

// Errors of the binding itself, returned before the library is called. Test them with errors.Is.
var (
	// ErrClosed: the library, context, stream, event or memory was closed before.
	ErrClosed = errors.New("acl: closed")
	// ErrBusy: something still uses the object to be closed, or a bounded queue is full.
	ErrBusy = errors.New("acl: busy")
	// ErrWrongThread: a Thread was used after the function that received it had returned, or on another thread.
	ErrWrongThread = errors.New("acl: called from a thread that does not own the context")
	// ErrWrongContext: a stream, event or memory of another context.
	ErrWrongContext = errors.New("acl: belongs to another context")
	// ErrRange: a range that exceeds the memory, or lengths that differ.
	ErrRange = errors.New("acl: outside the memory")
	// ErrInvalid: an argument that no library accepts.
	ErrInvalid = errors.New("acl: invalid argument")
)

// A MissingError says that the library lacks a function that has no fallback. Its class is Unsupported.
type MissingError struct {
	Symbol  string
	Library string // the file
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("acl: %s lacks the function %s: install a newer CANN", e.Library, e.Symbol)
}

// Is reports whether target is Unsupported.
func (e *MissingError) Is(target error) bool { return target == Unsupported }
