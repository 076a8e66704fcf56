package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// An instance is one engine, of as many workers as it has ranks.
type instance struct {
	name    string
	origin  table.Handle // that made it known
	workers int
	served  uint64 // the turn of the last lookup whose first answer it was
	chosen  uint64 // the turn of the last lookup that it is an answer to
}

// A worker is one rank of an instance that registered, or whose heartbeat came.
type worker struct {
	instance table.Handle
	rank     uint32
	is       effects.Incarnation
	was      effects.Incarnation // before it registered last: that one comes no more
	ip       string
	port     uint16
	url      string
	midway   bool // it was met by a heartbeat: its operations are at any sequence
	heard    effects.Time
	beats    bool                 // it sends heartbeats
	origin   table.Handle         // that it counts to
	ties     [tiesOf]table.Handle // on connections, the latest first
	parting  table.Handle         // it has no connection; 0: it has, or is not heard here
	feeds    table.List
	syncs    int          // of its feeds
	ask      Reason       // for a sync of all that it has
	asked    table.Handle // its place to begin one; 0: it was not asked

	by     uint64           // whose word all that is: zero, the worker's own
	gaps   uint64           // as of the last fact
	wanted effects.Time     // told other directories last
	waits  effects.Duration // until it may be wanted again; 0: it never was
}

// class is that of a worker in shares.
func (w *worker) class() int { return int(w.origin.Slot()) }

// connected says whether a worker has a connection.
func (w *worker) connected() bool { return w.ties[0] != 0 }

// sane says whether a sender can be one at all.
func (c *Config) sane(s *Sender) effects.Code {
	switch {
	case len(s.Instance) == 0 || s.Worker < 0 || s.Worker > rankMost:
		return effects.Invalid
	case len(s.Instance) > c.Text:
		return effects.TooLarge
	}
	return effects.OK
}

// rankMost is the highest rank of a worker.
const rankMost = 1<<16 - 1

// asker is the worker that asks something, if it is known. A question changes nothing, so it need not say of which
// incarnation it is; if it does, it is heard by that.
func (d *Directory) asker(now effects.Time, s *Sender) (*worker, effects.Code) {
	if code := d.config.sane(s); code != effects.OK {
		return nil, code
	}
	h := d.known.find(s)
	switch w := d.known.workers.Get(h); {
	case h == 0 || w.by != 0:
		return nil, effects.NotFound
	case w.is == s.Incarnation:
		d.known.hear(now, h, w, s)
		return w, effects.OK
	case s.Incarnation == effects.Incarnation{}:
		return w, effects.OK
	}
	return nil, effects.Stale
}

// sender is the worker that reports something, which is heard by that. It must be known, and of this incarnation.
func (d *Directory) sender(now effects.Time, s *Sender) (table.Handle, *worker, effects.Code) {
	if code := d.config.sane(s); code != effects.OK {
		return 0, nil, code
	}
	h := d.known.find(s)
	if h == 0 {
		return 0, nil, effects.NotFound
	}
	w := d.known.workers.Get(h)
	if w.is != s.Incarnation || !d.Others().passes(now, h, w, s) {
		return 0, nil, effects.Stale
	}
	d.known.hear(now, h, w, s)
	return h, w, effects.OK
}

// drop forgets a worker that said nothing of leaving. Others forget it as well if they know it by this directory: they
// cannot tell a worker that is gone from one that has nothing to say.
func (d *Directory) drop(h table.Handle, e Event) {
	w := d.known.workers.Get(h)
	if d.note(e, w, ""); w.by == 0 {
		d.known.gone = append(d.known.gone, Want{Instance: d.known.of(w).name, Worker: w.rank})
	}
	d.end(h)
}

// end forgets a worker and all that it had.
func (d *Directory) end(h table.Handle) {
	w := d.known.workers.Get(h)
	d.forget(w)
	d.syncs.unask(w)
	d.known.remove(h, w)
}

// forget ends all feeds of a worker: nothing of them is found any more.
func (d *Directory) forget(w *worker) {
	for h := w.feeds.Front(); h != 0; h = w.feeds.Front() {
		f := d.feeds.Get(h)
		if f.sync != 0 {
			d.endSync(f.sync)
		}
		age{d}.end(f)
		d.chunks.Retire(f.holder)
		d.owners[f.holder] = 0
		d.feeds.Unlink(&w.feeds, h)
		d.feeds.Remove(h)
	}
}

// moves takes an address over. Texts that are the same stay.
func (w *worker) moves(a *Address) {
	if w.ip != string(a.IP) {
		w.ip = string(a.IP)
	}
	if w.url != string(a.URL) {
		w.url = string(a.URL)
	}
	w.port = uint16(a.Port)
}

// at says whether the worker has that address, as far as peers need not know it.
func (w *worker) at(a *Address) bool { return w.ip == string(a.IP) && int64(w.port) == a.Port }

// fits says whether an address can be remembered.
func (d *Directory) fits(a *Address) effects.Code {
	switch {
	case a.Port < 0 || a.Port > 1<<16-1:
		return effects.Invalid
	case len(a.IP) > d.config.Text || len(a.URL) > d.config.Text:
		return effects.TooLarge
	}
	return effects.OK
}
