//go:build cgo && linux

package nixl_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// externalAddress returns an address of this host that is not a loopback address.
func externalAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("this host has no other address than the loopback's")
	return ""
}

// A plane that other hosts can reach opens only if its network is declared trusted, and otherwise reaches no peer
// beyond the loopback interface.
func TestTrustedNetwork(t *testing.T) {
	libnixltest.LoadLibrary(t)
	outside := externalAddress(t)
	at := func(host string, trusted bool) planetest.LeasedMaker {
		return maker("tcp", func(c *nixl.Config) { c.Host, c.TrustedNetwork = host, trusted })
	}
	_, err := planetest.NewLeasedNode(t, at(outside, false), 1, pages, 4096)
	if !errors.Is(err, plane.ErrInvalid) || !errors.Is(err, libnixl.ErrUntrusted) ||
		!strings.Contains(err.Error(), "nixl.trusted_network: true") || !strings.Contains(err.Error(), outside) {
		t.Errorf("it is reached at %s, and %v", outside, err)
	}
	far := planetest.OpenLeased(t, at(outside, true), 2, pages, 4096)
	near := planetest.OpenLeased(t, at("127.0.0.1", false), 3, pages, 4096)
	if got := near.TryImport(t, far.Inc, far.Plane.Blob()); got.Code != effects.Unsupported {
		t.Errorf("a peer beyond the loopback: %s", got.Code)
	}
	// Both trust the network, so bytes go over it.
	trusted := planetest.OpenLeased(t, at(outside, true), 4, pages, 4096)
	p := &planetest.LeasedPair{A: trusted, B: far}
	p.Link = p.A.Import(t, p.B.Inc, p.B.Plane.Blob())
	push := p.NewPush(t, 0, pages)
	p.WantEnd(t, push, effects.OK)
}
