package framing

import (
	"context"
	"fmt"
	"net"
	"net/netip"
)

// Advertised is where peers of a tcp listener are told to connect to. It is an address also where the configuration has
// a name: else each peer would ask its name server for what we say.
func Advertised(l net.Listener) string { return l.Addr().String() }

// Dial connects to what a peer advertises. A name is refused: whom it makes us ask would be the choice of the peer.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: the peer's data plane is at %q, which is no address with a port", ErrMalformed, address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
}
