package link

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// A Plane is a plane.Plane over a medium.
type Plane struct {
	name   string
	env    plane.Env
	medium Medium
	log    *slog.Logger
	token  Token
	blob   []byte

	listener   net.Listener
	streamsMax int // connections that one incoming link may have
	ctx        context.Context
	cancel     context.CancelFunc
	wg         sync.WaitGroup
	closing    sync.Once
	joined     chan struct{} // closed when everything has ended

	mu     sync.Mutex
	closed bool
	// conns are all accepted connections, for Close. At most Links*(streamsMax+1).
	conns map[net.Conn]struct{}

	imports   int // outgoing links and attempts at one; at most Links
	links     map[effects.Link]*Outgoing
	transfers map[effects.Corr]*Transfer // not ended; at most Transfers
	last      uint64                     // number of the newest transfer on any link: permits name no link

	incoming map[[16]byte]*Incoming
	landings map[effects.Landing]*Push // posted, not confirmed
}

// Config is what a medium's package gives to Open.
type Config struct {
	Name       string
	Env        plane.Env // completed
	Medium     Medium
	Listener   net.Listener // Open takes it over
	Address    string       // what peers dial
	StreamsMax int          // connections of one link beside its first
}

// Open starts serving.
func Open(c Config) (*Plane, error) {
	if len(c.Address) > framing.AddressMax {
		return nil, fmt.Errorf("%w: address of %d bytes; give at most %d", plane.ErrInvalid, len(c.Address), framing.AddressMax)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Plane{
		name: c.Name, env: c.Env, medium: c.Medium, log: c.Env.Log.With("plane", c.Name),
		listener: c.Listener, streamsMax: c.StreamsMax, ctx: ctx, cancel: cancel, joined: make(chan struct{}),
		conns:     map[net.Conn]struct{}{},
		links:     map[effects.Link]*Outgoing{},
		transfers: map[effects.Corr]*Transfer{},
		incoming:  map[[16]byte]*Incoming{},
		landings:  map[effects.Landing]*Push{},
	}
	rand.Read(p.token[:]) // Never fails: the runtime ends the process instead.
	p.blob = framing.AppendBlob(nil, p.token, c.Address)
	p.wg.Go(p.accept)
	return p, nil
}

// Name implements plane.Plane.
func (p *Plane) Name() string { return p.name }

// Blob implements plane.Plane.
func (p *Plane) Blob() []byte { return p.blob }

func (p *Plane) post(ev effects.Event) { p.env.Sink.Post(ev) }

func (p *Plane) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond): // Out of descriptors, most likely: let some close.
				p.log.Warn("accept failed", "err", err)
				continue
			}
		}
		if !p.track(conn) {
			p.log.Warn("connection refused: too many are open; raise the bound of links", "peer", conn.RemoteAddr())
			_ = conn.Close()
			continue
		}
		p.wg.Go(func() {
			defer p.untrack(conn)
			if err := p.handle(conn); err != nil && p.ctx.Err() == nil {
				p.log.Warn("connection of a peer ended", "peer", conn.RemoteAddr(), "err", err)
			}
		})
	}
}

func (p *Plane) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.conns) >= p.env.Bounds.Links*(p.streamsMax+1) {
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *Plane) untrack(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// Close implements plane.Plane.
func (p *Plane) Close(ctx context.Context) error {
	p.closing.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.cancel() // Ends attempts to import.
		for conn := range p.conns {
			_ = conn.Close()
		}
		for _, out := range p.links {
			_ = out.conn.Close()
		}
		p.mu.Unlock()
		_ = p.listener.Close()
		go func() {
			p.wg.Wait()
			p.medium.Close()
			close(p.joined)
		}()
	})
	select {
	case <-p.joined:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("plane %s is still closing: %w", p.name, ctx.Err())
	}
}
