package pull

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// sendOffer sends the PullReadyNotif. Before that it grants the lease, unless the lease stands already. So a
// done message, however early it arrives, finds a lease to end. A retry names the same lease, which began with
// the first message whatever became of that.
func (f *Source) sendOffer(e *flow.Env, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	if why := e.Links.IncarnationOf(p.Peer).CheckReceiver(&e.Env, p.Tenant()); why != nil {
		f.forbidPut(e, h, p, conn, why)
		return
	}
	p.phase, p.Conn = putOffering, conn
	p.EnterPhase(e, effects.PhaseOffer)
	f.puts.CountAttempt(&p.Row)
	if p.lease.MayBeRead() {
		p.lease.CountMessage()
	} else {
		peer := p.RecordPeer(e)
		p.AcceptsFinal = peer.AcceptsWithdrawals()
		reader := lease.Reader{Principal: peer.Principal(), PeerID: p.PeerID, SelfID: p.SelfID, KeepsLeases: peer.KeepsLeases()}
		p.lease.GrantPages(&e.Env, p.Pages, reader, f.cfg.PullTTL, sourceRef(kindLease, h))
	}
	m := &f.offer
	p.resetMessage(e, m, &f.cfg)
	m.PullID, m.Shape, m.LastChunkTokens = p.pullID, p.Shape(&e.Cfg.Layout), p.LastTokens
	m.Ext.Attempt, m.Ext.Request = p.Attempt, e.Commands.RequestID(p.Request)
	m.Ext.PatienceNS = uint64(max(0, min(e.Cfg.AllocTimeout, p.Deadline.Sub(e.Now))))
	m.Ext.Grant, m.Ext.GrantedNS = p.lease.Terms()
	m.Ext.LeaseNS = uint64(f.cfg.PullTTL)
	m.Ext.Renew, m.Ext.Trace = f.cfg.RenewURL, p.Trace.Context.Wire()
	for i, page := range p.Pages {
		m.Keys = append(m.Keys, p.Key(i))
		m.SenderUUIDs = append(m.SenderUUIDs, e.Cfg.Buffer)
		m.SenderIndexes = append(m.SenderIndexes, int64(page.Index))
		m.Ext.Generations, m.Ext.Sums = append(m.Ext.Generations, uint64(page.Generation)), effects.AppendSum(m.Ext.Sums, i, page.Sum)
	}
	p.SendRequest(e, m.Append(e.Out.Arena()), nil, sourceRef(kindOffer, h), sourceRef(timerReply, h))
}

// forbidPut ends a put at its turn on the lane, because the peer lacks the tenant of the put. No page is leased and no key
// is sent. If the put was offered before, when the peer had the tenant, the offer is withdrawn.
func (f *Source) forbidPut(e *flow.Env, h table.Handle, p *putRow, conn effects.Conn, why *effects.Why) {
	e.Links.ReturnLane(p.Peer, link.LaneAlloc, conn)
	p.SetReason(effects.Forbidden, *why)
	if p.lease.MayBeRead() {
		f.withdrawOffer(e, h, p, effects.Forbidden)
		return
	}
	p.deliverOutcome(e, effects.Forbidden)
	f.removePut(e, h, p)
}

// sendWithdrawal sends the message that takes the put's offer back. (A reader that is reading an eager offer
// learns of the withdrawal from its read.)
func (f *Source) sendWithdrawal(e *flow.Env, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	p.Conn = conn
	m := &f.offer
	p.resetMessage(e, m, &f.cfg)
	m.PullID, m.Shape, m.LastChunkTokens = protocol.PullID{}, e.Cfg.Layout.Shape, 0
	m.Ext.Withdraw = append(m.Ext.Withdraw, p.pullID)
	m.Ext.Code, m.Ext.Reason = p.ReasonForPeer()
	p.SendRequest(e, m.Append(e.Out.Arena()), nil, sourceRef(kindWithdrawal, h), sourceRef(timerReply, h))
}

