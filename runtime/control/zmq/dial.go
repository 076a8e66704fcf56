package zmq

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/internal/netpoll"
	"github.com/kvferry/kvferry/runtime/secure"
)

// dialPeer carries out an Open: the call resolves the peer's name and connects. Everything later is the keeper's task.
func (t *transport) dialPeer(e effects.Open) {
	conn, server, at, code := t.reachPeer(&e)
	if code != effects.OK {
		t.connSlots.Add(-1)
		t.sink.Post(&effects.Opened{Corr: e.Corr, Code: code})
		return
	}
	c := &client{transport: t, conn: t.nextConn(), Frames: zeromq.FramesOf(e.Channel, e.Window),
		window:       max(int(e.Window), 1),
		wantsReplies: e.Channel.HasReplies(), addr: e.Addr, at: at, principal: e.Principal, keeperRunning: true}
	c.ctx, c.cancel = context.WithCancel(t.dialing)
	t.mu.Lock()
	t.conns[c.conn] = c
	t.mu.Unlock()
	t.sink.Post(&effects.Opened{Corr: e.Corr, Conn: c.conn, Code: effects.OK})
	t.keepers.Go(func() { c.runKeeper(conn, server) })
}

// reachPeer connects to the first address of a peer that accepts a connection, and returns what the server
// proved.
func (t *transport) reachPeer(e *effects.Open) (conn net.Conn, server secure.Peer, at netip.AddrPort, code effects.Code) {
	if !zeromq.SupportsChannel(e.Channel) || !e.Channel.AllowsWindow(e.Window) || e.Addr.Port == 0 || !zeromq.IsHost(e.Addr.Host) {
		return nil, server, at, effects.Invalid
	}
	ctx, cancel := context.WithTimeout(t.dialing, t.config.ConnectTimeout)
	defer cancel()
	addrs, err := t.names.Resolve(ctx, e.Addr.Host, t.config.IPv6)
	for _, a := range addrs {
		at = netip.AddrPortFrom(a, e.Addr.Port)
		if conn, server, err = t.connectPeer(ctx, at, e.Channel, e.Principal); err == nil {
			return conn, server, at, effects.OK
		}
	}
	if t.dialing.Err() != nil {
		return nil, server, at, effects.Closed
	}
	t.names.Forget(e.Addr.Host)
	return nil, server, at, zeromq.LogUnreachable(t.limitedLog, e.Channel, e.Addr, addrs, err)
}

// connectAddr takes an address and never a name, which the dialer would resolve by itself.
func (t *transport) connectAddr(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	return netpoll.Take(conn, t.config.Poll), nil
}

// connectPeer connects to an address and authenticates the server there. In mode permissive a server without TLS is
// connected to again, because the first connection is spoilt by our handshake. If principal is not zero, another identity
// is no server.
func (t *transport) connectPeer(ctx context.Context, at netip.AddrPort, channel effects.Channel, principal effects.Principal) (
	net.Conn, secure.Peer, error,
) {
	conn, peer, err := t.connectAny(ctx, at, channel)
	if err == nil && !peer.Principal.MayActFor(principal) {
		_ = conn.Close()
		return nil, secure.Peer{}, errOtherServer
	}
	return conn, peer, err
}

// errOtherServer is the error for a server that proves another identity than the one that the connection is for.
var errOtherServer = errors.New("the server there proves another identity than the peer that is to be reached: another process has its " +
	"address")

func (t *transport) connectAny(ctx context.Context, at netip.AddrPort, channel effects.Channel) (net.Conn, secure.Peer, error) {
	plain, err := t.connectAddr(ctx, at)
	if err != nil || t.config.Guard.Mode() == secure.Off {
		return plain, secure.Peer{}, err
	}
	conn, peer, err := t.config.Guard.Connect(ctx, plain, secure.FaceControl, channel.ServerRoles())
	if errors.Is(err, secure.ErrNoTLS) && t.config.Guard.Mode() == secure.Permissive {
		peer = t.config.Guard.CountPlain(net.TCPAddrFromAddrPort(at))
		plain, err = t.connectAddr(ctx, at)
		return plain, peer, err
	}
	return conn, peer, err
}
