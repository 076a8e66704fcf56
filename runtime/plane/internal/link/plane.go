package link

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/internal/door"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/internal/stepper"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// A Plane implements plane.Plane with a Medium that moves the bytes.
type Plane struct {
	name       string
	env        plane.Env
	medium     Medium
	stepper    stepper.Stepper // the sink's stepper
	log        *slog.Logger
	limitedLog *loglimit.Log
	blob       []byte

	door    *door.Door // admits the connections of peers
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	closing sync.Once
	stopped chan struct{} // closed when everything has ended

	mu     sync.Mutex
	closed bool

	imports      int // outgoing links and attempts to open one; at most Bounds.Links
	links        map[effects.Link]*OutgoingLink
	transfers    map[effects.Corr]*Transfer // not ended; at most Bounds.Transfers
	lastTransfer uint64                     // number of the newest transfer on any link; permits do not name a link

	incoming     map[[16]byte]*IncomingLink
	lastIncoming uint64                    // number of the newest incoming link
	landings     map[effects.Landing]*Push // posted as Landed, not confirmed
}

// Config has the parameters that a medium's package passes to Open.
type Config struct {
	Name       string
	Env        plane.Env // completed
	Medium     Medium
	Listener   net.Listener // owned by the Plane after Open
	Address    string       // the address that peers dial
	MaxStreams int          // connections of a link beside the first
}

// Open starts a plane that accepts peers on the listener.
func Open(c Config) (*Plane, error) {
	if len(c.Address) > framing.MaxAddressBytes {
		return nil, fmt.Errorf("%w: address of %d bytes; give at most %d", plane.ErrInvalid, len(c.Address),
			framing.MaxAddressBytes)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Plane{
		name: c.Name, env: c.Env, medium: c.Medium, stepper: stepper.ForSink(c.Env.Sink), log: c.Env.Log.With("plane", c.Name),
		door: door.New(doorConfig(c)), ctx: ctx, cancel: cancel, stopped: make(chan struct{}),
		links:     map[effects.Link]*OutgoingLink{},
		transfers: map[effects.Corr]*Transfer{},
		incoming:  map[[16]byte]*IncomingLink{},
		landings:  map[effects.Landing]*Push{},
	}
	p.limitedLog = loglimit.New(p.log)
	p.blob = framing.AppendBlob(nil, c.Address)
	p.door.Serve(c.Listener, "plane "+c.Name, p.serveConn)
	return p, nil
}

// Name implements plane.Plane.
func (p *Plane) Name() string { return p.name }

// Blob implements plane.Plane.
func (p *Plane) Blob() []byte { return p.blob }

func (p *Plane) postEvent(ev effects.Event) { p.env.Sink.Post(ev) }

// doorConfig limits the connections of peers to the number that their links need, and to at most a quarter of the files
// that the process may open. A peer proves its identity in the first frame. Until then the peer is a stranger, and the
// connection may be closed in favour of a new connection. A connection with a proven peer is never closed in favour of
// a stranger.
func doorConfig(c Config) door.Config {
	b := c.Env.Bounds
	total := b.Links * (c.MaxStreams + 1)
	limit, _, err := door.FileLimit()
	if err != nil {
		c.Env.Log.Warn("cannot read the limit of open files; assuming 1024", "plane", c.Name, "err", err)
		limit = 1024
	}
	if maxConns := max(limit/4, 8); total > maxConns {
		if maxConns < 2*(c.MaxStreams+1) {
			c.Env.Log.Warn("this process may open few files, which limits the connections of peers", "plane", c.Name,
				"files_max", limit, "connections_of_peers_max", maxConns, "remedy", "raise the limit of open files (ulimit -n, LimitNOFILE)")
		}
		total = maxConns
	}
	address := total - total/addressReserve
	if c.MaxStreams == 0 { // Peers on this host have no addresses.
		address = total
	}
	strangers := min(b.Strangers, max(total/2, 1))
	return door.Config{MaxTotal: total, MaxPerAddress: address, MaxStrangers: strangers, HandshakeTimeout: b.HandshakeTimeout,
		Log: c.Env.Log.With("plane", c.Name)}
}

// Close implements plane.Plane.
func (p *Plane) Close(ctx context.Context) error {
	p.closing.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.cancel() // Ends attempts to import.
		for _, out := range p.links {
			_ = out.conn.Close()
		}
		p.mu.Unlock()
		go func() {
			_ = p.door.Close(context.Background()) // Closing a listener fails only if the listener is closed already.
			p.wg.Wait()
			p.limitedLog.FlushSkipped()
			p.medium.Close()
			close(p.stopped)
		}()
	})
	select {
	case <-p.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("plane %s is still closing: %w", p.name, ctx.Err())
	}
}
