package push

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// startWrite starts the one batched write. NotAfter lies before the end of the grant: the lease counts from
// when the answered request was sent, by this rank's clock, less LeaseGuard (M4).
func (f *Source) startWrite(e *flow.Env, h table.Handle, p *putRow) {
	lease := e.Cfg.Lease
	if f.reply.HasExt {
		lease = effects.Duration(min(f.reply.Ext.LeaseNS, 1<<62))
	}
	p.phase, p.Conn = putWriting, 0
	p.EnterPhase(e, effects.PhaseWire)
	currentLink, currentID := e.Links.IncarnationOf(p.Peer).Link()
	gather := effects.Gather{}
	if p.namesChunks {
		e.Out.Mark(Marks.PutTogether)
		gather.Pages, gather.Layers = f.gatherPages, p.Layers
		_, gather.Stripes = p.remoteLayout(e)
	}
	p.transfer.Begin(&e.Env, effects.Transfer{
		Link: currentLink, Peer: currentID, Grant: p.Grant, Pairs: f.pairs, Gather: gather, Since: p.firstSentAt,
		NotAfter: min(p.Deadline, e.AccessEnd(p.sentAt, lease)),
	}, sourceRef(kindTransfer, h))
}

// onTransferDone handles the end of a transfer. If the put has an outcome already (deadline, abort), only the
// memory is returned and the grant is given back.
func (f *Source) onTransferDone(e *flow.Env, h table.Handle, ev *effects.TransferDone) {
	p := f.puts.Get(h)
	if ev.Code == effects.PeerLost || ev.Code == effects.Stale {
		// The link cannot be used any more, whether or not a LinkLost event follows.
		if currentLink, _ := e.Links.IncarnationOf(p.Peer).Link(); p.transfer.UsesLink(currentLink) {
			e.Links.FailPeer(&e.Env, p.Peer, ev.Code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Theirs: "gone"})
		}
	}
	if ev.Code != effects.OK {
		p.SetReason(ev.Code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Ours: ev.Code.String()})
	}
	if !p.transfer.OnDone(ev) {
		e.Out.Mark(Marks.Unsettled)
		p.phase = putSettling
		p.abortGrant = true
		if !p.IsDelivered() {
			p.deliverHeld(e, ev.Code)
		}
		return
	}
	if p.IsHeld() {
		p.ReturnPages(e)
	}
	switch {
	case p.IsDelivered():
		f.returnGrant(e, h, p)
	case ev.Code != effects.OK:
		e.Out.Mark(Marks.TransferFailed)
		f.failPut(e, h, p, ev.Code)
	case e.Cfg.Leased && p.AcceptsFinal:
		// The bytes have arrived, but on a leased plane the receiver knows that only by the commit.
		f.queueCommit(e, h, p)
	default:
		// On a fenced plane the receiver has confirmed the landing. A receiver that takes no commits is sent
		// none.
		p.deliverOutcome(e, effects.OK)
		f.removePut(e, h, p)
	}
}

// onSettled handles the notification, after an unsettled transfer, that nothing touches the pages any more.
func (f *Source) onSettled(e *flow.Env, ref kernel.Ref) {
	p := f.puts.Get(ref.Subject)
	p.transfer.OnSettled()
	p.ReturnPages(e)
	f.returnGrant(e, ref.Subject, p)
}

// handleCommitReply handles the reply to a commit or to an abort.
func (f *Source) handleCommitReply(e *flow.Env, h table.Handle, p *putRow, body []byte) {
	m := &f.reply
	code, why := effects.Malformed, effects.Why{Field: "AllocResponse", Theirs: "no answer to a commit"}
	if err := m.Decode(body, &e.Cfg.Wire); err == nil && m.HasExt {
		code = effects.Withdrawn
		why = effects.Why{
			Field: "grant", Ours: "written, and committed", Theirs: "over before that", Said: effects.SanitizeText(m.Ext.Reason),
		}
		if effects.CodeFromWire(m.Ext.Code) == effects.Corrupt {
			code = effects.Corrupt
			why.Ours, why.Theirs = "written, and committed", "other bytes than were put"
		}
		for _, id := range m.Ext.Committed {
			if effects.GrantID(id) == p.Grant {
				code = effects.OK
			}
		}
	}
	if !p.IsDelivered() {
		if code != effects.OK {
			e.Out.Mark(Marks.CommitGone)
			p.SetReason(code, why)
		}
		p.deliverOutcome(e, code)
	}
	f.removePut(e, h, p)
}
