package comm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/runtime/acl"
)

// An Error is a call of HCCL that failed. errors.Is(err, class) tests the class, which is defined in package acl.
type Error struct {
	Code    Code
	Call    string // the function of HCCL
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
	class, ok := target.(acl.Class)
	return ok && class == e.Code.Class()
}

// remedies holds advice for codes that an operator can do something about.
var remedies = map[Code]string{
	6:  "check that the peer's NPU has a RoCE address (hccn_tool -i <id> -ip -g)",
	9:  "check that the peer runs, and that the NPUs reach each other (hccn_tool -i <id> -ping -g address <ip>)",
	10: "the temporary directory must be writable for the rank table",
	11: "check that the NPUs reach each other (hccn_tool -i <id> -ping -g address <ip>)",
	12: "check that the NPUs reach each other (hccn_tool -i <id> -ping -g address <ip>)",
}

// Errors of the binding itself, returned before the library is called. Test them with errors.Is.
var (
	// ErrClosed: the library, region or communicator was closed before.
	ErrClosed = errors.New("hccl: closed")
	// ErrBusy: something still uses the object to be closed. A later Close may succeed.
	ErrBusy = errors.New("hccl: busy")
	// ErrWrongOwner: the object belongs to another device or library than the thread, region or communicator.
	ErrWrongOwner = errors.New("hccl: belongs to another device or library")
	// ErrInvalid: an argument that no library accepts.
	ErrInvalid = errors.New("hccl: invalid argument")
	// ErrNotReady: the communicator is not prepared.
	ErrNotReady = errors.New("hccl: not prepared")
	// ErrFenced: the communicator, or its stream, has failed: close the communicator, and make another with a new name.
	ErrFenced = errors.New("hccl: the communicator has failed")
	// ErrLost: destroying the communicator failed. There is no second attempt, because a further call would act on a
	// half destroyed object. Whether the communicator still reaches memory is unknown.
	ErrLost = errors.New("hccl: destroying the communicator failed")
)

// A MissingError says that the library lacks a function that has no fallback. Its class is acl.Unsupported.
type MissingError struct {
	Symbol  string
	Library string // the file
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("hccl: %s lacks the function %s: install another version of CANN", e.Library, e.Symbol)
}

// Is reports whether target is acl.Unsupported.
func (e *MissingError) Is(target error) bool { return target == acl.Unsupported }
