package planetest

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/liar"
)

// EachLie has lies told, one test for each: one in so many, and with KVFERRY_HOSTILE=1 all of them.
func EachLie(t *testing.T, lies []liar.Lie, oneIn int, tell func(*testing.T, liar.Lie)) {
	for i, lie := range lies {
		if os.Getenv("KVFERRY_HOSTILE") != "" || i%oneIn == 0 {
			t.Run(string(lie.Step)+" "+string(lie.Way), func(t *testing.T) { tell(t, lie) })
		}
	}
}

// Hasty gives up soon on who is silent, because in lies many are.
func (m LeasedMaker) Hasty(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink) LeasedEnd {
	end := m(tb, id, pages, pageBytes, sink)
	open := end.Open
	end.Open = func(ctx context.Context, env plane.Env) (plane.Plane, error) { return hasty(open)(ctx, env) }
	return end
}

// Lied has a lie told between a, a node of its own, and B: whatever is said of epochs at whatever step, to either end,
// a transfer ends, what was revoked is not stored into, the link beside it goes on, and one to the same peer by which
// nobody lies works. What frames are is steps. Where timeless, no time proves anything: who waits for a word that was
// withheld waits for the end of its connection, which the liar then brings about.
func (p *LeasedPair) Lied(t testing.TB, a *LeasedNode, lie liar.Lie, steps map[uint8]liar.Step, timeless bool) {
	t.Helper()
	l, blob, err := liar.Before(p.B.Plane.Blob(), lie, nil, steps)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	link := a.TryImport(t, p.B.Inc, blob)
	by := &LeasedPair{A: a, B: p.B, Link: link.Link}
	half := int(p.B.pages / 2)
	hurry := func(over func() bool) {
		for late := time.Now().Add(500 * time.Millisecond); timeless && !over(); time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				l.Close()
				return
			}
		}
	}
	if link.Code == effects.OK {
		for range 2 {
			push := by.Push(t, half, 2)
			corr := a.Start(push)
			a.cancelBeside(corr, l)
			hurry(func() bool { return a.isOver(corr) })
			done := a.Done(t, corr)
			if done.Code == effects.OK {
				by.Arrived(t, push)
			}
			p.B.Do(&effects.Revoke{Grant: push.Grant})
			hurry(func() bool { return Has(p.B, func(e *effects.Revoked) bool { return e.Grant == push.Grant }) > 0 })
			p.B.Revoked(t, push.Grant)
			holds := p.B.Mine(t, half, 2)
			beside := p.Push(t, 0, 2)
			p.Ends(t, beside, effects.OK)
			p.Arrived(t, beside)
			holds()
		}
	}
	l.Close()
	p.GoesOn(t)
	for link = a.TryImport(t, p.B.Inc, p.B.Plane.Blob()); link.Code == effects.Unreachable; { // It is hasty.
		link = a.TryImport(t, p.B.Inc, p.B.Plane.Blob())
	}
	by.Link = link.Link
	by.GoesOn(t)
}

// cancelBeside waits for the end of a transfer, and cancels it where the lie has left it without one.
func (n *LeasedNode) cancelBeside(corr effects.Corr, l *liar.Liar) {
	told, late := false, time.Time{}
	for Has(n, func(e *effects.TransferDone) bool { return e.Corr == corr }) == 0 {
		select {
		case <-l.Lied():
			if !told {
				told, late = true, time.Now().Add(50*time.Millisecond)
			}
		default:
		}
		if told && time.Now().After(late) { // What ends by itself has had its time; which it was decides nothing.
			n.Do(&effects.Cancel{Corr: corr})
			return
		}
		runtime.Gosched()
	}
}

// isOver says whether a transfer has ended and is settled.
func (n *LeasedNode) isOver(corr effects.Corr) bool {
	return Has(n, func(e *effects.TransferDone) bool { return e.Corr == corr && e.Settled })+
		Has(n, func(e *effects.Settled) bool { return e.Corr == corr }) > 0
}

// GoesOn fails unless the link moves pages either way: what was broken was built anew, and left nothing behind.
func (p *LeasedPair) GoesOn(tb testing.TB) {
	tb.Helper()
	for _, ready := range []func(tb testing.TB, first, count int) Move{p.Push, p.Read} {
		m := ready(tb, 0, int(p.A.pages))
		p.Ends(tb, m, effects.OK)
		p.Arrived(tb, m)
	}
}

// Mine gives pages to their owner, who fills them: whoever stores into them from now on is found by holds.
func (n *LeasedNode) Mine(tb testing.TB, first, count int) (holds func()) {
	tb.Helper()
	own := n.Life(tb, first, count)
	return func() {
		tb.Helper()
		n.Holds(tb, own, n, own)
	}
}
