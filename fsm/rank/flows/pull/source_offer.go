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

// becomeOffering sends the PullReadyNotif. Before that it grants the lease, unless the lease stands already. So a
// done message, however early it arrives, finds a lease to end. A retry names the same lease, which began with
// the first message whatever became of that.
func (f *Source) becomeOffering(e *flow.Env, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	p.phase, p.Conn = sourceOffering, conn
	f.puts.Tries(&p.Row)
	if p.lease.Out() {
		p.lease.Spoke()
	} else {
		peer := p.Meet(e)
		p.Listens = peer.Withdrawals()
		to := lease.Reader{Who: p.Who, Us: p.Us, Keeps: peer.Leases()}
		p.lease.Grant(&e.Env, p.Pages, to, f.cfg.PullTTL, sourceRef(sourceLease, h))
	}
	m := &f.offer
	p.message(e, m, &f.cfg)
	m.PullID, m.Shape, m.LastChunkTokens = p.id, p.Shape(&e.Cfg.Layout), p.LastTokens
	m.Ext.Attempt, m.Ext.Request = p.Attempt, e.Commands.Request(p.Request)
	m.Ext.PatienceNS = uint64(max(0, min(e.Cfg.AllocTimeout, p.Deadline.Sub(e.Now))))
	m.Ext.Grant, m.Ext.GrantedNS = p.lease.Terms()
	m.Ext.LeaseNS = uint64(f.cfg.PullTTL)
	m.Ext.Renew = f.cfg.RenewURL
	for i, page := range p.Pages {
		m.Keys = append(m.Keys, p.Key(i))
		m.SenderUUIDs = append(m.SenderUUIDs, e.Cfg.Buffer)
		m.SenderIndexes = append(m.SenderIndexes, int64(page.Index))
		m.Ext.Generations = append(m.Ext.Generations, uint64(page.Generation))
	}
	p.Send(e, m.Append(e.Out.Arena()), nil, sourceRef(sourceOffer, h), sourceRef(sourceAnswer, h))
}

// sendWithdrawal sends the message that takes the put's offer back. (A reader that is reading an eager offer
// learns of the withdrawal from its read.)
func (f *Source) sendWithdrawal(e *flow.Env, h table.Handle, conn effects.Conn) {
	p := f.puts.Get(h)
	p.Conn = conn
	m := &f.offer
	p.message(e, m, &f.cfg)
	m.PullID, m.Shape, m.LastChunkTokens = protocol.PullID{}, e.Cfg.Layout.Shape, 0
	m.Ext.Withdraw = append(m.Ext.Withdraw, p.id)
	m.Ext.Code, m.Ext.Reason = p.Reason()
	p.Send(e, m.Append(e.Out.Arena()), nil, sourceRef(sourceWithdraw, h), sourceRef(sourceAnswer, h))
}

// message resets m to a message to the put's peer that offers nothing yet.
func (p *outgoing) message(e *flow.Env, m *protocol.PullReadyNotif, cfg *SourceConfig) {
	m.SenderID, m.SenderDoneURL = cfg.SenderID, cfg.DoneURL
	m.Keys, m.SenderUUIDs, m.SenderIndexes = m.Keys[:0], m.SenderUUIDs[:0], m.SenderIndexes[:0]
	m.Format, m.Dtype = e.Cfg.Layout.Format, e.Cfg.Layout.Dtype
	m.HasExt = true
	m.Ext = protocol.PullReadyExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.Us), To: protocol.UUID(p.Who), Operation: p.Operation,
		Generations: m.Ext.Generations[:0], Withdraw: m.Ext.Withdraw[:0], Stamps: e.Links.Of(p.Peer).Stamps(e.Now),
	}
}

// onUnanswered handles the end of a message to which no reply came.
func (f *Source) onUnanswered(e *flow.Env, ref kernel.Ref, code effects.Code) {
	h := ref.Subject
	p := f.puts.Get(h)
	p.Unanswered(e, p.lane())
	if ref.Kind == sourceWithdraw {
		p.Conn = 0
		f.finish(e, h, p)
		return
	}
	f.puts.Charge(&p.Row)
	p.Conn = 0
	switch {
	case p.Delivered():
		f.answered(e, h, p)
	case p.read || !p.lease.Stands():
		p.Blame(put.NoAnswer(code), put.HungUp(e, code))
		f.finishUnanswered(e, h, p, put.NoAnswer(code))
	case p.Failed < e.Cfg.AttemptsMax:
		e.Out.Mark(Marks.OfferAgain)
		f.becomeWaiting(e, h, p)
	default:
		p.Blame(put.NoAnswer(code), put.HungUp(e, code))
		f.withdraw(e, h, p, put.NoAnswer(code))
	}
}

// onReplied handles a reply, and frees the place on the lane for the next message.
func (f *Source) onReplied(e *flow.Env, ref kernel.Ref, body []byte) {
	h := ref.Subject
	p := f.puts.Get(h)
	p.Answered(e, p.lane())
	if ref.Kind == sourceWithdraw {
		f.finish(e, h, p) // The content of the reply has no effect.
		return
	}
	e.Breakers.Answered(e.Now, p.Where)
	p.Conn = 0
	f.onAck(e, h, p, body)
}

