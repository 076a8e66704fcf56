package ledger

import (
	"bytes"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Where chunks have tenants, no message of a node may name a chunk of a tenant that the process at the other end lacks,
// whatever the message is and in whatever field the name stands. Messages that a node must refuse are judged by
// trustOracle.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkTenantTold    = oracle.NewCheck("S31", "names of chunks in messages")
	checkTenantLease   = oracle.NewCheck("S31", "tenants of leased chunks")
	checkKeysReader    = oracle.NewCheck("S31", "identities to which names of chunks are sent")
	checkTenantCommand = oracle.NewCheck("S31", "commands that name chunks of another tenant")
)

// tenantOracle judges of which tenants nodes send names of chunks.
type tenantOracle struct{ oracleBase }

func (*tenantOracle) subscribe(l *oracle.Subscriptions[tenantOracle]) {
	oracle.On(l, func(o *tenantOracle, _ *oracle.Call, e world.SendingRequest) {
		o.checkBody(e.Node, e.Body, o.w.ServerProof(e.Conn).Tenants, "a request")
		o.checkConn(e)
	})
	oracle.On(l, func(o *tenantOracle, _ *oracle.Call, e world.SendingReply) {
		o.checkBody(e.Node, e.Body, o.w.Requests[e.Request-1].Tenants, "a reply")
	})
	oracle.On(l, func(o *tenantOracle, _ *oracle.Call, e world.ForbiddenEnded) {
		for i := range e.Effects.Len() {
			if x, ok := e.Effects.At(i).(*effects.Reply); ok && x.Request == e.Event.Request {
				o.checkBody(e.Node, x.Body, e.Event.Tenants, "a refusal")
			}
		}
	})
	oracle.On(l, func(o *tenantOracle, _ *oracle.Call, e world.LeasingPages) { o.checkLease(e.Node, e.Grant) })
	oracle.On(l, func(o *tenantOracle, _ *oracle.Call, e pd.CommandOutcome) {
		o.checkCommand(e.Node, e.Effect, e.Command)
	})
}

// tenantMark is what stands before the digits of a tenant in a key.
//
//kvferry:table
var tenantMark = []byte("@kvft%")

// checkBody checks that a message of n names no chunk of a tenant that the other end lacks.
func (o *tenantOracle) checkBody(n *world.Node, body []byte, may *effects.Tenants, what string) {
	if n.Custom || len(o.w.SourcePlan.Topology.Tenants) == 0 {
		return
	}
	for rest := body; ; {
		_, after, found := bytes.Cut(rest, tenantMark)
		if !found {
			return
		}
		if rest = after; len(after) < 16 {
			continue
		}
		tenant, err := strconv.ParseUint(string(after[:16]), 16, 64)
		if err != nil {
			continue
		}
		if o.countJudged(checkTenantTold); !may.Has(effects.Tenant(tenant)) {
			o.fail(checkTenantTold, "node %d names a chunk of tenant %s in %s to a process with the tenants %s", n.AsSubject(),
				effects.Tenant(tenant), what, may)
			return
		}
	}
}

// checkConn checks that a request that names chunks is sent on a connection that was opened for the identity of the
// server. The driver sends nothing on it to a process of another identity that has the address later.
func (o *tenantOracle) checkConn(e world.SendingRequest) {
	server := o.w.ServerProof(e.Conn).Principal
	if e.Node.Custom || server == 0 || len(pd.KeysIn(e.Conn.Channel, e.Body)) == 0 {
		return
	}
	if o.countJudged(checkKeysReader); e.Conn.OnlyTo != server {
		o.fail(checkKeysReader, "node %d names chunks in a request on connection %d, which was opened for identity %d, and its server "+
			"proves %d", e.Node.AsSubject(), oracle.Conn(e.Conn.ID), e.Conn.OnlyTo, server)
	}
}

// checkLease checks that a node leases no page with a chunk of a tenant that the reader lacks. Plain readers have all
// tenants.
func (o *tenantOracle) checkLease(n *world.Node, g *world.Grant) {
	if len(o.w.SourcePlan.Topology.Tenants) == 0 {
		return
	}
	reader := o.w.NodeOfIncarnation(g.Peer)
	if reader == nil {
		return
	}
	for _, p := range g.Pages {
		key := n.Pool.Pages[p.Index].Stamps[0].Key()
		if int(key) >= len(o.w.Keys) {
			continue
		}
		tenant := effects.Tenant(protocol.TenantOf(o.w.Keys[key]))
		if o.countJudged(checkTenantLease); !reader.Proof.Tenants.Has(tenant) {
			o.fail(checkTenantLease, "node %d leases page %d with a chunk of tenant %s to node %d, which has the tenants %s",
				n.AsSubject(), n.PageSubject(p.Index), tenant, reader.AsSubject(), reader.Proof.Tenants)
			return
		}
	}
}

// checkCommand checks that a node's own engine gets nothing of a tenant that the node lacks.
func (o *tenantOracle) checkCommand(n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !pd.LacksOwnTenant(n, c.Body) {
		return
	}
	if o.countJudged(checkTenantCommand); e.Code == effects.OK || e.Hits > 0 {
		o.fail(checkTenantCommand, "node %d ends ticket %d (%s) as %s with %d chunks of a tenant that the node lacks",
			n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, e.Code, e.Hits)
	}
}
