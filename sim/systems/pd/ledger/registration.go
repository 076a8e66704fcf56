package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// When an engine registers blocks, the registration request grants the blocks to the peer that is to write the blocks.
// The reply says that nothing writes any more: on leased planes the reply frees the pages. An engine lends the blocks
// that are finished.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkBlocksGranted     = oracle.NewCheck("S25", "pages that registrations name")
	checkBlocksOnce        = oracle.NewCheck("S14", "registrations under one grant each")
	checkBlocksUnwritten   = oracle.NewCheck("S3", "replies to registrations, at the writer")
	checkBlocksSettled     = oracle.NewCheck("S3", "replies to registrations, at the owner")
	checkWriteOnce         = oracle.NewCheck("S14", "writes of a registration")
	checkWriteSource       = oracle.NewCheck("S14", "source pages of registered writes")
	checkRegistrationsLeft = oracle.NewCheck("L8", "registrations when nothing is in flight")
	checkBlocksShare       = oracle.NewCheck("S18", "shares of registrations")
)

// registrationOracle judges the grants of registered blocks.
type registrationOracle struct {
	oracleBase
	perIncarnation[registrationState]
	registration protocol.PushRegistration `snap:"scratch"`
	withdrawal   protocol.PushWithdrawal   `snap:"scratch"`
	endMessage   protocol.PushEnd          `snap:"scratch"`
}

func (*registrationOracle) subscribe(l *oracle.Subscriptions[registrationOracle]) {
	oracle.On(l, func(o *registrationOracle, _ *oracle.Call, e world.MessageReceived) {
		if effects.Channel(e.Delivery.B) == effects.ChannelRegister {
			o.recordReceived(e.Node, e.Delivery.C, e.Delivery.Body)
		}
	})
	oracle.On(l, func(o *registrationOracle, _ *oracle.Call, e world.ReplyReceived) {
		o.handleReply(e.Node, e.Conn, e.Corr, e.Body)
	})
	oracle.On(l, func(o *registrationOracle, _ *oracle.Call, e world.SendingRequest) {
		if e.Conn.Channel == effects.ChannelRegister {
			o.verifySent(e.Node, e.Conn, e.Corr, e.Body)
		}
	})
	oracle.On(l, func(o *registrationOracle, _ *oracle.Call, e world.SendingReply) {
		o.verifyReply(e.Node, e.Request, e.Body)
	})
	oracle.On(l, func(o *registrationOracle, _ *oracle.Call, e world.PublishingPages) {
		if o.w.Flows.ExclusivePart() != nil {
			o.recordPublished(e.Node, e.Pages)
		}
	})
	oracle.On(l, func(o *registrationOracle, _ *oracle.Call, e world.StartingTransfer) {
		if o.w.Flows.ExclusivePart() != nil {
			o.verifyWrite(e.Node, e.Transfer)
		}
	})
	oracle.On(l, func(o *registrationOracle, _ *oracle.Call, e stepCounted) { o.afterStep(e.node) })
}

// registrationState records the registrations of an incarnation of a node, as a sender and as a receiver.
type registrationState struct {
	sent          []sentRegistration     // requests in flight
	received      []receivedRegistration // received registrations without a reply
	writes        []registrationWrite    // grants under which this incarnation wrote
	grants        []registrationGrant    // of this incarnation
	newestPeer    effects.Incarnation    // the peer whose registration arrived in this step, if the peer is known
	newestRequest uint64                 `snap:"request"` // the message of that registration
}

func (s *registrationState) clearForReuse() {
	*s = registrationState{sent: s.sent[:0], received: s.received[:0], writes: s.writes[:0], grants: s.grants[:0]}
}

// sentRegistration is a request without a reply. The reply ends a grant.
type sentRegistration struct {
	conn      uint64
	corr      effects.Corr
	operation uint64
}

// receivedRegistration is a registration without a reply, as recorded at the receiver.
type receivedRegistration struct {
	request   uint64 `snap:"request"`
	peer      effects.Incarnation
	operation uint64
	grant     effects.GrantID
}

// registrationWrite records that blocks were written to a peer under a grant.
type registrationWrite struct {
	to    effects.Incarnation
	grant effects.GrantID
}

// registrationGrant is the grant of an operation.
type registrationGrant struct {
	operation uint64
	grant     effects.GrantID
}

// grantOf returns the grant of an operation, and whether the operation was registered.
func (s *registrationState) grantOf(operation uint64) (effects.GrantID, bool) {
	for i := range s.grants {
		if s.grants[i].operation == operation {
			return s.grants[i].grant, true
		}
	}
	return 0, false
}

