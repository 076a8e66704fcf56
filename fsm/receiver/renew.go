package receiver

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A renewer asks one sender for more time, for all that it offered and that was not read, when half of the time of
// any is over. The new time counts from the instant before the request that was answered left: an answer that never comes,
// or comes late, gives nothing that the sender did not give. There is one request at a time.
type renewer struct {
	text   []byte // where it asks, as the sender announces it
	addr   effects.Addr
	epoch  uint64 // completions of a former address are stale
	conn   effects.Conn
	asking bool
	owed   bool // a completion is outstanding, perhaps one of a former address: until it came nothing is asked
	wanted bool
	asked  effects.Time
	tries  uint32
	timer  table.Handle // when the answer is overdue, or when to try again
}

// renewsMax is the most loans that one request speaks of.
const renewsMax = 512

// renewAt sets an offer's next deadline: half of what is left if it can be renewed, else its end.
func (r *Receiver) renewAt(v *env.Env, h table.Handle, o *offered) {
	at := o.until
	if o.renews && o.until > v.Now {
		at = min(at, v.Now.Add(max(r.cfg.LeadMin, o.until.Sub(v.Now)/2)))
	}
	v.Timers.Set(&o.timer, at, timerRef(timerOffer, h))
}

// onOfferTimer handles an offer whose time is over, or should be prolonged.
func (r *Receiver) onOfferTimer(v *env.Env, h table.Handle) {
	o := r.offers.Get(h)
	o.timer = 0
	if v.Now < o.until {
		v.Timers.Set(&o.timer, o.until, timerRef(timerOffer, h))
		r.renewers[o.class].wanted = true
		r.renew(v, o.class)
		return
	}
	v.Out.Mark(MarkOfferOver)
	r.drop(v, h, effects.Expired)
}

// renewable notes where a sender takes renewals, and says whether it does.
func (r *Receiver) renewable(v *env.Env, class int, text []byte) bool {
	if len(text) == 0 {
		return false
	}
	x := &r.renewers[class]
	if bytes.Equal(x.text, text) {
		return true
	}
	at, err := protocol.ParseEndpoint(string(text))
	if err != nil || at.Unspecified() || r.cfg.AddressesOnly && !at.Numeric() {
		v.Out.Mark(MarkRenewNowhere)
		return false
	}
	r.hangUp(v, x)
	*x = renewer{text: append(x.text[:0], text...), addr: effects.Addr{Host: at.Host, Port: at.Port}, epoch: x.epoch + 1, owed: x.owed, wanted: x.wanted || x.asking}
	r.renew(v, class)
	return true
}

func (r *Receiver) hangUp(v *env.Env, x *renewer) {
	v.Timers.Stop(&x.timer)
	if x.conn != 0 {
		v.Out.Close(x.conn)
		x.conn = 0
	}
}

