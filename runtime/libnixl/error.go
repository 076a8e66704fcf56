package libnixl

import (
	"errors"
	"fmt"
	"strings"
)

// A Status is the result of a call of libnixl. Further values may exist, so keep the number.
type Status int32

// The statuses. Most failures of the library, and all failures of its backends, are Backend: the reason is in libnixl's
// own log on standard error.
const (
	Success          Status = 0
	InProgress       Status = 1
	InvalidParameter Status = -1
	Backend          Status = -2
	InvalidState     Status = -3
	Exception        Status = -4
	NoTelemetry      Status = -5
	NotFound         Status = -6
)

var statuses = map[Status]string{
	Success: "success", InProgress: "in progress", InvalidParameter: "invalid parameter", Backend: "backend",
	InvalidState: "invalid state", Exception: "exception", NoTelemetry: "no telemetry", NotFound: "not found",
}

func (s Status) String() string {
	if name := statuses[s]; name != "" {
		return name
	}
	return "unknown status"
}

// An Error is a call of libnixl that failed.
type Error struct {
	Call   string // the function of libnixl
	Args   string // its arguments, as name=value
	Status Status
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s(%s): %s (%d)", e.Call, e.Args, e.Status, int32(e.Status))
	remedy := remedies[e.Call]
	if remedy == "" && e.Status == Backend {
		remedy = "see libnixl's log on standard error; set NIXL_LOG_LEVEL=DEBUG for details"
	}
	if remedy != "" {
		b.WriteString("; " + remedy)
	}
	return b.String()
}

// remedies holds advice for statuses that an operator can do something about.
var remedies = map[string]string{
	"nixl_capi_create_backend": "the plug-in or one of its libraries is missing: install libibverbs1 and librdmacm1, keep " +
		"the plug-ins beside libnixl or name their folder in NIXL_PLUGIN_DIR, and see UCX_TLS and UCX_NET_DEVICES",
	"nixl_capi_register_mem": "the memory cannot be registered: with RDMA raise the limit of locked memory (ulimit -l, " +
		"LimitMEMLOCK)",
	"nixl_capi_load_remote_md": "both ends must have a transport in common: compare UCX_TLS, and the versions of NIXL",
}

// Errors of the binding itself, returned before the library is called. Test them with errors.Is.
var (
	// ErrClosed: the agent, memory or transfer was closed before.
	ErrClosed = errors.New("libnixl: closed")
	// ErrBusy: something still uses the object to be closed.
	ErrBusy = errors.New("libnixl: busy")
	// ErrShared: a second goroutine is in a call of the same agent. Only one goroutine may use an agent at a time.
	ErrShared = errors.New("libnixl: another goroutine is in a call of this agent")
	// ErrInvalid: an argument that no library accepts.
	ErrInvalid = errors.New("libnixl: invalid argument")
)
