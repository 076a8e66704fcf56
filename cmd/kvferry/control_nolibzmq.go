//go:build !libzmq

package main

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
)

// libzmqAbsent is the reason that this build has no libzmq. The build tag libzmq adds the library, so that a build
// without the tag needs neither libzmq nor its headers.
var libzmqAbsent error = &control.Error{
	Code: effects.Unsupported, What: "control.transport libzmq, which this build does not have",
	Remedy: "build with CGO_ENABLED=1 go build -tags libzmq ./cmd/kvferry, which needs a C compiler, pkg-config and " +
		"libzmq's headers (Debian: libzmq3-dev), or set control.transport: zmq",
}

func libzmqOpener(*config.Config) control.Opener {
	return func(control.Env) (control.Transport, error) { return nil, libzmqAbsent }
}
