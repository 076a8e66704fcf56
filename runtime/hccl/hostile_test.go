//go:build cgo && linux

package hccl_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// Anybody may connect and say anything: it is not answered, and the link beside it goes on.
func TestGarbage(t *testing.T) {
	r := hccltest.Start(t)
	p := faulty(t, r, hccltest.Options{})
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		conn := dial(t, p.B)
		b := make([]byte, rng.IntN(400)+5)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if round%2 == 0 { // A frame that looks right from outside.
			binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
			b[4] = byte(rng.IntN(8))
		}
		_, _ = conn.Write(b) // It may have been closed already.
		_ = conn.CloseWrite()
		if said, _ := io.ReadAll(conn); len(said) != 0 {
			t.Fatalf("garbage was answered with %#x", said)
		}
		_ = conn.Close()
	}
	goesOn(t, p)
}

func dial(t *testing.T, n *planetest.LeasedNode) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", string(n.Plane.Blob()[19:]))
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// A peer that was let in and then says what no initiator says loses its link, and what it was let into is taken away.
func TestInitiatorThatLies(t *testing.T) {
	for _, c := range []struct {
		name   string
		says   [][]byte
		polite bool // nothing of it is a lie: it ends with the connection
	}{
		{"a kind that is no initiator's", [][]byte{hccl.Frame("accept", 1)}, false},
		{"a kind that is nobody's", [][]byte{{1, 0, 0, 0, 99}}, false},
		{"a frame of no end", [][]byte{{0xff, 0xff, 0xff, 0xff, 3}}, false},
		{"a life that is not new", [][]byte{hccl.Frame("offer", 5), hccl.Frame("offer", 5)}, false},
		{"life 0", [][]byte{hccl.Frame("gone", 70), hccl.Frame("condemned", 71), hccl.Frame("offer", 0)}, false},
		{"words of lives that never were", [][]byte{hccl.Frame("gone", 70), hccl.Frame("condemned", 71)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := hccltest.Start(t)
			// Nobody comes to meet the communicators that it has made.
			p := faulty(t, r, hccltest.Options{Change: func(o *hccl.Config) { o.PrepareTimeout = time.Second }})
			conn := dial(t, p.B)
			defer conn.Close()
			other := effects.Incarnation{7}
			if err := hccl.Greet(conn, p.B.Plane.Blob(), other, p.B.Inc, "elsewhere"); err != nil {
				t.Fatal(err)
			}
			for _, frame := range c.says {
				_, _ = conn.Write(frame)
			}
			if !c.polite { // It is not the end of the connection that ends the link.
				planetest.Await(t, p.B, func(e *effects.LinkLost) bool { return e.Peer == other })
			}
			_ = conn.CloseWrite()
			if c.polite {
				planetest.Await(t, p.B, func(e *effects.LinkLost) bool { return e.Peer == other })
			}
			goesOn(t, p)
		})
	}
}

// Whoever offers life after life, without meeting any, gets a few communicators and no more.
func TestLivesAreBounded(t *testing.T) {
	r := hccltest.Start(t)
	p := faulty(t, r, hccltest.Options{Change: func(o *hccl.Config) { o.PrepareTimeout = 2 * time.Second }})
	conn := dial(t, p.B)
	defer conn.Close()
	other := effects.Incarnation{7}
	if err := hccl.Greet(conn, p.B.Plane.Blob(), other, p.B.Inc, "elsewhere"); err != nil {
		t.Fatal(err)
	}
	const offers = 40
	for life := range uint64(offers) {
		if _, err := conn.Write(hccl.Frame("offer", life+1)); err != nil {
			t.Fatal(err)
		}
	}
	answers, err := hccl.Answers(conn, offers)
	if err != nil {
		t.Fatal(err)
	}
	if answers[effects.OK] == 0 || answers[effects.TooMany] == 0 || answers[effects.OK]+answers[effects.TooMany] != offers {
		t.Errorf("%d offers were answered with %v", offers, answers)
	}
	_ = conn.CloseWrite()
	planetest.Await(t, p.B, func(e *effects.LinkLost) bool { return e.Peer == other })
	goesOn(t, p)
}

// A communicator counts from its offer to the proof of its end, also while it is formed, when that has failed, and when nothing is believed any more
// that its peer says: what the peer was granted is not revoked before.
func TestRevokeWaitsForEveryLife(t *testing.T) {
	for _, lies := range []bool{false, true} {
		t.Run(fmt.Sprintf("lies=%v", lies), func(t *testing.T) {
			r := hccltest.Start(t)
			b := planetest.OpenLeased(t, r.Maker(hccltest.Options{HCCS: true, Change: func(o *hccl.Config) { o.PrepareTimeout = time.Second }}), 2, pages, pageBytes)
			conn := dial(t, b)
			defer conn.Close()
			other := effects.Incarnation{7}
			if err := hccl.Greet(conn, b.Plane.Blob(), other, b.Inc, "host"); err != nil {
				t.Fatal(err)
			}
			grant, _ := b.Grant(other, 0, 4)
			if _, err := conn.Write(hccl.Frame("offer", 1)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); err != nil { // It is accepted, so it counts.
				t.Fatal(err)
			}
			if lies {
				if _, err := conn.Write(hccl.Frame("accept", 1)); err != nil {
					t.Fatal(err)
				}
				planetest.Await(t, b, func(e *effects.LinkLost) bool { return e.Peer == other })
			}
			b.Do(&effects.Revoke{Grant: grant})
			if planetest.Has(b, func(*effects.Revoked) bool { return true }) != 0 {
				t.Fatal("revoked while the peer may have the memory mapped")
			}
			if err := conn.CloseWrite(); err != nil { // The end of the connection is the proof.
				t.Fatal(err)
			}
			b.Revoked(t, grant)
		})
	}
}
