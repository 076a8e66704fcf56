package planetest

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// These tests correspond to contract.ConcurrentAccesses, OverlappingGrants and BusyThreads. The hardware of leased
// planes cannot be held up by a test, so each test ends something in the middle of transfers, at any point. Nothing may
// be reported as settled or revoked before all transfers are quiet (M4).

// halfOf returns the first or the second half of a transfer, under the same grant.
func (m Move) halfOf(second bool) Move {
	from, to := 0, len(m.Local)/2
	if second {
		from, to = to, len(m.Local)
	}
	m.Local, m.Remote = m.Local[from:to], m.Remote[from:to]
	return m
}

// Two pushes under the same grant, while something ends: after the proof no byte of the pages changes any more.
func leasedHolders(t *testing.T, open LeasedMaker) {
	for _, c := range []struct {
		name string
		end  func(t *testing.T, p *LeasedPair, one, two effects.Corr)
		gone bool // the link ends, and all transfers in progress
	}{
		{"the grant is revoked", func(*testing.T, *LeasedPair, effects.Corr, effects.Corr) {}, false},
		{"one is cancelled", func(_ *testing.T, p *LeasedPair, one, _ effects.Corr) {
			p.A.Do(&effects.Cancel{Corr: one})
		}, false},
		{"both are cancelled", func(_ *testing.T, p *LeasedPair, one, two effects.Corr) {
			p.A.Do(&effects.Cancel{Corr: two})
			p.A.Do(&effects.Cancel{Corr: one})
		}, false},
		{"the link is dropped", func(t *testing.T, p *LeasedPair, _, _ effects.Corr) { p.A.DropLink(t, p.Link) }, true},
		{"the initiator closes", func(t *testing.T, p *LeasedPair, _, _ effects.Corr) { p.A.Close(t) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := leasedPair(t, open)
			m, other := p.NewPush(t, 0, leasedPages/2), p.NewPush(t, leasedPages/2, leasedPages/4)
			one, two, innocent := p.A.StartTransfer(m.halfOf(false)), p.A.StartTransfer(m.halfOf(true)), p.A.StartTransfer(other)
			c.end(t, p, one, two)
			p.B.RevokeGrant(t, m.Grant)
			mine := p.B.newPages(0, leasedPages/2)
			for _, page := range mine {
				p.B.FillPage(t, page)
			}
			p.A.AwaitDone(t, one)
			p.A.AwaitDone(t, two)
			if done := p.A.AwaitDone(t, innocent); !c.gone && done.Code != effects.OK {
				t.Fatalf("a push under another grant ended as %s", done.Code)
			} else if done.Code == effects.OK {
				p.WantArrived(t, other)
			}
			p.B.WantContent(t, mine, p.B, mine)
		})
	}
}

// Two reads of the same pages under the same lease: the end of either read does not end the second read, and a
// revocation waits for both.
func leasedReaders(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	for range 6 {
		m := p.NewRead(t, 0, leasedPages/4)
		again := m
		again.Local = p.A.newPages(leasedPages/4, leasedPages/4)
		p.A.Do(&effects.Publish{Pages: again.Local})
		one, two := p.A.StartTransfer(m), p.A.StartTransfer(again)
		p.A.Do(&effects.Cancel{Corr: one})
		if done := p.A.AwaitDone(t, two); done.Code != effects.OK {
			t.Fatalf("one of two reads was cancelled, and the other ended as %s", done.Code)
		}
		p.WantArrived(t, again)
		p.A.AwaitDone(t, one)
		p.B.RevokeGrant(t, m.Grant)
		p.B.PublishFilled(t, 0, leasedPages/4)
		p.WantArrived(t, again)
	}
}

// Two read leases on the same pages with two lengths, in both orders of beginning and of ending.
func leasedOverlaps(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	for i := range 4 {
		longFirst, longEnds := i%2 == 0, i/2 == 0
		long := p.NewRead(t, 0, 8)
		short := long
		short.Remote, short.Local = append([]effects.Page(nil), long.Remote...), p.A.newPages(8, 8)
		p.A.Do(&effects.Publish{Pages: short.Local})
		for k := range short.Remote {
			short.Remote[k].Length, short.Local[k].Length = leasedPageBytes/2, leasedPageBytes/2
		}
		short.Grant = p.B.GrantRead(p.A.Inc, short.Remote)
		if !longFirst {
			p.B.RevokeGrant(t, long.Grant)
			long.Grant = p.B.GrantRead(p.A.Inc, long.Remote)
		}
		p.WantEnd(t, long, effects.OK)
		p.WantEnd(t, short, effects.OK)
		over, stays := short, long
		if longEnds {
			over, stays = long, short
		}
		p.B.RevokeGrant(t, over.Grant)
		p.WantEnd(t, stays, effects.OK)
		if !longEnds {
			p.WantArrived(t, stays)
		}
		p.WantEnd(t, over, effects.Withdrawn)
		p.B.RevokeGrant(t, stays.Grant)
	}
}

// A batch of most pages, and a batch of a single page over another link: both arrive.
func leasedBusy(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	beside := &LeasedPair{A: p.A, B: p.B, Link: p.A.Import(t, p.B.Inc, p.B.Plane.Blob())}
	large, small := p.NewPush(t, 0, leasedPages-1), beside.NewPush(t, leasedPages-1, 1)
	x, y := p.A.StartTransfer(large), p.A.StartTransfer(small)
	if done := p.A.AwaitDone(t, y); done.Code != effects.OK {
		t.Fatalf("a batch of one page ended as %s", done.Code)
	}
	if done := p.A.AwaitDone(t, x); done.Code != effects.OK {
		t.Fatalf("a batch of %d pages ended as %s", leasedPages-1, done.Code)
	}
	p.WantArrived(t, large)
	beside.WantArrived(t, small)
}
