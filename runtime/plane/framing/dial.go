package framing

import (
	"context"
	"fmt"
	"net"
	"net/netip"
)

// AdvertisedAddress returns the address that peers of a tcp listener are told to dial. The address is numeric even if
// the configuration has a name, because otherwise each peer would ask a name server of its own.
func AdvertisedAddress(l net.Listener) string { return l.Addr().String() }

// Dial connects to the address that a peer advertises. Names are refused, because a peer must not choose which name
// server this process queries.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("%w: the address of the peer's data plane is %q; a numeric address with a port is expected",
			ErrMalformed, address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
}
