package device

import "errors"

// ErrNoMemory is wrapped by errors of an Opener that could not allocate as much memory as was requested.
var ErrNoMemory = errors.New("not enough memory")
