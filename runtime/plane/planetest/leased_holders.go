package planetest

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// These tests correspond to contract.Holders, Overlaps and AllBusy. The hardware of leased planes cannot be held up by
// a test, so each test ends something in the middle of transfers, at any point. Nothing may be reported as settled or
// revoked before all transfers are quiet (M4).

// half returns the first or the second half of a transfer, under the same grant.
func (m Move) half(second bool) Move {
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
		{"the link is dropped", func(t *testing.T, p *LeasedPair, _, _ effects.Corr) { p.A.Drop(t, p.Link) }, true},
		{"the initiator closes", func(t *testing.T, p *LeasedPair, _, _ effects.Corr) { p.A.Close(t) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := leasedPair(t, open)
			m, other := p.Push(t, 0, leasedPages/2), p.Push(t, leasedPages/2, leasedPages/4)
			one, two, innocent := p.A.Start(m.half(false)), p.A.Start(m.half(true)), p.A.Start(other)
			c.end(t, p, one, two)
			p.B.Revoke(t, m.Grant)
			mine := p.B.life(0, leasedPages/2)
			for _, page := range mine {
				p.B.Fill(t, page)
			}
			p.A.Done(t, one)
			p.A.Done(t, two)
			if done := p.A.Done(t, innocent); !c.gone && done.Code != effects.OK {
				t.Fatalf("a push under another grant ended as %s", done.Code)
			} else if done.Code == effects.OK {
				p.Arrived(t, other)
			}
			p.B.Holds(t, mine, p.B, mine)
		})
	}
}

// Two reads of the same pages under the same lease: the end of either read does not end the second read, and a
// revocation waits for both.
func leasedReaders(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	for range 6 {
		m := p.Read(t, 0, leasedPages/4)
		again := m
		again.Local = p.A.life(leasedPages/4, leasedPages/4)
		p.A.Do(&effects.Publish{Pages: again.Local})
		one, two := p.A.Start(m), p.A.Start(again)
		p.A.Do(&effects.Cancel{Corr: one})
		if done := p.A.Done(t, two); done.Code != effects.OK {
			t.Fatalf("one of two reads was cancelled, and the other ended as %s", done.Code)
		}
		p.Arrived(t, again)
		p.A.Done(t, one)
		p.B.Revoke(t, m.Grant)
		p.B.Life(t, 0, leasedPages/4)
		p.Arrived(t, again)
	}
}

// Two read leases on the same pages with two lengths, in both orders of beginning and of ending.
func leasedOverlaps(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	for i := range 4 {
		longFirst, longEnds := i%2 == 0, i/2 == 0
		long := p.Read(t, 0, 8)
		short := long
		short.Remote, short.Local = append([]effects.Page(nil), long.Remote...), p.A.life(8, 8)
		p.A.Do(&effects.Publish{Pages: short.Local})
		for k := range short.Remote {
			short.Remote[k].Length, short.Local[k].Length = leasedPageBytes/2, leasedPageBytes/2
		}
		short.Grant = p.B.Lend(p.A.Inc, short.Remote)
		if !longFirst {
			p.B.Revoke(t, long.Grant)
			long.Grant = p.B.Lend(p.A.Inc, long.Remote)
		}
		p.Ends(t, long, effects.OK)
		p.Ends(t, short, effects.OK)
		over, stays := short, long
		if longEnds {
			over, stays = long, short
		}
		p.B.Revoke(t, over.Grant)
		p.Ends(t, stays, effects.OK)
		if !longEnds {
			p.Arrived(t, stays)
		}
		p.Ends(t, over, effects.Withdrawn)
		p.B.Revoke(t, stays.Grant)
	}
}

// A batch of most pages, and a batch of a single page over another link: both arrive.
func leasedBusy(t *testing.T, open LeasedMaker) {
	p := leasedPair(t, open)
	beside := &LeasedPair{A: p.A, B: p.B, Link: p.A.Import(t, p.B.Inc, p.B.Plane.Blob())}
	large, small := p.Push(t, 0, leasedPages-1), beside.Push(t, leasedPages-1, 1)
	x, y := p.A.Start(large), p.A.Start(small)
	if done := p.A.Done(t, y); done.Code != effects.OK {
		t.Fatalf("a batch of one page ended as %s", done.Code)
	}
	if done := p.A.Done(t, x); done.Code != effects.OK {
		t.Fatalf("a batch of %d pages ended as %s", leasedPages-1, done.Code)
	}
	p.Arrived(t, large)
	beside.Arrived(t, small)
}
