package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
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
	checkDomainGot   = oracle.NewCheck("S32", "chunks of a domain that a get states")
	checkDomainFound = oracle.NewCheck("S32", "chunks of a stated domain that are here")
)

// domainOracle judges of which domain the chunks are that an engine may get and that peers read.
type domainOracle struct {
	oracleBase
	perIncarnation[domainState]
}

// domainState records the chunks of other domains that an engine has stated, by the hash of the key in that domain.
type domainState struct{ stated map[uint64]statedChunk }

// A statedChunk is a chunk that an engine gets from a domain, and the page in which it last became readable.
type statedChunk struct {
	realm   effects.Realm
	key     []byte
	isReady bool
	page    effects.Page
}

func (q *domainState) clearForReuse() { *q = domainState{stated: world.RecycleMap(q.stated)} }

func (*domainOracle) subscribe(l *oracle.Subscriptions[domainOracle]) {
	oracle.On(l, func(o *domainOracle, _ *oracle.Call, e world.LeasingPages) { o.checkLease(e.Node, e.Grant) })
	oracle.On(l, func(o *domainOracle, _ *oracle.Call, e pd.CommandGiven) {
		if e.Command.Kind == pd.WantOfDomain {
			o.recordStated(e.Node, e.Command)
		}
	})
	oracle.On(l, func(o *domainOracle, _ *oracle.Call, e world.FactObserved) {
		if e.Effect.Fact == effects.FactReady && o.w.SourcePlan.Topology.Domains {
			o.recordReady(e.Node, e.Effect.ID)
		}
	})
	oracle.On(l, func(o *domainOracle, _ *oracle.Call, e pd.GetOfDomain) {
		if o.verifyGot(e.Node, e.Command.Pages); e.Effect != nil && o.w.Failure == nil {
			o.verifyFound(e.Node, e.Effect, e.Command)
		}
	})
}

// statedIn returns the trust domain and the key that a command states.
func statedIn(c *pd.Command) (effects.Realm, []byte) {
	switch b := c.Body.(type) {
	case *engine.Get:
		return b.Realm, b.Keys[0]
	case *engine.Contains:
		return b.Realm, b.Keys[0]
	}
	panic("BUG: a command of another kind")
}

func (o *domainOracle) recordStated(n *world.Node, c *pd.Command) {
	realm, key := statedIn(c)
	hash := pd.KeyHashIn(n, realm, key)
	if _, known := o.stateOf(n).stated[hash]; known {
		return
	}
	if o.stateOf(n).stated == nil {
		o.stateOf(n).stated = map[uint64]statedChunk{}
	}
	x := statedChunk{realm: realm, key: key}
	x.page, x.isReady = pd.ReadyIn(n, realm, key)
	o.stateOf(n).stated[hash] = x
}

// recordReady records the page of a chunk of another domain that became readable, if an engine has stated the domain.
func (o *domainOracle) recordReady(n *world.Node, hash uint64) {
	x, known := o.stateOf(n).stated[hash]
	if !known {
		return
	}
	x.page, x.isReady = pd.ReadyIn(n, x.realm, x.key)
	o.stateOf(n).stated[hash] = x
}

// verifyGot checks that the pages that an engine got from another domain hold a chunk of a stranger.
func (o *domainOracle) verifyGot(n *world.Node, pages []effects.Page) {
	for _, p := range pages {
		if o.countJudged(checkDomainGot); !isForeign(&n.Pool.Pages[p.Index]) {
			o.fail(checkDomainGot, "node %d gives page %d to an engine that states another trust domain, with a chunk of the node's own",
				n.AsSubject(), n.PageSubject(p.Index))
			return
		}
	}
}

// verifyFound checks that a chunk of a stated domain is found if it is here, and only if it was: a chunk that is not found
// is in no page any more.
func (o *domainOracle) verifyFound(n *world.Node, e *effects.Deliver, c *pd.Command) {
	realm, key := statedIn(c)
	x := o.stateOf(n).stated[pd.KeyHashIn(n, realm, key)]
	isMiss := e.Code == effects.NotFound || e.Code == effects.Lapsed || e.Code == effects.OK && e.Hits == 0
	switch s := pd.PageStateOf(n, x.page.Index); {
	case e.Hits > 0 && !x.isReady:
		o.fail(checkDomainFound, "node %d finds a chunk of the domain that the engine states, which no peer of the domain sent",
			n.AsSubject())
	case e.Hits == 0 && !isMiss || !x.isReady:
		o.countVoid(checkDomainFound)
		return
	case isMiss && s.Refs > 0 && s.Generation == x.page.Generation:
		o.fail(checkDomainFound, "node %d finds no chunk of the domain that the engine states, and has it in page %d", n.AsSubject(),
			n.PageSubject(x.page.Index))
	}
	o.countJudged(checkDomainFound)
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
