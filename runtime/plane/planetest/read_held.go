package planetest

import (
	"runtime"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// RunHeldReads is for planes in which the reader copies out of the owner's memory. Each test stops the reader's first
// copy, revokes the lease in some way, gives the pages new content as soon as the lease is Revoked, and lets the
// reader continue: none of these bytes may be delivered. Open returns the opener of a plane as for [RunHeld].
func RunHeldReads(t *testing.T, open func(*Gate) plane.Opener) {
	for _, test := range []struct {
		name string
		then func(p pair, pull Pull) // after Revoked
	}{
		{"the same life, other content", func(p pair, pull Pull) {
			for _, page := range pull.From {
				fillPattern(p.b.Pool.Bytes(page), ^patternSeed(page))
			}
		}},
		{"another life", func(p pair, pull Pull) { p.b.FillPages(p.b.PublishPages(0, len(pull.From), pageBytes)) }},
		{"granted to be stored into", func(p pair, pull Pull) {
			_, pages := p.b.GrantWrite(p.a.Inc, 0, len(pull.From), pageBytes)
			p.b.FillPages(pages)
		}},
		{"lent again with other content", func(p pair, pull Pull) {
			for _, page := range pull.From {
				fillPattern(p.b.Pool.Bytes(page), ^patternSeed(page))
			}
			p.b.GrantRead(p.a.Inc, pull.From)
		}},
		{"lent again in the same place of the permits", func(p pair, pull Pull) {
			for _, page := range pull.From {
				fillPattern(p.b.Pool.Bytes(page), ^patternSeed(page))
			}
			p.b.Pool.Grant(&effects.Grant{ID: pull.Grant + 1<<16, Peer: p.a.Inc, Read: true, Pages: pull.From})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, pull, corr, letGo := heldRead(t, open)
			p.revokeGrant(t, pull.Grant) // At once, although the reader is stopped all the while.
			test.then(p, pull)
			letGo()
			done := p.a.AwaitDone(t, corr)
			if p.awaitSettled(t, done); done.Code != effects.Withdrawn {
				t.Fatalf("ended as %s", done.Code)
			}
		})
	}
	t.Run("the owner closes, then takes its pages back", func(t *testing.T) {
		p, pull, corr, letGo := heldRead(t, open)
		p.b.closePlane(t)
		p.revokeGrant(t, pull.Grant)
		for _, page := range pull.From {
			fillPattern(p.b.Pool.Bytes(page), ^patternSeed(page))
		}
		letGo()
		done := p.a.AwaitDone(t, corr)
		if p.awaitSettled(t, done); done.Code != effects.Withdrawn && done.Code != effects.PeerLost {
			t.Fatalf("ended as %s", done.Code)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		p, pull, corr, letGo := heldRead(t, open)
		p.a.Plane.Cancel(corr)
		if done := p.a.AwaitDone(t, corr); done.Code != effects.Cancelled || done.Settled {
			t.Fatalf("ended as %s, settled %v, while a page was being stored into", done.Code, done.Settled)
		}
		if CountEvents(p.a, func(e *effects.Settled) bool { return e.Corr == corr }) != 0 {
			t.Fatal("settled while a page was being stored into")
		}
		letGo()
		AwaitEvent(t, p.a, func(e *effects.Settled) bool { return e.Corr == corr && e.Code == effects.Cancelled })
		p.a.FillPages(pull.Into)
		after := p.pullAgain(pull, 8)
		p.wantRead(t, after, effects.OK)
		p.a.wantFilled(t, pull.Into)
	})
	t.Run("time", func(t *testing.T) {
		gate := newGate()
		p := newPair(t, open(gate))
		pull, notAfter := p.newPull(0, 4), plane.Now().Add(50*effects.Millisecond)
		corr := p.a.StartReadUntil(pull, notAfter)
		for plane.Now() <= notAfter {
			runtime.Gosched() // The first page may be stopped meanwhile; the second page is too late.
		}
		close(gate.released)
		done := p.a.AwaitDone(t, corr)
		if p.awaitSettled(t, done); done.Code != effects.Expired {
			t.Fatalf("ended as %s", done.Code)
		}
	})
	t.Run("drop", func(t *testing.T) {
		p, _, corr, letGo := heldRead(t, open)
		p.a.Plane.Drop(p.link)
		AwaitEvent(t, p.b, func(e *effects.LinkLost) bool { return e.Peer == p.a.Inc })
		if CountEvents(p.a, func(*effects.Dropped) bool { return true }) != 0 {
			t.Fatal("dropped while a page was being stored into")
		}
		letGo()
		done := p.a.AwaitDone(t, corr) // The read may be faster than the end of the link.
		if p.awaitSettled(t, done); done.Code != effects.PeerLost && done.Code != effects.OK {
			t.Fatalf("ended as %s", done.Code)
		}
		AwaitEvent(t, p.a, func(e *effects.Dropped) bool { return e.Link == p.link })
	})
}

// heldRead starts a read and stops the first copy until letGo is called.
func heldRead(t *testing.T, open func(*Gate) plane.Opener) (p pair, pull Pull, corr effects.Corr, letGo func()) {
	gate := newGate()
	p = newPair(t, open(gate))
	letGo = sync.OnceFunc(func() { close(gate.released) })
	t.Cleanup(letGo) // After a failure the reader would stay stopped, and its Close would wait.
	pull = p.newPull(0, 4)
	corr = p.a.StartRead(pull)
	<-gate.reached
	return p, pull, corr, letGo
}
