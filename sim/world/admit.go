package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
)

// admitPush decides whether a push is admitted: all pages must be granted as stated, and no earlier push to these pages
// may be in flight. A push is admitted as a whole or not at all.
func (g *Grant) admitPush(t *Transfer) effects.Code {
	switch {
	case g == nil || g.Read || g.Revoked || g.Revoking || g.Peer == (effects.Incarnation{}):
		return effects.Withdrawn
	case g.Peer != t.Initiator:
		return effects.Refused
	}
	for _, p := range t.Pairs {
		index := g.PageIndex(p.Remote.Index)
		switch {
		case index < 0 || g.closed[index]:
			return effects.Withdrawn
		case g.Pages[index].Generation != p.Remote.Generation:
			return effects.Stale
		case p.Local.Length > g.Pages[index].Length:
			return effects.TooLarge
		case p.Local.Length < g.Pages[index].Length:
			return effects.Mismatch
		case g.claimed[index]:
			return effects.Refused
		}
	}
	return effects.OK
}

// setClaimed reserves t's pages for t, or ends the reservation.
func (g *Grant) setClaimed(t *Transfer, claimed bool) {
	for _, p := range t.Pairs {
		g.claimed[g.PageIndex(p.Remote.Index)] = claimed
	}
}

// PageIndex returns the position of a page in the grant, or -1.
func (g *Grant) PageIndex(index uint32) int {
	for i, p := range g.Pages {
		if p.Index == index {
			return i
		}
	}
	return -1
}

// pushRefusals are the codes with which the owner of the pages may refuse a push for reasons beyond the grant: the
// bounds or the device of the owner, or the owner's view of the peer.
var pushRefusals = []effects.Code{effects.Faulted, effects.TooMany, effects.Refused, effects.Invalid, effects.NotFound,
	effects.Stale,
	effects.Mismatch, effects.TooLarge, effects.Closed}

// drawRefusal draws a code with which a driver may refuse an effect. The list is that of package contract, so that
// machines have met every code that a real driver may return.
func drawRefusal(v contract.Verb, d draw.Value) effects.Code {
	codes := contract.LegalCodes(v)[1:] // The first is OK.
	if last := len(codes) - 1; codes[last] == effects.Corrupt {
		codes = codes[:last] // Only bytes that were compared are corrupt.
	}
	return codes[d.Below(uint64(len(codes)))]
}

// failPush completes a push that failed completely or in part. A plane that streams may still be reading at that time,
// which is drawn here.
func (t *Transfer) failPush(w *World, code effects.Code, d draw.Value) {
	after := d.HeavyTail(w.Conditions.MessageTime)
	if d.Rehash().ChancePermille(700) {
		t.reportDone(w, code, true, after)
		return
	}
	t.reportDone(w, code, false, after)
	t.reportSettled(w, code, after+d.Rehash().Rehash().HeavyTail(w.Conditions.DeviceTime))
}
