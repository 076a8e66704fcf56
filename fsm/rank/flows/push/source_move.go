package push

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// becomeMoving starts the one batched write. NotAfter lies before the end of the grant: the lease counts from
// when the answered request was sent, by this rank's clock, less LeaseGuard (M4).
func (f *Source) becomeMoving(e *flow.Env, h table.Handle, p *outgoing) {
	lease := e.Cfg.Lease
	if f.reply.HasExt {
		lease = effects.Duration(min(f.reply.Ext.LeaseNS, 1<<62))
	}
	p.phase, p.Conn = sourceMoving, 0
	to, who := e.Links.Of(p.Peer).Link()
	gather := effects.Gather{}
	if p.chunks {
		e.Out.Mark(Marks.PutTogether)
		gather.Pages, gather.Layers = f.layers, p.Layers
		_, gather.Stripes = p.layout(e)
	}
	p.transfer.Begin(&e.Env, effects.Transfer{
		Link: to, Peer: who, Grant: p.Grant, Pairs: f.pairs, Gather: gather, Since: p.since,
		NotAfter: min(p.Deadline, p.asked.Add(lease-e.Cfg.LeaseGuard)),
	}, sourceRef(sourceTransfer, h))
}

// onTransferDone handles the end of a transfer. If the put has an outcome already (deadline, abort), only the
// memory is returned and the grant is given back.
func (f *Source) onTransferDone(e *flow.Env, h table.Handle, ev *effects.TransferDone) {
	p := f.puts.Get(h)
	if ev.Code == effects.PeerLost || ev.Code == effects.Stale {
		// The link cannot be used any more, whether or not a LinkLost event follows.
		if now, _ := e.Links.Of(p.Peer).Link(); p.transfer.Over(now) {
			e.Links.Fail(&e.Env, p.Peer, ev.Code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Theirs: "gone"})
		}
	}
	if ev.Code != effects.OK {
		p.Blame(ev.Code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Ours: ev.Code.String()})
	}
	if !p.transfer.Done(ev) {
		e.Out.Mark(Marks.Unsettled)
		p.phase = sourceSettling
		p.aborting = true
		if !p.Delivered() {
			p.deliverHeld(e, ev.Code)
		}
		return
	}
	if p.Held() {
		p.Return(e)
	}
	switch {
	case p.Delivered():
		f.giveBack(e, h, p)
	case ev.Code != effects.OK:
		e.Out.Mark(Marks.TransferFailed)
		f.fail(e, h, p, ev.Code)
	case e.Cfg.Leased && p.Listens:
		// The bytes have arrived, but on a leased plane the receiver knows that only by the commit.
		f.becomeCommitting(e, h, p)
	default:
		// On a fenced plane the receiver has confirmed the landing. A receiver that takes no commits is sent
		// none.
		p.deliver(e, effects.OK)
		f.end(e, h, p)
	}
}

// onSettled handles the notification, after an unsettled transfer, that nothing touches the pages any more.
func (f *Source) onSettled(e *flow.Env, ref kernel.Ref) {
	p := f.puts.Get(ref.Subject)
	p.transfer.Settled()
	p.Return(e)
	f.giveBack(e, ref.Subject, p)
}

// onCommitted handles the reply to a commit or to an abort.
func (f *Source) onCommitted(e *flow.Env, h table.Handle, p *outgoing, body []byte) {
	m := &f.reply
	code, why := effects.Malformed, effects.Why{Field: "AllocResponse", Theirs: "no answer to a commit"}
	if err := m.Decode(body, &e.Cfg.Wire); err == nil && m.HasExt {
		code = effects.Withdrawn
		why = effects.Why{
			Field: "grant", Ours: "written, and committed", Theirs: "over before that", Said: effects.Words(m.Ext.Reason),
		}
		for _, id := range m.Ext.Committed {
			if effects.GrantID(id) == p.Grant {
				code = effects.OK
			}
		}
	}
	if !p.Delivered() {
		if code != effects.OK {
			e.Out.Mark(Marks.CommitGone)
			p.Blame(code, why)
		}
		p.deliver(e, code)
	}
	f.end(e, h, p)
}
