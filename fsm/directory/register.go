package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Register makes a worker known at an address. If the worker is known already, the process was restarted: all records
// are dropped and the new address applies. If the same incarnation registers again, only the address changes.
// Register returns Stale if the previous incarnation registers while the present one is still being heard, or if
// another directory reports a registration of a worker that was heard on another way within [Config.Yield]. It
// returns TooMany if there is no room.
func (d *Directory) Register(now effects.Time, s Sender, a Address) effects.Code {
	h, code := d.candidate(&s, &a)
	if code != effects.OK {
		return code
	}
	if h == 0 {
		_, w := d.admit(now, &s, &a)
		if w == nil {
			return effects.TooMany
		}
		d.Others().joins(w)
		d.note(Joined, w, "")
		return effects.OK
	}
	w := d.known.workers.Get(h)
	switch same := w.is == s.Incarnation && w.is != (effects.Incarnation{}); {
	case same && w.by == s.By:
		w.moves(&a)
		d.known.hear(now, h, w, &s)
		return effects.OK
	case same && s.By != 0 && !d.Others().yields(now, w), !same && (d.before(now, w, &s) || d.Others().older(now, w, &s)):
		return effects.Stale
	}
	d.renew(now, h, w, &s, &a)
	return effects.OK
}

// candidate returns the known worker that a registration or heartbeat names, or 0 if the worker is unknown. It fails
// if the sender or the address is invalid.
func (d *Directory) candidate(s *Sender, a *Address) (table.Handle, effects.Code) {
	if code := d.config.sane(s); code != effects.OK {
		return 0, code
	}
	if code := d.fits(a); code != effects.OK {
		return 0, code
	}
	return d.known.find(s), effects.OK
}

// admit makes a worker known. It returns nil if there is no room. If necessary, a worker without a connection is
// dropped to make room: otherwise a process that registers many names and disconnects would keep all further workers
// out for as long as the registered names are kept.
func (d *Directory) admit(now effects.Time, s *Sender, a *Address) (table.Handle, *worker) {
	if s.By == 0 && d.known.conns.full(s.Source) {
		return 0, nil
	}
	if !d.known.fits(s, nil) {
		h := d.known.givesWay(s, d.config.Ends)
		if h == 0 {
			return 0, nil
		}
		d.drop(h, GaveWay)
	}
	return d.known.add(now, s, a)
}

// before reports whether the sender is the previous incarnation of a worker. While the present incarnation is not
// heard from, before returns false, because the order may be reversed: each incarnation used separate connections,
// and the last message of the older incarnation may have arrived last.
func (d *Directory) before(now effects.Time, w *worker, s *Sender) bool {
	return w.was == s.Incarnation && w.was != (effects.Incarnation{}) && !d.Others().yields(now, w)
}

// renew drops all records of a worker and continues with another incarnation, or with a new start of a worker that
// names none.
func (d *Directory) renew(now effects.Time, h table.Handle, w *worker, s *Sender, a *Address) {
	d.forget(w)
	if w.is != s.Incarnation {
		w.was, w.is = w.is, s.Incarnation
	}
	d.syncs.unask(w)
	d.known.comes(h, w, s)
	d.known.moves(w, s)
	w.midway, w.ask = false, NoSync
	w.moves(a)
	d.known.beats(h, w, false)
	d.known.hear(now, h, w, s)
	d.note(Renewed, w, "")
}

// Deregister drops a worker. The address must be the worker's current address, apart from the URL; another address
// belongs to another process. Deregister returns NotFound if the worker is unknown, and Stale if the incarnation, the
// address or the reporting directory differs.
func (d *Directory) Deregister(now effects.Time, s Sender, a Address) effects.Code {
	h, code := d.candidate(&s, &a)
	switch {
	case code != effects.OK:
		return code
	case h == 0:
		return effects.NotFound
	}
	w := d.known.workers.Get(h)
	if w.is != s.Incarnation || !w.at(&a) || s.By != 0 && w.by != s.By {
		return effects.Stale
	}
	d.note(Left, w, "")
	d.end(h)
	return effects.OK
}

// Heartbeat records a sign of life and returns the reason why the worker should begin a full sync, or NoSync. A
// heartbeat makes an unknown worker known. A heartbeat from another address is refused as Stale, because the message
// belongs to another process, unless the same incarnation is named.
func (d *Directory) Heartbeat(now effects.Time, s Sender, a Address) (Reason, effects.Code) {
	h, code := d.candidate(&s, &a)
	if code != effects.OK {
		return NoSync, code
	}
	var w *worker
	if h == 0 {
		if h, w = d.admit(now, &s, &a); w == nil {
			return NoSync, effects.TooMany
		}
		w.midway, w.ask = true, Unknown
		d.known.beats(h, w, true)
		d.Others().meets(w)
		d.note(Met, w, "")
		return d.want(now, h, w), effects.OK
	}
	w = d.known.workers.Get(h)
	named := s.Incarnation != effects.Incarnation{}
	switch same := w.is == s.Incarnation; {
	case same && named:
		if !d.Others().passes(now, h, w, &s) {
			return NoSync, effects.Stale
		}
		w.moves(&a)
	case same && w.at(&a) && w.url == string(a.URL) && d.Others().passes(now, h, w, &s):
	// The registration of this incarnation has not arrived.
	case !same && named && !d.before(now, w, &s) && !d.Others().older(now, w, &s):
		d.renew(now, h, w, &s, &a)
		w.midway, w.ask = true, Unknown
	default:
		return NoSync, effects.Stale
	}
	if !w.beats {
		d.known.beats(h, w, true)
	}
	d.known.hear(now, h, w, &s)
	return d.want(now, h, w), effects.OK
}

// want returns the reason why a worker should begin a sync now. It returns NoSync while the worker is syncing, and
// while all sync slots are taken, including slots of workers that were asked and have not begun. A worker that was
// asked and has not begun loses the slot at the next heartbeat, so that another worker goes first. Workers that
// report to another directory are never asked, because this directory does not reply to their heartbeats.
func (d *Directory) want(now effects.Time, h table.Handle, w *worker) Reason {
	if w.by != 0 {
		return NoSync
	}
	if w.asked != 0 {
		d.syncs.unask(w)
		return NoSync
	}
	reason := why(&d.feeds, w)
	if reason == NoSync || w.syncs > 0 || !d.syncs.ask(now, h, w) {
		return NoSync
	}
	return reason
}

// why returns the reason why a worker needs a full sync: of the worker as a whole, or else of the first location with
// a reason.
func why(feeds *table.Slab[feed], w *worker) Reason {
	why := w.ask
	for h := w.feeds.Front(); h != 0 && why == NoSync; h = feeds.Next(h) {
		why = feeds.Get(h).ask
	}
	return why
}
