package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/world"
)

// An incarnation uses a separate name for each peer. Only the incarnation and that peer know the name. Strangers know
// what any node can learn: the public names of the incarnations that are running.

// NodeOfIncarnation returns the node that in its present incarnation uses the given name towards some peer, or nil if
// there is none.
func (w *Cluster) NodeOfIncarnation(name effects.Incarnation) *world.Node {
	for _, n := range w.Nodes[:w.RankCount] {
		if n.Up && IsNameOf(n, name) {
			return n
		}
	}
	return nil
}

// IsSenderName reports whether the sender n uses the name ownName towards some receiver.
func (w *Cluster) IsSenderName(n *world.Node, ownName effects.Incarnation) bool {
	return IsNameOf(n, ownName) && slices.ContainsFunc(w.Nodes[:w.RankCount],
		func(to *world.Node) bool { return nameForCallee(n, to.ID) == ownName })
}

// IsGenuine reports whether a message that claims to be from peer also names n by the name that only that peer knows.
// Any other message is a stranger's, and must change nothing. A name that merely begins like n's name is not enough,
// because strangers change real messages at any position.
func IsGenuine(n *world.Node, peer, ownName effects.Incarnation) bool {
	return IsNameOf(n, ownName) && nameForCaller(n, peer) == ownName
}

// nameForCaller returns the name that this incarnation of n uses towards a caller. The name costs two hashes, so the
// result is stored for each caller.
func nameForCaller(n *world.Node, peer effects.Incarnation) effects.Incarnation {
	names := InfoOf(n).callerNames
	name, ok := names[peer]
	if !ok {
		name = InfoOf(n).Key.InboundName(peer)
		names[peer] = name
	}
	return name
}

// nameForCallee returns the name that this incarnation of n uses towards a node that it calls. The name costs two
// hashes and is needed for each message, so the result is stored.
func nameForCallee(n *world.Node, to int32) effects.Incarnation {
	for len(InfoOf(n).calleeNames) <= int(to) {
		InfoOf(n).calleeNames = append(InfoOf(n).calleeNames, effects.Incarnation{})
	}
	if InfoOf(n).calleeNames[to] == (effects.Incarnation{}) {
		init, alloc := world.AddressOf(to, effects.ChannelInit), world.AddressOf(to, effects.ChannelAlloc)
		InfoOf(n).calleeNames[to] = InfoOf(n).Key.OutboundName(init.Host, init.Port, alloc.Port)
	}
	return InfoOf(n).calleeNames[to]
}
