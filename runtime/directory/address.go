package directory

import (
	"net"
	"net/netip"
)

// reachableHost returns an address of this machine under which other hosts may reach it: the first one that is not a
// loopback address, of IPv4 if there is one. It returns 127.0.0.1 if there is none.
func reachableHost() string {
	best := "127.0.0.1"
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return best
	}
	found := false
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if at := p.Addr(); err == nil && at.IsGlobalUnicast() && (!found || at.Is4() && !netip.MustParseAddr(best).Is4()) {
			best, found = at.String(), true
		}
	}
	return best
}