// renew asks a sender for more time, if nothing else is under way.
func (r *Receiver) renew(v *env.Env, class int) {
	x := &r.renewers[class]
	if !x.wanted || x.owed || x.timer != 0 {
		return
	}
	ref := kernel.Ref{Owner: kernel.OwnerReceiver, Kind: kindOpenRenew, Attempt: x.epoch, Subject: table.Handle(class)}
	if x.conn == 0 {
		x.owed = true
		v.Out.Open(effects.Open{Corr: v.Corrs.Open(ref), Channel: effects.ChannelInit, Addr: x.addr})
		return
	}
	m := &r.renewal
	*m = protocol.RenewRequest{
		Version: link.VersionMax, Operation: m.Operation + 1,
		Grants: m.Grants[:0], Done: m.Done[:0], Stamps: protocol.Stamps{ClockNS: int64(v.Now)},
	}
	x.wanted = false
	for slot := range r.offers.Slots() {
		h := r.offers.At(slot)
		if h == 0 {
			continue
		}
		if o := r.offers.Get(h); o.class == class && o.renews && o.left > 0 && o.until > v.Now {
			if len(m.Grants) == renewsMax {
				x.wanted = true
				break
			}
			m.Incarnation, m.To = protocol.UUID(o.us), protocol.UUID(o.peer)
			m.Grants = append(m.Grants, o.grant)
		}
	}
	if len(m.Grants) == 0 {
		return
	}
	x.asking, x.owed, x.asked = true, true, v.Now
	ref.Kind = kindRenew
	v.Out.Send(effects.Send{Corr: v.Corrs.Open(ref), Conn: x.conn, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
	v.Timers.Set(&x.timer, v.Now.Add(r.cfg.ReplyTimeout), timerRef(timerRenew, table.Handle(class)))
}

// renewerOf finds the renewer of a completion; nil if it was for another address, and then what is wanted begins.
func (r *Receiver) renewerOf(v *env.Env, ref kernel.Ref) *renewer {
	x := &r.renewers[ref.Subject]
	x.owed = false
	if x.epoch == ref.Attempt {
		return x
	}
	v.Out.Mark(MarkRenewStale)
	r.renew(v, int(ref.Subject))
	return nil
}

// onRenewOpened handles the completion of the Open of a connection for renewals.
func (r *Receiver) onRenewOpened(v *env.Env, ref kernel.Ref, ev *effects.Opened) {
	x := r.renewerOf(v, ref)
	switch {
	case x == nil:
		if ev.Code == effects.OK {
			v.Out.Close(ev.Conn)
		}
	case ev.Code != effects.OK:
		r.renewLater(v, int(ref.Subject), x)
	default:
		x.conn = ev.Conn
		r.renew(v, int(ref.Subject))
	}
}

// OnUnanswered handles a renewal that got no answer: nothing is known of what it asked for.
func (r *Receiver) OnUnanswered(v *env.Env, ref kernel.Ref) {
	x := r.renewerOf(v, ref)
	if x == nil {
		return
	}
	v.Out.Mark(MarkRenewUnanswered)
	x.asking = false
	r.hangUp(v, x)
	r.renewLater(v, int(ref.Subject), x)
}

func (r *Receiver) renewLater(v *env.Env, class int, x *renewer) {
	x.wanted = true
	x.tries++
	delay := min(r.cfg.BackoffMin<<min(x.tries-1, 20), r.cfg.BackoffMax)
	v.Timers.Set(&x.timer, v.Now.Add(delay), timerRef(timerRenew, table.Handle(class)))
}

// onRenewTimer closes a connection whose answer is overdue, or tries again.
func (r *Receiver) onRenewTimer(v *env.Env, class int) {
	x := &r.renewers[class]
	x.timer = 0
	if x.asking {
		r.hangUp(v, x)
		return
	}
	r.renew(v, class)
}

// OnRenewed handles the answer to a renewal.
func (r *Receiver) OnRenewed(v *env.Env, ref kernel.Ref, body []byte) {
	x := r.renewerOf(v, ref)
	if x == nil {
		return
	}
	v.Timers.Stop(&x.timer)
	x.asking = false
	m := &r.renewed
	if err := m.Decode(body, &r.cfg.Wire); err != nil {
		v.Out.Mark(MarkRenewUnanswered)
		r.hangUp(v, x)
		r.renewLater(v, int(ref.Subject), x)
		return
	}
	x.tries = 0
	until := x.asked.Add(r.stated(m.LeaseNS) - r.cfg.LeaseGuard)
	slices.Sort(m.Extended)
	slices.Sort(m.Gone)
	for slot := range r.offers.Slots() {
		h := r.offers.At(slot)
		if h == 0 {
			continue
		}
		o := r.offers.Get(h)
		if o.class != int(ref.Subject) {
			continue
		}
		switch {
		case has(m.Extended, o.grant) && effects.Incarnation(m.Incarnation) == o.peer && v.Now < o.until:
			// One whose time was over by our clock is over: its chunks were given up already.
			v.Out.Mark(MarkRenewed)
			o.until = max(o.until, until)
			r.Pipe.Extend(h, o.until)
			r.renewAt(v, h, o)
		case has(m.Gone, o.grant):
			// Also by the word of another life, which is proof that the one that lent is over.
			v.Out.Mark(MarkRenewGone)
			r.drop(v, h, effects.Expired)
		}
	}
	r.renew(v, int(ref.Subject))
}

func has(sorted []uint64, id uint64) bool {
	_, ok := slices.BinarySearch(sorted, id)
	return ok
}
