//go:build cgo && linux

package hccl_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// Any process may connect and send anything: the process gets no reply, and an existing link continues.
func TestGarbage(t *testing.T) {
	r := hccltest.StartRig(t)
	p := openWithSmallBatches(t, r, hccltest.Options{})
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
		_, _ = conn.Write(b) // The connection may have been closed already.
		_ = conn.CloseWrite()
		if said, _ := io.ReadAll(conn); len(said) != 0 {
			t.Fatalf("garbage was answered with %#x", said)
		}
		_ = conn.Close()
	}
	p.WantWorking(t)
}

func dial(t testing.TB, n *planetest.LeasedNode) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", string(n.Plane.Blob()[3:]))
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// lyingPeer is the peer that a test plays.
var lyingPeer = effects.Incarnation{7}

// A peer that was admitted and then sends a frame that initiators never send loses its link, and its communicator is
// torn down.
func TestInitiatorThatLies(t *testing.T) {
	for _, c := range []struct {
		name   string
		says   [][]byte
		polite bool // the messages are true; the link ends with the connection
	}{
		{"a kind that is no initiator's", [][]byte{hccl.EpochFrame("accept", 1)}, false},
		{"a kind that is nobody's", [][]byte{{1, 0, 0, 0, 99}}, false},
		{"a frame of no end", [][]byte{{0xff, 0xff, 0xff, 0xff, 3}}, false},
		{"an epoch that is not new", [][]byte{hccl.EpochFrame("offer", 5), hccl.EpochFrame("offer", 5)}, false},
		{"epoch 0", [][]byte{hccl.EpochFrame("gone", 70), hccl.EpochFrame("fenced", 71), hccl.EpochFrame("offer", 0)}, false},
		{"words of epochs that never were", [][]byte{hccl.EpochFrame("gone", 70), hccl.EpochFrame("fenced", 71)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := hccltest.StartRig(t)
			// No peer meets the communicators that the liar has offered.
			p := openWithSmallBatches(t, r, hccltest.Options{Change: func(o *hccl.Config) { o.PrepareTimeout = time.Second }})
			conn := dial(t, p.B)
			defer conn.Close()
			if err := hccl.PerformHandshake(conn, planetest.Key, lyingPeer, p.B.Inc, "elsewhere"); err != nil {
				t.Fatal(err)
			}
			for _, frame := range c.says {
				_, _ = conn.Write(frame)
			}
			if !c.polite { // The link must end before the connection does.
				planetest.AwaitEvent(t, p.B, func(e *effects.LinkLost) bool { return e.Peer == lyingPeer })
			}
			_ = conn.CloseWrite()
			if c.polite {
				planetest.AwaitEvent(t, p.B, func(e *effects.LinkLost) bool { return e.Peer == lyingPeer })
			}
			p.WantWorking(t)
		})
	}
}

// A peer that offers epoch after epoch, without joining any, causes a few communicators and no more.
func TestLivesAreBounded(t *testing.T) {
	r := hccltest.StartRig(t)
	p := openWithSmallBatches(t, r, hccltest.Options{Change: func(o *hccl.Config) { o.PrepareTimeout = 2 * time.Second }})
	conn := dial(t, p.B)
	defer conn.Close()
	if err := hccl.PerformHandshake(conn, planetest.Key, lyingPeer, p.B.Inc, "elsewhere"); err != nil {
		t.Fatal(err)
	}
	const offers = 40
	for epoch := range uint64(offers) {
		if _, err := conn.Write(hccl.EpochFrame("offer", epoch+1)); err != nil {
			t.Fatal(err)
		}
	}
	answers, err := hccl.CountAccepts(conn, offers)
	if err != nil {
		t.Fatal(err)
	}
	if answers[effects.OK] == 0 || answers[effects.TooMany] == 0 ||
		answers[effects.OK]+answers[effects.TooMany] != offers {
		t.Errorf("%d offers were answered with %v", offers, answers)
	}
	_ = conn.CloseWrite()
	planetest.AwaitEvent(t, p.B, func(e *effects.LinkLost) bool { return e.Peer == lyingPeer })
	p.WantWorking(t)
}

