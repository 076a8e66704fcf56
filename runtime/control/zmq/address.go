package zmq

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// maxHost is the longest host name that DNS allows.
const maxHost = 253

// connectEndpoint is ZeroMQ's name of a peer; ok is false if addr names none. The host may come from a
// peer's message, so nothing that ZeroMQ would read as more than a host passes: "a;b" would choose
// our own address, "*" is no peer.
func connectEndpoint(addr effects.Addr) (endpoint string, ok bool) {
	if addr.Port == 0 || !isHost(addr.Host) {
		return "", false
	}
	return join(addr.Host, addr.Port), true
}

// bindEndpoint is ZeroMQ's name of a local address. Its port zero is written as a star: any free one.
func bindEndpoint(addr effects.Addr) (endpoint string, ok bool) {
	switch {
	case addr.Host == "" || addr.Host == "*":
		return join("*", addr.Port), true
	case isHost(addr.Host):
		return join(addr.Host, addr.Port), true
	}
	return "", false
}

// bindable is addr with the first address of its host name in place of the name, which ZeroMQ would not look up: it
// binds to addresses and interfaces, and LMCache's files bind localhost. patience bounds the look-up.
func bindable(addr effects.Addr, ipv6 bool, patience time.Duration) (effects.Addr, error) {
	if addr.Host == "" || addr.Host == "*" {
		return addr, nil
	}
	if _, err := netip.ParseAddr(addr.Host); err == nil {
		return addr, nil
	}
	if _, err := net.InterfaceByName(addr.Host); err == nil {
		return addr, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	network := "ip4"
	if ipv6 {
		network = "ip"
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, network, addr.Host)
	if err != nil {
		return addr, err
	}
	// As for peers: with IPv6, a name that has both families means IPv6.
	first := slices.IndexFunc(found, func(a netip.Addr) bool { return ipv6 == a.Unmap().Is6() })
	addr.Host = found[max(first, 0)].Unmap().String()
	return addr, nil
}

func join(host string, port uint16) string {
	number := "*"
	if port != 0 {
		number = strconv.Itoa(int(port))
	}
	return "tcp://" + net.JoinHostPort(host, number)
}

// boundPort reads the port from the endpoint that ZeroMQ says it bound.
func boundPort(endpoint string) (uint16, bool) {
	colon := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.ParseUint(endpoint[colon+1:], 10, 16)
	return uint16(port), err == nil
}

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
