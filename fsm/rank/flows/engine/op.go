// Package engine is what a rank does for its engine whatever flow carries it out: checks of what a command says, pages
// that are reserved, Gets that wait, and the requests that a proxy waits for, with the connection by which it hears of
// them.
//
// A flow may rely on this: a command that is refused has changed nothing; each one that was taken has one outcome, and
// its memory goes back once (an Op asserts both); and the proxy hears of a request at most once, after all puts of it
// have ended.
package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// An Op is a command for which an engine hands memory over. It has one outcome, and its memory goes back once:
// with the outcome, or after it if that says Held. It holds its pages from the command on, so that
// no Release frees them while anything may touch them. What does is for its owner to know, who says Held, and calls
// Return when nothing does any more.
type Op struct {
	Ticket    effects.Ticket
	Pages     []effects.Page // none any more when they went back
	Patience  effects.Duration
	Deadline  effects.Time
	Timer     kernel.TimerID `snap:"set"` // of whatever it waits for next; its owner sets it
	delivered bool
	held      bool         // the outcome left the memory with us: a Return is due
	blamed    effects.Code // why is of this code
	why       *effects.Why // made when something failed
}

// Begin takes the pages of a command; it reuses the memory of the op that was here before.
func (o *Op) Begin(v *env.Env, t effects.Ticket, pages []effects.Page, patience effects.Duration) {
	*o = Op{Ticket: t, Pages: append(o.Pages[:0], pages...), Patience: patience, Deadline: v.Now.Add(patience)}
	for _, page := range pages {
		v.Filled().Hold(page)
	}
}

// Deliver gives the op its one outcome, and its memory unless d says that it is held.
func (o *Op) Deliver(v *env.Env, d effects.Deliver) {
	pages := o.Pages
	o.End(v, d.Held)
	d.Ticket, d.Held, d.Pages = o.Ticket, o.held, pages
	v.Out.Deliver(d)
}

// End is Deliver of a command that nobody is told of whom a driver knows.
func (o *Op) End(v *env.Env, held bool) {
	if o.delivered {
		panic("BUG: a put had two outcomes")
	}
	o.delivered = true
	v.Timers.Stop(&o.Timer)
	o.held = held
	if !o.held {
		o.unhold(v)
	}
}

// Return gives the memory back after an outcome that said Held. Nothing touches it any more.
func (o *Op) Return(v *env.Env) {
	o.Back(v)
	v.Out.Return(o.Ticket)
}

// Back is Return of a command that nobody is told of whom a driver knows.
func (o *Op) Back(v *env.Env) {
	if !o.held {
		panic("BUG: memory goes back that no outcome has held")
	}
	o.unhold(v)
	o.held = false
}

func (o *Op) unhold(v *env.Env) {
	for _, page := range o.Pages {
		v.Filled().Unhold(page)
	}
	o.Pages = o.Pages[:0]
}

// Delivered says that it has its outcome.
func (o *Op) Delivered() bool { return o.delivered }

// Held says that the outcome left the memory with us: a Return is due.
func (o *Op) Held() bool { return o.held }

// MustBeOver panics unless the op has its outcome and its engine has the memory.
func (o *Op) MustBeOver() {
	if !o.delivered || o.held {
		panic("BUG: a put ended before its outcome or its memory")
	}
}

// Blame notes what is to be said of the op if it ends with this code.
func (o *Op) Blame(code effects.Code, why effects.Why) {
	if !o.delivered {
		o.blamed, o.why = code, &why
	}
}

// BlameAs does so with what another room knows, if it does.
func (o *Op) BlameAs(code effects.Code, why *effects.Why) {
	if why != nil && !o.delivered {
		o.blamed, o.why = code, why
	}
}

// Because is what is said of an op that ends with a code other than OK; at says whom it was about, and how far it is.
func (o *Op) Because(code effects.Code, at effects.Why) *effects.Why {
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

// Reason is what a peer is told of an op that did not end well.
func (o *Op) Reason() (uint32, []byte) {
	if o.why == nil {
		return 0, nil
	}
	return uint32(o.blamed), o.why.Reason()
}
