package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// prefixLeases holds the read leases of chunks that peers request by key. Each operation has a single lease at a time.
// The pages of the lease hold the first of the requested chunks.
type prefixLeases struct {
	leases map[lookupKey]effects.GrantID `snap:"skip"` // by the requesting peer's operation and the incarnation of the owner
}

// lookupKey identifies an operation: the incarnation of a node that received the request, and the incarnation of the
// peer that sent the request.
type lookupKey struct {
	node        int32
	incarnation uint32
	peer        effects.Incarnation
	operation   uint64
}

// resetLeases empties the leases for a run.
func (p *prefixLeases) resetLeases() { p.leases = world.RecycleMap(p.leases) }

// prefixReply is a reply that names a lease.
type prefixReply struct {
	lookupKey
	keys    [][]byte // the requested keys
	id      effects.GrantID
	lease   effects.Duration // the remaining time in the reply
	indexes []int64
}

// verifyReply judges a reply when the reply is sent, and reports whether the reply is right. The last two arguments
// fail the run: the first is called if the lease is wrong, and the second if the pages are wrong.
func (p *prefixLeases) verifyReply(or *oracleBase, n *world.Node, t *prefixReply, failSame,
	failPrefix func(format string, args ...any)) (ok bool) {
	if p.leases == nil {
		p.leases = map[lookupKey]effects.GrantID{}
	}
	lastID := p.leases[t.lookupKey]
	if g := n.Grants[lastID]; g != nil && g.ID != t.id && or.w.IsLeaseLive(n, g) {
		failSame("node %d leases chunks to operation %d under grant %d that were leased to the operation under %d",
			n.AsSubject(), t.operation, n.GrantSubject(t.id), n.GrantSubject(g.ID))
		return false
	}
	if lastID != t.id {
		or.oracles().prompt.verifyLease(n, t.peer, t.id)
	}
	p.leases[t.lookupKey] = t.id
	g := n.Grants[t.id]
	if g == nil || !g.Read {
		failSame("node %d replies with grant %d, which is no read lease of the node", n.AsSubject(), n.GrantSubject(t.id))
		return false
	}
	if until := or.w.ReadClock(n).Add(t.lease); until > g.ExpiresAt {
		failSame("node %d replies that grant %d is in force for %d ns longer than it is",
			n.AsSubject(), n.GrantSubject(t.id), until.Sub(g.ExpiresAt))
		return false
	}
	for i, page := range g.Pages {
		k, known := or.w.Keys.NumberOf(t.keys[min(i, len(t.keys)-1)])
		stamp := g.Lease.FirstStamps[i]
		holds := known && stamp.Key() == k || or.w.SourcePlan.Topology.Domains && stamp == 0 // domainOracle judges to which peer
		if i >= len(t.keys) || i >= len(t.indexes) || !holds || t.indexes[i] != int64(page.Index) {
			failPrefix("node %d leases page %d under grant %d, and the page does not hold the requested chunk %d",
				n.AsSubject(), n.PageSubject(page.Index), n.GrantSubject(t.id), i)
			return false
		}
	}
	return true
}

// recordReadDone records that a reader reports the end of reads under a lease. The result is a transfer that may still
// read under the lease, and nil if there is none.
func (j *oracleBase) recordReadDone(n *world.Node, to protocol.UUID, id uint64) *world.Transfer {
	for _, t := range j.w.Active.Transfers.Items {
		if t.Read && t.LocalInUse && t.Local == n.Pool && uint64(t.Grant) == id && protocol.UUID(t.Link.Peer) == to {
			return t
		}
	}
	for _, t := range j.w.Transfers {
		if t.Read && t.Lease != nil && t.Local == n.Pool && uint64(t.Grant) == id {
			t.Lease.Lease.DoneSent = true
		}
	}
	return nil
}
