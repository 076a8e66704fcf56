//go:build cgo && linux

package hccl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// A Plane is the data plane of an NPU, and implements plane.Plane.
type Plane struct {
	cfg      Config
	env      plane.Env
	pool     *plane.LeasedPool
	ctx      *acl.Context
	lib      *comm.Library
	regions  []*comm.Region
	log      *slog.Logger
	seldom   *loglimit.Log
	boot     [16]byte
	links    *epochs.OutgoingLinks // links that this end opened
	arrivals *epochs.IncomingLinks // links that peers opened
	blob     []byte

	dialCtx  context.Context // canceled by Close: ends attempts to import
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	closing  sync.Once
	joined   chan struct{} // closed when everything has ended
	closeErr error         // what could not be given back; read after joined is closed

	mu    sync.Mutex
	stats Stats
	// revoked returns the grants of a peer that the pool has revoked.
	revoked func(effects.Incarnation) (ids []effects.GrantID, more bool)
}

// Open registers the pool's memory and starts to accept links. The plane must be closed before the memory is freed.
func Open(ctx context.Context, c Config, env plane.Env) (*Plane, error) {
	env, err := env.CompleteLeased()
	if err != nil {
		return nil, err
	}
	if c, err = c.withDefaults(env.Bounds); err != nil {
		return nil, err
	}
	p := &Plane{
		cfg: c, env: env, pool: env.Leased, revoked: env.Leased.RevokedGrants, ctx: c.Context, lib: c.Library,
		log: env.Log.With("plane", Name), joined: make(chan struct{}),
	}
	p.seldom = loglimit.New(p.log)
	if p.boot, err = epochs.BootID(); err != nil {
		return nil, err
	}
	if err := p.register(); err != nil {
		return nil, err
	}
	listener, address, err := c.listen(ctx)
	if err != nil {
		return nil, errors.Join(err, p.deregister())
	}
	p.dialCtx, p.cancel = context.WithCancel(context.Background())
	p.links = epochs.NewOutgoingLinks(epochs.OutgoingConfig{
		Env: env, Log: p.log, LimitedLog: p.seldom, Context: p.dialCtx, Goroutines: &p.wg, Rules: c.rules(env.Bounds),
		BatchLimit: epochs.BatchLimit{Pieces: c.Descriptors, Bytes: c.BatchBytes}, MaxLinks: c.Links, Remedy: "raise hccl.links",
		MaxFrameBytes: frameMax, NewExecutor: func(l *epochs.OutgoingLink) epochs.Executor { return &outgoing{OutgoingLink: l, plane: p} },
	})
	p.blob = framing.AppendBlob(nil, address)
	p.arrivals = epochs.NewIncomingLinks(epochs.IncomingConfig{
		Name: Name, Env: env, Log: p.log, Boot: p.boot, Context: p.dialCtx, Goroutines: &p.wg, MaxLinks: c.Links,
		Remedy: "raise hccl.links", FilesPerLink: filesOfLink, MaxFrameBytes: frameMax, Hello: uint8(kindHello),
		FencedFrame:   func(epoch uint64) []byte { return appendEpoch(nil, kindFenced, epoch) },
		RevokedGrants: p.listRevoked,
		NewExecutor:   func(in *epochs.IncomingLink) epochs.TargetExecutor { return &incoming{IncomingLink: in, plane: p} },
	})
	p.pool.AddExpeller(p.arrivals)
	p.arrivals.Serve(listener)
	return p, nil
}

// register makes the pool's memory known to HCCL. A peer can reach the memory only once a communicator has bound it.
func (p *Plane) register() error {
	err := p.ctx.Apart(func(guest *acl.Guest) error {
		for _, r := range p.pool.Regions() {
			place := acl.OnDevice
			if r.Host {
				place = acl.OnHost
			}
			region, err := p.lib.Register(guest, comm.Memory{Place: place, Address: r.Base, Size: r.Bytes})
			if err != nil {
				return err
			}
			p.regions = append(p.regions, region)
		}
		return nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("register the pool: %w", err), p.deregister())
	}
	return nil
}

// deregister removes the memory from the NIC. After an error the memory is still registered.
func (p *Plane) deregister() error {
	return p.ctx.Apart(func(guest *acl.Guest) (err error) {
		for _, r := range p.regions {
			err = errors.Join(err, r.Close(guest))
		}
		return err
	})
}

// Name implements plane.Plane.
func (p *Plane) Name() string { return Name }

// Blob implements plane.Plane.
func (p *Plane) Blob() []byte { return p.blob }

// Residual returns the bound of the time for which hardware may still touch a page after the transfer was given up
// (M4). A node waits this long for peers that give no proof.
func (p *Plane) Residual() time.Duration { return p.cfg.residual(false) }

// Import implements plane.Plane.
func (p *Plane) Import(e *effects.Import) { p.links.Import(e) }

// Drop implements plane.Plane.
func (p *Plane) Drop(link effects.Link) { p.links.Drop(link) }

// Transfer implements plane.Plane.
func (p *Plane) Transfer(e *effects.Transfer) { p.links.Transfer(e) }

// Cancel implements plane.Plane.
func (p *Plane) Cancel(corr effects.Corr) { p.links.Cancel(corr) }

// Confirm implements plane.Plane. On leased planes no landing needs to be confirmed.
func (p *Plane) Confirm(effects.Landing, effects.Code) {}

// filesOfLink makes links, and as many connections in their handshake, take a quarter of the files that the process may
// open, as on every plane.
const filesOfLink = 8

// listRevoked returns the grants of a peer that were revoked.
func (p *Plane) listRevoked(peer effects.Incarnation) (ids []effects.GrantID, more bool) {
	p.mu.Lock()
	list := p.revoked
	p.mu.Unlock()
	return list(peer)
}

// Close implements plane.Plane. Close blocks until there is proof that every access to the pool, by this node and by
// peers, is over, and then removes the memory from the NIC. After an error the memory must stay, because hardware may
// still access it (M4).
func (p *Plane) Close(ctx context.Context) error {
	p.closing.Do(func() {
		p.cancel()
		p.links.Close()
		p.arrivals.Close()
		go func() {
			p.wg.Wait()
			if p.closeErr = errors.Join(p.links.CheckProven(), p.arrivals.CheckProven()); p.closeErr == nil {
				p.closeErr = p.deregister()
			}
			p.seldom.FlushSkipped()
			close(p.joined)
		}()
	})
	select {
	case <-p.joined:
		return p.closeErr
	case <-ctx.Done():
		return fmt.Errorf("plane %s is still closing, as a peer may still be at its memory: %w", Name, ctx.Err())
	}
}
