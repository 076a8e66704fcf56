package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Register makes a worker known, at an address. If it was known it has begun anew: what it had is forgotten, and it is
// where it says now. The same incarnation may register again, which changes nothing but its address; the one before
// does not come back as long as this one is heard.
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

// candidate is the worker that a registration or heartbeat speaks of, if it is known and speaks sense.
func (d *Directory) candidate(s *Sender, a *Address) (table.Handle, effects.Code) {
	if code := d.config.sane(s); code != effects.OK {
		return 0, code
	}
	if code := d.fits(a); code != effects.OK {
		return 0, code
	}
	return d.known.find(s), effects.OK
}

// admit makes a worker known; nil: there is no room. A worker that is not connected leaves for one that is: otherwise
// whoever registers names and goes away would keep all others out for as long as those are believed to be there.
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

// before says whether the sender is the incarnation before this one. While this one is not heard, it may be the other
// way round: what both said came on connections of their own, and the last word of the first one may have come last.
func (d *Directory) before(now effects.Time, w *worker, s *Sender) bool {
	return w.was == s.Incarnation && w.was != (effects.Incarnation{}) && !d.Others().yields(now, w)
}

// renew begins a worker anew, as another incarnation.
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

// Deregister forgets a worker. It must be at the address that it names, without regard to its URL: another one there is
// another process.
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

// Heartbeat says that a worker lives, and answers whether it is to tell all that it has. One that is not known joins by
// it. What comes from another address is not of the process that registered, unless it names the same incarnation.
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
	case !same && named && !d.before(now, w, &s) && !d.Others().older(now, w, &s): // Its registration has not come.
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

// want says why a worker is to sync now; not when it does, nor while there is no place for one more, counted those that
// were asked. Who was asked and has not begun lets others go first. Nobody can answer those of other directories.
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

// why says what of a worker is missing.
func why(feeds *table.Slab[feed], w *worker) Reason {
	why := w.ask
	for h := w.feeds.Front(); h != 0 && why == NoSync; h = feeds.Next(h) {
		why = feeds.Get(h).ask
	}
	return why
}
