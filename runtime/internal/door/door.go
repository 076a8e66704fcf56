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

	"github.com/kvferry/kvferry/runtime/internal/loglimit"
)

// Config has the limits of a Door.
type Config struct {
	MaxTotal         int           // connections at a time
	MaxPerAddress    int           // of the same address
	MaxStrangers     int           // of the same address that are not known yet
	HandshakeTimeout time.Duration // how long a stranger may take to become known
	Log              *slog.Logger
}

// Stats counts events since the start, except for Open.
type Stats struct {
	// Open is the number of connections that are open now.
	Open     int
	Admitted uint64
	// Evicted connections were closed in favour of a new connection, Expired connections sent nothing that makes sense
	// in time, and Refused connections found no place.
	Evicted, Expired, Refused uint64
	// FailedAccepts counts failed attempts to accept a connection, mostly because the process or the host had no file
	// left.
	FailedAccepts uint64
}

// A Door admits connections of any number of listeners. All methods may be called from any goroutine.
type Door struct {
	config     Config
	limitedLog *loglimit.Log
	spare      spareFile

	mu        sync.Mutex
	addresses map[netip.Prefix]*addressConns
	stats     Stats
	closing   bool

	listeners []net.Listener
	closed    chan struct{}
	workers   sync.WaitGroup
}

// New returns a door without listeners.
func New(c Config) *Door {
	return &Door{config: c, limitedLog: loglimit.New(c.Log), addresses: map[netip.Prefix]*addressConns{},
		closed: make(chan struct{})}
}

// Serve admits the connections of l. Each connection is served by a separate goroutine, and closed when serve returns.
// The error that serve returns is logged, at a limited rate for each cause and address. The log calls the listener
// name.
func (d *Door) Serve(l net.Listener, name string, serve func(*Conn) error) {
	d.mu.Lock()
	d.listeners = append(d.listeners, l)
	d.mu.Unlock()
	d.workers.Go(func() { d.acceptConns(l, name, serve) })
}

// The pause between attempts to accept grows from minPause to maxPause while the attempts fail.
const (
	minPause = 5 * time.Millisecond
	maxPause = 500 * time.Millisecond
)

func (d *Door) acceptConns(l net.Listener, name string, serve func(*Conn) error) {
	d.spare.addUser()
	defer d.spare.removeUser()
	pause := minPause
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = minPause
			d.admitConn(conn, name, serve)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		d.updateStats(func(s *Stats) { s.FailedAccepts++ })
		d.Warn("no connection can be accepted", netip.Prefix{}, "channel", name, "err", err,
			"remedy", "raise the limit of open files, or lower the limits of connections")
		// A waiting peer is refused at once, instead of waiting in vain.
		d.spare.refuseConn(l)
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-d.closed:
		}
	}
}

func (d *Door) updateStats(f func(*Stats)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.stats)
}

func (d *Door) admitConn(conn net.Conn, name string, serve func(*Conn) error) {
	c := &Conn{Conn: conn, door: d, Address: addressOf(conn.RemoteAddr())}
	if !d.placeConn(c) {
		_ = conn.Close()
		d.Warn("a connection is refused: all connections of its address, or all connections up to the limit, have operations "+
			"in progress", c.Address,
			"channel", name, "total_max", d.config.MaxTotal, "per_address_max", d.config.MaxPerAddress)
		return
	}
	d.workers.Go(func() {
		err := serve(c)
		defer d.leaveConn(c)
		if cause := c.closeReason(); cause != "" {
			d.Warn(cause, c.Address, "channel", name, "peer", conn.RemoteAddr(), "total_max", d.config.MaxTotal,
				"per_address_max", d.config.MaxPerAddress, "strangers_max", d.config.MaxStrangers, "handshake_timeout", d.config.HandshakeTimeout)
		} else if !IsOrdinaryEnd(err) {
			d.Warn("a connection failed", c.Address, "channel", name, "peer", conn.RemoteAddr(), "err", err)
		}
	})
}

// IsOrdinaryEnd reports whether a connection ended in one of the ways in which connections normally end, at whatever
// point. An ordinary end is nobody's fault and is not logged. A connection that is closed during the handshake ends in
// an ordinary way, too.
func IsOrdinaryEnd(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Warn logs what a peer did wrong, at a limited rate for each cause and address.
func (d *Door) Warn(cause string, address netip.Prefix, attrs ...any) {
	from := ""
	switch {
	case address.IsSingleIP():
		from = address.Addr().String()
	case address.IsValid():
		from = address.String()
	}
	d.limitedLog.Warn(cause, from, attrs...)
}

// Stats returns the counts.
func (d *Door) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// StopAccepting stops accepting connections. Admitted connections stay.
func (d *Door) StopAccepting() error {
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

// Close closes all listeners and connections, and returns when all serving goroutines have ended, or with the error of
// ctx.
func (d *Door) Close(ctx context.Context) error {
	err := d.StopAccepting()
	d.mu.Lock()
	for _, h := range d.addresses {
		for g := range h.allConns() {
			_ = g.Close()
		}
	}
	d.mu.Unlock()
	ended := make(chan struct{})
	go func() { d.workers.Wait(); close(ended) }()
	select {
	case <-ended:
		d.limitedLog.FlushSkipped()
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}
