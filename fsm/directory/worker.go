package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// An instance is one serving engine, with a worker for each rank.
type instance struct {
	name    string
	origin  table.Handle // origin that made the instance known
	workers int
	served  uint64 // turn of the last lookup that returned this instance first
	chosen  uint64 // turn of the last lookup that returned this instance
}

// A worker is a rank of an instance. The worker became known by a registration or by a heartbeat.
type worker struct {
	instance table.Handle
	rank     uint32
	is       effects.Incarnation // the present incarnation
	was      effects.Incarnation // the previous incarnation: facts of that incarnation are refused
	ip       string
	port     uint16
	url      string
	midway   bool // the worker became known by a heartbeat: operations may begin at any sequence
	heard    effects.Time
	beats    bool                 // the worker sends heartbeats
	origin   table.Handle         // origin that the worker counts against
	ties     [tiesOf]table.Handle // connections, latest first
	parting  table.Handle         // set while the worker reports here and has no connection
	feeds    table.List
	syncs    int          // syncs in progress, of all feeds
	ask      Reason       // why all locations need a full sync
	asked    table.Handle // reserved sync slot; 0: none

	by     uint64           // directory that hears the worker; zero: this directory
	gaps   uint64           // Gaps of the latest fact
	wanted effects.Time     // when the replicas were last told that the worker is wanted
	waits  effects.Duration // time until the worker may be wanted again; 0: never wanted so far
}

// class returns the worker's class in shares.
func (w *worker) class() int { return int(w.origin.Slot()) }

// connected reports whether the worker has an open connection.
func (w *worker) connected() bool { return w.ties[0] != 0 }

// sane checks that a sender has an instance name of allowed length and a valid rank.
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

// asker returns the worker that sends a request. A request changes no records, so the worker need not name an
// incarnation; if the present incarnation is named, the request counts as a sign of life. asker returns NotFound if
// the worker does not report to this directory, and Stale if it names another incarnation.
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

// sender returns the worker that reports a fact, and records a sign of life. It returns NotFound if the worker is
// unknown, and Stale if the incarnation or the reporting directory is not the present value.
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

// drop removes a worker that did not deregister. Other directories that know the worker by this directory are
// notified and drop the worker as well, because a replica cannot distinguish a worker that is gone from a worker that
// has nothing to report.
func (d *Directory) drop(h table.Handle, e Event) {
	w := d.known.workers.Get(h)
	if d.note(e, w, ""); w.by == 0 {
		d.known.gone = append(d.known.gone, Want{Instance: d.known.of(w).name, Worker: w.rank})
	}
	d.end(h)
}

// end removes a worker with all records.
func (d *Directory) end(h table.Handle) {
	w := d.known.workers.Get(h)
	d.forget(w)
	d.syncs.unask(w)
	d.known.remove(h, w)
}

// forget removes all feeds of a worker. Lookups do not find their chunks from now on.
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

// moves sets the worker's address. Strings that have not changed are not allocated again.
func (w *worker) moves(a *Address) {
	if w.ip != string(a.IP) {
		w.ip = string(a.IP)
	}
	if w.url != string(a.URL) {
		w.url = string(a.URL)
	}
	w.port = uint16(a.Port)
}

// at reports whether the worker has that IP address and port. The URL for peers is not compared.
func (w *worker) at(a *Address) bool { return w.ip == string(a.IP) && int64(w.port) == a.Port }

// fits checks that an address is valid and short enough to be stored.
func (d *Directory) fits(a *Address) effects.Code {
	switch {
	case a.Port < 0 || a.Port > 1<<16-1:
		return effects.Invalid
	case len(a.IP) > d.config.Text || len(a.URL) > d.config.Text:
		return effects.TooLarge
	}
	return effects.OK
}
