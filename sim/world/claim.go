package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
)

// claimable says whether a push is let in: all of its pages must be granted to it as
// it says, and nobody else's push be under way to them. All or none.
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

// claim keeps other pushes out of t's pages, or ends that.
func (g *Grant) claim(t *Transfer, on bool) {
	for _, p := range t.Pairs {
		g.claimed[g.Place(p.Remote.Index)] = on
	}
}

func (g *Grant) Place(index uint32) int {
	for i, p := range g.Pages {
		if p.Index == index {
			return i
		}
	}
	return -1
}

// refusals are what the owner of the pages answers beyond what the grant says: its
// bounds, its device, its view of who asks.
var refusals = []effects.Code{effects.Faulted, effects.TooMany, effects.Refused, effects.Invalid, effects.NotFound,
	effects.Stale,
	effects.Mismatch, effects.TooLarge, effects.Closed}

// refusal draws one of the codes with which a driver may refuse an effect. The list
// is the contract's, so that whatever a real driver may say, machines here have heard.
func refusal(v contract.Verb, d draw.Of) effects.Code {
	codes := contract.Codes(v)[1:] // The first is OK.
	return codes[d.Below(uint64(len(codes)))]
}

// failed completes a push that came to nothing, or not to all. Planes that stream may
// still be reading then: whether this is one, is drawn.
func (t *Transfer) failed(w *World, code effects.Code, d draw.Of) {
	after := d.Heavy(w.Setting.Net)
	if d.Again().Permille(700) {
		t.report(w, code, true, after)
		return
	}
	t.report(w, code, false, after)
	t.settle(w, code, after+d.Again().Again().Heavy(w.Setting.Device))
}
