package landing

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
)

// This file compares pages with the checksums of their chunks where the driver did not compare them before it reported
// them: on a leased plane, where the driver sees no stores, and where this rank asked a peer to write, because the peer
// states the checksums only in its reply. The writer has said that it is quiet; the driver then sums the pages, which
// takes as long as reading them, and only after that the chunks are readable (S33).
//
// Example: a sender commits grant 7 over pages 3 and 4. The rank emits Verify and answers nothing yet. The request is
// abandoned meanwhile: the grant goes into quarantine, but the pages stay with it, because the driver reads them. The
// driver reports Verified; the grant ends, the pages become free, and the commit is answered as gone.

// VerifiesGrant reports whether pages of a grant must be compared with their checksums before the pages are readable,
// because a checksum is known of one of them.
func (l *Landings) VerifiesGrant(v *env.Env, x *Landing) bool {
	return l.cfg.Verifies && anyHasSum(v.Pools.PagesOf(x.ID))
}

func anyHasSum(pages []effects.Page) bool {
	for i := range pages {
		if pages[i].Sum != 0 {
			return true
		}
	}
	return false
}

// BeginVerify asks the driver to compare the first pages of a grant. The completion goes to the row that ref names,
// which calls OnVerified. The grant must not be revoked, and its writer must have said that it is quiet: so from here
// on the time of the grant does not matter any more, and the deadline is stopped.
//
// Invariant: until OnVerified the grant does not end, so that no page of the grant has another user while the driver
// reads it (M1).
func (l *Landings) BeginVerify(v *env.Env, x *Landing, pages uint32, ref kernel.Ref) {
	v.Out.Mark(Marks.VerifyBegun)
	v.Timers.Stop(&x.timer)
	x.Verifying = true
	v.Out.Verify(effects.Verify{Corr: v.Corrs.Open(ref), Pages: v.Pools.PagesOf(x.ID)[:pages]})
}

// OnVerified handles the end of a comparison, and ends the grant. The pages that have their checksums become readable,
// unless the grant was revoked meanwhile or the caller does not want them. The code is OK if every page that was
// compared was taken, Corrupt if a page did not have its checksum, and otherwise Withdrawn. claim says whether the
// chunks are claimed for their request.
func (l *Landings) OnVerified(v *env.Env, s *store.Store, x *Landing, ev *effects.Verified, wanted, claim bool) effects.Code {
	x.Verifying = false
	code := effects.OK
	if x.Revoking || !wanted {
		v.Out.Mark(Marks.VerifyUnwanted)
		l.endQuietGrant(v, s, x)
		return effects.Withdrawn
	}
	for _, page := range ev.Pages {
		if !l.LandPage(v, s, x, page, claim) {
			code = effects.Withdrawn
		}
	}
	if ev.Corrupt > 0 {
		v.Out.Mark(Marks.LandedCorrupt)
		code = effects.Corrupt
	}
	l.endQuietGrant(v, s, x)
	return code
}

// endQuietGrant ends a grant whose writer has said that it is quiet, after the pages were compared. On a leased plane
// that word is the proof. On a fenced plane the grant is revoked if pages of it have not landed.
func (l *Landings) endQuietGrant(v *env.Env, s *store.Store, x *Landing) {
	switch {
	case l.cfg.Leased, !x.Revoking && v.Pools.CountOpenPages(x.ID) == 0:
		l.EndGrant(v, s, x)
	case x.Revoking:
		v.Out.Revoke(x.ID) // RevokeGrant has left this to the end of the comparison.
	default:
		l.RevokeGrant(v, x)
	}
}

// HoldLanded handles a report of a fenced plane that pages are whole, for a write that this rank requested from a peer.
// The pages are not readable yet, because the peer states their checksums only in its reply. HoldLanded confirms the
// write, so that the peer replies. A write that was not made whole, or that did not begin with the first page of the
// grant, brings no reply with checksums, so the grant is revoked.
func (l *Landings) HoldLanded(v *env.Env, x *Landing, ev *effects.Landed) {
	code := effects.OK
	pages := v.Pools.PagesOf(x.ID)
	if x.Revoking || x.HeldPages > 0 || len(ev.Pages) > len(pages) {
		code = effects.Withdrawn
	}
	for i := range ev.Pages {
		if code == effects.OK && (ev.Pages[i].Index != pages[i].Index || ev.Pages[i].Generation != pages[i].Generation) {
			code = effects.Withdrawn
		}
	}
	if code == effects.OK && !ev.Complete {
		v.Out.Mark(Marks.LandedPartly)
		code = effects.Faulted
	}
	v.Out.Confirm(ev.Landing, code)
	if code == effects.OK {
		v.Out.Mark(Marks.LandedHeld)
		x.HeldPages = uint32(len(ev.Pages))
		return
	}
	if !x.Revoking {
		l.RevokeGrant(v, x)
	}
}

// MayTake reports whether the first pages of a grant may be taken when the writer says that they are whole. On a leased
// plane the writer's word is believed before CommitBy, while the grant is not revoked; on a fenced plane only of pages
// that have landed and are held.
func (l *Landings) MayTake(v *env.Env, x *Landing, pages uint32) bool {
	if l.cfg.Leased {
		return !x.Revoking && v.Now <= x.CommitBy
	}
	return !x.Revoking && pages <= x.HeldPages
}

// HoldsLanded reports whether pages that peers wrote at this rank's request wait for the checksums in the peer's reply.
func (l *Landings) HoldsLanded() bool { return l.cfg.Verifies }

// StateSums records the checksums that a peer stated for pages of a grant, when the peer has written them: sums[i] is
// that of the page at places[i]. A page of which two checksums are stated has none, because two chunks share it.
func (l *Landings) StateSums(v *env.Env, x *Landing, places []uint32, sums []uint64) {
	for i := range sums {
		v.Pools.StateSum(x.ID, int(places[i]), effects.SumAt(sums, i))
	}
}
