//go:build cgo && linux

package hccl_test

import (
	"net"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// openWithFewLinks opens a plane with few slots, and returns a function that connects to the plane from an address
// under a name.
func openWithFewLinks(t *testing.T, links int) (b *planetest.LeasedNode, greet func(from string, who, session byte) error) {
	r := hccltest.StartRig(t)
	few := hccltest.Options{Change: func(o *hccl.Config) { o.MaxLinks = links }}
	b = planetest.OpenLeased(t, r.NodeMaker(few), 2, pages, pageBytes)
	return b, func(from string, who, session byte) error {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.Dial("tcp", string(b.Plane.Blob()[3:]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return hccl.PerformHandshakeWithSession(conn, planetest.Key, effects.Incarnation{who}, b.Inc, [16]byte{who, session}, "elsewhere")
	}
}

func isTooMany(err error) bool {
	return err != nil && strings.Contains(err.Error(), effects.TooMany.String())
}

// A peer that opens links without end takes no slots of further peers, and can still connect.
func TestLinksOfOnePeer(t *testing.T) {
	const links, own = 8, 4
	b, greet := openWithFewLinks(t, links)
	for i := range byte(own) {
		if err := greet("127.0.0.1", 7, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := greet("127.0.0.1", 7, own); !isTooMany(err) {
		t.Fatalf("one link more than a peer may have: %v", err)
	}
	planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == effects.Incarnation{7} })
	eventually(t, "it gets in again", func() bool {
		err := greet("127.0.0.1", 7, own)
		if err != nil && !isTooMany(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	if err := greet("127.0.0.1", 8, 0); err != nil {
		t.Errorf("another peer: %v", err)
	}
}

// However many names an address uses, another address can connect.
func TestLinksOfOneAddress(t *testing.T) {
	const links = 8
	_, greet := openWithFewLinks(t, links)
	in := 0
	for who := range byte(2 * links) {
		switch err := greet("127.0.0.2", who+1, 0); {
		case err == nil:
			in++
		case !isTooMany(err):
			t.Fatal(err)
		}
	}
	if err := greet("127.0.0.3", 100, 0); err != nil || in != links-1 {
		t.Errorf("%d of one address have links, and then one of another: %v", in, err)
	}
}
