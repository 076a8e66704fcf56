package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Replication groups the methods of a Directory for replication between directories. Several directories report to each
// other, through a shared log, what workers reported to them. A directory that hears a worker itself uses only the
// worker's own reports; reports of other directories serve those that do not hear the worker. Reports of another
// directory arrive in the order in which it received them, so they lead to the same records. Where some were lost,
// the worker is wanted, and the directory that hears the worker requests a full sync.
type Replication struct{ d *Directory }

// Replication returns the replication methods of the directory.
func (d *Directory) Replication() Replication { return Replication{d} }

// acceptFact reports whether a fact arrives from the directory that the worker currently reports to (s.Directory). If
// nothing was heard by that way for [Config.Yield], or the worker is heard here, then the worker is adopted and the
// fact is accepted. Facts may have been missed meanwhile, so the worker has to send a full sync.
func (o Replication) acceptFact(now effects.Time, h table.Handle, w *worker, s *Sender) bool {
	if w.directory != s.Directory {
		if s.Directory != 0 && !o.mayYield(now, w) {
			return false
		}
		o.adoptWorker(h, w, s)
	}
	if s.Directory != 0 && w.gaps != s.Gaps {
		w.gaps, w.syncReason = s.Gaps, OperationGap
		fader{o.d}.beginFades(w)
	}
	return true
}

// mayYield reports whether a worker was not heard for so long that another directory's reports of it may be accepted.
func (o Replication) mayYield(now effects.Time, w *worker) bool {
	return now.Sub(w.heardAt) >= o.d.config.Yield
}

// mayBeOlder reports whether facts of another incarnation, reported by another directory, may be older than the
// incarnation that is heard here. A restarted directory reads from the log reports that concern former incarnations
// of workers. If the directory believed these reports, it would treat the present incarnation as ended, and refuse
// all messages of that incarnation.
func (o Replication) mayBeOlder(now effects.Time, w *worker, s *Sender) bool {
	return s.Directory != 0 && w.directory == 0 && !o.mayYield(now, w)
}

// adoptWorker changes the directory that a worker reports to. The records of the worker stay until the worker has sent
// a full sync, or fade.
func (o Replication) adoptWorker(h table.Handle, w *worker, s *Sender) {
	d := o.d
	for fh := w.feeds.Front(); fh != 0; fh = d.feeds.Next(fh) {
		f := d.feeds.Get(fh)
		if f.sync != 0 {
			d.endSync(f.sync)
		}
		if f.state == sequenceFresh {
			f.state = sequenceOpen
		}
	}
	d.syncs.releaseSlot(w)
	w.anySequence, w.syncReason = true, UnknownWorker
	fader{d}.beginFades(w)
	d.roster.setDirectory(h, w, s)
}

// announceRegistration handles a worker that became known by a registration. Before this directory has read the shared
// log for the first time, it cannot know whether its replicas follow the worker by another directory, for example by an
// earlier incarnation of this directory, which will report nothing more. Therefore the replicas are notified in that
// case.
func (o Replication) announceRegistration(w *worker, s *Sender) {
	if o.d.logReadUntil == 0 {
		o.announceWorker(w, s)
	}
}

// announceWorker handles a worker that became known by a heartbeat: the worker registered with an earlier incarnation
// of this directory, or with another directory. The replicas are notified that the worker reports here now.
func (o Replication) announceWorker(w *worker, s *Sender) {
	if w.directory == 0 {
		o.d.roster.recordTaken(w, s)
	}
}

// DrainTaken returns the workers that began to report to this directory since the previous call, and that another
// directory reported until then, or may have reported.
func (o Replication) DrainTaken() []WorkerRef {
	all := o.d.roster.takenWorkers
	o.d.roster.takenWorkers = all[:0]
	return all
}

// DrainGone returns the workers of this directory that were dropped since the previous call without having
// deregistered.
func (o Replication) DrainGone() []WorkerRef {
	all := o.d.roster.goneWorkers
	o.d.roster.goneWorkers = all[:0]
	return all
}

// ReassignWorker records that a worker reports to the directory s.Directory from now on, whichever directory reported
// the worker before. It does nothing for workers that this directory hears itself, and for workers of another identity:
// a directory that did not know such a worker may have admitted a stranger by its name.
func (o Replication) ReassignWorker(now effects.Time, s Sender) {
	h := o.d.roster.findWorker(&s)
	if w := o.d.roster.workers.Get(h); h != 0 && w.directory != 0 && w.directory != s.Directory && !o.d.roster.isForbidden(w, &s) {
		o.adoptWorker(h, w, &s)
		o.d.roster.recordHeard(now, h, w, &s)
	}
}

