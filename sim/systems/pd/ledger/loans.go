package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A node that lends chunks leases pages to the peers that look the chunks up or recall them. No peer has more leases,
// or more leased pages, than the peer leaves free, and no request is refused, and no prefix is cut, without that need.
// A lease lasts as long as configured, neither less nor more, unless the reader gives it back or is gone.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkLoanShare   = oracle.NewCheck("S18", "shares of leases on request")
	checkLoanPages   = oracle.NewCheck("S18", "shares of pages that are leased on request")
	checkLoanRefused = oracle.NewCheck("L3", "leases on request that are refused for lack of room")
	checkLoanCut     = oracle.NewCheck("L3", "prefixes that are cut to the share of a peer")
	checkLoanStated  = oracle.NewCheck("L3", "times that replies state for leases on request")
	checkLoanEarly   = oracle.NewCheck("L3", "leases on request that are revoked before their time")
	checkLoanLate    = oracle.NewCheck("L2", "leases on request that outlive their time")
	checkLoanPins    = oracle.NewCheck("L2", "pins of pages that no peer may read")
)

// loanOracle judges the leases that peers request.
type loanOracle struct {
	oracleBase
	perIncarnation[loanState]
	lookup      protocol.AscendBatchedLookupAndGetMsg    `snap:"scratch"`
	lookupReply protocol.AscendBatchedLookupAndGetRetMsg `snap:"scratch"`
	query       protocol.CacheQueryRequest               `snap:"scratch"`
	queryReply  protocol.CacheQueryResponse              `snap:"scratch"`
}

func (*loanOracle) subscribe(l *oracle.Subscriptions[loanOracle]) {
	oracle.On(l, func(o *loanOracle, _ *oracle.Call, e world.LeasingPages) {
		if e.Grant.Lease.OnRequest {
			o.verifyLease(e.Node, e.Grant)
		}
	})
	oracle.On(l, func(o *loanOracle, _ *oracle.Call, e world.LinkLost) { o.recordLinkLost(e.Node, e.Peer) })
	oracle.On(l, func(o *loanOracle, c *oracle.Call, e *effects.Revoke) { o.verifyRevoke(o.nodeOf(c), e.Grant) })
	oracle.On(l, func(o *loanOracle, _ *oracle.Call, e world.MessageReceived) {
		if e.Node.LendsChunks {
			o.recordMessage(e.Node, &e.Delivery)
		}
	})
	oracle.On(l, func(o *loanOracle, _ *oracle.Call, e world.SendingReply) {
		if e.Node.LendsChunks {
			o.verifyReply(e.Node, e.Request, e.Body)
		}
	})
	oracle.On(l, func(o *loanOracle, _ *oracle.Call, e stepCounted) {
		if e.node.LendsChunks {
			o.afterStep(e.node, e.stats)
		}
	})
}

// loanState records the leases on request of an incarnation of a node.
type loanState struct {
	loans []peerLoan `snap:"skip"` // leases that may have a row in the table of the machine
	held  []heldRows `snap:"skip"` // lookups that have rows in the table because the node writes or copies for them
	asked loanRequest
}

func (s *loanState) clearForReuse() { *s = loanState{loans: s.loans[:0], held: s.held[:0]} }

// peerLoan is a lease on request.
type peerLoan struct {
	grant      *world.Grant
	frozen     int64 // how long the node had been frozen when the lease began
	isRecall   bool
	readerLost bool
}

// heldRows is a lookup that the node answers when it has written or copied the chunks.
type heldRows struct {
	request uint64
	peer    effects.Incarnation
	keys    int
}

// loanRequest is the newest lookup or query.
type loanRequest struct {
	request  uint64 `snap:"skip"`
	peer     effects.Incarnation
	isRecall bool
	isPush   bool     // the node writes the chunks
	keys     [][]byte `snap:"scratch"`
	grants   int      `snap:"skip"` // the grants of the node before the step in which the message arrived
}

// limitsOf returns the limits of the table of leases for recalls or for lookups.
func (or *loanOracle) limitsOf(n *world.Node, isRecall bool) (loans, pages int) {
	cfg := &pd.InfoOf(n).Cfg
	if isRecall {
		return int(cfg.RecallsMax), int(cfg.Pages)
	}
	return int(cfg.LoansMax), int(cfg.Share(cfg.LoanSharePct))
}

