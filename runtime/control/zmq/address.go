package zmq

import (
	"net/netip"
	"strings"
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
