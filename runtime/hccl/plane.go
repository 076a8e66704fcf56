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
	cfg           Config
	env           plane.Env
	pool          *plane.LeasedPool
	device        *acl.Context
	lib           *comm.Library
	regions       []*comm.Region
	log           *slog.Logger
	limitedLog    *loglimit.Log
	boot          [16]byte
	outgoingLinks *epochs.OutgoingLinks // links that this end opened
	incomingLinks *epochs.IncomingLinks // links that peers opened
	blob          []byte

	dialCtx   context.Context // canceled by Close: ends attempts to import
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	closeOnce sync.Once
	closed    chan struct{} // closed when everything has ended
	closeErr  error         // why accesses are not proven over, or what is still registered; read after closed is closed

	mu    sync.Mutex // guards the fields below, which several links and tests access
	stats Stats
	// revokedGrants returns the grants of a peer that the pool has revoked.
	revokedGrants func(effects.Incarnation) (ids []effects.GrantID, more bool)
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
		cfg: c, env: env, pool: env.Leased, revokedGrants: env.Leased.RevokedGrants, device: c.Context, lib: c.Library,
		log: env.Log.With("plane", Name), closed: make(chan struct{}),
	}
	p.limitedLog = loglimit.New(p.log)
	if p.boot, err = epochs.BootID(); err != nil {
		return nil, err
	}
	if err := p.registerPool(); err != nil {
		return nil, err
	}
	listener, address, err := c.openListener(ctx)
	if err != nil {
		return nil, errors.Join(err, p.deregisterPool())
	}
	p.dialCtx, p.cancel = context.WithCancel(context.Background())
	p.outgoingLinks = epochs.NewOutgoingLinks(epochs.OutgoingConfig{
		Env: env, Log: p.log, LimitedLog: p.limitedLog, Context: p.dialCtx, Goroutines: &p.wg, Rules: c.machineRules(env.Bounds),
		BatchLimit: epochs.BatchLimit{Pieces: c.BatchDescriptors, Bytes: c.BatchBytes}, MaxLinks: c.MaxLinks, Remedy: "raise hccl.links",
		MaxFrameBytes: frameMax, NewExecutor: func(l *epochs.OutgoingLink) epochs.Executor {
			return &initiatorExecutor{OutgoingLink: l,
				plane: p}
		},
	})
	p.blob = framing.AppendBlob(nil, address)
	p.incomingLinks = epochs.NewIncomingLinks(epochs.IncomingConfig{
		Name: Name, Env: env, Log: p.log, Boot: p.boot, Context: p.dialCtx, Goroutines: &p.wg, MaxLinks: c.MaxLinks,
		Remedy: "raise hccl.links", FilesPerLink: filesPerLink, MaxFrameBytes: frameMax, Hello: uint8(kindHello),
		FencedFrame:   func(epoch uint64) []byte { return appendEpoch(nil, kindFenced, epoch) },
		RevokedGrants: p.listRevoked,
		NewExecutor: func(in *epochs.IncomingLink) epochs.TargetExecutor {
			return &targetExecutor{IncomingLink: in, plane: p}
		},
	})
	p.pool.AddExpeller(p.incomingLinks)
	p.incomingLinks.Serve(listener)
	return p, nil
}

// registerPool makes the pool's memory known to HCCL. A peer can reach the memory only once a communicator has bound
// it.
func (p *Plane) registerPool() error {
	err := p.device.DoBlocking(func(thread *acl.BlockingThread) error {
		for _, r := range p.pool.Regions() {
			place := acl.OnDevice
			if r.Host {
				place = acl.OnHost
			}
			region, err := p.lib.RegisterMemory(thread, comm.Memory{Place: place, Address: r.Base, Size: r.Bytes})
			if err != nil {
				return err
			}
			p.regions = append(p.regions, region)
		}
		return nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("register the pool: %w", err), p.deregisterPool())
	}
	return nil
}

// deregisterPool removes the memory from the NIC. After an error some regions may still be registered.
func (p *Plane) deregisterPool() error {
	return p.device.DoBlocking(func(thread *acl.BlockingThread) (err error) {
		for _, r := range p.regions {
			err = errors.Join(err, r.Close(thread))
		}
		return err
	})
}

// Name implements plane.Plane.
func (p *Plane) Name() string { return Name }

// Blob implements plane.Plane.
func (p *Plane) Blob() []byte { return p.blob }

// ResidualTime returns the bound of the time for which hardware may still touch a page after the transfer was given up
// (M4). A node waits this long for peers that give no proof. The bound is the one of RoCE, which is the longer one
// unless the library is set to very few retries.
func (p *Plane) ResidualTime() time.Duration {
	const hccs = false // over RoCE
	return p.cfg.residualTime(hccs)
}

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

// Confirm implements plane.Plane. On leased planes no landing needs to be confirmed.
func (p *Plane) Confirm(effects.Landing, effects.Code) {}

// filesPerLink makes links, and as many connections in their handshake, take a quarter of the files that the process
// may open, as on every plane.
const filesPerLink = 8

// listRevoked returns the grants of a peer that were revoked.
func (p *Plane) listRevoked(peer effects.Incarnation) (ids []effects.GrantID, more bool) {
	p.mu.Lock()
	list := p.revokedGrants
	p.mu.Unlock()
	return list(peer)
}

// Close implements plane.Plane. Close waits until all links have ended. If there is proof that every access to the
// pool, by this node and by peers, is over, Close then removes the memory from the NIC. Otherwise, or if ctx ends
// first, Close returns an error and the memory must stay, because hardware may still access it (M4).
func (p *Plane) Close(ctx context.Context) error {
	p.closeOnce.Do(func() {
		p.cancel()
		p.outgoingLinks.Close()
		p.incomingLinks.Close()
		go func() {
			p.wg.Wait()
			if p.closeErr = errors.Join(p.outgoingLinks.CheckProven(), p.incomingLinks.CheckProven()); p.closeErr == nil {
				p.closeErr = p.deregisterPool()
			}
			p.limitedLog.FlushSkipped()
			close(p.closed)
		}()
	})
	select {
	case <-p.closed:
		return p.closeErr
	case <-ctx.Done():
		return fmt.Errorf("plane %s is still closing, because a peer may still access the pool: %w", Name, ctx.Err())
	}
}