// countLoans counts the leases of a peer and of all peers, and their pages. Without certainty, leases that may have
// ended and lookups that may have rows are counted, too.
func (or *loanOracle) countLoans(n *world.Node, peer effects.Incarnation, isRecall, certain bool) (ofPeer, total, peerPages, pages int) {
	state := or.stateOf(n)
	for i := range state.loans {
		x := &state.loans[i]
		if x.isRecall != isRecall || certain && (!or.w.IsLeaseLive(n, x.grant) || x.grant.Revoking) {
			continue
		}
		total, pages = total+1, pages+len(x.grant.Pages)
		if x.grant.Peer == peer {
			ofPeer, peerPages = ofPeer+1, peerPages+len(x.grant.Pages)
		}
	}
	if certain || isRecall {
		return ofPeer, total, peerPages, pages
	}
	for i := range state.held {
		x := &state.held[i]
		total, pages = total+1, pages+x.keys
		if x.peer == peer {
			ofPeer, peerPages = ofPeer+1, peerPages+x.keys
		}
	}
	return ofPeer, total, peerPages, pages
}

// verifyLease checks the share of a peer when the node gives a lease to the peer. The copies in an arena have a share of
// their own.
func (or *loanOracle) verifyLease(n *world.Node, g *world.Grant) {
	state := or.stateOf(n)
	isRecall := state.asked.isRecall
	ofPeer, total, peerPages, pages := or.countLoans(n, g.Peer, isRecall, true)
	loansMax, pagesMax := or.limitsOf(n, isRecall)
	if or.countJudged(checkLoanShare, checkLoanPages); ofPeer+total >= loansMax {
		or.fail(checkLoanShare, "node %d gives lease %d to a peer that already has %d of %d leases, in a table of %d",
			n.AsSubject(), n.GrantSubject(g.ID), ofPeer, total, loansMax)
		return
	}
	if most := (pagesMax - pages - peerPages + 1) / 2; n.ArenaPages == 0 && len(g.Pages) > most {
		or.fail(checkLoanPages, "node %d leases %d pages to a peer that has %d of %d, and %d may be leased",
			n.AsSubject(), len(g.Pages), peerPages, pages, pagesMax)
		return
	}
	state.loans = append(state.loans, peerLoan{grant: g, frozen: n.FrozenTime, isRecall: isRecall})
}

// recordLinkLost records that the leases of a peer end early.
func (or *loanOracle) recordLinkLost(n *world.Node, peer effects.Incarnation) {
	loans := or.stateOf(n).loans
	for i := range loans {
		loans[i].readerLost = loans[i].readerLost || loans[i].grant.Peer == peer
	}
}

// verifyRevoke checks that a lease is revoked because of its time, its reader, or the loss of its reader.
func (or *loanOracle) verifyRevoke(n *world.Node, id effects.GrantID) {
	loans := or.stateOf(n).loans
	i := slices.IndexFunc(loans, func(x peerLoan) bool { return x.grant.ID == id })
	if i < 0 {
		return
	}
	x := &loans[i]
	or.countJudged(checkLoanEarly)
	if left := x.grant.ExpiresAt.Sub(or.w.ReadClock(n)); left > 0 && !x.readerLost && !x.grant.Lease.DoneReceived {
		or.fail(checkLoanEarly, "node %d revokes lease %d %d ns before the end of its time", n.AsSubject(), n.GrantSubject(id), left)
	}
}

// recordMessage records a lookup or a query that arrives.
func (or *loanOracle) recordMessage(n *world.Node, d *world.Delivery) {
	state, a := or.stateOf(n), loanRequest{request: d.C, grants: pd.StatsOf(n).Grants}
	//exhaustive:ignore
	switch effects.Channel(d.B) {
	case effects.ChannelLookup:
		m := &or.lookup
		if m.Decode(d.Body, &pd.WireLimits) != nil || !m.HasExt {
			return
		}
		a.peer, a.keys, a.isPush = effects.Incarnation(m.Ext.Incarnation), m.Keys, !m.PullMode
		if !m.PullMode || n.ArenaPages > 0 {
			state.held = append(state.held, heldRows{d.C, a.peer, len(m.Keys)})
		}
	case effects.ChannelQuery:
		m := &or.query
		if m.Decode(d.Body, &pd.WireLimits) != nil || !m.HasExt || len(m.Keys) == 0 {
			return
		}
		a.peer, a.keys, a.isRecall = effects.Incarnation(m.Ext.Incarnation), m.Keys, true
	default:
		return
	}
	state.asked = a
}

