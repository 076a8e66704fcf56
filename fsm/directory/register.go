package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Register makes a worker known at an address. If the worker is known already, the process was restarted: all records
// are dropped and the new address applies. If the same incarnation registers again, only the address changes, unless the
// worker proves an identity for the first time: then all records are dropped as well.
// Register returns Stale if the previous incarnation registers while the present one is still being heard, or if
// another directory reports a registration of a worker that was heard on another way within [Config.Yield]. It
// returns Forbidden if the worker, or every worker of its instance, belongs to another identity, and TooMany if there is
// no room.
func (d *Directory) Register(now effects.Time, s Sender, a Address) effects.Code {
	h, code := d.checkAndFind(&s, &a)
	if code != effects.OK {
		return code
	}
	if h == 0 {
		_, w := d.admitWorker(now, &s, &a)
		if w == nil {
			return effects.TooMany
		}
		d.Replication().announceRegistration(w, &s)
		d.addNote(WorkerJoined, w, "")
		return effects.OK
	}
	w := d.roster.workers.Get(h)
	switch same := w.incarnation == s.Incarnation && w.incarnation != (effects.Incarnation{}); {
	case same && w.directory == s.Directory && d.roster.isRaise(w, &s):
		d.raiseWorker(now, h, w, &s, &a)
		return effects.OK
	case same && w.directory == s.Directory:
		w.setAddress(&a)
		d.roster.recordHeard(now, h, w, &s)
		return effects.OK
	case same && s.Directory != 0 && !d.Replication().mayYield(now, w), !same && (d.isPrevious(now, w, &s) ||
		d.Replication().mayBeOlder(now, w, &s)):
		return effects.Stale
	}
	d.renewWorker(now, h, w, &s, &a)
	return effects.OK
}

// checkAndFind returns the known worker that a registration, a heartbeat or a deregistration names, or 0 if the worker
// is unknown. It fails if the sender or the address is invalid, and with Forbidden if the worker belongs to another
// identity, or is unknown and the sender may not add workers to its instance.
func (d *Directory) checkAndFind(s *Sender, a *Address) (table.Handle, effects.Code) {
	if code := d.config.checkSender(s); code != effects.OK {
		return 0, code
	}
	if code := d.checkAddress(a); code != effects.OK {
		return 0, code
	}
	h := d.roster.findWorker(s)
	if h == 0 && !d.roster.mayJoin(s) || h != 0 && d.roster.isForbidden(d.roster.workers.Get(h), s) {
		return 0, effects.Forbidden
	}
	return h, effects.OK
}

// admitWorker makes a worker known. It returns nil if there is no room. If necessary, a worker without a connection is
// dropped to make room: otherwise a process that registers many names and disconnects would keep all further workers
// out for as long as the registered names are kept.
func (d *Directory) admitWorker(now effects.Time, s *Sender, a *Address) (table.Handle, *worker) {
	if s.Directory == 0 && d.roster.conns.isFull(s.Source) {
		return 0, nil
	}
	if !d.roster.hasRoomFor(s, nil) {
		h := d.roster.findDisplaceable(s, d.config.EndsPerStep)
		if h == 0 {
			return 0, nil
		}
		d.dropWorker(h, WorkerDisplaced)
	}
	return d.roster.addWorker(now, s, a)
}

// isPrevious reports whether the sender is the previous incarnation of a worker. While the present incarnation is not
// heard from, isPrevious returns false, because the order may be reversed: each incarnation used separate connections,
// and the last message of the older incarnation may have arrived last.
//
// Reports of the directory that the worker is followed by are in order, because that directory has already refused
// messages of the previous incarnation. Example: a worker restarts and reports to the directories A and B, and A appends
// its reports late. C reads of the new incarnation in B's reports, then of the old one in A's, and follows the worker by
// A. When A's reports then tell of the new incarnation, C must believe them.
func (d *Directory) isPrevious(now effects.Time, w *worker, s *Sender) bool {
	if s.Directory != 0 && s.Directory == w.directory {
		return false
	}
	return w.previousIncarnation == s.Incarnation && w.previousIncarnation != (effects.Incarnation{}) && !d.Replication().mayYield(now, w)
}

// renewWorker drops all records of a worker and continues with another incarnation, or with a new start of a worker
// that names none.
func (d *Directory) renewWorker(now effects.Time, h table.Handle, w *worker, s *Sender, a *Address) {
	d.removeFeeds(w)
	if w.incarnation != s.Incarnation {
		w.previousIncarnation, w.incarnation = w.incarnation, s.Incarnation
	}
	d.syncs.releaseSlot(w)
	d.roster.setDirectory(h, w, s)
	d.roster.moveOrigin(w, s)
	d.roster.setOwner(w, s)
	w.anySequence, w.syncReason = false, NoSync
	w.setAddress(a)
	d.roster.setHeartbeats(h, w, false)
	d.roster.recordHeard(now, h, w, s)
	d.addNote(WorkerRenewed, w, "")
}

