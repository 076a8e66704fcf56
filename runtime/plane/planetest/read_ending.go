package planetest

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

func readsAreCancelled(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	pull := p.newPull(0, pages)
	few := pull
	few.From = few.From[:4]
	var late int
	for round := range 20 {
		pull = p.pullAgain(pull, 0)
		corr := p.a.StartRead(pull)
		p.a.Plane.Cancel(corr + 1000) // Not a transfer of this plane, so the cancel is ignored.
		for range round * 1000 {      // An arbitrary point of the read.
			_ = plane.Now()
		}
		p.a.Plane.Cancel(corr)
		p.a.Plane.Cancel(corr)
		done := p.a.AwaitDone(t, corr)
		p.awaitSettled(t, done)
		switch done.Code {
		case effects.OK:
			late++
			p.wantLeasedContent(t, pull)
		case effects.Cancelled:
		default:
			t.Fatalf("ended as %s", done.Code)
		}
		// From here on the pages belong to the reader again: no byte of the read may arrive any more.
		p.a.FillPages(pull.Into)
		p.wantRead(t, p.pullAgain(few, 0), effects.OK) // The link keeps working.
		p.a.wantFilled(t, pull.Into[len(few.From):])
		if n := CountEvents(p.a, func(*effects.TransferDone) bool { return true }); n != 0 {
			t.Fatalf("%d ends too many", n)
		}
	}
	t.Logf("%d of 20 reads were faster than their cancel", late)
}

func dropEndsReads(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	pull := p.newPull(0, pages)
	for range 5 {
		pull = p.pullAgain(pull, 0)
		corr := p.a.StartRead(pull)
		p.a.Plane.Drop(p.link)
		done := p.a.AwaitDone(t, corr)
		if done.Code != effects.PeerLost && done.Code != effects.OK {
			t.Fatalf("ended as %s", done.Code)
		}
		p.awaitSettled(t, done)
		AwaitEvent(t, p.a, func(e *effects.Dropped) bool { return e.Link == p.link })
		AwaitEvent(t, p.b, func(e *effects.LinkLost) bool { return e.Peer == p.a.Inc && e.Link == 0 })
		p.wantRead(t, pull, effects.PeerLost)
		p.link = p.a.Import(t, p.b.Inc, p.b.Plane.Blob())
		pull.Link = p.link
	}
	p.wantRead(t, p.pullAgain(pull, 0), effects.OK) // The lease belongs to the peer, not to the link.
}

func ownerCloses(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	pull := p.newPull(0, pages)
	corr := p.a.StartRead(pull)
	p.b.closePlane(t)
	done := p.a.AwaitDone(t, corr)
	if done.Code != effects.PeerLost && done.Code != effects.OK {
		t.Fatalf("ended as %s", done.Code)
	}
	if p.awaitSettled(t, done); done.Code == effects.OK {
		p.wantLeasedContent(t, pull)
	}
	AwaitEvent(t, p.a, func(e *effects.LinkLost) bool { return e.Link == p.link && e.Peer == p.b.Inc })
	p.wantRead(t, p.pullAgain(pull, 0), effects.PeerLost)
	p.revokeGrant(t, pull.Grant) // No read is in progress any more.
}

func readerCloses(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	pull := p.newPull(0, pages)
	corr := p.a.StartRead(pull)
	p.a.closePlane(t)
	done := p.a.AwaitDone(t, corr)
	if done.Code != effects.Closed && done.Code != effects.OK || !done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	p.wantRead(t, pull, effects.Closed)
	p.revokeGrant(t, pull.Grant)
}

// After Revoked the pages belong to the owner, which stores new bytes at once. No read may deliver these bytes as the
// leased content (M3).
func revokeDuringReads(t *testing.T, open plane.Opener) {
	p := newPair(t, open)
	var cut int
	for round := range 40 {
		pull := p.newPull(0, pages)
		corr := p.a.StartRead(pull)
		begun := make(chan struct{})
		go func() {
			defer close(begun)
			for range round * 500 { // An arbitrary point of the read.
				_ = plane.Now()
			}
		}()
		<-begun
		p.revokeGrant(t, pull.Grant)
		if round%2 == 0 { // In the same generation, or in another one.
			p.b.PublishPages(0, pages, pageBytes)
		}
		for _, page := range pull.From {
			fillPattern(p.b.Pool.Bytes(page), ^patternSeed(page))
		}
		done := p.a.AwaitDone(t, corr)
		p.awaitSettled(t, done)
		switch done.Code {
		case effects.OK:
			p.wantLeasedContent(t, pull)
		case effects.Withdrawn:
			cut++
		default:
			t.Fatalf("round %d ended as %s", round, done.Code)
		}
	}
	t.Logf("%d of 40 reads were overtaken by their revocation", cut)
}
