package zmq

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// maxHost is the longest host name that DNS allows.
const maxHost = 253

// isHost says whether host may be a name or an address. It may come from a peer's message, so nothing that anybody
// would read as more than a host passes: "*" is no peer, and "a;b" would choose our own address where ZeroMQ reads it.
func isHost(host string) bool {
	if host == "" || len(host) > maxHost {
		return false
	}
	if isIPv6(host) {
		return true
	}
	for _, c := range []byte(host) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// isIPv6 says whether host is an IPv6 literal, with or without a zone.
func isIPv6(host string) bool {
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Is6() {
		return false
	}
	return !strings.ContainsAny(addr.Zone(), ":;/[] ")
}

// originOf is the origin of a guest, whose address the door has cut to what counts as one host. The first bits of an
// IPv6 address are never those of the form for IPv4, because 0:1::/32 is assigned to nobody.
func originOf(p netip.Prefix) effects.Origin {
	switch a := p.Addr(); {
	case !a.IsValid():
		return 0
	case a.Is4():
		b := a.As4()
		return 1<<32 | effects.Origin(binary.BigEndian.Uint32(b[:]))
	default:
		b := a.As16()
		return max(1, effects.Origin(binary.BigEndian.Uint64(b[:]))) // That of ::1 would be zero.
	}
}
