package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/world"
)

// An incarnation uses a separate name for each peer. Only the incarnation and that peer know the name. Strangers know
// what any node can learn: the public names of the incarnations that are running.

// LifeOf returns the node that in its present incarnation uses the given name towards some peer, or nil if there is
// none.
func (w *Cluster) LifeOf(name effects.Incarnation) *world.Node {
	for _, n := range w.Nodes[:w.Ranks] {
		if n.Up && IsNameOf(n, name) {
			return n
		}
	}
	return nil
}

// Named reports whether the sender n uses the name us towards some receiver.
func (w *Cluster) Named(n *world.Node, us effects.Incarnation) bool {
	return IsNameOf(n, us) && slices.ContainsFunc(w.Nodes[:w.Ranks],
		func(to *world.Node) bool { return nameTo(n, to.ID) == us })
}

// Believes reports whether a message that claims to be from peer also names n by the name that only that peer knows.
// Any other message is a stranger's, and must change nothing. A name that merely begins like n's name is not enough,
// because strangers change real messages at any position.
func Believes(n *world.Node, peer, us effects.Incarnation) bool {
	return IsNameOf(n, us) && nameFor(n, peer) == us
}

// nameFor returns the name that this incarnation of n uses towards a caller. The name costs two hashes, so the result
// is stored for each caller.
func nameFor(n *world.Node, peer effects.Incarnation) effects.Incarnation {
	names := Its(n).callers
	name, made := names[peer]
	if !made {
		name = Its(n).Key.InboundName(peer)
		names[peer] = name
	}
	return name
}

// nameTo returns the name that this incarnation of n uses towards a node that it calls. The name costs two hashes and
// is needed for each message, so the result is stored.
func nameTo(n *world.Node, to int32) effects.Incarnation {
	for len(Its(n).names) <= int(to) {
		Its(n).names = append(Its(n).names, effects.Incarnation{})
	}
	if Its(n).names[to] == (effects.Incarnation{}) {
		init, alloc := world.AddressOf(to, effects.ChannelInit), world.AddressOf(to, effects.ChannelAlloc)
		Its(n).names[to] = Its(n).Key.OutboundName(init.Host, init.Port, alloc.Port)
	}
	return Its(n).names[to]
}
