package rank

import "github.com/kvferry/kvferry/effects"

// nameFor is the name that a rank has for another, where each is reached at its host, ports 1 and 2.
func nameFor(a *Rank, at string, b *Rank, to string) effects.Incarnation {
	if a.cfg.Role.Sends() {
		return a.cfg.Key.OutboundName(to, 1, 2)
	}
	return a.cfg.Key.InboundName(b.cfg.Key.OutboundName(at, 1, 2))
}

// tokenBytes are those behind each blob that a peer is told.
const tokenBytes = 16

func (r *rig) nameFor(a, b *node) effects.Incarnation { return nameFor(a.rank, a.name, b.rank, b.name) }

// statedNames are the names in a message that somebody says to n as inc, to whom he takes for to. Who is no rank knows
// no name: it says what everybody may know of a life.
func (r *rig) statedNames(n *node, inc, to string) (effects.Incarnation, effects.Incarnation) {
	from, addressee := r.incarnationOf(inc), r.incarnationOf(to)
	speaker := r.find(inc)
	if speaker != nil && speaker != n {
		from = r.nameFor(speaker, n)
	}
	if to == n.name && speaker != nil && speaker != n {
		addressee = r.nameFor(n, speaker)
	}
	return from, addressee
}

func (r *rig) find(name string) *node {
	for _, n := range r.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// planePeerName is whom a plane calls somebody who was let in as inc.
func (r *rig) planePeerName(n *node, inc string) effects.Incarnation {
	who, _ := r.statedNames(n, inc, n.name)
	return who
}
