//go:build cgo && linux

package nixl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// A Plane implements plane.Plane.
type Plane struct {
	cfg           Config
	env           plane.Env
	pool          *plane.LeasedPool
	scratch       *scratchPage
	host          nixlproc.Host // of all agents
	log           *slog.Logger
	limitedLog    *loglimit.Log
	boot          [16]byte
	outgoingLinks *epochs.OutgoingLinks // the links that this plane opens
	incomingLinks *epochs.IncomingLinks // the links that peers open
	blob          []byte

	ctx      context.Context // ends attempts to import
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	closing  sync.Once
	stopped  chan struct{} // closed when everything has ended
	closeErr error         // the error of Close; read after joined is closed

	mu    sync.Mutex
	stats Stats
}

// Open starts a plane that serves the pool's memory, which must be memory of the host. The plane must be closed
// before the memory is unmapped.
func Open(ctx context.Context, c Config, env plane.Env) (*Plane, error) {
	env, err := env.CompleteLeased()
	if err != nil {
		return nil, err
	}
	if c, err = c.withDefaults(env.Bounds); err != nil {
		return nil, err
	}
	for _, r := range env.Leased.Regions() {
		if !r.Host {
			return nil, fmt.Errorf("%w: the region of %d bytes at %#x is device memory; the nixl plane serves memory of the "+
				"host only", plane.ErrInvalid,
				r.Bytes, r.Base)
		}
	}
	p := &Plane{
		cfg: c, env: env, pool: env.Leased, log: env.Log.With("plane", Name), stopped: make(chan struct{}),
	}
	p.limitedLog = loglimit.New(p.log)
	if p.boot, err = epochs.BootID(); err != nil {
		return nil, err
	}
	if p.scratch, err = newScratchPage(); err != nil {
		return nil, err
	}
	if p.host, err = c.Agents(ctx, nixlproc.HostConfig{Memory: p.hostMemory(), Log: p.log}); err != nil {
		return nil, errors.Join(err, p.scratch.close())
	}
	listener, address, err := p.probeAndListen(ctx)
	if err != nil {
		return nil, errors.Join(err, p.host.Close(), p.scratch.close())
	}
	info := p.host.Info()
	p.log.Info("libnixl", "library", info.Library, "transports", c.Transports)
	if len(info.Signals) > 0 {
		p.log.Warn("a library has installed signal handlers that do not run on the alternate stack: such a signal on a Go "+
			"thread aborts the process", "library", info.Library, "signals", info.Signals, "remedy", "unset UCX_DEBUG_SIGNO")
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.outgoingLinks = epochs.NewOutgoingLinks(epochs.OutgoingConfig{
		Env: env, Log: p.log, LimitedLog: p.limitedLog, Context: p.ctx, Goroutines: &p.wg, Rules: c.machineRules(env.Bounds),
		BatchLimit: epochs.BatchLimit{Pieces: c.Descriptors, Bytes: c.BatchBytes}, MaxLinks: c.Links, Remedy: "raise its Links",
		MaxFrameBytes: maxFrame, NewExecutor: func(l *epochs.OutgoingLink) epochs.Executor {
			return &initiatorExecutor{OutgoingLink: l, plane: p, target: newTargetState()}
		},
	})
	p.blob = framing.AppendBlob(nil, address)
	p.incomingLinks = epochs.NewIncomingLinks(epochs.IncomingConfig{
		Name: Name, Env: env, Log: p.log, Boot: p.boot, Context: p.ctx, Goroutines: &p.wg, MaxLinks: c.Links,
		Remedy: "raise its Links", FilesPerLink: filesPerLink, MaxFrameBytes: maxFrame, Hello: uint8(kindHello),
		FencedFrame:   func(epoch uint64) []byte { return appendEpoch(nil, kindFenced, epoch) },
		RevokedGrants: p.pool.RevokedGrants,
		NewExecutor: func(in *epochs.IncomingLink) epochs.TargetExecutor {
			return &targetExecutor{IncomingLink: in, plane: p}
		},
	})
	p.pool.AddExpeller(p.incomingLinks)
	p.incomingLinks.Serve(listener)
	return p, nil
}

// probeAndListen makes and destroys an agent, so that errors of the library are reported now and not at the first peer,
// and then listens.
func (p *Plane) probeAndListen(ctx context.Context) (net.Listener, string, error) {
	e, err := p.newEndpoint(agentName([16]byte{}, 0, "try"), p.pool.Regions(), nil)
	if err != nil {
		return nil, "", fmt.Errorf("register the pool: %w", err)
	}
	metadata, err := e.agent.Metadata()
	if err == nil && len(metadata) > maxMetadata {
		err = fmt.Errorf("%w: metadata of the pool has %d bytes; peers take at most %d", plane.ErrInvalid, len(metadata),
			maxMetadata)
	}
	if err := errors.Join(err, e.close()); err != nil {
		return nil, "", err
	}
	return p.cfg.openListener(ctx)
}

// Name implements plane.Plane.
func (p *Plane) Name() string { return Name }

// Blob implements plane.Plane.
func (p *Plane) Blob() []byte { return p.blob }

// Import implements plane.Plane.
func (p *Plane) Import(e *effects.Import) { p.outgoingLinks.Import(e) }

// Drop implements plane.Plane.
func (p *Plane) Drop(link effects.Link) { p.outgoingLinks.Drop(link) }

// Transfer implements plane.Plane.
func (p *Plane) Transfer(e *effects.Transfer) { p.outgoingLinks.Transfer(e) }

// Cancel implements plane.Plane.
func (p *Plane) Cancel(corr effects.Corr) { p.outgoingLinks.Cancel(corr) }

// ListLinks implements plane.LinkLister.
func (p *Plane) ListLinks() []plane.LinkState { return p.outgoingLinks.ListLinks() }

// Confirm implements plane.Plane. On leased planes there are no landings to confirm.
func (p *Plane) Confirm(effects.Landing, effects.Code) {}

// filesPerLink is a little more than four times the number of files that a link uses, and thereby limits links to a
// quarter of the files that the process may open: an agent has 15 files with the transports within a host.
const filesPerLink = 64

// Close implements plane.Plane. Close waits until all links have ended. If an access to the pool by us or by peers is
// not proven over, or if ctx ends first, Close returns an error and the memory must stay mapped, because there may
// still be accesses (M4).
func (p *Plane) Close(ctx context.Context) error {
	p.closing.Do(func() {
		p.cancel()
		p.outgoingLinks.Close()
		p.incomingLinks.Close()
		go func() {
			p.wg.Wait()
			if p.closeErr = errors.Join(p.outgoingLinks.CheckProven(), p.incomingLinks.CheckProven()); p.closeErr == nil {
				p.closeErr = errors.Join(p.host.Close(), p.scratch.close())
			}
			p.limitedLog.FlushSkipped()
			close(p.stopped)
		}()
	})
	select {
	case <-p.stopped:
		return p.closeErr
	case <-ctx.Done():
		return fmt.Errorf("plane %s is still closing, because a peer may still access the pool: %w", Name, ctx.Err())
	}
}
