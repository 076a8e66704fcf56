package zmq

import (
	"context"
	"net"
	"net/netip"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control/internal/zeromq"
	"github.com/kvferry/kvferry/runtime/internal/netpoll"
)

// dial carries out an Open: the call resolves the peer's name and connects. Everything later is the keeper's task.
func (t *transport) dial(e effects.Open) {
	conn, at, code := t.reach(&e)
	if code != effects.OK {
		t.connSlots.Add(-1)
		t.sink.Post(&effects.Opened{Corr: e.Corr, Code: code})
		return
	}
	c := &client{transport: t, conn: t.nextConn(), Frames: zeromq.FramesOf(e.Channel, e.Window),
		window:       max(int(e.Window), 1),
		wantsReplies: e.Channel.Asks(), addr: e.Addr, at: at, keeperRunning: true}
	c.ctx, c.cancel = context.WithCancel(t.dialing)
	t.mu.Lock()
	t.conns[c.conn] = c
	t.mu.Unlock()
	t.sink.Post(&effects.Opened{Corr: e.Corr, Conn: c.conn, Code: effects.OK})
	t.keepers.Go(func() { c.runKeeper(conn) })
}

// reach connects to the first address of a peer that accepts a connection.
func (t *transport) reach(e *effects.Open) (conn net.Conn, at netip.AddrPort, code effects.Code) {
	if !zeromq.Serves(e.Channel) || !e.Channel.Takes(e.Window) || e.Addr.Port == 0 || !zeromq.IsHost(e.Addr.Host) {
		return nil, at, effects.Invalid
	}
	ctx, cancel := context.WithTimeout(t.dialing, t.config.ConnectTimeout)
	defer cancel()
	addrs, err := t.names.Resolve(ctx, e.Addr.Host, t.config.IPv6)
	for _, a := range addrs {
		at = netip.AddrPortFrom(a, e.Addr.Port)
		if conn, err = t.connect(ctx, at); err == nil {
			return conn, at, effects.OK
		}
	}
	if t.dialing.Err() != nil {
		return nil, at, effects.Closed
	}
	t.names.Forget(e.Addr.Host)
	return nil, at, zeromq.Unreachable(t.seldom, e.Channel, e.Addr, addrs, err)
}

// connect takes an address and never a name, which the dialer would resolve by itself.
func (t *transport) connect(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	return netpoll.Take(conn, t.config.Poll), nil
}
