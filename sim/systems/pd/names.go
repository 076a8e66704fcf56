package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/world"
)

// A life has a name for each of its peers, which the two know and nobody else. Strangers know what everybody may:
// who lives.

// LifeOf is the node whose present life has a name for somebody; nil if none does.
func (w *Cluster) LifeOf(name effects.Incarnation) *world.Node {
	for _, n := range w.Nodes[:w.Ranks] {
		if n.Up && IsNameOf(n, name) {
			return n
		}
	}
	return nil
}

// Named says whether a sender has this name for any receiver.
func (w *Cluster) Named(n *world.Node, us effects.Incarnation) bool {
	return IsNameOf(n, us) && slices.ContainsFunc(w.Nodes[:w.Ranks],
		func(to *world.Node) bool { return nameTo(n, to.ID) == us })
}

// Believes says whether a message that comes from that peer, as it says, also names n as only that peer knows it:
// anything else is a stranger's, whose words change nothing. To begin like n's name is not enough: strangers
// change real messages anywhere.
func Believes(n *world.Node, peer, us effects.Incarnation) bool {
	return IsNameOf(n, us) && nameFor(n, peer) == us
}

// nameFor is the name that this life of n has for who called it. It takes two hashes, so it is made once for each.
func nameFor(n *world.Node, peer effects.Incarnation) effects.Incarnation {
	names := Its(n).callers
	name, made := names[peer]
	if !made {
		name = Its(n).Key.For(peer)
		names[peer] = name
	}
	return name
}

// nameTo is the name that this life of n has for a node that it may call. It takes two hashes, and is asked for with
// every message, so it is made once.
func nameTo(n *world.Node, to int32) effects.Incarnation {
	for len(Its(n).names) <= int(to) {
		Its(n).names = append(Its(n).names, effects.Incarnation{})
	}
	if Its(n).names[to] == (effects.Incarnation{}) {
		init, alloc := world.AddressOf(to, effects.ChannelInit), world.AddressOf(to, effects.ChannelAlloc)
		Its(n).names[to] = Its(n).Key.To(init.Host, init.Port, alloc.Port)
	}
	return Its(n).names[to]
}
