//go:build !cgo || !linux

package npunode

import (
	"errors"
	"log/slog"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// An NPU would hold one node's use of an NPU. This build cannot reach an NPU, so Open never returns one.
type NPU struct{}

// Open always fails in this build, because calling the vendor's libraries requires cgo.
func Open(*config.Config, int, *slog.Logger) (*NPU, error) {
	return nil,
		errors.New("this program was built without cgo, so it cannot use an NPU; rebuild it on Linux with CGO_ENABLED=1, or " +
			"set pd_buffer_device: cpu and transfer_channel: auto")
}

// Options returns nil.
func (*NPU) Options() []runtime.Option { return nil }

// Engine returns the engine of a pool in this process's memory. It is never called, because Open always fails.
func (*NPU) Engine() (agent.Engine, error) { return agent.InProcess{}, nil }

// Links returns nil.
func (*NPU) Links() *agent.Links { return nil }

// Close does nothing.
func (*NPU) Close() error { return nil }