// onAck handles the reply to an offer.
func (f *Source) onAck(e *flow.Env, h table.Handle, p *outgoing, body []byte) {
	m := &f.ack
	if err := m.Decode(body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(put.Marks.ReplyMalformed)
		p.Malformed(e, p.stage(), link.Undecodable(err))
		f.withdraw(e, h, p, effects.Malformed)
		return
	}
	// A peer without our extensions names no incarnation; a peer with them answers for its own incarnation only.
	its := m.HasExt && effects.Incarnation(m.Ext.Incarnation) == p.Who || !m.HasExt && p.Who == (effects.Incarnation{})
	if its && m.HasExt {
		if _, who := e.Links.Of(p.Peer).Link(); who == p.Who {
			e.Links.Of(p.Peer).Seen(m.Ext.Stamps)
		}
	}
	code, why := effects.OK, effects.Why{}
	switch {
	case m.HasExt && m.Ext.Code != 0:
		code, why = effects.CodeFromWire(m.Ext.Code), put.RefusalOf(effects.Words(m.Ext.Reason))
	case m.AllocFailed:
		code, why = effects.NoMemory, effects.Why{Field: "alloc_failed", Theirs: "true"}
	case !its:
		code, why = effects.Malformed, effects.Why{Field: "kvf_inc", Theirs: "not of the life that shook hands"}
	case !ascending(m.AlreadySent, p.Size()):
		e.Out.Mark(put.Marks.ReplySenseless)
		code, its = effects.Malformed, false // A senseless reply is no statement that nothing will be read.
		why = effects.Why{
			Field: "already_sent_indexes", Ours: "below " + strconv.Itoa(p.Size()) + ", each beyond the one before,",
			Theirs: "others",
		}
	}
	if code != effects.OK {
		p.Blame(code, why)
		f.onRefused(e, h, p, code, its && !m.Ext.Delayed)
		return
	}
	p.phase = sourceOffered
	p.Skipped = uint32(len(m.AlreadySent))
	p.Sent = uint32(p.Size()) - p.Skipped
	if p.Sent == 0 {
		e.Out.Mark(put.Marks.AllSkipped)
		p.endLease(e)
	}
	if p.Delivered() {
		e.Out.Mark(put.Marks.ReplyAfterOutcome)
		f.answered(e, h, p)
		return
	}
	p.deliver(e, effects.OK)
	f.answered(e, h, p)
}

// onRefused ends an offer that was refused. its reports that the refusal is the reader's statement that nothing
// reads the pages; then the lease ends too. Otherwise the lease ends with a done message or with its time.
func (f *Source) onRefused(e *flow.Env, h table.Handle, p *outgoing, code effects.Code, its bool) {
	e.Out.Mark(put.Marks.AllocFailed)
	why := put.AtStage(effects.StageOffer, put.Said(f.ack.Ext.Reason))
	if code == effects.Stale {
		// The incarnation that got the offer is gone. The pages cannot be offered to its successor before they
		// have been returned.
		e.Out.Mark(put.Marks.AskedStale)
		p.failLink(e, effects.Stale, why)
		code, its = effects.PeerLost, false
		p.Blame(code, effects.Why{Field: "life", Theirs: "new (it has restarted since the offer)", Said: why.Said})
	}
	if its && code == effects.Expired && !p.Delivered() && p.lease.Stands() &&
		(p.Failed < e.Cfg.AttemptsMax || !p.compared) {
		// The comparison of the two clocks was too old, for example after an hour without a message. By now the
		// reader has this rank's newest clock reading.
		p.compared = true
		e.Out.Mark(Marks.OfferAgain)
		f.becomeWaiting(e, h, p)
		return
	}
	if p.Refused(e, code, why.Said) { // This precedes the sending of the next put on the lane.
		f.stopLeftAlone(e, p.Peer)
	}
	if !its {
		f.withdraw(e, h, p, code)
		return
	}
	if code == effects.Expired {
		// The comparison of the two clocks may be too old for any offer: a new handshake renews it.
		p.failLink(e, effects.Expired, why)
	}
	p.endLease(e)
	p.phase, p.withdrawn = sourceOffered, false
	if !p.Delivered() {
		p.deliver(e, code)
	}
	f.answered(e, h, p)
}

// failLink gives up the link to which a reply refers. If the reply is late, that link may be gone already, and a
// later attempt, of which the reply knows nothing, may be in progress or may have reached another incarnation;
// then failLink has no effect.
func (p *outgoing) failLink(e *flow.Env, code effects.Code, why effects.Why) {
	if p.Met(e) {
		e.Links.Fail(&e.Env, p.Peer, code, why)
	}
}

// ascending reports whether all indexes are below n and strictly ascending.
func ascending(indexes []int64, n int) bool {
	last := int64(-1)
	for _, i := range indexes {
		if i <= last || i >= int64(n) {
			return false
		}
		last = i
	}
	return true
}
