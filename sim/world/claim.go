package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
)

// claimable decides whether a push is admitted: all pages must be granted as stated, and no earlier push to these pages
// may be in flight. A push is admitted as a whole or not at all.
func (g *Grant) claimable(t *Transfer) effects.Code {
	switch {
	case g == nil || g.Read || g.Gone || g.Revoking || g.Peer == (effects.Incarnation{}):
		return effects.Withdrawn
	case g.Peer != t.Initiator:
		return effects.Refused
	}
	for _, p := range t.Pairs {
		at := g.Place(p.Remote.Index)
		switch {
		case at < 0 || g.closed[at]:
			return effects.Withdrawn
		case g.Pages[at].Generation != p.Remote.Generation:
			return effects.Stale
		case p.Local.Length > g.Pages[at].Length:
			return effects.TooLarge
		case p.Local.Length < g.Pages[at].Length:
			return effects.Mismatch
		case g.claimed[at]:
			return effects.Refused
		}
	}
	return effects.OK
}

// claim reserves t's pages for t, or ends the reservation.
func (g *Grant) claim(t *Transfer, on bool) {
	for _, p := range t.Pairs {
		g.claimed[g.Place(p.Remote.Index)] = on
	}
}

// Place returns the position of a page in the grant, or -1.
func (g *Grant) Place(index uint32) int {
	for i, p := range g.Pages {
		if p.Index == index {
			return i
		}
	}
	return -1
}

// pushRefusals are the codes with which the owner of the pages may refuse a push for reasons beyond the grant: the
// bounds or the device of the owner, or the owner's view of the peer.
var refusals = []effects.Code{effects.Faulted, effects.TooMany, effects.Refused, effects.Invalid, effects.NotFound,
	effects.Stale,
	effects.Mismatch, effects.TooLarge, effects.Closed}

// drawRefusal draws a code with which a driver may refuse an effect. The list is that of package contract, so that
// machines have met every code that a real driver may return.
func refusal(v contract.Verb, d draw.Of) effects.Code {
	codes := contract.LegalCodes(v)[1:] // The first is OK.
	return codes[d.Below(uint64(len(codes)))]
}

// failed completes a push that failed completely or in part. A plane that streams may still be reading at that time,
// which is drawn here.
func (t *Transfer) failed(w *World, code effects.Code, d draw.Of) {
	after := d.Heavy(w.Setting.Net)
	if d.Again().Permille(700) {
		t.report(w, code, true, after)
		return
	}
	t.report(w, code, false, after)
	t.settle(w, code, after+d.Again().Again().Heavy(w.Setting.Device))
}
