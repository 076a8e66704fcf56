//go:build !cgo || !linux

package npunode

import (
	"errors"
	"log/slog"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// An NPU is what one node stands on; here there is none.
type NPU struct{}

// Open fails: the vendor's libraries are reached by cgo.
func Open(*config.Config, int, *slog.Logger) (*NPU, error) {
	return nil,
		errors.New("this program was built without cgo, so it reaches no NPU; rebuild it on linux with CGO_ENABLED=1, or " +
			"set pd_buffer_device: cpu and transfer_channel: auto")
}

// Options are none.
func (*NPU) Options() []runtime.Option { return nil }

// Engine is none.
func (*NPU) Engine() (agent.Engine, error) { return agent.InProcess{}, nil }

// Links are none.
func (*NPU) Links() *agent.Links { return nil }

// Close does nothing.
func (*NPU) Close() error { return nil }
