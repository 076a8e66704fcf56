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

// EachLie runs a test for each lie, or, unless KVFERRY_HOSTILE=1 is set, for every oneIn-th lie.
func EachLie(t *testing.T, lies []liar.Lie, oneIn int, tell func(*testing.T, liar.Lie)) {
	for i, lie := range lies {
		if os.Getenv("KVFERRY_HOSTILE") != "" || i%oneIn == 0 {
			t.Run(string(lie.Step)+" "+string(lie.Way), func(t *testing.T) { tell(t, lie) })
		}
	}
}

// WithShortTimeouts returns a maker of planes with short timeouts, because with lies many peers are silent.
func (m LeasedMaker) WithShortTimeouts(tb testing.TB, id byte, pages uint32, pageBytes uint64, sink plane.Sink) LeasedEnd {
	end := m(tb, id, pages, pageBytes, sink)
	open := end.Open
	end.Open = func(ctx context.Context, env plane.Env) (plane.Plane, error) {
		return withShortTimeouts(open)(ctx, env)
	}
	return end
}

// RunLie lets a liar lie between a, a separate node, and B. Whatever is sent about epochs at any step, to either end:
// transfers end, revoked pages are not stored into, the link from A keeps working, and a direct link to the same peer
// works. Steps says which kind of frame is which step. If timeless is true, no lapse of time proves anything, so an
// end that waits for a withheld message waits for the end of the connection; the test then closes the connection.
func (p *LeasedPair) RunLie(t testing.TB, a *LeasedNode, lie liar.Lie, steps map[uint8]liar.Step, timeless bool) {
	t.Helper()
	l, blob, err := liar.NewWithKinds(p.B.Plane.Blob(), lie, nil, steps)
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
			push := by.NewPush(t, half, 2)
			corr := a.StartTransfer(push)
			a.cancelBeside(corr, l)
			hurry(func() bool { return a.isOver(corr) })
			done := a.AwaitDone(t, corr)
			if done.Code == effects.OK {
				by.WantArrived(t, push)
			}
			p.B.Do(&effects.Revoke{Grant: push.Grant})
			hurry(func() bool {
				return CountEvents(p.B, func(e *effects.Revoked) bool { return e.Grant == push.Grant }) > 0
			})
			p.B.AwaitRevoked(t, push.Grant)
			holds := p.B.FillOwnPages(t, half, 2)
			beside := p.NewPush(t, 0, 2)
			p.WantEnd(t, beside, effects.OK)
			p.WantArrived(t, beside)
			holds()
		}
	}
	l.Close()
	p.WantWorking(t)
	// The plane has short timeouts, so the import is tried until it succeeds.
	for link = a.TryImport(t, p.B.Inc, p.B.Plane.Blob()); link.Code == effects.Unreachable; {
		link = a.TryImport(t, p.B.Inc, p.B.Plane.Blob())
	}
	by.Link = link.Link
	by.WantWorking(t)
}

// cancelBeside waits for the end of a transfer, and cancels the transfer if the lie has prevented an end.
func (n *LeasedNode) cancelBeside(corr effects.Corr, l *liar.Liar) {
	told, late := false, time.Time{}
	for CountEvents(n, func(e *effects.TransferDone) bool { return e.Corr == corr }) == 0 {
		select {
		case <-l.LieDone():
			if !told {
				told, late = true, time.Now().Add(50*time.Millisecond)
			}
		default:
		}
		// A transfer that ends without a cancel has had time to end.
		if told && time.Now().After(late) {
			n.Do(&effects.Cancel{Corr: corr})
			return
		}
		runtime.Gosched()
	}
}

// isOver reports whether a transfer has ended and is settled.
func (n *LeasedNode) isOver(corr effects.Corr) bool {
	return CountEvents(n, func(e *effects.TransferDone) bool { return e.Corr == corr && e.Settled })+
		CountEvents(n, func(e *effects.Settled) bool { return e.Corr == corr }) > 0
}

// WantWorking fails unless the link moves pages in both directions: everything that was broken has been rebuilt and
// left nothing behind.
func (p *LeasedPair) WantWorking(tb testing.TB) {
	tb.Helper()
	for _, ready := range []func(tb testing.TB, first, count int) Move{p.NewPush, p.NewRead} {
		m := ready(tb, 0, int(p.A.pages))
		p.WantEnd(tb, m, effects.OK)
		p.WantArrived(tb, m)
	}
}

// FillOwnPages gives pages to their owner and fills the pages. The returned function fails if the pages have changed
// since.
func (n *LeasedNode) FillOwnPages(tb testing.TB, first, count int) (holds func()) {
	tb.Helper()
	own := n.PublishFilled(tb, first, count)
	return func() {
		tb.Helper()
		n.WantContent(tb, own, n, own)
	}
}
