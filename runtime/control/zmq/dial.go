//go:build cgo && linux

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

// dial finds out where a peer is and whether anybody listens there, and has the reactor connect to that address. ZeroMQ
// tells neither: it looks names up in the thread that moves all messages, and tries for ever where nobody is.
func (t *transport) dial(e effects.Open) {
	at, code := t.reach(&e)
	if code == effects.OK {
		e.Addr.Host = at.String()
		code = t.push(command{verb: verbOpen, corr: e.Corr, channel: e.Channel, addr: e.Addr}, nil)
	}
	t.opening.Add(-1)
	if code != effects.OK {
		t.sink.Post(&effects.Opened{Corr: e.Corr, Code: code})
	}
}

// reach returns the first address of a peer that takes a connection.
func (t *transport) reach(e *effects.Open) (at netip.Addr, code effects.Code) {
	if _, ok := socketOf(e.Channel); !ok || e.Addr.Port == 0 || !isHost(e.Addr.Host) {
		return at, effects.Invalid
	}
	ctx, cancel := context.WithTimeout(t.dialing, t.config.ConnectTimeout)
	defer cancel()
	addrs, err := t.names.Resolve(ctx, e.Addr.Host, t.config.IPv6)
	for _, a := range addrs {
		if err = knock(ctx, netip.AddrPortFrom(a, e.Addr.Port)); err == nil {
			return a, effects.OK
		}
	}
	if t.dialing.Err() != nil {
		return at, effects.Closed
	}
	t.names.Forget(e.Addr.Host)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		t.seldom.Warn("no connection can be made: no file is left", "", "err", err, "remedy", "raise the limit of open files")
		return at, effects.TooMany
	}
	t.seldom.Warn("a peer cannot be reached", fmt.Sprintf("%s:%d", e.Addr.Host, e.Addr.Port), "channel", e.Channel.String(), "host", e.Addr.Host,
		"port", e.Addr.Port, "addresses", addrs, "err", err, "remedy", "look whether it runs, and whether host and port are its own")
	return at, effects.Unreachable
}

// knock makes a connection and ends it.
func knock(ctx context.Context, at netip.AddrPort) error {
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	return conn.Close()
}
