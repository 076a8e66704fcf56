//go:build !cgo || !linux

package nixlnode

import (
	"log/slog"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// A NIXL would hold one node's use of libnixl. This build cannot load libnixl, so Open never returns one.
type NIXL struct{}

// Open always fails in this build, because calling libnixl requires cgo.
func Open(cfg *config.Config, _ int, _ *slog.Logger) (*NIXL, error) {
	_, err := Load(cfg.NIXL.Library)
	return nil, err
}

// Options returns nil.
func (*NIXL) Options() []runtime.Option { return nil }

// Links returns nil.
func (*NIXL) Links() *agent.Links { return nil }
