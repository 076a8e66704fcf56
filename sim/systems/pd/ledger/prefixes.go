package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// prefixes holds the read leases of chunks that peers request by key. Each operation has a single lease at a time. The
// pages of the lease hold the first of the requested chunks.
type prefixes struct {
	leases map[asking]effects.GrantID `snap:"skip"` // by the requesting peer's operation and the incarnation of the owner
}

// asking identifies an operation: the incarnation of a node that received the request, and the incarnation of the peer
// that sent the request.
type asking struct {
	node      int32
	life      uint32
	who       effects.Incarnation
	operation uint64
}

// begin empties the leases for a run.
func (p *prefixes) begin() { p.leases = world.Emptied(p.leases) }

// prefixTold is a reply that names a lease.
type prefixTold struct {
	asking
	keys    [][]byte // the requested keys
	id      effects.GrantID
	lease   effects.Duration // the remaining time in the reply
	indexes []int64
}

// answered judges a reply when the reply is sent, and reports whether the reply is right. The last two arguments fail
// the run: the first is called if the lease is wrong, and the second if the pages are wrong.
func (p *prefixes) answered(or *judge, n *world.Node, t *prefixTold, same,
	prefix func(format string, args ...any)) (right bool) {
	if p.leases == nil {
		p.leases = map[asking]effects.GrantID{}
	}
	was := p.leases[t.asking]
	if g := n.Grants[was]; g != nil && g.ID != t.id && or.w.Standing(n, g) {
		same("node %d leases to operation %d under grant %d what it leased to it under %d",
			n.It(), t.operation, n.ItsGrant(t.id), n.ItsGrant(g.ID))
		return false
	}
	if was != t.id {
		or.all().prompt.leasing(n, t.who, t.id)
	}
	p.leases[t.asking] = t.id
	g := n.Grants[t.id]
	if g == nil || !g.Read {
		same("node %d answers with grant %d, which it never gave to read", n.It(), n.ItsGrant(t.id))
		return false
	}
	if until := or.w.Clock(n).Add(t.lease); until > g.Ends {
		same("node %d says that grant %d stands for %d ns longer than it does",
			n.It(), n.ItsGrant(t.id), until.Sub(g.Ends))
		return false
	}
	for i, page := range g.Pages {
		k, known := or.w.Keys.Number(t.keys[min(i, len(t.keys)-1)])
		if i >= len(t.keys) || i >= len(t.indexes) || !known || g.Loan.Held[i].Key() != k ||
			t.indexes[i] != int64(page.Index) {
			prefix("node %d leases page %d under grant %d, which is not of chunk %d that was asked for",
				n.It(), n.ItsPage(page.Index), n.ItsGrant(t.id), i)
			return false
		}
	}
	return true
}

// lastWord records that a reader reports the end of reads under a lease. The result is a transfer that may still read
// under the lease, and nil if there is none.
func (j *judge) lastWord(n *world.Node, to protocol.UUID, id uint64) *world.Transfer {
	for _, t := range j.w.Going.Transfers.Some {
		if t.Read && t.Reading && t.Local == n.Pool && uint64(t.Grant) == id && protocol.UUID(t.Link.Peer) == to {
			return t
		}
	}
	for _, t := range j.w.Transfers {
		if t.Read && t.Under != nil && t.Local == n.Pool && uint64(t.Grant) == id {
			t.Under.Loan.Said = true
		}
	}
	return nil
}