// A communicator counts from its offer to the proof of its end: also while it is formed, after that has failed, and
// after the peer has broken the protocol. The peer's grants are not revoked before.
func TestRevokeWaitsForEveryLife(t *testing.T) {
	for _, lies := range []bool{false, true} {
		t.Run(fmt.Sprintf("lies=%v", lies), func(t *testing.T) {
			r := hccltest.StartRig(t)
			b := planetest.OpenLeased(t, r.NodeMaker(hccltest.Options{HCCS: true,
				Change: func(o *hccl.Config) { o.PrepareTimeout = time.Second }}), 2, pages, pageBytes)
			conn, grant := offerEpoch(t, b)
			if lies {
				if _, err := conn.Write(hccl.EpochFrame("accept", 1)); err != nil {
					t.Fatal(err)
				}
				planetest.AwaitEvent(t, b, func(e *effects.LinkLost) bool { return e.Peer == lyingPeer })
			}
			b.Do(&effects.Revoke{Grant: grant})
			if planetest.CountEvents(b, func(*effects.Revoked) bool { return true }) != 0 {
				t.Fatal("revoked while the peer may have the memory mapped")
			}
			if err := conn.CloseWrite(); err != nil { // The end of the connection is the proof.
				t.Fatal(err)
			}
			b.AwaitRevoked(t, grant)
		})
	}
}

// Over HCCS our own end proves nothing. There the proof is the peer's message that its end is gone, or the peer's next
// offer.
func TestWordsThatProve(t *testing.T) {
	for _, word := range []struct {
		name  string
		frame []byte
	}{{"gone", hccl.EpochFrame("gone", 1)}, {"the next offer", hccl.EpochFrame("offer", 2)}} {
		t.Run(word.name, func(t *testing.T) {
			r := hccltest.StartRig(t)
			b := planetest.OpenLeased(t, r.NodeMaker(hccltest.Options{HCCS: true,
				Change: func(o *hccl.Config) { o.PrepareTimeout = time.Second }}), 2, pages, pageBytes)
			conn, grant := offerEpoch(t, b)
			b.Do(&effects.Revoke{Grant: grant})
			if planetest.CountEvents(b, func(*effects.Revoked) bool { return true }) != 0 {
				t.Fatal("revoked while the peer may have the memory mapped")
			}
			if _, err := conn.Write(word.frame); err != nil {
				t.Fatal(err)
			}
			b.AwaitRevoked(t, grant)
		})
	}
}

// offerEpoch connects an initiator that offers its first epoch to b, and returns the connection when b has accepted the
// epoch (over HCCS if b is set up for HCCS), with a grant of that initiator.
func offerEpoch(t testing.TB, b *planetest.LeasedNode) (*net.TCPConn, effects.GrantID) {
	t.Helper()
	conn := dial(t, b)
	t.Cleanup(func() { // To close the connection with unread bytes would be a reset, which proves nothing.
		_ = conn.CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	})
	return conn, startEpoch(t, conn, b)
}

// startEpoch makes an initiator on a connection offer its first epoch to b, and returns a grant of that initiator when b has
// accepted the epoch.
func startEpoch(t testing.TB, conn net.Conn, b *planetest.LeasedNode) effects.GrantID {
	t.Helper()
	if err := hccl.PerformHandshake(conn, planetest.Key, lyingPeer, b.Inc, "host"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(hccl.EpochFrame("offer", 1)); err != nil {
		t.Fatal(err)
	}
	if answers, err := hccl.CountAccepts(conn, 1); err != nil || answers[effects.OK] != 1 {
		t.Fatalf("%v, %v", answers, err)
	}
	grant, _ := b.GrantWrite(lyingPeer, 0, 4)
	return grant
}

// Initiators beyond the bound are refused, and admitted once another has left.
func TestIncomingLinksAreBounded(t *testing.T) {
	r := hccltest.StartRig(t)
	b := planetest.OpenLeased(t, r.NodeMaker(hccltest.Options{Change: func(o *hccl.Config) { o.MaxLinks = 1 }}), 2, pages,
		pageBytes)
	greet := func(n byte) (*net.TCPConn, error) {
		conn := dial(t, b)
		t.Cleanup(func() { _ = conn.Close() })
		return conn, hccl.PerformHandshake(conn, planetest.Key, effects.Incarnation{n}, b.Inc, "elsewhere")
	}
	first, err := greet(7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := greet(8); err == nil || !strings.Contains(err.Error(), effects.TooMany.String()) {
		t.Fatalf("the second of one: %v", err)
	}
	_ = first.Close()
	eventually(t, "the place is free", func() bool {
		conn, err := greet(9)
		if err != nil {
			_ = conn.Close()
		}
		return err == nil
	})
}
