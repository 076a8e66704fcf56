package zeromq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/internal/names"
)

// maxHost is the longest host name that DNS allows.
const maxHost = 253

// IsHost reports whether host may be a name or an IP address. The text may come from a peer's message, so anything that
// a parser further down could read as more than a host is refused. Examples: "*" is not a peer, and in "a;b" ZeroMQ
// would read a choice of our own source address.
func IsHost(host string) bool {
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

// isIPv6 reports whether host is an IPv6 literal, with or without a zone.
func isIPv6(host string) bool {
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Is6() {
		return false
	}
	return !strings.ContainsAny(addr.Zone(), ":;/[] ")
}

// OriginOf returns the origin (the unit in which bounds per host count) of a prefix that package door has cut an
// address to. The first bits of an IPv6 address never equal the bits of the form for IPv4, because 0:1::/32 is
// assigned to nobody.
func OriginOf(p netip.Prefix) effects.Origin {
	switch a := p.Addr(); {
	case !a.IsValid():
		return 0
	case a.Is4():
		b := a.As4()
		return 1<<32 | effects.Origin(binary.BigEndian.Uint32(b[:]))
	default:
		b := a.As16()
		return max(1, effects.Origin(binary.BigEndian.Uint64(b[:]))) // the value for ::1 would be zero
	}
}

var errHost = errors.New("not a host")

// ResolveBindHost returns the address of this machine to bind: host itself if host is an address, the first address of
// a network interface or of a host name. The result is "" for every interface.
func ResolveBindHost(ctx context.Context, n *names.Resolver, host string, ipv6 bool) (string, error) {
	if host == "" || host == "*" {
		return "", nil
	}
	if !IsHost(host) {
		return "", errHost
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return host, nil
	}
	if i, err := net.InterfaceByName(host); err == nil {
		return firstAddress(i, ipv6)
	}
	found, err := n.Resolve(ctx, host, ipv6)
	if err != nil {
		return "", err
	}
	return found[0].String(), nil
}

// firstAddress returns the first address of an interface, IPv4 unless ipv6 is set.
func firstAddress(i *net.Interface, ipv6 bool) (string, error) {
	addrs, err := i.Addrs()
	if err != nil {
		return "", fmt.Errorf("addresses of interface %s: %w", i.Name, err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && (ipv6 || n.IP.To4() != nil) {
			return n.IP.String(), nil
		}
	}
	return "", fmt.Errorf("interface %s has no address that can be bound", i.Name)
}

// DescribeServer describes a server for the text of an error.
func DescribeServer(s control.Server) string {
	return fmt.Sprintf("serve channel %s at host %q port %d", s.Channel, s.Addr.Host, s.Addr.Port)
}

// UnknownChannelError returns the error for a server with a channel that does not exist.
func UnknownChannelError(what string) error {
	return &control.Error{Code: effects.Invalid, What: what,
		Remedy: "serve init, alloc, proxy, done, lookup, meta, query, directory, feed or heartbeat, or channel32 and up, " +
			"which are for other machines"}
}

// OutOfSocketsError returns the error for a system that has no more sockets or files.
func OutOfSocketsError(what string, err error) error {
	return &control.Error{Code: effects.TooMany, What: what, Cause: err,
		Remedy: "raise the limit of open files, or lower MaxConns"}
}

// BindError returns the error that says why an address cannot be bound and what to do.
func BindError(what string, err error) error {
	e := &control.Error{Code: effects.Refused, What: what, Cause: err,
		Remedy: "give an IP address or a name of this node, the name of a network interface, or no host for every interface"}
	switch {
	case errors.Is(err, errHost):
		e.Code, e.Cause = effects.Invalid, nil
	case errors.Is(err, syscall.EADDRINUSE):
		e.Remedy = "choose another port, or end the process that holds this one"
	case errors.Is(err, syscall.EACCES):
		e.Remedy = "choose a port above 1023"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return OutOfSocketsError(what, err)
	}
	return e
}

// LogUnreachable logs why no connection can be made to a peer and returns the matching code. tried holds the addresses
// that the peer's name resolved to.
func LogUnreachable(log *loglimit.Log, channel effects.Channel, addr effects.Addr, tried []netip.Addr, err error) effects.Code {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		log.Warn("no connection can be made: the limit of open files is reached", "", "err", err, "remedy", "raise the limit of open files")
		return effects.TooMany
	}
	remedy := "check that the peer runs, and that host and port are correct"
	if _, isAddress := netip.ParseAddr(addr.Host); isAddress != nil && len(tried) == 0 {
		remedy = "the host name has no address here: correct the name, or write an address; otherwise check /etc/hosts and " +
			"the name server"
	}
	log.Warn("a peer cannot be reached", fmt.Sprintf("%s:%d", addr.Host, addr.Port), "channel", channel.String(),
		"host", addr.Host, "port", addr.Port, "addresses", tried, "err", err,
		"remedy", remedy)
	return effects.Unreachable
}
