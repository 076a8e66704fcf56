// Package engine implements what a rank does for its engine, whichever flow carries a command out. The package defines
// the commands, checks their arguments, reserves pages, keeps Gets that wait for chunks, and counts the batches of each
// request, so that a proxy can be notified when all of them have ended.
//
// The rank has one [Engine] for reservations, requests and the connection to the proxy, and one [Gets] for Gets. A flow
// that takes a Put calls AcceptPut first, embeds an [Op] in its row, and calls LeaveRequest after the outcome.
//
// A flow may rely on this:
//
//   - A command that was refused has changed nothing.
//   - Each command that was accepted has one outcome, and its memory goes back once. An Op panics otherwise.
//   - The proxy is notified of a request at most once while the request is recorded (RequestTTL after the notification,
//     and less if the table is full), and only after all puts of the request have ended.
//
// Example, a put that fails while a transfer is in flight:
//
//	Reserve              Deliver: pages 3 and 4 belong to the engine
//	Put of 3 and 4       AcceptPut accepts the Put; Op.BeginCommand holds the pages
//	the peer is lost     Op.Deliver with Held: the transfer may still read the pages
//	Release              refused as Invalid, because the Op still holds the pages
//	transfer settled     Op.ReturnPages: the pages belong to the engine again
//	Release              the pages are free
package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// An Op is a command for which an engine lends memory. An Op has one outcome, and its memory goes back once: with the
// outcome, or later if the outcome says Held.
//
// Invariant: the Op holds its pages (in-flight references, M1) from BeginCommand until the memory goes back, so that no
// Release frees pages that something may still touch. The flow that owns the Op knows what touches the pages. The flow
// says Held while anything does, and calls Return when nothing does any more.
type Op struct {
	Ticket   effects.Ticket
	Pages    []effects.Page // empty once the memory went back
	Timeout  effects.Duration
	Deadline effects.Time
	// Timer is the deadline of what the Op currently waits for; the flow that owns the Op sets it.
	Timer      kernel.TimerID `snap:"set"`
	delivered  bool
	held       bool         // the outcome said Held: a Return is due
	reasonCode effects.Code // the code that why explains
	reason     *effects.Why // set when something failed; may be nil
}

// BeginCommand initializes the Op for a command and holds the command's pages, which count for the tenant of the keys from
// now on. BeginCommand reuses the memory of the Op
// that was here before.
func (o *Op) BeginCommand(v *env.Env, t effects.Ticket, keys [][]byte, pages []effects.Page, timeout effects.Duration) {
	countTenant(v, keys, pages)
	*o = Op{Ticket: t, Pages: append(o.Pages[:0], pages...), Timeout: timeout, Deadline: v.Now.Add(timeout)}
	for _, page := range pages {
		v.EnginePool().HoldPage(page)
	}
}

// Deliver emits the Op's one outcome, which gives the memory back unless d.Held is set. Deliver panics if there was an
// outcome before.
func (o *Op) Deliver(v *env.Env, d effects.Deliver) {
	pages := o.Pages
	o.RecordOutcome(v, d.Held)
	d.Ticket, d.Held, d.Pages = o.Ticket, o.held, pages
	v.Out.Deliver(d)
}

// RecordOutcome does what Deliver does, but emits nothing. Use this method for a put that another flow requested, of
// which the driver does not know.
func (o *Op) RecordOutcome(v *env.Env, held bool) {
	if o.delivered {
		panic("BUG: a put had two outcomes")
	}
	o.delivered = true
	v.Timers.Stop(&o.Timer)
	o.held = held
	if !o.held {
		o.unholdPages(v)
	}
}

// ReturnPages gives the memory back after an outcome that said Held. Nothing may touch the pages any more. ReturnPages
// panics if no outcome said Held.
func (o *Op) ReturnPages(v *env.Env) {
	o.ReleasePages(v)
	v.Out.Return(o.Ticket)
}

// ReleasePages does what Return does, but emits nothing. Use this method for a put that another flow requested, of
// which the driver does not know.
func (o *Op) ReleasePages(v *env.Env) {
	if !o.held {
		panic("BUG: memory goes back that no outcome has held")
	}
	o.unholdPages(v)
	o.held = false
}

func (o *Op) unholdPages(v *env.Env) {
	for _, page := range o.Pages {
		v.EnginePool().ReleaseHold(page)
	}
	o.Pages = o.Pages[:0]
}

// Began returns when the command began.
func (o *Op) Began() effects.Time { return o.Deadline.Add(-o.Timeout) }

// IsDelivered reports whether the Op has had its outcome.
func (o *Op) IsDelivered() bool { return o.delivered }

// IsHeld reports whether the outcome said Held and the memory has not gone back yet.
func (o *Op) IsHeld() bool { return o.held }

// MustBeFinished panics unless the Op has had its outcome and the engine has its memory back.
func (o *Op) MustBeFinished() {
	if !o.delivered || o.held {
		panic("BUG: a put ended before its outcome or its memory")
	}
}

// SetReason records the reason that is reported if the Op ends with this code.
func (o *Op) SetReason(code effects.Code, why effects.Why) {
	if !o.delivered {
		o.reasonCode, o.reason = code, &why
	}
}

// SetSharedReason records a reason that another room made, if why is not nil. The Op keeps the pointer.
func (o *Op) SetSharedReason(code effects.Code, why *effects.Why) {
	if why != nil && !o.delivered {
		o.reasonCode, o.reason = code, why
	}
}

// FinalReason returns the reason that is reported for an Op that ends with a code other than OK: the recorded reason if
// that explains this code. The peer, and the stage if none is recorded, are taken from at.
func (o *Op) FinalReason(code effects.Code, context effects.Why) *effects.Why {
	if o.reason != nil && o.reasonCode == code && o.reason.Addr != (effects.Addr{}) {
		// Why is complete already, and may be shared: do not change it.
		return o.reason
	}
	var w effects.Why
	if o.reason != nil && o.reasonCode == code {
		w = *o.reason
	}
	w.Addr, w.Peer = context.Addr, context.Peer
	if w.Stage == effects.StageNone {
		w.Stage = context.Stage
	}
	o.reasonCode, o.reason = code, &w
	return &w
}

// ReasonForPeer returns the code and the text by which a peer is notified of an Op that failed.
func (o *Op) ReasonForPeer() (uint32, []byte) {
	if o.reason == nil {
		return 0, nil
	}
	return uint32(o.reasonCode), o.reason.Reason()
}