// resetMessage resets m to a message to the put's peer that offers nothing yet.
func (p *putRow) resetMessage(e *flow.Env, m *protocol.PullReadyNotif, cfg *SourceConfig) {
	m.SenderID, m.SenderDoneURL = cfg.SenderID, cfg.DoneURL
	m.Keys, m.SenderUUIDs, m.SenderIndexes = m.Keys[:0], m.SenderUUIDs[:0], m.SenderIndexes[:0]
	m.Format, m.Dtype = e.Cfg.Layout.Format, e.Cfg.Layout.Dtype
	m.HasExt = true
	m.Ext = protocol.PullReadyExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.SelfID), To: protocol.UUID(p.PeerID), Operation: p.Operation,
		Generations: m.Ext.Generations[:0], Sums: m.Ext.Sums[:0], Withdraw: m.Ext.Withdraw[:0],
		Stamps: e.Links.IncarnationOf(p.Peer).ClockStamps(e.Now),
	}
}

// onUnanswered handles the end of a message to which no reply came.
func (f *Source) onUnanswered(e *flow.Env, ref kernel.Ref, code effects.Code) {
	h := ref.Subject
	p := f.puts.Get(h)
	p.OnUnanswered(e, p.currentLane())
	if ref.Kind == kindWithdrawal {
		p.Conn = 0
		f.removeIfUnleased(e, h, p)
		return
	}
	f.puts.ChargeConnLoss(&p.Row)
	p.Conn = 0
	switch {
	case p.IsDelivered():
		f.continuePut(e, h, p)
	case p.wasRead || !p.lease.IsInForce():
		p.SetReason(put.NoReplyCode(code), put.NoReplyReason(e, code))
		f.finishUnreplied(e, h, p, put.NoReplyCode(code))
	case p.Failures < e.Cfg.AttemptsMax:
		e.Out.Mark(Marks.OfferAgain)
		f.queuePut(e, h, p)
	default:
		p.SetReason(put.NoReplyCode(code), put.NoReplyReason(e, code))
		f.withdrawOffer(e, h, p, put.NoReplyCode(code))
	}
}

// onReplied handles a reply, and frees the place on the lane for the next message.
func (f *Source) onReplied(e *flow.Env, ref kernel.Ref, body []byte) {
	h := ref.Subject
	p := f.puts.Get(h)
	p.OnReplied(e, p.currentLane())
	if ref.Kind == kindWithdrawal {
		f.removeIfUnleased(e, h, p) // The content of the reply has no effect.
		return
	}
	e.Breakers.CloseTrial(e.Now, p.PeerAddr)
	p.Conn = 0
	f.handleAck(e, h, p, body)
}

// handleAck handles the reply to an offer.
func (f *Source) handleAck(e *flow.Env, h table.Handle, p *putRow, body []byte) {
	m := &f.ack
	if err := m.Decode(body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(put.Marks.ReplyMalformed)
		p.ReportMalformed(e, p.reportStage(), link.DecodeReason(err))
		f.withdrawOffer(e, h, p, effects.Malformed)
		return
	}
	// A peer without our extensions names no incarnation; a peer with them answers for its own incarnation only.
	fromReader := m.HasExt && effects.Incarnation(m.Ext.Incarnation) == p.PeerID || !m.HasExt && p.PeerID == (effects.Incarnation{})
	if fromReader && m.HasExt {
		if _, who := e.Links.IncarnationOf(p.Peer).Link(); who == p.PeerID {
			e.Links.IncarnationOf(p.Peer).RecordStamps(m.Ext.Stamps)
		}
	}
	code, why := effects.OK, effects.Why{}
	switch {
	case m.HasExt && m.Ext.Code != 0:
		code, why = effects.CodeFromWire(m.Ext.Code), put.RefusalReason(effects.SanitizeText(m.Ext.Reason))
	case m.AllocFailed:
		code, why = effects.NoMemory, effects.Why{Field: "alloc_failed", Theirs: "true"}
	case !fromReader:
		code, why = effects.Malformed, effects.Why{Field: "kvf_inc", Theirs: "not the incarnation of the handshake"}
	case !isAscending(m.AlreadySent, p.Size()):
		e.Out.Mark(put.Marks.ReplySenseless)
		code, fromReader = effects.Malformed, false // A senseless reply is no statement that nothing will be read.
		why = effects.Why{
			Field: "already_sent_indexes", Ours: "below " + strconv.Itoa(p.Size()) + ", in ascending order,",
			Theirs: "others",
		}
	}
	if code != effects.OK {
		p.SetReason(code, why)
		f.handleRefusal(e, h, p, code, fromReader && !m.Ext.Delayed)
		return
	}
	p.phase = putOffered
	p.Skipped = uint32(len(m.AlreadySent))
	p.Sent = uint32(p.Size()) - p.Skipped
	if p.Sent == 0 {
		e.Out.Mark(put.Marks.AllSkipped)
		p.endLease(e)
	}
	if p.IsDelivered() {
		e.Out.Mark(put.Marks.ReplyAfterOutcome)
		f.continuePut(e, h, p)
		return
	}
	p.deliverOutcome(e, effects.OK)
	f.continuePut(e, h, p)
}

