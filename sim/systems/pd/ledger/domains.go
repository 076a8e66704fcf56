package ledger

import (
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Where nodes tell trust domains apart, strangers of other domains send false chunks under the keys of the nodes' chunks.
// The content of such a chunk has no stamps, and no chunk of a node is without them, so that the content of a page tells
// from which domain it is.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkDomainReady = oracle.NewCheck("S32", "domains of readable chunks")
	checkDomainLease = oracle.NewCheck("S32", "domains of leased chunks")
)

// domainOracle judges of which domain the chunks are that an engine may get and that peers read.
type domainOracle struct{ oracleBase }

func (*domainOracle) subscribe(l *oracle.Subscriptions[domainOracle]) {
	oracle.On(l, func(o *domainOracle, _ *oracle.Call, e world.LeasingPages) { o.checkLease(e.Node, e.Grant) })
}

// isForeign reports whether a page holds a false chunk of a stranger.
func isForeign(p *world.Page) bool { return p.Stamps[0] == 0 }

// isForeignRequest reports whether a request is of a peer of another domain, so that it concerns no chunk of a node.
func (o *domainOracle) isForeignRequest(request uint64) bool {
	return o.w.Requests[request-1].Realm != 0
}

// mayBeForeign reports whether a page holds a false chunk of a stranger, in a run in which peers of its domain may have it.
func (o *domainOracle) mayBeForeign(p *world.Page) bool {
	return o.w.SourcePlan.Topology.Domains && isForeign(p)
}

// verifyReady checks that a page that becomes readable under the hash of a node's chunk holds no chunk of another domain.
func (o *domainOracle) verifyReady(n *world.Node, page uint32) {
	if !o.w.SourcePlan.Topology.Domains {
		return
	}
	if o.countJudged(checkDomainReady); isForeign(&n.Pool.Pages[page]) {
		o.fail(checkDomainReady, "node %d makes page %d readable for its engine, with a chunk of another trust domain", n.AsSubject(),
			n.PageSubject(page))
	}
}

// checkLease checks that a peer of a domain is lent no chunk of another domain.
func (o *domainOracle) checkLease(n *world.Node, g *world.Grant) {
	if !o.w.SourcePlan.Topology.Domains {
		return
	}
	own, known := pd.IsOfOwnDomain(o.w, n, g.Peer)
	if !known {
		o.countVoid(checkDomainLease)
		return
	}
	for _, p := range g.Pages {
		o.countJudged(checkDomainLease)
		switch foreign := isForeign(&n.Pool.Pages[p.Index]); {
		case own && foreign:
			o.fail(checkDomainLease, "node %d leases page %d with a chunk of another trust domain to a peer of its own", n.AsSubject(),
				n.PageSubject(p.Index))
			return
		case !own && !foreign:
			o.fail(checkDomainLease, "node %d leases page %d with a chunk of its trust domain to a peer of another", n.AsSubject(),
				n.PageSubject(p.Index))
			return
		}
	}
}
