package planetest

import (
	"bytes"
	"sync"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Gate stops the first copy of a plane between the first and the last comparison of a page's generation and permit.
type Gate struct {
	reached  chan struct{} // closed when a copy is stopped
	released chan struct{}
	once     sync.Once
}

func newGate() *Gate { return &Gate{reached: make(chan struct{}), released: make(chan struct{})} }

// Mover returns a mover that stops at the gate and then calls move.
func (g *Gate) Mover(move plane.Mover) plane.Mover {
	return func(dst, src []byte) {
		g.once.Do(func() {
			close(g.reached)
			<-g.released
		})
		move(dst, src)
	}
}

// RunHeld is for planes in which the target copies out of the initiator's memory. Each test stops the target's first
// copy, ends the transfer at the initiator in some way, stores different bytes in the pages as soon as the transfer is
// settled, as an engine may, and lets the target continue. Open returns the opener of a plane that makes copies
// through a gate, one copy at a time.
func RunHeld(t *testing.T, open func(*Gate) plane.Opener) {
	for _, test := range []struct {
		name string
		end  func(t *testing.T, p pair, corr effects.Corr)
		code effects.Code
	}{
		{"cancel", func(_ *testing.T, p pair, corr effects.Corr) { p.a.Plane.Cancel(corr) }, effects.Cancelled},
		{"drop", func(_ *testing.T, p pair, _ effects.Corr) { p.a.Plane.Drop(p.link) }, effects.PeerLost},
		{"the initiator closes", func(t *testing.T, p pair, _ effects.Corr) { p.a.closePlane(t) }, effects.Closed},
		{"the target closes", func(t *testing.T, p pair, _ effects.Corr) { go p.b.closePlane(t) }, effects.PeerLost},
	} {
		t.Run(test.name, func(t *testing.T) {
			gate := newGate()
			p := newPair(t, open(gate))
			opened := sync.OnceFunc(func() { close(gate.released) })
			t.Cleanup(opened) // After a failure the target would stay stopped, and its Close would wait.
			push := p.newPush(0, 4)
			corr := p.a.StartPush(push)
			<-gate.reached
			test.end(t, p, corr)
			if done := p.a.AwaitDone(t, corr); done.Code != test.code || !done.Settled {
				t.Fatalf("ended as %s, settled %v; want %s, at once", done.Code, done.Settled, test.code)
			}
			other := bytes.Repeat([]byte{0xe7}, pageBytes)
			for _, page := range push.From { // In the same generation, because the pages were not released.
				copy(p.a.Pool.Bytes(page), other)
			}
			opened()
			landed := AwaitEvent(t, p.b, func(e *effects.Landed) bool { return e.Grant == push.Grant })
			if len(landed.Pages) != 0 || landed.Complete {
				t.Fatalf("%d pages landed with bytes that were never pushed", len(landed.Pages))
			}
		})
	}
	t.Run("cancel, and the next transfer", func(t *testing.T) { nextTransferIsUnaffected(t, open) })
}

// nextTransferIsUnaffected cancels a transfer while the copy is stopped, and sends the same page, with different
// content in the same generation, in the next transfer, which reuses the permit slot of the first transfer.
func nextTransferIsUnaffected(t *testing.T, open func(*Gate) plane.Opener) {
	gate := newGate()
	p := newPair(t, open(gate))
	opened := sync.OnceFunc(func() { close(gate.released) })
	t.Cleanup(opened)
	first := p.newPush(0, 1)
	corr := p.a.StartPush(first)
	<-gate.reached
	p.a.Plane.Cancel(corr)
	if done := p.a.AwaitDone(t, corr); done.Code != effects.Cancelled || !done.Settled {
		t.Fatalf("ended as %s, settled %v", done.Code, done.Settled)
	}
	fillPattern(p.a.Pool.Bytes(first.From[0]), 99)
	grant, into := p.b.GrantWrite(p.a.Inc, 1, 1, pageBytes)
	next := p.pushTo(grant, first.From, into)
	corr = p.a.StartPush(next)
	opened()
	if done := p.a.AwaitDone(t, corr); done.Code != effects.OK {
		t.Fatalf("ended as %s beside one that was cancelled", done.Code)
	}
	p.wantArrived(t, next)
	if landed := AwaitEvent(t, p.b, func(e *effects.Landed) bool { return e.Grant == first.Grant }); len(landed.Pages) != 0 {
		t.Fatal("a page landed that was never pushed like that")
	}
}
