//go:build !cgo || !linux

package nixlnode

import (
	"log/slog"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// A NIXL is what one node stands on; here there is none.
type NIXL struct{}

// Open fails: libnixl is reached by cgo.
func Open(cfg *config.Config, _ int, _ *slog.Logger) (*NIXL, error) {
	_, err := Load(cfg.NIXL.Library)
	return nil, err
}

// Options are none.
func (*NIXL) Options() []runtime.Option { return nil }

// Links are none.
func (*NIXL) Links() *agent.Links { return nil }
