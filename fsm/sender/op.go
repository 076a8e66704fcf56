package sender

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
)

// An op is a command for which an engine hands memory over. It has one outcome, and its memory goes back once:
// before the outcome, with it, or after it if the outcome says Held. It holds its pages from the command on, so that
// no Release frees them while anything may touch them. What does is for its owner to know, who says Held, and calls
// returnPages when nothing does any more.
type op struct {
	ticket    effects.Ticket
	pages     []effects.Page // none any more when they went back
	patience  effects.Duration
	deadline  effects.Time
	timer     kernel.TimerID `snap:"set"`
	delivered bool
	held      bool         // the outcome left the memory with us: a Return is due
	blamed    effects.Code // why is of this code
	why       *effects.Why // made when something failed
}

// begin takes the pages of a command; it reuses the memory of the op that was here before.
func (o *op) begin(v *env.Env, t effects.Ticket, pages []effects.Page, patience effects.Duration) {
	*o = op{ticket: t, pages: append(o.pages[:0], pages...), patience: patience, deadline: v.Now.Add(patience)}
	for _, page := range pages {
		v.Filled().Hold(page)
	}
}

// deliver gives the op its one outcome, and its memory unless d says that it is held.
func (o *op) deliver(v *env.Env, d effects.Deliver) {
	if o.delivered {
		panic("BUG: a put had two outcomes")
	}
	o.delivered = true
	v.Timers.Stop(&o.timer)
	o.held = d.Held && len(o.pages) > 0 // What was copied went back before.
	d.Ticket, d.Held, d.Pages = o.ticket, o.held, o.pages
	if !o.held {
		o.unhold(v)
	}
	v.Out.Deliver(d)
}

// returnPages gives the memory back apart from the outcome, before it or after it. Nothing touches it any more.
func (o *op) returnPages(v *env.Env) {
	if len(o.pages) == 0 {
		panic("BUG: the memory of a put went back twice")
	}
	o.unhold(v)
	o.held = false
	v.Out.Return(o.ticket)
}

func (o *op) unhold(v *env.Env) {
	for _, page := range o.pages {
		v.Filled().Unhold(page)
	}
	o.pages = o.pages[:0]
}

// mustBeOver panics unless the op has its outcome and its engine has the memory.
func (o *op) mustBeOver() {
	if !o.delivered || o.held {
		panic("BUG: a put ended before its outcome or its memory")
	}
}

// blame notes what is to be said of the op if it ends with this code.
func (o *op) blame(code effects.Code, why effects.Why) {
	if !o.delivered {
		o.blamed, o.why = code, &why
	}
}

// blameLink does so with what the link room knows.
func (o *op) blameLink(peer *link.Outbound, code effects.Code) {
	if why := peer.Why(); why != nil && !o.delivered {
		o.blamed, o.why = code, why
	}
}

// because is what is said of an op that ends with a code other than OK; at says whom it was about, and how far it is.
func (o *op) because(code effects.Code, at effects.Why) *effects.Why {
	if o.why != nil && o.blamed == code && o.why.Addr != (effects.Addr{}) {
		return o.why // It is whole, and others may have it.
	}
	var w effects.Why
	if o.why != nil && o.blamed == code {
		w = *o.why
	}
	w.Addr, w.Peer = at.Addr, at.Peer
	if w.Stage == effects.StageNone {
		w.Stage = at.Stage
	}
	o.blamed, o.why = code, &w
	return &w
}

// reason is what a peer is told of an op that did not end well.
func (o *op) reason() (uint32, []byte) {
	if o.why == nil {
		return 0, nil
	}
	return uint32(o.blamed), o.why.Reason()
}
