package rank

import "github.com/kvferry/kvferry/effects"

// nameFor is the name that a rank has for another, where each is reached at its host, ports 1 and 2.
func nameFor(a *Rank, at string, b *Rank, to string) effects.Incarnation {
	if a.cfg.Role.Sends() {
		return a.cfg.Key.To(to, 1, 2)
	}
	return a.cfg.Key.For(b.cfg.Key.To(at, 1, 2))
}

// tokenBytes are those behind each blob that a peer is told.
const tokenBytes = 16

func (r *rig) nameFor(a, b *node) effects.Incarnation { return nameFor(a.rank, a.name, b.rank, b.name) }

// namesSaid are the names in a message that somebody says to n as inc, to whom he takes for to. Who is no rank knows no
// name: it says what everybody may know of a life.
func (r *rig) namesSaid(n *node, inc, to string) (effects.Incarnation, effects.Incarnation) {
	from, whom := r.who(inc), r.who(to)
	speaker := r.find(inc)
	if speaker != nil && speaker != n {
		from = r.nameFor(speaker, n)
	}
	if to == n.name && speaker != nil && speaker != n {
		whom = r.nameFor(n, speaker)
	}
	return from, whom
}

func (r *rig) find(name string) *node {
	for _, n := range r.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// peerOf is whom a plane calls somebody who was let in as inc.
func (r *rig) peerOf(n *node, inc string) effects.Incarnation {
	who, _ := r.namesSaid(n, inc, n.name)
	return who
}
