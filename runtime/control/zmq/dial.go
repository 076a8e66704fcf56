package zmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/kvferry/kvferry/effects"
)

// dial carries out an Open: it finds out where the peer is, and connects. The rest is up to the Conn's keeper.
func (t *transport) dial(e effects.Open) {
	conn, at, code := t.reach(&e)
	if code != effects.OK {
		t.slots.Add(-1)
		t.sink.Post(&effects.Opened{Corr: e.Corr, Code: code})
		return
	}
	c := &client{transport: t, conn: t.drawConn(), frames: framesOf(e.Channel, e.Window), window: max(int(e.Window), 1),
		asks: e.Channel.Asks(), addr: e.Addr, at: at, kept: true}
	c.over, c.end = context.WithCancel(t.dialing)
	t.mu.Lock()
	t.conns[c.conn] = c
	t.mu.Unlock()
	t.sink.Post(&effects.Opened{Corr: e.Corr, Conn: c.conn, Code: effects.OK})
	t.keepers.Go(func() { c.keep(conn) })
}

// reach connects to the first address of a peer that takes a connection.
func (t *transport) reach(e *effects.Open) (conn net.Conn, at netip.AddrPort, code effects.Code) {
	if !serves(e.Channel) || !e.Channel.Takes(e.Window) || e.Addr.Port == 0 || !isHost(e.Addr.Host) {
		return nil, at, effects.Invalid
	}
	ctx, cancel := context.WithTimeout(t.dialing, t.config.ConnectTimeout)
	defer cancel()
	addrs, err := t.names.Resolve(ctx, e.Addr.Host, t.config.IPv6)
	for _, a := range addrs {
		at = netip.AddrPortFrom(a, e.Addr.Port)
		if conn, err = connect(ctx, at); err == nil {
			return conn, at, effects.OK
		}
	}
	if t.dialing.Err() != nil {
		return nil, at, effects.Closed
	}
	t.names.Forget(e.Addr.Host)
	return nil, at, t.absent(e.Channel, e.Addr, addrs, err)
}

// connect only ever gets an address: a name would be looked up.
func connect(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", at.String())
}

// absent says why no connection can be made to a peer.
func (t *transport) absent(channel effects.Channel, addr effects.Addr, tried []netip.Addr, err error) effects.Code {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		t.seldom.Warn("no connection can be made: no file is left", "", "err", err, "remedy", "raise the limit of open files")
		return effects.TooMany
	}
	remedy := "look whether it runs, and whether host and port are its own"
	if _, isAddress := netip.ParseAddr(addr.Host); isAddress != nil && len(tried) == 0 {
		remedy = "the name of the host has no address here: correct it where the peer is named, or write an address; else " +
			"look into /etc/hosts and at the name server"
	}
	t.seldom.Warn("a peer cannot be reached", fmt.Sprintf("%s:%d", addr.Host, addr.Port), "channel", channel.String(),
		"host", addr.Host, "port", addr.Port, "addresses", tried, "err", err,
		"remedy", remedy)
	return effects.Unreachable
}
