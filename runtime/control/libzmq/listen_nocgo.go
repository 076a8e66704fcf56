//go:build !cgo || !linux

package libzmq

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
)

// Listen returns an error: this build has no libzmq, which is reached through cgo and epoll.
func Listen(Config, []control.Server, control.Sink) (control.Transport, error) {
	return nil, &control.Error{
		Code: effects.Unsupported, What: "control over libzmq in a build without cgo",
		Remedy: "build on Linux with CGO_ENABLED=1, a C compiler, pkg-config and libzmq's headers (Debian: libzmq3-dev), or " +
			"use package zmq (control.transport: zmq), which needs none of them",
	}
}
