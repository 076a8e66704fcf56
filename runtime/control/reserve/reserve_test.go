package reserve

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, host string) *Port {
	t.Helper()
	p, err := Open(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func text(p *Port) string {
	return net.JoinHostPort(p.Addr().Host, strconv.Itoa(int(p.Addr().Port)))
}

func TestServersMayBindItOneAfterTheOther(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			if probe, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
				t.Skipf("this machine has no %s: %v", host, err)
			} else {
				_ = probe.Close()
			}
			p := open(t, host)
			for range 2 {
				if conn, err := net.Dial("tcp", text(p)); !errors.Is(err, unix.ECONNREFUSED) {
					t.Fatalf("with no server: got %v, %v, want a refusal", conn, err)
				}
				server, err := net.Listen("tcp", text(p))
				if err != nil {
					t.Fatal(err)
				}
				conn, err := net.Dial("tcp", text(p))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = conn.Close(), server.Close()
			}
		})
	}
}

// Sockets here may be given no other port than the reserved one, so they get none.
func TestNobodyIsGivenIt(t *testing.T) {
	p := open(t, "127.0.0.1")
	here := [4]byte{127, 0, 0, 1}
	socket := func(reuse int) int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, reuse); err != nil {
			t.Fatal(err)
		}
		only := int(p.Addr().Port)<<16 | int(p.Addr().Port)
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, only); err != nil {
			t.Skipf("this kernel has no IP_LOCAL_PORT_RANGE: %v", err)
		}
		return fd
	}
	for _, reuse := range []int{0, 1} {
		if err := unix.Bind(socket(reuse), &unix.SockaddrInet4{Addr: here}); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("a listener that asks for any port, SO_REUSEADDR %d: %v", reuse, err)
		}
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	to := &unix.SockaddrInet4{Addr: here, Port: server.Addr().(*net.TCPAddr).Port}
	if err := unix.Connect(socket(0), to); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("an outgoing connection: %v", err)
	}
}

func TestForeignAddressesAreRefused(t *testing.T) {
	for _, host := range []string{"", "localhost", "192.0.2.1", "127.0.0.1:7"} {
		if p, err := Open(host); err == nil || !strings.Contains(err.Error(), "IP address of this machine") {
			t.Errorf("%q: %v, %v", host, p, err)
		}
	}
}
