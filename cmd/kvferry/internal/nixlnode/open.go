//go:build cgo && linux

package nixlnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
)

// A NIXL holds the settings and the plane of one node over libnixl. It does not need to be closed.
type NIXL struct {
	config nixl.Config
	plane  *nixl.Plane // nil until the node has opened it
}

// Open reads the rank's settings from the configuration, and loads libnixl if it is to run in this process; otherwise it
// is loaded when the plane is opened, in a process of its own. Open fails with an error that wraps ErrSetting if the
// configuration has no port for the rank, and with another error if libnixl cannot be loaded.
func Open(cfg *config.Config, rank int, log *slog.Logger) (*NIXL, error) {
	n := &cfg.NIXL
	listen, ok := cfg.NIXLEndpoint(rank)
	if !ok {
		return nil, fmt.Errorf("%w: extra_config.kvferry.nixl.port has no port for rank %d; add a port", ErrSetting, rank)
	}
	agents := nixlproc.Options{Library: n.Library, Program: n.Program, CallTimeout: n.ProcessTimeout}.Open
	if n.InProcess {
		library, err := Load(n.Library)
		if err != nil {
			return nil, err
		}
		agents = nixlproc.InProcess(library)
		log.Warn("libnixl runs in this process: a peer can end the process, and a process that reaches UCX's tcp can read and write all of "+
			"its memory", "key", "nixl.in_process")
	}
	return &NIXL{config: nixl.Config{
		Agents: agents, Transports: n.Transports, Host: listen.Host, Port: listen.Port,
		TrustedNetwork:  n.TrustedNetwork,
		TransferTimeout: n.TransferTimeout, CancelGrace: n.CancelGrace, PrepareTimeout: n.PrepareTimeout,
		RebuildTries: int(n.RebuildTries), Window: int(n.Window), Descriptors: int(n.Descriptors),
		BatchBytes: n.BatchBytes, Links: int(n.Links),
	}}, nil
}

// Options returns the option that makes libnixl the node's one plane.
func (n *NIXL) Options() []runtime.Option {
	return []runtime.Option{runtime.WithPlane(nixl.Name, n.openPlane)}
}

func (n *NIXL) openPlane(ctx context.Context, env plane.Env) (plane.Plane, error) {
	p, err := nixl.Open(ctx, n.config, env)
	if errors.Is(err, nixlproc.ErrNoLibrary) {
		return nil, needsLibrary(err)
	}
	if err != nil {
		return nil, err
	}
	n.plane = p
	return p, nil
}

// Links counts the epochs of pairs of agents since the start. The node must be open.
func (n *NIXL) Links() *agent.Links {
	s := n.plane.Stats()
	return &agent.Links{Formed: s.FormedEpochs, Fenced: s.FencedEpochs, Expelled: s.ExpelledEpochs}
}