// raiseWorker continues with a worker that now proves an identity and did not before. Somebody else may have reported the
// records until then, so they are dropped, and the worker must send a full sync.
func (d *Directory) raiseWorker(now effects.Time, h table.Handle, w *worker, s *Sender, a *Address) {
	d.renewWorker(now, h, w, s, a)
	w.anySequence, w.syncReason = true, UnknownWorker
}

// Deregister drops a worker. The address must be the worker's current address, apart from the URL; another address
// belongs to another process. Deregister returns NotFound if the worker is unknown, Forbidden if it belongs to another
// identity, and Stale if the incarnation, the address or the reporting directory differs.
func (d *Directory) Deregister(now effects.Time, s Sender, a Address) effects.Code {
	h, code := d.checkAndFind(&s, &a)
	switch {
	case code != effects.OK:
		return code
	case h == 0:
		return effects.NotFound
	}
	w := d.roster.workers.Get(h)
	if w.incarnation != s.Incarnation || !w.hasAddress(&a) || s.Directory != 0 && w.directory != s.Directory {
		return effects.Stale
	}
	d.addNote(WorkerLeft, w, "")
	d.removeWorker(h)
	return effects.OK
}

// Heartbeat records a sign of life and returns the reason why the worker should begin a full sync, or NoSync. A
// heartbeat makes an unknown worker known. A heartbeat from another address is refused as Stale, because the message
// belongs to another process, unless the same incarnation is named. A heartbeat is Forbidden where a registration is.
func (d *Directory) Heartbeat(now effects.Time, s Sender, a Address) (SyncReason, effects.Code) {
	h, code := d.checkAndFind(&s, &a)
	if code != effects.OK {
		return NoSync, code
	}
	var w *worker
	if h == 0 {
		if h, w = d.admitWorker(now, &s, &a); w == nil {
			return NoSync, effects.TooMany
		}
		w.anySequence, w.syncReason = true, UnknownWorker
		d.roster.setHeartbeats(h, w, true)
		d.Replication().announceWorker(w, &s)
		d.addNote(WorkerMet, w, "")
		return d.requestSync(now, h, w), effects.OK
	}
	w = d.roster.workers.Get(h)
	named := s.Incarnation != effects.Incarnation{}
	switch same := w.incarnation == s.Incarnation; {
	case same && named:
		if !d.Replication().acceptFact(now, h, w, &s) {
			return NoSync, effects.Stale
		}
		w.setAddress(&a)
	case same && w.hasAddress(&a) && w.url == string(a.URL) && d.Replication().acceptFact(now, h, w, &s):
	// The registration of this incarnation has not arrived.
	case !same && named && !d.isPrevious(now, w, &s) && !d.Replication().mayBeOlder(now, w, &s):
		d.renewWorker(now, h, w, &s, &a)
		w.anySequence, w.syncReason = true, UnknownWorker
	default:
		return NoSync, effects.Stale
	}
	if d.roster.isRaise(w, &s) {
		d.raiseWorker(now, h, w, &s, &a)
	}
	if !w.sendsHeartbeats {
		d.roster.setHeartbeats(h, w, true)
	}
	d.roster.recordHeard(now, h, w, &s)
	return d.requestSync(now, h, w), effects.OK
}

// requestSync returns the reason why a worker should begin a sync now. It returns NoSync while the worker is syncing,
// and while all sync slots are taken, including slots of workers that were asked and have not begun. A worker that was
// asked and has not begun loses the slot at the next heartbeat, so that another worker goes first. Workers that report
// to another directory are never asked, because this directory does not reply to their heartbeats.
func (d *Directory) requestSync(now effects.Time, h table.Handle, w *worker) SyncReason {
	if w.directory != 0 {
		return NoSync
	}
	if w.reservation != 0 {
		d.syncs.releaseSlot(w)
		return NoSync
	}
	reason := syncReason(&d.feeds, w)
	if reason == NoSync || w.syncs > 0 || !d.syncs.reserveSlot(now, h, w) {
		return NoSync
	}
	return reason
}

// syncReason returns the reason why a worker needs a full sync: of the worker as a whole, or else of the first location
// with a reason.
func syncReason(feeds *table.Slab[feed], w *worker) SyncReason {
	reason := w.syncReason
	for h := w.feeds.Front(); h != 0 && reason == NoSync; h = feeds.Next(h) {
		reason = feeds.Get(h).syncReason
	}
	return reason
}
