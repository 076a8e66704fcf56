package door

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/seldom"
)

// Config bounds a Door.
type Config struct {
	Total      int           // connections at a time
	PerAddress int           // of one address
	Strangers  int           // of one address that were not Known yet
	Patience   time.Duration // of the door with a stranger
	Log        *slog.Logger
}

// Stats counts since the start, but for Guests, which are there now.
type Stats struct {
	Guests   int
	Admitted uint64
	// Evicted made room for another connection, Expired said nothing that makes sense in time, Refused found no room.
	Evicted, Expired, Refused uint64
	// NoFiles are attempts to accept that failed, because the process or the system had no file left or for another
	// reason.
	NoFiles uint64
}

// A Door admits guests of any number of listeners. All methods may be called from any goroutine.
type Door struct {
	config Config
	seldom *seldom.Log
	spare  spare

	mu      sync.Mutex
	houses  map[netip.Prefix]*house
	stats   Stats
	closing bool

	listeners []net.Listener
	closed    chan struct{}
	workers   sync.WaitGroup
}

// New returns a door without listeners.
func New(c Config) *Door {
	return &Door{config: c, seldom: seldom.New(c.Log), houses: map[netip.Prefix]*house{}, closed: make(chan struct{})}
}

// Serve admits the connections of l, each served by a goroutine of its own: what serve returns ends it and is logged,
// once for each cause and address in a while. name is what the log calls l.
func (d *Door) Serve(l net.Listener, name string, serve func(*Guest) error) {
	d.mu.Lock()
	d.listeners = append(d.listeners, l)
	d.mu.Unlock()
	d.workers.Go(func() { d.accept(l, name, serve) })
}

// Pauses between attempts to accept while they fail.
const (
	pauseMin = 5 * time.Millisecond
	pauseMax = 500 * time.Millisecond
)

func (d *Door) accept(l net.Listener, name string, serve func(*Guest) error) {
	d.spare.keep()
	defer d.spare.drop()
	pause := pauseMin
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = pauseMin
			d.admit(conn, name, serve)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		d.count(func(s *Stats) { s.NoFiles++ })
		d.Warn("no connection can be accepted", netip.Prefix{}, "channel", name, "err", err,
			"remedy", "raise the limit of open files, or lower the limits of connections")
		// Whoever waits is told no, instead of waiting for nothing.
		d.spare.turnAway(l)
		select {
		case <-time.After(pause):
			pause = min(2*pause, pauseMax)
		case <-d.closed:
		}
	}
}

func (d *Door) count(f func(*Stats)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.stats)
}

func (d *Door) admit(conn net.Conn, name string, serve func(*Guest) error) {
	g := &Guest{Conn: conn, door: d, Address: addressOf(conn.RemoteAddr())}
	if !d.enter(g) {
		_ = conn.Close()
		d.Warn("a connection is turned away: all others of its address, or all there may be, are at work", g.Address,
			"channel", name, "total_max", d.config.Total, "per_address_max", d.config.PerAddress)
		return
	}
	d.workers.Go(func() {
		err := serve(g)
		defer d.leave(g)
		if why := g.why(); why != "" {
			d.Warn(why, g.Address, "channel", name, "peer", conn.RemoteAddr(), "total_max", d.config.Total,
				"per_address_max", d.config.PerAddress, "strangers_max", d.config.Strangers, "patience", d.config.Patience)
		} else if !Ordinary(err) {
			d.Warn("a connection is ended", g.Address, "channel", name, "peer", conn.RemoteAddr(), "err", err)
		}
	})
}

// Ordinary says whether a connection ended as connections do, at whatever point: that is nobody's fault, and is not
// logged. A peer that is closed while it shakes hands is seen so.
func Ordinary(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Warn logs what a guest did wrong, once for each cause and address in a while.
func (d *Door) Warn(cause string, who netip.Prefix, attrs ...any) {
	from := ""
	switch {
	case who.IsSingleIP():
		from = who.Addr().String()
	case who.IsValid():
		from = who.String()
	}
	d.seldom.Warn(cause, from, attrs...)
}

// Stats returns what was counted so far.
func (d *Door) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// Shut accepts nothing more. Guests stay.
func (d *Door) Shut() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return nil
	}
	d.closing = true
	close(d.closed)
	var errs []error
	for _, l := range d.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Close ends everything, and returns when the goroutines of all guests have ended, or with ctx's error.
func (d *Door) Close(ctx context.Context) error {
	err := d.Shut()
	d.mu.Lock()
	for _, h := range d.houses {
		for g := range h.all() {
			_ = g.Close()
		}
	}
	d.mu.Unlock()
	gone := make(chan struct{})
	go func() { d.workers.Wait(); close(gone) }()
	select {
	case <-gone:
		d.seldom.End()
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}
