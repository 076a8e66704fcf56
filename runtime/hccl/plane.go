//go:build cgo && linux

package hccl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/runtime/acl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/internal/seldom"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// A Plane is a plane.Plane, and the guard of the pool that it serves.
type Plane struct {
	cfg     Config
	env     plane.Env
	pool    *plane.Leased
	ctx     *acl.Context
	lib     *comm.Library
	regions []*comm.Region
	log     *slog.Logger
	seldom  *seldom.Log
	boot    [16]byte
	links   *epochs.Links // those that it opens
	blob    []byte

	door    *door.Door      // by which initiators come in
	opening context.Context // ends attempts to import
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	closing sync.Once
	joined  chan struct{} // closed when everything has ended
	leaving error         // what could not be given back; read after joined

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]struct{} // admitted, for Close; at most 2 Links
	target   communicator.Target
	said     communicator.TargetOut               // what its last step wanted done
	incoming map[communicator.SessionID]*incoming // at most Links
	revokes  uint64                               // that ever were asked for
	revoking map[uint64]func()                    // told when they are proven; as many as grants at most
	stats    Stats
	// revoked is the pool's: which grants of a peer were taken back.
	revoked func(effects.Incarnation) (ids []effects.GrantID, more bool)
}

// Open registers the pool's memory and starts serving. The plane must be closed before the memory goes away.
func Open(ctx context.Context, c Config, env plane.Env) (*Plane, error) {
	env, err := env.CompleteLeased()
	if err != nil {
		return nil, err
	}
	if c, err = c.complete(env.Bounds); err != nil {
		return nil, err
	}
	p := &Plane{
		cfg: c, env: env, pool: env.Leased, revoked: env.Leased.Revoked, ctx: c.Context, lib: c.Library,
		log: env.Log.With("plane", Name), joined: make(chan struct{}), conns: map[net.Conn]struct{}{},
		incoming: map[communicator.SessionID]*incoming{}, revoking: map[uint64]func(){},
		target: communicator.NewTarget(c.limits(), rand.Uint64()),
	}
	p.seldom = seldom.New(p.log)
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
	p.opening, p.cancel = context.WithCancel(context.Background())
	p.links = epochs.NewLinks(epochs.LinksConfig{
		Env: env, Log: p.log, Seldom: p.seldom, Opening: p.opening, Going: &p.wg, Rules: c.rules(env.Bounds),
		Batch: epochs.Limit{Pieces: c.Descriptors, Bytes: c.BatchBytes}, Max: c.Links, Remedy: "raise hccl.links",
		Frame: frameMax, Hands: func(l *epochs.Link) epochs.Hands { return &outgoing{Link: l, plane: p} },
	})
	p.blob = framing.AppendBlob(nil, address)
	p.pool.Protect(p)
	p.door = door.New(p.admission())
	p.door.Serve(listener, "plane "+Name, p.visit)
	return p, nil
}

// register makes the pool's memory known to HCCL. Nobody reaches it before a communicator binds it.
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

// deregister takes the memory from the NIC. With an error it is still there.
func (p *Plane) deregister() error {
	return p.ctx.Apart(func(guest *acl.Guest) (err error) {
		for _, r := range p.regions {
			err = errors.Join(err, r.Close(guest))
		}
		return err
	})
}

// reachable names the peers of which there is no proof, nor will be, that they cannot reach the pool any more, and
// those of which there is none that our own hardware is done with them.
func (p *Plane) reachable() error {
	err := p.links.Unproven()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range p.incoming {
		if len(in.ends) > 0 {
			err = errors.Join(err, fmt.Errorf("there is no proof that %x cannot reach the pool any more over %v: its memory "+
				"stays until this process ends", in.hello.from[:4], in.link()))
		}
	}
	return err
}

// Name implements plane.Plane.
func (p *Plane) Name() string { return Name }

// Blob implements plane.Plane.
func (p *Plane) Blob() []byte { return p.blob }

// Residual bounds how long hardware may still touch a page after its transfer was given up: what a node must wait for
// peers that give no proof.
func (p *Plane) Residual() time.Duration { return p.cfg.residual(false) }

// Import implements plane.Plane.
func (p *Plane) Import(e *effects.Import) { p.links.Import(e) }

// Drop implements plane.Plane.
func (p *Plane) Drop(link effects.Link) { p.links.Drop(link) }

// Transfer implements plane.Plane.
func (p *Plane) Transfer(e *effects.Transfer) { p.links.Transfer(e) }

// Cancel implements plane.Plane.
func (p *Plane) Cancel(corr effects.Corr) { p.links.Cancel(corr) }

// Confirm implements plane.Plane. On leased planes nothing lands that would have to be confirmed.
func (p *Plane) Confirm(effects.Landing, effects.Code) {}

// admission bounds the connections of initiators. Those that were let in are as many as links, and never closed for
// another one: how such a connection ends is proof of something. There is room for as many strangers, who may be.
// Together they are a quarter of the files that the process may open, as on the other planes.
func (p *Plane) admission() door.Config {
	limit, _, err := door.Room()
	if err != nil {
		p.log.Warn("the limit of open files is not known", "err", err)
		limit = 1024
	}
	return p.doorFor(limit)
}

// doorFor is admission for a process that may open so many files.
func (p *Plane) doorFor(limit int) door.Config {
	links := p.cfg.Links
	if few := max(limit/8, 1); links > few {
		p.log.Warn("this process may open few files: fewer initiators find a place than links are allowed",
			"files_max", limit, "links_wanted", links, "links_max", few,
			"remedy", "raise the limit of open files (ulimit -n, LimitNOFILE)")
		links = few
	}
	return door.Config{
		Total: 2 * links, PerAddress: 2 * links, Strangers: min(p.env.Bounds.Strangers, links),
		Patience: p.env.Bounds.Handshake, Log: p.log,
	}
}

// visit serves one connection, unless the plane is closed.
func (p *Plane) visit(guest *door.Guest) error {
	if !p.track(guest.Conn) {
		return nil
	}
	defer p.wg.Done()
	defer p.untrack(guest.Conn)
	if err := p.handle(guest); p.opening.Err() == nil {
		return err
	}
	return nil
}

// track has Close know of a connection and wait for it.
func (p *Plane) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.wg.Add(1)
	p.conns[conn] = struct{}{}
	return true
}

func (p *Plane) untrack(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// Close implements plane.Plane. It blocks until every access to the pool is proven over, by us and by peers, and takes
// the memory from the NIC then. With an error the memory must stay: something may still be at it.
func (p *Plane) Close(ctx context.Context) error {
	p.closing.Do(func() {
		p.cancel()
		p.links.Close()
		p.mu.Lock()
		p.closed = true
		served := map[net.Conn]bool{}
		for _, in := range p.incoming {
			served[in.ch.Conn()] = true
		}
		p.feed(communicator.TargetEvent{Kind: communicator.Closes}, nil)
		for conn := range p.conns {
			if !served[conn] {
				_ = conn.Close()
			}
		}
		p.mu.Unlock()
		_ = p.door.Shut() // Not Close: that would end the connections of who was let in.
		go func() {
			p.wg.Wait()
			_ = p.door.Close(context.Background())
			if p.leaving = p.reachable(); p.leaving == nil {
				p.leaving = p.deregister()
			}
			p.seldom.End()
			close(p.joined)
		}()
	})
	select {
	case <-p.joined:
		return p.leaving
	case <-ctx.Done():
		return fmt.Errorf("plane %s is still closing, as a peer may still be at its memory: %w", Name, ctx.Err())
	}
}
