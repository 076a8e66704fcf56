package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
)

// A verification is an [effects.Verify] that the driver carries out on a thread of its own.
type verification struct {
	corr  effects.Corr `snap:"skip"`
	pages []effects.Page
}

// verifyPages carries out an [effects.Verify]. As long as there are faults, some comparisons take longer than leases.
func (n *Node) verifyPages(w *World, e *effects.Verify) {
	if !w.Conditions.Sums {
		w.Fail("contract", "node %d has pages compared with checksums, and no engine states any", n.AsSubject())
		return
	}
	for _, p := range e.Pages {
		n.Pool.Pages[p.Index].Verifies++
		n.Pool.UpdateInUse(p.Index)
	}
	w.verifications = append(w.verifications, verification{e.Corr, w.Arenas.EffectPages.CopySlice(e.Pages)})
	d := n.nextDraw(w, draw.Verify)
	delay := d.HeavyTail(w.Conditions.DeviceTime)
	if long := d.Rehash(); w.Now < int64(w.Conditions.FaultsEnd) && long.ChancePermille(100) {
		delay += long.Rehash().Duration(0, 3*effects.Second)
	}
	w.QueueForNode(n, delay, Delivery{Kind: KindVerified, A: uint64(len(w.verifications))})
}

// finishVerify ends a comparison: the pages are summed at this instant.
func (n *Node) finishVerify(w *World, d Delivery) {
	s, v := &n.events, &w.verifications[d.A-1]
	s.pages = s.pages[:0]
	for _, p := range v.pages {
		pg := &n.Pool.Pages[p.Index]
		pg.Verifies--
		n.Pool.UpdateInUse(p.Index)
		same := p.Sum == 0 || p.Sum == n.Pool.sumOf(w, pg, p.Length)
		if p.Sum != 0 {
			OnPageVerified.Report(&w.Panel, n.ID, PageVerified{n, p, same})
		}
		if same {
			s.pages = append(s.pages, p)
		}
	}
	s.verified = effects.Verified{Corr: v.corr, Pages: s.pages, Corrupt: uint32(len(v.pages) - len(s.pages))}
	w.Journal.AddLine(w.Now, d.Kind, n.ID, uint64(v.corr), uint64(len(s.pages)), uint64(s.verified.Corrupt))
	n.stepMachine(w, d.Kind, &s.verified)
	for i := range s.pages {
		s.pages[i] = effects.Page{Index: 0xDBDBDBDB}
	}
}

// moveFlipping moves a half of a pair on a leased plane, and changes bits of it where the plan says so.
func (t *Transfer) moveFlipping(w *World, pair, half int) {
	if half == 0 {
		t.flipSource(w, pair)
	}
	if t.Read {
		t.fetchHalf(pair, half)
	} else {
		t.moveHalf(w, pair, half)
	}
	if half == 1 {
		t.flipStored(w, pair)
	}
}

// haveSums reports whether the pages that were read have the checksums that the owner stated.
func (t *Transfer) haveSums(w *World) bool {
	same := true
	for i := range t.Pairs {
		same = t.hasSum(w, i, t.Pairs[i].Remote.Sum) && same
	}
	return same
}
