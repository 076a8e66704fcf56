package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// An instance is one serving engine, with a worker for each rank.
type instance struct {
	name       string
	origin     table.Handle // origin that made the instance known
	owners     table.List   // identities to which workers of the instance belong
	workers    int
	servedTurn uint64 // turn of the last lookup that returned this instance first
	chosenTurn uint64 // turn of the last lookup that returned this instance
}

// A worker is a rank of an instance. The worker became known by a registration or by a heartbeat.
type worker struct {
	instance            table.Handle
	rank                uint32
	incarnation         effects.Incarnation // the present incarnation
	previousIncarnation effects.Incarnation // the previous incarnation: facts of that incarnation are refused
	ip                  string
	port                uint16
	url                 string
	anySequence         bool // the worker became known by a heartbeat: operations may begin at any sequence
	heardAt             effects.Time
	sendsHeartbeats     bool                         // the worker sends heartbeats
	origin              table.Handle                 // origin that the worker counts against
	owner               table.Handle                 // identity to which the worker belongs; 0: none was proved
	conns               [connsPerWorker]table.Handle // connections, latest first
	disconnection       table.Handle                 // set while the worker reports here and has no connection
	feeds               table.List
	syncs               int          // syncs in progress, of all feeds
	syncReason          SyncReason   // why all locations need a full sync
	reservation         table.Handle // reserved sync slot; 0: none

	directory uint64           // directory that hears the worker; zero: this directory
	gaps      uint64           // Gaps of the latest fact
	wantedAt  effects.Time     // when the replicas were last told that the worker is wanted
	wantDelay effects.Duration // time until the worker may be wanted again; 0: never wanted so far
}

// shareClass returns the worker's class in shares.
func (w *worker) shareClass() int { return int(w.origin.Slot()) }

// isConnected reports whether the worker has an open connection.
func (w *worker) isConnected() bool { return w.conns[0] != 0 }

// checkSender checks that a sender has an instance name of allowed length and a valid rank.
func (c *Config) checkSender(s *Sender) effects.Code {
	switch {
	case len(s.Instance) == 0 || s.Worker < 0 || s.Worker > maxRank:
		return effects.Invalid
	case len(s.Instance) > c.TextBytes:
		return effects.TooLarge
	}
	return effects.OK
}

// maxRank is the highest rank of a worker.
const maxRank = 1<<16 - 1

// findRequester returns the worker that sends a request. A request changes no records, so the worker need not name an
// incarnation; if the present incarnation is named, the request counts as a sign of life. findRequester returns
// NotFound if the worker does not report to this directory, Forbidden if it belongs to another identity, and Stale if it
// names another incarnation.
func (d *Directory) findRequester(now effects.Time, s *Sender) (*worker, effects.Code) {
	if code := d.config.checkSender(s); code != effects.OK {
		return nil, code
	}
	h := d.roster.findWorker(s)
	switch w := d.roster.workers.Get(h); {
	case h == 0 || w.directory != 0:
		return nil, effects.NotFound
	case d.roster.isForbidden(w, s):
		return nil, effects.Forbidden
	case w.incarnation == s.Incarnation:
		d.roster.recordHeard(now, h, w, s)
		return w, effects.OK
	case s.Incarnation == effects.Incarnation{}:
		return w, effects.OK
	}
	return nil, effects.Stale
}

// findReporter returns the worker that reports a fact, and records a sign of life. It returns NotFound if the worker is
// unknown, Forbidden if it belongs to another identity, and Stale if the incarnation or the reporting directory is not
// the present value.
func (d *Directory) findReporter(now effects.Time, s *Sender) (table.Handle, *worker, effects.Code) {
	if code := d.config.checkSender(s); code != effects.OK {
		return 0, nil, code
	}
	h := d.roster.findWorker(s)
	if h == 0 {
		return 0, nil, effects.NotFound
	}
	w := d.roster.workers.Get(h)
	if d.roster.isForbidden(w, s) {
		return 0, nil, effects.Forbidden
	}
	if w.incarnation != s.Incarnation || !d.Replication().acceptFact(now, h, w, s) {
		return 0, nil, effects.Stale
	}
	d.roster.recordHeard(now, h, w, s)
	return h, w, effects.OK
}

// dropWorker removes a worker that did not deregister. Other directories that know the worker by this directory are
// notified and drop the worker as well, because a replica cannot distinguish a worker that is gone from a worker that
// has nothing to report.
func (d *Directory) dropWorker(h table.Handle, e NoteKind) {
	w := d.roster.workers.Get(h)
	if d.addNote(e, w, ""); w.directory == 0 {
		d.roster.goneWorkers = append(d.roster.goneWorkers, WorkerRef{Instance: d.roster.instanceOf(w).name, Worker: w.rank})
	}
	d.removeWorker(h)
}

// removeWorker removes a worker with all records.
func (d *Directory) removeWorker(h table.Handle) {
	w := d.roster.workers.Get(h)
	d.removeFeeds(w)
	d.syncs.releaseSlot(w)
	d.roster.removeWorker(h, w)
}

// removeFeeds removes all feeds of a worker. Lookups do not find their chunks from now on.
func (d *Directory) removeFeeds(w *worker) {
	for h := w.feeds.Front(); h != 0; h = w.feeds.Front() {
		f := d.feeds.Get(h)
		if f.sync != 0 {
			d.endSync(f.sync)
		}
		fader{d}.endFade(f)
		d.chunks.RetireHolder(f.holder)
		d.feedByHolder[f.holder] = 0
		d.feeds.Unlink(&w.feeds, h)
		d.feeds.Remove(h)
	}
}

// setAddress sets the worker's address. Strings that have not changed are not allocated again.
func (w *worker) setAddress(a *Address) {
	if w.ip != string(a.IP) {
		w.ip = string(a.IP)
	}
	if w.url != string(a.URL) {
		w.url = string(a.URL)
	}
	w.port = uint16(a.Port)
}

// hasAddress reports whether the worker has that IP address and port. The URL for peers is not compared.
func (w *worker) hasAddress(a *Address) bool { return w.ip == string(a.IP) && int64(w.port) == a.Port }

// checkAddress checks that an address is valid and short enough to be stored.
func (d *Directory) checkAddress(a *Address) effects.Code {
	switch {
	case a.Port < 0 || a.Port > 1<<16-1:
		return effects.Invalid
	case len(a.IP) > d.config.TextBytes || len(a.URL) > d.config.TextBytes:
		return effects.TooLarge
	}
	return effects.OK
}