// recordPublished records the pages that an engine lends, when the machine publishes the generation of the pages.
func (or *registrationOracle) recordPublished(n *world.Node, pages []effects.Page) {
	for _, p := range pages {
		pg := &n.Pool.Pages[p.Index]
		pg.Reserved, pg.LastGeneration = or.w.Flows.ExclusivePart().FindLender(or.w, n, p.Index), p.Generation
		n.Pool.UpdateInUse(p.Index)
	}
}

// verifySent checks a registration or a withdrawal when the message is sent.
func (or *registrationOracle) verifySent(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	state := or.stateOf(n)
	if or.withdrawal.Decode(body, &pd.WireLimits) == nil {
		state.sent = append(state.sent, sentRegistration{c.ID, corr, or.withdrawal.Operation})
		return
	}
	m := &or.registration
	if m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
		return
	}
	or.countJudged(checkBlocksGranted, checkBlocksOnce)
	id := effects.GrantID(m.Ext.Grant)
	or.oracles().queue.takeRequestGrant(n, id)
	if lastID, known := state.grantOf(m.Ext.Operation); known && lastID != id {
		or.fail(checkBlocksOnce, "node %d registers an operation under grant %d that was registered under grant %d", n.AsSubject(),
			n.GrantSubject(id), n.GrantSubject(lastID))
		return
	}
	state.grants = append(state.grants, registrationGrant{m.Ext.Operation, id})
	state.sent = append(state.sent, sentRegistration{c.ID, corr, m.Ext.Operation})
	if id == 0 {
		return
	}
	g := n.Grants[id]
	if g == nil || g.Read || m.Ext.Attempt == 1 && !isWritable(n.Pool, g) || len(g.Pages) != len(m.Ext.Generations) {
		or.fail(checkBlocksGranted, "node %d registers blocks under grant %d, which is not in force or has different pages",
			n.AsSubject(), n.GrantSubject(id))
		return
	}
	g.SharedKeys = g.SharedKeys[:0]
	for i := range g.Pages {
		if m.Ext.Generations[i] != uint64(g.Pages[i].Generation) {
			or.fail(checkBlocksGranted, "node %d registers page %d in another generation than the granted one", n.AsSubject(),
				n.PageSubject(g.Pages[i].Index))
			return
		}
		g.SharedKeys = append(g.SharedKeys, 0)
	}
}

// recordReceived records a registration at the receiver.
func (or *registrationOracle) recordReceived(n *world.Node, request uint64, body []byte) {
	m := &or.registration
	if m.Decode(body, &pd.WireLimits) == nil && m.HasExt && // Strangers may send the same message, and are refused.
		pd.IsGenuine(n, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)) {
		state := or.stateOf(n)
		state.newestPeer, state.newestRequest = effects.Incarnation(m.Ext.Incarnation), request
		state.received = append(state.received, receivedRegistration{request, state.newestPeer, m.Ext.Operation, effects.GrantID(m.Ext.Grant)})
	}
}

// afterStep checks that a registration which arrived, and got no reply at once, may wait: no peer has more rows of the
// table than the peer leaves free.
func (or *registrationOracle) afterStep(n *world.Node) {
	state := or.stateOf(n)
	newest := state.newestPeer
	if newest == (effects.Incarnation{}) {
		return
	}
	state.newestPeer = effects.Incarnation{}
	if n := len(state.received); n == 0 || state.received[n-1].request != state.newestRequest || slices.ContainsFunc(state.received[:n-1],
		state.received[n-1].isSame) {
		return // The registration got a reply, or is a retry: peers may have used free rows since the first attempt.
	}
	or.countJudged(checkBlocksShare)
	ofPeer, total := 0, 0
	for i := range state.received {
		x := &state.received[i]
		if slices.ContainsFunc(state.received[:i], x.isSame) {
			continue
		}
		if total++; x.peer == newest {
			ofPeer++
		}
	}
	if limit := int(pd.InfoOf(n).Cfg.RegistrationsMax); ofPeer > 0 && ofPeer+total > limit+1 {
		or.fail(checkBlocksShare, "node %d has %d waiting registrations of a peer, and %d in all, in a table of %d",
			n.AsSubject(), ofPeer, total, limit)
	}
}

// isSame reports whether two messages are attempts of the same registration.
func (x *receivedRegistration) isSame(other receivedRegistration) bool {
	return x.peer == other.peer && x.operation == other.operation
}

