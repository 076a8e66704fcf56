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

// rightOf is the right that t.offer gives us, if we know when it began.
func (t *pullTarget) rightOf(v *env.Env, r *rooms, l *link.Links, class int) (is right, known bool) {
	ext := &t.offer.Ext
	since, known := l.Anchor(v, class, ext.Stamps, ext.GrantedNS)
	return right{
		since: since, until: since.Add(r.stated(ext.LeaseNS) - r.cfg.LeaseGuard), over: t.leaseOver(v, r),
	}, known
}

// leaseOver is when t.offer, whenever it began, will not be read any more if it comes again.
func (t *pullTarget) leaseOver(v *env.Env, r *rooms) effects.Time {
	return v.Now.Add(r.stated(t.offer.Ext.LeaseNS))
}
