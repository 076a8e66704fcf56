//go:build !cgo || !linux

package zmq

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

// Listen says that this build has no ZeroMQ: libzmq is reached through cgo and epoll.
func Listen(Config, []control.Server, control.Sink) (control.Transport, error) {
	return nil, &control.Error{
		Code: effects.Unsupported, What: "this build has no zeromq transport",
		Remedy: "build on linux with CGO_ENABLED=1, a C compiler, pkg-config and libzmq's headers (debian: libzmq3-dev)",
	}
}
