package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// What processes prove on their connections, where a plan lists identities.

// proofOfNode returns what a node proves: its identity, with the roles of all nodes that have that identity.
func (w *Cluster) proofOfNode(n *world.Node) (proof world.Proof) {
	all := w.SourcePlan.Topology.Identities
	if int(n.ID) >= len(all) {
		return proof
	}
	proof.Principal = world.PrincipalOf(all[n.ID])
	for i, identity := range all {
		if identity == all[n.ID] {
			proof.Roles |= w.rolesNeeded(plan.Node(i))
		}
	}
	if tenants := w.SourcePlan.Topology.Tenants; len(tenants) > 0 {
		var list []effects.Tenant
		for i, identity := range all {
			if identity == all[n.ID] {
				list = append(list, tenantsOf(tenants[i])...)
			}
		}
		proof.Tenants = effects.NewTenants(list...)
	}
	return proof
}

// rolesNeeded returns the roles that a node needs for what it does in the plan.
func (w *Cluster) rolesNeeded(i plan.Node) (roles effects.Roles) {
	for _, f := range w.Flows {
		if f.NeededRoles != nil {
			return f.NeededRoles(w.SourcePlan, i)
		}
	}
	if w.SourcePlan.IsSender(i) {
		roles |= effects.RolePrefill
	}
	if w.SourcePlan.IsReceiver(i) {
		roles |= effects.RoleDecode
	}
	return roles
}

// drawForbidden draws the time for which the policy of the other nodes gives the identity of a node no role, as after a
// mistake in the policy.
func (w *Cluster) drawForbidden(n *world.Node) (from, until int64) {
	p := w.SourcePlan
	if int(n.ID) >= len(p.Topology.Identities) || draw.IsFixed(p.Seed) {
		return 0, 0
	}
	d := draw.Hash(p.Seed, draw.Noise, 7, uint64(p.Topology.Identities[n.ID]))
	if !d.ChancePermille(150) {
		return 0, 0
	}
	from = int64(d.Rehash().Below(uint64(p.FaultsEnd)))
	return from, min(from+int64(d.Rehash().Rehash().Below(uint64(p.FaultsEnd)/4)), int64(p.FaultsEnd))
}

// mayPut reports whether the policy lets a node send chunks to another one.
func (w *Cluster) mayPut(from, to int) bool {
	return len(w.SourcePlan.Topology.Identities) == 0 ||
		w.Nodes[from].Proof.Roles.Has(effects.RolePrefill) && w.Nodes[to].Proof.Roles.Has(effects.RoleDecode)
}

// newStranger returns the stranger that causes a scheduled fault.
func newStranger(w *Cluster, n *world.Node, f *plan.ScheduledFault) stranger {
	d := draw.Value(f.Pick)
	return stranger{w, n, d, w.DrawStrangerProof(draw.Hash(w.Seed, draw.Noise, 4, uint64(f.At)^f.Pick<<40))}
}

// conn returns the id of a new connection of a greedy stranger.
func (s stranger) conn() uint64 {
	number := uint64(len(s.w.Requests))
	if s.proof == 0 {
		return 1<<52 | number
	}
	return 1<<52 | world.StrangerConn(s.proof, number)
}

// actsForOther reports whether two names are those of a peer of a node, and the stranger proves another identity than
// the peer, so that a message of the stranger in these names must change nothing.
func (s stranger) actsForOther(from, to effects.Incarnation) bool {
	if len(s.w.SourcePlan.Topology.Identities) == 0 {
		return false
	}
	n := s.w.NodeOfIncarnation(to)
	if n == nil {
		return false
	}
	owner, _ := s.w.ownerOfNames(n, from, to)
	return owner != 0 && owner != s.w.ProofOf(s.proof).Principal
}

// send sends a message to s.n. The first hello under a name decides whose name it is, and a stranger that knows the
// name of a node could say that hello if the node has not done so since s.n started. Nothing prevents that, so no
// stranger does it here.
func (s stranger) send(channel effects.Channel, b []byte) {
	var hello protocol.HixlInitRequest
	if hello.Decode(b, &WireLimits) == nil && hello.HasExt {
		name := effects.Incarnation(hello.Ext.Incarnation)
		if len(s.w.SourcePlan.Topology.Identities) > 0 && !KnowsPeer(s.n, name) {
			return
		}
	}
	s.w.SendFromStranger(s.n, s.proof, channel, b)
}

