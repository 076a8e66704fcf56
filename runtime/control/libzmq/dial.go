//go:build cgo && linux

package libzmq

import (
	"context"
	"net"
	"net/netip"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
)

// dialPeer resolves a peer's name, checks that the peer accepts connections, and has the reactor connect to that
// address. libzmq does neither: the library resolves names in the thread that moves all messages, and retries without
// end if nobody listens.
func (t *transport) dialPeer(e effects.Open) {
	at, code := t.reachPeer(&e)
	t.opening.Add(-1)
	if code == effects.OK {
		code = t.pushCommand(command{verb: verbOpen, corr: e.Corr, channel: e.Channel, window: e.Window, at: at}, nil)
	}
	if code != effects.OK {
		t.sink.Post(&effects.Opened{Corr: e.Corr, Code: code})
	}
}

// reachPeer returns the first address of a peer that accepts a connection.
func (t *transport) reachPeer(e *effects.Open) (at netip.AddrPort, code effects.Code) {
	if !zeromq.SupportsChannel(e.Channel) || !e.Channel.AllowsWindow(e.Window) || e.Addr.Port == 0 || !zeromq.IsHost(e.Addr.Host) {
		return at, effects.Invalid
	}
	ctx, cancel := context.WithTimeout(t.dialing, t.config.ConnectTimeout)
	defer cancel()
	addrs, err := t.names.Resolve(ctx, e.Addr.Host, t.config.IPv6)
	for _, a := range addrs {
		at = netip.AddrPortFrom(a, e.Addr.Port)
		if err = probeAddr(ctx, at); err == nil {
			return at, effects.OK
		}
	}
	if t.dialing.Err() != nil {
		return at, effects.Closed
	}
	t.names.Forget(e.Addr.Host)
	return at, zeromq.LogUnreachable(t.limitedLog, e.Channel, e.Addr, addrs, err)
}

// probeAddr makes a connection and closes it at once.
func probeAddr(ctx context.Context, at netip.AddrPort) error {
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	return conn.Close()
}