// verifyReply checks the reply to a lookup or a query.
func (or *loanOracle) verifyReply(n *world.Node, request uint64, body []byte) {
	state := or.stateOf(n)
	state.held = slices.DeleteFunc(state.held, func(x heldRows) bool { return x.request == request })
	a := &state.asked
	if a.request != request {
		return
	}
	var code effects.Code
	var grant effects.GrantID
	var hits int
	var isCut bool
	var lease effects.Duration
	if a.isRecall {
		m := &or.queryReply
		if m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
			return
		}
		code, grant, hits, lease = effects.CodeFromWire(m.Ext.Code), effects.GrantID(m.Ext.Grant), len(m.CachedKeys),
			effects.Duration(m.Ext.LeaseNS)
	} else {
		m := &or.lookupReply
		if m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
			return
		}
		code, grant, hits, lease = effects.CodeFromWire(m.Ext.Code), effects.GrantID(m.Ext.Grant), int(m.HitChunks),
			effects.Duration(m.LeaseNS())
		isCut = code == effects.OK && len(m.Ext.Reason) > 0
	}
	if g := n.Grants[grant]; g != nil && g.Read {
		or.countJudged(checkLoanStated)
		if short := g.ExpiresAt.Sub(or.w.ReadClock(n)) - lease; short > effects.Microsecond { // The clocks are rounded.
			or.fail(checkLoanStated, "node %d replies that lease %d ends %d ns before it does", n.AsSubject(), n.GrantSubject(grant), short)
			return
		}
	}
	or.verifyNeed(n, a, code, hits, isCut)
}

// verifyNeed checks that a request is refused, or gets fewer chunks than are here, only because of the share of the
// peer.
func (or *loanOracle) verifyNeed(n *world.Node, a *loanRequest, code effects.Code, hits int, isCut bool) {
	ofPeer, total, peerPages, pages := or.countLoans(n, a.peer, a.isRecall, false)
	loansMax, pagesMax := or.limitsOf(n, a.isRecall)
	if code == effects.TooMany {
		// A write or copy for the peer has a limit of its own.
		// Grants that end in the same step may have filled the table before.
		if n.ArenaPages > 0 || max(a.grants, pd.StatsOf(n).Grants) >= int(cmp.Or(pd.InfoOf(n).Cfg.GrantsMax, 4096)) ||
			a.isPush {
			or.countVoid(checkLoanRefused)
			return
		}
		or.countJudged(checkLoanRefused)
		if ofPeer+total < loansMax {
			or.fail(checkLoanRefused, "node %d refuses request %d for lack of room, and the peer has %d of %d leases, in a table of %d",
				n.AsSubject(), oracle.Message(a.request), ofPeer, total, loansMax)
		}
		return
	}
	if code != effects.OK || n.ArenaPages > 0 || a.isPush || hits >= len(a.keys) {
		return
	}
	or.countJudged(checkLoanCut)
	// The lease that the reply names is counted.
	if isCut && (pagesMax-(pages-hits)-(peerPages-hits)+1)/2 > hits {
		or.fail(checkLoanCut, "node %d leases %d chunks for request %d as the share of the peer, which has %d of %d pages, and %d may be leased",
			n.AsSubject(), hits, oracle.Message(a.request), peerPages-hits, pages-hits, pagesMax)
	}
}

// afterStep checks that no lease outlives its time, and that pages are pinned only for leases.
func (or *loanOracle) afterStep(n *world.Node, s *rank.Stats) {
	state := or.stateOf(n)
	if len(state.loans) == 0 && s.Pinned == 0 || n.Busy {
		return
	}
	now, pages := or.w.ReadClock(n), 0
	for i := 0; i < len(state.loans); i++ {
		x := &state.loans[i]
		g, late := x.grant, now.Sub(x.grant.ExpiresAt)-n.FrozenSince(x.frozen)-pd.Grace
		// The pages of a lease whose revocation is under way are pinned until the driver reports its end.
		if g.Lease.Revoked || or.w.Conditions.Leased && (g.Lease.DoneReceived || late > 0 && !g.Revoking) {
			state.loans = slices.Delete(state.loans, i, i+1)
			i--
			continue
		}
		or.countJudged(checkLoanLate)
		if late > 0 && !g.Revoking {
			or.fail(checkLoanLate, "node %d does not revoke lease %d until %d ns after the end of its time",
				n.AsSubject(), n.GrantSubject(g.ID), late)
			return
		}
		pages += len(g.Pages)
	}
	for i := range state.held {
		pages += state.held[i].keys
	}
	or.countJudged(checkLoanPins)
	if s.Pinned > pages {
		or.fail(checkLoanPins, "node %d has %d pins for peers, and %d pages are leased or sent to them", n.AsSubject(), s.Pinned, pages)
	}
}
