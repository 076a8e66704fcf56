package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
)

// A right is how long we may read what a sender lent, by our clock. It begins when the sender lent the pages, at the
// earliest, and ends a guard before the sender's own time does: so no read goes on when they are its own again,
// though clocks differ within what the guard allows (rule M4).
type right struct {
	since effects.Time `snap:"skip"` // when the pages were lent, at the earliest
	until effects.Time // when our right to read ends, less the guard
	over  effects.Time // from when on the offer, whenever it began, is not read if it comes again
}

// rightOf is the right that r.offer gives us, if we know when it began.
func (r *Receiver) rightOf(v *env.Env, l *link.Links, class int) (is right, known bool) {
	ext := &r.offer.Ext
	since, known := l.Anchor(v, class, ext.Stamps, ext.GrantedNS)
	return right{
		since: since, until: since.Add(r.stated(ext.LeaseNS) - r.cfg.LeaseGuard), over: r.leaseOver(v),
	}, known
}

// leaseOver is when r.offer, whenever it began, will not be read any more if it comes again.
func (r *Receiver) leaseOver(v *env.Env) effects.Time {
	return v.Now.Add(r.stated(r.offer.Ext.LeaseNS))
}

// stated is how long a sender says that its lease stands, and no longer than we believe anybody: less is always safe.
func (r *Receiver) stated(ns uint64) effects.Duration {
	return effects.Duration(min(ns, uint64(r.cfg.LoanMax)))
}