// verifyWrite checks a write when the write starts: each registration is written once, from pages that are lent (S14).
func (or *registrationOracle) verifyWrite(n *world.Node, t *world.Transfer) {
	or.countJudged(checkWriteOnce)
	state, x := or.stateOf(n), registrationWrite{t.Link.Peer, t.Grant}
	if slices.Contains(state.writes, x) {
		or.fail(checkWriteOnce, "node %d writes a second time under grant %d", n.AsSubject(), t.Remote.Node.GrantSubject(t.Grant))
		return
	}
	state.writes = append(state.writes, x)
	or.countJudged(checkWriteSource)
	for _, p := range t.Pairs {
		if ticket := n.Pool.Pages[p.Local.Index].Reserved; ticket == 0 || or.w.Commands[ticket-1].Finished {
			or.fail(checkWriteSource, "node %d writes from page %d, whose request has ended", n.AsSubject(),
				n.PageSubject(p.Local.Index))
			return
		}
	}
	if !slices.ContainsFunc(state.received, func(c receivedRegistration) bool { return c.grant == t.Grant }) {
		or.fail(checkWriteOnce, "node %d writes under grant %d without a waiting registration for the grant", n.AsSubject(),
			t.Remote.Node.GrantSubject(t.Grant))
	}
}

// verifyReply checks a reply when the reply is sent: nothing writes under the grant any more (S3).
func (or *registrationOracle) verifyReply(n *world.Node, request uint64, body []byte) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.received, func(x receivedRegistration) bool { return x.request == request })
	if i < 0 {
		return
	}
	x := state.received[i]
	state.received = slices.DeleteFunc(state.received, x.isSame) // Retries share one reply.
	or.countJudged(checkBlocksUnwritten)
	for _, t := range or.w.Active.Transfers.Items {
		if !t.Read && t.LocalInUse && t.Local == n.Pool && t.Grant == x.grant && t.Link.Peer == x.peer {
			or.fail(checkBlocksUnwritten, "node %d replies to a registration while transfer %d may still write under grant %d",
				n.AsSubject(), oracle.Transfer(t.ID), t.Remote.Node.GrantSubject(x.grant))
			return
		}
	}
}

// handleReply handles a reply at the peer that granted the pages: on leased planes nothing writes the pages any more
// (S3).
func (or *registrationOracle) handleReply(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.sent, func(x sentRegistration) bool { return x.conn == c.ID && x.corr == corr })
	if i < 0 {
		return
	}
	operation := state.sent[i].operation
	state.sent = slices.Delete(state.sent, i, i+1)
	id, _ := state.grantOf(operation)
	m, g := &or.endMessage, n.Grants[id]
	if !or.w.Conditions.Leased || g == nil || m.Decode(body, &pd.WireLimits) != nil || m.Operation != operation ||
		m.Incarnation != protocol.UUID(g.Peer) || saysNothingOfWrites(effects.CodeFromWire(m.Code)) {
		return
	}
	or.countJudged(checkBlocksSettled)
	g.LateCommit = or.w.ReadClock(n) > g.ExpiresAt
	for _, p := range g.Pages {
		pg := &n.Pool.Pages[p.Index]
		if pg.Granted != id {
			continue
		}
		if pg.Writers > 0 {
			or.fail(checkBlocksSettled, "node %d receives the reply for grant %d while a store into page %d is in flight",
				n.AsSubject(), n.GrantSubject(id), n.PageSubject(p.Index))
			return
		}
		pg.Granted = 0
		n.Pool.UpdateInUse(p.Index)
	}
}

// saysNothingOfWrites reports whether a reply with this code leaves open whether something still writes under the grant.
// A writer that does not know the owner knows nothing of the writes of an earlier incarnation. A writer that forbids a
// message has not looked for the write. Example: the owner withdraws a registration on a new connection that proves
// another identity than its first connection; the writer forbids the withdrawal while a store of the registration is late.
func saysNothingOfWrites(code effects.Code) bool {
	return code == effects.Stale || code == effects.Forbidden
}

// verifyRest checks that no registration is left at a node when nothing is in flight.
func (or *registrationOracle) verifyRest(n *world.Node, stats int) {
	or.countJudged(checkRegistrationsLeft)
	if stats > 0 {
		or.fail(checkRegistrationsLeft, "node %d has %d registrations or requests left although nothing is in flight",
			n.AsSubject(), stats)
	}
}
