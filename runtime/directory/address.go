package directory

import (
	"net"
	"net/netip"
)

// reachable is an address of this machine under which others may reach it: the first that is not the loopback's, of
// IPv4 if there is one.
func reachable() string {
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
