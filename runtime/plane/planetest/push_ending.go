package planetest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// awaitSettled waits for the Settled of a transfer that was not settled when it ended.
func (p pair) awaitSettled(tb testing.TB, done *effects.TransferDone) {
	tb.Helper()
	if !done.Settled {
		AwaitEvent(tb, p.a, func(e *effects.Settled) bool { return e.Corr == done.Corr })
	}
}

func cancelledPushes(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	p.b.OnLanded(nil)
	push := p.newPush(0, pages)
	corr := p.a.StartPush(push)
	p.a.Plane.Cancel(corr + 1000) // Not a transfer of this plane, so the cancel is ignored.
	AwaitEvent(t, p.b, func(*effects.Landed) bool { return true })
	p.a.Plane.Cancel(corr)
	p.a.Plane.Cancel(corr)
	done := p.a.AwaitDone(t, corr)
	if done.Code != effects.Cancelled {
		t.Fatalf("ended as %s", done.Code)
	}
	p.awaitSettled(t, done)

	// A transfer that is cancelled at any moment ends once, and the link keeps working.
	p.b.OnLanded(ConfirmLanding)
	for range 20 {
		push := p.newPush(0, pages/2)
		corr := p.a.StartPush(push)
		p.a.Plane.Cancel(corr)
		p.awaitSettled(t, p.a.AwaitDone(t, corr))
		if n := CountEvents(p.a, func(*effects.TransferDone) bool { return true }); n != 0 {
			t.Fatalf("%d ends too many", n)
		}
		p.revokeGrant(t, push.Grant)
	}
	after := p.newPush(0, 4)
	p.wantEnd(t, after, effects.OK)
	p.wantArrived(t, after)
}

func dropEnds(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	p.b.OnLanded(nil)
	push := p.newPush(0, 4)
	corr := p.a.StartPush(push)
	AwaitEvent(t, p.b, func(*effects.Landed) bool { return true })
	p.a.Plane.Drop(p.link)
	if done := p.a.AwaitDone(t, corr); done.Code != effects.PeerLost || !done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	AwaitEvent(t, p.a, func(e *effects.Dropped) bool { return e.Link == p.link })
	AwaitEvent(t, p.b, func(e *effects.LinkLost) bool { return e.Peer == p.a.Inc && e.Link == 0 })
	p.wantEnd(t, push, effects.PeerLost)

	p.link = p.a.Import(t, p.b.Inc, p.b.Plane.Blob())
	p.b.OnLanded(ConfirmLanding)
	again := p.newPush(8, 4)
	p.wantEnd(t, again, effects.OK)
}

func peerCloses(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	p.b.OnLanded(nil)
	corr := p.a.StartPush(p.newPush(0, 4))
	AwaitEvent(t, p.b, func(*effects.Landed) bool { return true })
	p.b.closePlane(t)
	if done := p.a.AwaitDone(t, corr); done.Code != effects.PeerLost || !done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	AwaitEvent(t, p.a, func(e *effects.LinkLost) bool { return e.Link == p.link && e.Peer == p.b.Inc })
	p.a.Plane.Drop(p.link)
	AwaitEvent(t, p.a, func(e *effects.Dropped) bool { return e.Link == p.link })
	if e := p.a.TryImport(t, p.b.Inc, p.b.Plane.Blob()); e.Code != effects.Unreachable {
		t.Fatalf("import of a plane that is gone ended as %s", e.Code)
	}
}

func closingEnds(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	p.b.OnLanded(nil)
	corr := p.a.StartPush(p.newPush(0, 4))
	AwaitEvent(t, p.b, func(*effects.Landed) bool { return true })
	during := p.a.StartPush(p.newPush(8, 40)) // at some point of its way
	p.a.closePlane(t)
	for _, c := range []effects.Corr{corr, during} {
		if done := p.a.AwaitDone(t, c); done.Code != effects.Closed || !done.Settled {
			t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
		}
	}
	p.wantEnd(t, p.newPush(60, 1), effects.Closed)
	if e := p.a.TryImport(t, p.b.Inc, p.b.Plane.Blob()); e.Code != effects.Closed {
		t.Fatalf("import after Close ended as %s", e.Code)
	}
}

// After Revoked a page belongs to its owner: no byte of the page changes any more (M3).
func revokeDuringPushes(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	mine := bytes.Repeat([]byte{0x5a}, pageBytes)
	var partial int
	for round := range 40 {
		push := p.newPush(0, pages)
		begun := make(chan struct{})
		corr := p.a.StartPush(push)
		go func() {
			defer close(begun)
			for range round * 500 { // An arbitrary point of the push.
				_ = plane.Now()
			}
		}()
		<-begun
		p.revokeGrant(t, push.Grant)
		// Pages that landed before belong to the machine. The remaining pages are free now, and the owner writes to
		// these pages.
		landed := map[uint32]bool{}
		p.b.mu.Lock()
		for _, ev := range p.b.events {
			if l, ok := ev.(*effects.Landed); ok && l.Grant == push.Grant {
				for _, page := range l.Pages {
					landed[page.Index] = true
				}
			}
		}
		p.b.mu.Unlock()
		for _, page := range push.Into {
			if !landed[page.Index] {
				copy(p.b.Pool.Bytes(page), mine)
			}
		}
		done := p.a.AwaitDone(t, corr)
		p.awaitSettled(t, done)
		if done.Code != effects.OK && done.Code != effects.Withdrawn {
			t.Fatalf("round %d ended as %s", round, done.Code)
		}
		if done.Code == effects.Withdrawn {
			partial++
		}
		for i, page := range push.Into {
			want := mine
			if landed[page.Index] {
				want = p.a.Pool.Bytes(push.From[i])
			}
			if !bytes.Equal(p.b.Pool.Bytes(page), want) {
				t.Fatalf("round %d: page %d changed after its grant was over", round, page.Index)
			}
		}
	}
	t.Logf("%d of 40 pushes were overtaken by their revocation", partial)
}

// garbageIsRefused connects like a stranger and sends random bytes.
func garbageIsRefused(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	address := string(p.b.Plane.Blob()[3:])
	network := "tcp"
	if _, path, ok := strings.Cut(address, " "); ok {
		network, address = "unix", path
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		conn, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, rng.IntN(300)+5)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if round%2 == 0 { // A frame with a valid length and kind.
			binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
			b[4] = byte(rng.IntN(9))
		}
		_, _ = conn.Write(b) // The peer may have closed the connection already.
		if c, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
		var one [1]byte
		if n, err := conn.Read(one[:]); n != 0 || err == nil {
			t.Fatalf("garbage was answered with %#x", one)
		}
		_ = conn.Close()
	}
	push := p.newPush(0, 4)
	p.wantEnd(t, push, effects.OK)
	p.wantArrived(t, push)
}