// forgeHello sends a hello in the name of a node that has said hello to s.n before. The result is false if there is no
// such node.
func (s stranger) forgeHello() bool {
	w, n, d := s.w, s.n, s.d.Rehash().Rehash()
	if !n.IsReceiver() && !n.OffersChunks {
		return false
	}
	var names []effects.Incarnation
	for _, from := range w.Nodes[:w.RankCount] {
		if name := nameForCallee(from, n.ID); from != n && from.Up && from.Proof.Principal != s.w.ProofOf(s.proof).Principal &&
			KnowsPeer(n, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return false
	}
	w.Result.CountFault(plan.FaultHostileMessage)
	var geometry []uint64
	if f := w.Flows.ExclusivePart(); f != nil {
		geometry = f.Geometry(w, n)
	}
	b := helloMessage(n, names[d.Below(uint64(len(names)))], geometry)
	var hello protocol.HixlInitRequest
	if draw.Hash(uint64(d), draw.Noise, 6, 0).ChancePermille(300) && hello.Decode(b, &WireLimits) == nil {
		hello.Ext.PageBytes++ // The hello would not fit if it were the peer's.
		b = hello.Append(nil)
	}
	s.send(effects.ChannelInit, b)
	return true
}

// repeatWithoutRole sends s.n an overheard message as it is, on the channel on which nodes send it, if s proves an
// identity without the role for the message. The message must change nothing (S28), and its reply must tell nothing.
func (s stranger) repeatWithoutRole(d draw.Value) {
	w, n := s.w, s.n
	proof := w.ProofOf(s.proof)
	if proof.Principal == 0 || !d.ChancePermille(300) {
		return
	}
	b := w.Overheard[d.Rehash().Below(uint64(len(w.Overheard)))]
	if k := d.Rehash().Rehash(); k.ChancePermille(200) { // Nodes send some of these to plain peers alone.
		all := [][]byte{new(protocol.HixlMemInfoRequest).Append(nil), new(protocol.P2PInitSideMsg).Append(nil),
			new(protocol.AscendQueryDonePortMsg).Append(nil)}
		b = all[k.Rehash().Below(uint64(len(all)))]
	}
	channel, ok := channelOf(b)
	e := &effects.Received{Channel: channel, Body: b}
	if !ok || !slices.Contains(n.Listens, channel) || proof.Roles.Has(rolesFor(n, e)) {
		return
	}
	w.Result.CountFault(plan.FaultHostileMessage)
	s.send(channel, append([]byte(nil), b...))
}

// channelOf returns the channel on which nodes send a message.
func channelOf(b []byte) (effects.Channel, bool) {
	tag, err := protocol.PeekTag(b, &WireLimits)
	if err != nil {
		return 0, false
	}
	//exhaustive:ignore
	switch tag {
	case protocol.TagHixlInitRequest, protocol.TagHixlMemInfoRequest, protocol.TagHixlReadyRequest, protocol.TagP2PInitSideMsg,
		protocol.TagRenewRequest:
		return effects.ChannelInit, true
	case protocol.TagAllocRequest, protocol.TagPullReadyNotif, protocol.TagEndRequest:
		return effects.ChannelAlloc, true
	case protocol.TagCacheQueryRequest:
		return effects.ChannelQuery, true
	case protocol.TagAscendBatchedLookupAndGetMsg, protocol.TagAscendQueryDonePortMsg:
		return effects.ChannelLookup, true
	case protocol.TagPullDoneSignal:
		return effects.ChannelDone, true
	default:
		return 0, false
	}
}

// KnowsPeer reports whether a peer has said hello to n under a name, and n's machine has kept that since.
func KnowsPeer(n *world.Node, name effects.Incarnation) bool {
	r, ok := n.Machine.(*rank.Rank)
	return ok && r.KnowsPeer(name)
}

// namesIn returns the names that a message states of its sender and of its receiver. The result is false if the bytes
// are no message that states names.
func (w *Cluster) namesIn(b []byte) (from, to effects.Incarnation, ok bool) {
	if kind, m := w.Flows.decodeSenderMessage(b, 0); kind != nil && m.From != nil {
		return effects.Incarnation(*m.From), effects.Incarnation(*m.To), true
	}
	var alloc protocol.AllocRequest
	if alloc.Decode(b, &WireLimits) == nil && alloc.HasExt {
		return effects.Incarnation(alloc.Ext.Incarnation), effects.Incarnation(alloc.Ext.To), true
	}
	return from, to, false
}

// A provenName is a name under which a peer shook hands with a node, and the first identity that did so.
type provenName struct {
	name      effects.Incarnation
	principal effects.Principal
}

// findName returns the record of a name, or nil.
func (x *RankInfo) findName(name effects.Incarnation) *provenName {
	for i := range x.provenNames {
		if x.provenNames[i].name == name {
			return &x.provenNames[i]
		}
	}
	return nil
}

// recordHello records the identity that sent a hello under a name, unless the name belongs to another identity.
func (x *RankInfo) recordHello(name effects.Incarnation, principal effects.Principal, wasKnown bool) {
	known := x.findName(name)
	if known == nil {
		x.provenNames = append(x.provenNames, provenName{name: name})
		known = &x.provenNames[len(x.provenNames)-1]
	}
	if !wasKnown || known.principal == 0 {
		known.principal = principal
	}
}

// IsOfOwnDomain reports whether the peer that has a name at n is of the nodes' trust domain. known is false if no peer
// said hello under the name.
func IsOfOwnDomain(w *Cluster, n *world.Node, name effects.Incarnation) (own, known bool) {
	if w.NodeOfIncarnation(name) != nil {
		return true, true
	}
	x := InfoOf(n).findName(name)
	return x != nil && w.IsPrincipalOfNodes(x.principal), x != nil
}

// ForbidMessage reports whether a message must change nothing, because its sender lacks the role for it, because it names
// chunks of a tenant that its sender or n lacks, or because its sender has another identity than the peer in whose name
// it is.
func (w *Cluster) ForbidMessage(n *world.Node, e *effects.Received) (f world.Forbidden) {
	info := InfoOf(n)
	var hello protocol.HixlInitRequest
	isHello := e.Channel == effects.ChannelInit && hello.Decode(e.Body, &WireLimits) == nil && hello.HasExt
	name := effects.Incarnation(hello.Ext.Incarnation)
	from, to, isNamed := w.namesIn(e.Body)
	owner, isPeer := effects.Principal(0), false
	if isNamed {
		owner, isPeer = w.ownerOfNames(n, from, to)
	}
	known, wasKnown := info.findName(name), isHello && KnowsPeer(n, name)
	switch {
	case e.Principal != 0 && !e.Roles.Has(rolesFor(n, e)):
		return world.Forbidden{Is: true, Kind: world.NoRole, IsCoded: isHandshakeWith(n, e) || isNamed && isRequestFor(n, e)}
	case w.lacksTenant(n, e):
		return world.Forbidden{Is: true, Kind: world.OtherTenant, IsCoded: isNamed && isRequestFor(n, e)}
	case wasKnown && known != nil && known.principal != 0 && known.principal != e.Principal:
		return world.Forbidden{Is: true, Kind: world.OtherHello, IsCoded: true, Hidden: info.Key.InboundName(name)}
	case owner != 0 && owner != e.Principal:
		return world.Forbidden{Is: true, Kind: world.OtherIdentity, IsCoded: isPeer && isRequestFor(n, e), MayBeOld: !KnowsPeer(n, from)}
	case isHello:
		info.recordHello(name, e.Principal, wasKnown)
	}
	return f
}

// isHandshakeWith reports whether a message is for the part of n that answers handshakes, whatever it says. A renewal of
// leases is not, and its reply has no code.
func isHandshakeWith(n *world.Node, e *effects.Received) bool {
	var renewal protocol.RenewRequest
	return e.Channel == effects.ChannelInit && InfoOf(n).Cfg.Role.Receives() && renewal.Decode(e.Body, &WireLimits) != nil
}

// rolesFor returns the roles of which the sender of a message needs at least one, or all roles if it needs none.
func rolesFor(n *world.Node, e *effects.Received) effects.Roles {
	const engines = effects.RolePrefill | effects.RoleDecode
	cfg := &InfoOf(n).Cfg
	switch e.Channel {
	case effects.ChannelInit:
		var renewal protocol.RenewRequest
		switch {
		case cfg.Shares:
			return engines
		case cfg.Role.Sends() && renewal.Decode(e.Body, &WireLimits) == nil:
			return effects.RoleDecode
		case !cfg.Role.Receives():
			return effects.AllRoles
		case cfg.Geometry != nil:
			return effects.RoleDecode
		}
		return effects.RolePrefill
	case effects.ChannelAlloc, effects.ChannelQuery:
		return effects.RolePrefill
	case effects.ChannelDone, effects.ChannelRegister:
		return effects.RoleDecode
	case effects.ChannelLookup, effects.ChannelPeerDone:
		return engines
	default:
		return effects.AllRoles
	}
}

// ownerOfNames returns the principal to which two names in a message to n belong, or 0 if they belong to nobody. isPeer
// reports whether the names are those of a peer that shook hands with n; otherwise n shook hands with the peer.
func (w *Cluster) ownerOfNames(n *world.Node, from, to effects.Incarnation) (owner effects.Principal, isPeer bool) {
	if IsGenuine(n, from, to) {
		if known := InfoOf(n).findName(from); known != nil {
			return known.principal, true
		}
		return 0, true
	}
	if peer := w.NodeOfIncarnation(from); peer != nil && nameForCallee(n, peer.ID) == to {
		return peer.Proof.Principal, false
	}
	return 0, false
}

// isRequestFor reports whether a message is a request of a kind that n answers with a code on the message's channel.
func isRequestFor(n *world.Node, e *effects.Received) bool {
	if !slices.Contains(n.Listens, e.Channel) {
		return false
	}
	decodes := func(all ...protocol.Message) bool {
		return slices.ContainsFunc(all, func(m protocol.Message) bool { return m.Decode(e.Body, &WireLimits) == nil })
	}
	switch e.Channel {
	case effects.ChannelAlloc:
		return decodes(new(protocol.AllocRequest), new(protocol.PullReadyNotif), new(protocol.EndRequest))
	case effects.ChannelQuery:
		return decodes(new(protocol.CacheQueryRequest))
	case effects.ChannelLookup:
		return decodes(new(protocol.AscendBatchedLookupAndGetMsg))
	case effects.ChannelRegister:
		return decodes(new(protocol.PushRegistration), new(protocol.PushWithdrawal), new(protocol.PushKeep))
	default:
		return false
	}
}