// handleRefusal ends an offer that was refused. nothingRead reports that the refusal is the reader's statement that
// nothing reads the pages; then the lease ends too. Otherwise the lease ends with a done message or with its time.
func (f *Source) handleRefusal(e *flow.Env, h table.Handle, p *putRow, code effects.Code, nothingRead bool) {
	e.Out.Mark(put.Marks.AllocFailed)
	why := put.AtStage(effects.StageOffer, put.PeerReason(f.ack.Ext.Reason))
	if code == effects.Stale {
		// The incarnation that got the offer is gone. The pages cannot be offered to its successor before they
		// have been returned.
		e.Out.Mark(put.Marks.AskedStale)
		p.failLink(e, effects.Stale, why)
		code, nothingRead = effects.PeerLost, false
		p.SetReason(code, effects.Why{Field: "incarnation", Theirs: "new (the peer has restarted since the offer)", Said: why.Said})
	}
	if nothingRead && code == effects.Expired && !p.IsDelivered() && p.lease.IsInForce() &&
		(p.Failures < e.Cfg.AttemptsMax || !p.clockRetried) {
		// The comparison of the two clocks was too old, for example after an hour without a message. By now the
		// reader has this rank's newest clock reading.
		p.clockRetried = true
		e.Out.Mark(Marks.OfferAgain)
		f.queuePut(e, h, p)
		return
	}
	if p.HandleRefusal(e, code, why.Said) { // This precedes the sending of the next put on the lane.
		f.stopBackedOff(e, p.Peer)
	}
	if !nothingRead {
		f.withdrawOffer(e, h, p, code)
		return
	}
	if code == effects.Expired {
		// The comparison of the two clocks may be too old for any offer: a new handshake renews it.
		p.failLink(e, effects.Expired, why)
	}
	p.endLease(e)
	p.phase, p.withdrawalDue = putOffered, false
	if !p.IsDelivered() {
		p.deliverOutcome(e, code)
	}
	f.continuePut(e, h, p)
}

// failLink gives up the link to which a reply refers. If the reply is late, that link may be gone already, and a
// later attempt, of which the reply knows nothing, may be in progress or may have reached another incarnation;
// then failLink has no effect.
func (p *putRow) failLink(e *flow.Env, code effects.Code, why effects.Why) {
	if p.IsSamePeer(e) {
		e.Links.FailPeer(&e.Env, p.Peer, code, why)
	}
}

// isAscending reports whether all indexes are below n and strictly ascending.
func isAscending(indexes []int64, n int) bool {
	last := int64(-1)
	for _, i := range indexes {
		if i <= last || i >= int64(n) {
			return false
		}
		last = i
	}
	return true
}