// RecordCaughtUp records that all reports of other directories up to now have been read. A worker of another directory
// is silent if the log has been read and contains no fact of the worker; while the log cannot be read, no such worker
// counts as silent.
func (o Replication) RecordCaughtUp(now effects.Time) { o.d.logReadUntil = max(o.d.logReadUntil, now) }

// nextSilent returns the worker of another directory with the oldest last report, if [Config.Silence] is over for that
// worker; otherwise 0.
func (o Replication) nextSilent() table.Handle {
	d := o.d
	h := d.roster.expected[1].Front()
	if h == 0 || d.config.Silence == 0 || d.roster.workers.Get(h).heardAt.Add(d.config.Silence) > d.logReadUntil {
		return 0
	}
	return h
}

// A WorkerRef names a worker, and in Directory the directory that hears the worker. Principal is the identity that the
// worker has proved to this directory, if the worker began to report here.
type WorkerRef struct {
	Directory uint64
	Instance  string
	Worker    uint32
	Principal effects.Principal
}

// A WantBackoff limits how often the same worker is wanted: again after Min, then each time after twice the previous
// time, up to Max. A worker that was not wanted for twice Max, or was dropped meanwhile, begins again with Min.
// Therefore, in any span of twice Max, a worker is wanted at most two times more often than Min can be doubled
// before reaching Max; and once nothing is lost any more, a worker with missing operations is wanted within Max.
type WantBackoff struct{ Min, Max effects.Duration }

// nextDelay returns how long a worker that is wanted now is not wanted again.
func (p WantBackoff) nextDelay(now effects.Time, w *worker) effects.Duration {
	if w.wantDelay == 0 || now.Sub(w.wantedAt) >= 2*p.Max {
		return p.Min
	}
	return min(2*w.wantDelay, p.Max)
}

// CollectWanted examines the next few workers, at most [Config.EndsPerStep], and appends each worker that another
// directory hears and of which operations are missing here.
func (o Replication) CollectWanted(now effects.Time, backoff WantBackoff, wants []WorkerRef) []WorkerRef {
	d := o.d
	slots := d.roster.workers.Slots()
	for range min(slots, int32(d.config.EndsPerStep)) {
		if d.lastExamined++; d.lastExamined >= slots {
			d.lastExamined = 0
		}
		h := d.roster.workers.At(d.lastExamined)
		if h == 0 {
			continue
		}
		w := d.roster.workers.Get(h)
		if w.directory == 0 || w.syncs > 0 || syncReason(&d.feeds, w) == NoSync || now.Sub(w.wantedAt) < w.wantDelay {
			continue
		}
		w.wantedAt, w.wantDelay = now, backoff.nextDelay(now, w)
		d.addNote(WorkerWanted, w, "")
		wants = append(wants, WorkerRef{Directory: w.directory, Instance: d.roster.instanceOf(w).name, Worker: w.rank})
	}
	return wants
}

// RequestSync schedules a full sync of a worker that reports here, because another directory wants the worker.
// RequestSync returns NotFound if the worker does not report here.
func (o Replication) RequestSync(s Sender) effects.Code {
	h := o.d.roster.findWorker(&s)
	if h == 0 || o.d.roster.workers.Get(h).directory != 0 {
		return effects.NotFound
	}
	if w := o.d.roster.workers.Get(h); w.syncReason == NoSync {
		w.syncReason = ReplicaGap
	}
	return effects.OK
}

// ForgetWorker drops a worker that reports to the directory s.Directory, which does not hear the worker any more.
func (o Replication) ForgetWorker(s Sender) {
	if h := o.d.roster.findWorker(&s); h != 0 && s.Directory != 0 && o.d.roster.workers.Get(h).directory == s.Directory {
		o.d.addNote(WorkerLeft, o.d.roster.workers.Get(h), "")
		o.d.removeWorker(h)
	}
}

// CountRemoteWorkers returns the number of workers that are known only by the reports of another directory.
func (o Replication) CountRemoteWorkers() int {
	return o.d.roster.expected[1].Len() + o.d.roster.quiet[1].Len()
}
