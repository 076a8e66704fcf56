package device

import "errors"

// ErrNoMemory is wrapped by errors of an Opener that could not have as much memory as it was asked for.
var ErrNoMemory = errors.New("not enough memory")
