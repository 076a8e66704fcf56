package directory

import (
	"net"
	"net/netip"
)

// localAddress returns an address of this machine under which remote hosts may reach the directory: the first address
// that is not a loopback address, preferably of IPv4. The result is 127.0.0.1 if there is no such address.
func localAddress() string {
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
