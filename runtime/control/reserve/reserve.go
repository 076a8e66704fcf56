// Package reserve keeps a TCP port for a server that binds the port later, or again after a restart.
//
// A port that was merely found to be free may be taken by another process before the server binds the port: every
// listener that asks for any port takes one, and every outgoing connection does. Therefore a [Port] keeps a socket
// bound to the port that never listens. Linux gives a reserved port only to a process that asks for this very number,
// and lets that process bind the port as long as both sockets set SO_REUSEADDR, which the listeners of ZeroMQ and of
// Go do. While no server listens, connections to the port are refused.
//
// Example: a command reserves a port, writes the address into configuration files, and starts a server that binds the
// port:
//
//	port, err := reserve.Open("10.0.0.1")
//	defer port.Close()
//	start(port.Addr())
package reserve

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/effects"
)

// A Port is a TCP port that stays reserved until Close, whether or not a server listens meanwhile.
type Port struct {
	addr effects.Addr
	fd   int
}

// Open reserves a port of a local IP address; the system chooses the number.
func Open(host string) (*Port, error) {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, fmt.Errorf("reserve a port of %q: %w; give an IP address of this machine", host, err)
	}
	family, anyPort := anyPortOf(ip)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port of %s: socket: %w", host, err)
	}
	port, err := bindPort(fd, anyPort)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("reserve a port of %s: %w; give an IP address of this machine", host, err)
	}
	return &Port{addr: effects.Addr{Host: host, Port: port}, fd: fd}, nil
}

// anyPortOf returns ip with port zero, which makes bind choose a free port.
func anyPortOf(ip netip.Addr) (family int, anyPort unix.Sockaddr) {
	if ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Addr: ip.As16()}
}

// bindPort binds fd to an address so that further sockets may bind the same port, and returns the port.
func bindPort(fd int, where unix.Sockaddr) (port uint16, err error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	if err := unix.Bind(fd, where); err != nil {
		return 0, fmt.Errorf("bind: %w", err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("getsockname: %w", err)
	}
	switch bound := bound.(type) {
	case *unix.SockaddrInet4:
		return uint16(bound.Port), nil
	case *unix.SockaddrInet6:
		return uint16(bound.Port), nil
	}
	panic(fmt.Sprintf("BUG: a TCP socket is bound to a %T", bound))
}

// Addr returns the reserved address with the port.
func (p *Port) Addr() effects.Addr { return p.addr }

// Close gives the port up, and must be called once.
func (p *Port) Close() error { return unix.Close(p.fd) }
