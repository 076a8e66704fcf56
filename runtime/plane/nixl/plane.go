//go:build cgo && linux

package nixl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
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
	scratch *scratch
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
}

// Open starts serving the pool's memory, which must be the host's. The plane must be closed before it goes away.
func Open(ctx context.Context, c Config, env plane.Env) (*Plane, error) {
	env, err := env.CompleteLeased()
	if err != nil {
		return nil, err
	}
	if c, err = c.complete(env.Bounds); err != nil {
		return nil, err
	}
	for _, r := range env.Leased.Regions() {
		if !r.Host {
			return nil, fmt.Errorf("%w: %d bytes at %#x are a device's; nixl serves memory of the host", plane.ErrInvalid,
				r.Bytes, r.Base)
		}
	}
	p := &Plane{
		cfg: c, env: env, pool: env.Leased, log: env.Log.With("plane", Name), joined: make(chan struct{}),
		conns: map[net.Conn]struct{}{}, incoming: map[communicator.SessionID]*incoming{},
		revoking: map[uint64]func(){}, target: communicator.NewTarget(c.limits(), rand.Uint64()),
	}
	p.seldom = seldom.New(p.log)
	if p.boot, err = epochs.BootID(); err != nil {
		return nil, err
	}
	if p.scratch, err = newScratch(); err != nil {
		return nil, err
	}
	listener, address, err := p.try(ctx)
	if err != nil {
		return nil, errors.Join(err, p.scratch.close())
	}
	p.opening, p.cancel = context.WithCancel(context.Background())
	p.links = epochs.NewLinks(epochs.LinksConfig{
		Env: env, Log: p.log, Seldom: p.seldom, Opening: p.opening, Going: &p.wg, Rules: c.rules(env.Bounds),
		Batch: epochs.Limit{Pieces: c.Descriptors, Bytes: c.BatchBytes}, Max: c.Links, Remedy: "raise its Links",
		Frame: frameMax, Hands: func(l *epochs.Link) epochs.Hands {
			return &outgoing{Link: l, plane: p, partner: newPartner()}
		},
	})
	p.blob = framing.AppendBlob(nil, address)
	p.pool.Protect(p)
	p.door = door.New(p.admission())
	p.door.Serve(listener, "plane "+Name, p.visit)
	return p, nil
}

// try makes an agent, so that what the library cannot do is said at once and not to the first peer, and listens.
func (p *Plane) try(ctx context.Context) (net.Listener, string, error) {
	e, err := p.makeEnd(agentOf([16]byte{}, 0, "try"), p.pool.Regions())
	if err != nil {
		return nil, "", fmt.Errorf("register the pool: %w", err)
	}
	metadata, err := e.agent.Metadata()
	if err == nil && len(metadata) > metadataMax {
		err = fmt.Errorf("%w: metadata of the pool has %d bytes; peers take at most %d", plane.ErrInvalid, len(metadata),
			metadataMax)
	}
	if err := errors.Join(err, e.close()); err != nil {
		return nil, "", err
	}
	return p.cfg.listen(ctx)
}

// reachable names the peers of which there is no proof, nor will be, that they cannot reach the pool any more, and
// those of which there is none that our own agents are done with them.
func (p *Plane) reachable() error {
	err := p.links.Unproven()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range p.incoming {
		if len(in.ends) > 0 {
			err = errors.Join(err, fmt.Errorf("there is no proof that %x cannot reach the pool any more: its memory stays "+
				"until this process ends", in.hello.from[:4]))
		}
	}
	return err
}

// Name implements plane.Plane.
func (p *Plane) Name() string { return Name }

// Blob implements plane.Plane.
func (p *Plane) Blob() []byte { return p.blob }

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

// admission bounds the connections of initiators, as that of the plane over HCCL does: those that were let in are never
// closed for another one, because how such a connection ends is proof of something.
func (p *Plane) admission() door.Config {
	limit, _, err := door.Room()
	if err != nil {
		p.log.Warn("the limit of open files is not known", "err", err)
		limit = 1024
	}
	links := p.cfg.Links
	if few := max(limit/filesOfLink, 1); links > few {
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

// filesOfLink is one more than what a link takes of the files that the process may open, times four: an agent has 15
// files with the transports of one host.
const filesOfLink = 64

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

// Close implements plane.Plane. It blocks until every access to the pool is proven over, by us and by peers. With an
// error the memory must stay: something may still be at it.
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
				p.leaving = p.scratch.close()
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
