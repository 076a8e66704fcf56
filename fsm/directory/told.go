package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Others groups the methods of a Directory for replication between directories. Several directories report to each
// other, through a shared log, what workers reported to them. A directory that hears a worker itself uses only the
// worker's own reports; reports of other directories serve those that do not hear the worker. Reports of another
// directory arrive in the order in which it received them, so they lead to the same records. Where some were lost,
// the worker is wanted, and the directory that hears the worker requests a full sync.
type Others struct{ d *Directory }

// Others returns the replication methods of the directory.
func (d *Directory) Others() Others { return Others{d} }

// passes reports whether a fact arrives from the directory that the worker currently reports to (s.By). If nothing
// was heard by that way for [Config.Yield], or the worker is heard here, then the worker is adopted and the fact is
// accepted. Facts may have been missed meanwhile, so the worker has to send a full sync.
func (o Others) passes(now effects.Time, h table.Handle, w *worker, s *Sender) bool {
	if w.by != s.By {
		if s.By != 0 && !o.yields(now, w) {
			return false
		}
		o.adopt(h, w, s)
	}
	if s.By != 0 && w.gaps != s.Gaps {
		w.gaps, w.ask = s.Gaps, Gap
		age{o.d}.beginAll(w)
	}
	return true
}

// yields reports whether a worker was not heard for so long that another directory's reports of it may be accepted.
func (o Others) yields(now effects.Time, w *worker) bool { return now.Sub(w.heard) >= o.d.config.Yield }

// older reports whether facts of another incarnation, reported by another directory, may be older than the
// incarnation that is heard here. A restarted directory reads from the log reports that concern former incarnations
// of workers. If the directory believed these reports, it would treat the present incarnation as ended, and refuse
// all messages of that incarnation.
func (o Others) older(now effects.Time, w *worker, s *Sender) bool {
	return s.By != 0 && w.by == 0 && !o.yields(now, w)
}

// adopt changes the directory that a worker reports to. The records of the worker stay until the worker has sent a
// full sync, or fade.
func (o Others) adopt(h table.Handle, w *worker, s *Sender) {
	d := o.d
	for fh := w.feeds.Front(); fh != 0; fh = d.feeds.Next(fh) {
		f := d.feeds.Get(fh)
		if f.sync != 0 {
			d.endSync(f.sync)
		}
		if f.follow == fresh {
			f.follow = open
		}
	}
	d.syncs.unask(w)
	w.midway, w.ask = true, Unknown
	age{d}.beginAll(w)
	d.known.comes(h, w, s)
}

// joins handles a worker that became known by a registration. Before this directory has read the shared log for the
// first time, it cannot know whether its replicas follow the worker by another directory, for example by an earlier
// incarnation of this directory, which will report nothing more. Therefore the replicas are notified in that case.
func (o Others) joins(w *worker) {
	if o.d.read == 0 {
		o.meets(w)
	}
}

// meets handles a worker that became known by a heartbeat: the worker registered with an earlier incarnation of this
// directory, or with another directory. The replicas are notified that the worker reports here now.
func (o Others) meets(w *worker) {
	if w.by == 0 {
		o.d.known.takes(w)
	}
}

// Taken returns the workers that began to report to this directory since the previous call, and that another
// directory reported until then, or may have reported.
func (o Others) Taken() []Want {
	all := o.d.known.taken
	o.d.known.taken = all[:0]
	return all
}

// Gone returns the workers of this directory that were dropped since the previous call without having deregistered.
func (o Others) Gone() []Want {
	all := o.d.known.gone
	o.d.known.gone = all[:0]
	return all
}

// Take records that a worker reports to the directory s.By from now on, whichever directory reported the worker
// before. It does nothing for workers that this directory hears itself.
func (o Others) Take(now effects.Time, s Sender) {
	h := o.d.known.find(&s)
	if w := o.d.known.workers.Get(h); h != 0 && w.by != 0 && w.by != s.By {
		o.adopt(h, w, &s)
		o.d.known.hear(now, h, w, &s)
	}
}

// CaughtUp records that all reports of other directories up to now have been read. A worker of another directory is
// silent if the log has been read and contains no fact of the worker; while the log cannot be read, no such worker
// counts as silent.
func (o Others) CaughtUp(now effects.Time) { o.d.read = max(o.d.read, now) }

// silent returns the worker of another directory with the oldest last report, if [Config.Silence] is over for that
// worker; otherwise 0.
func (o Others) silent() table.Handle {
	d := o.d
	h := d.known.expected[1].Front()
	if h == 0 || d.config.Silence == 0 || d.known.workers.Get(h).heard.Add(d.config.Silence) > d.read {
		return 0
	}
	return h
}

// A Want names a worker and the directory By that hears the worker.
type Want struct {
	By       uint64
	Instance string
	Worker   uint32
}

// A Pace limits how often the same worker is wanted: again after Least, then each time after twice the previous time,
// up to Most. A worker that was not wanted for twice Most, or was dropped meanwhile, begins again with Least.
// Therefore, in any span of twice Most, a worker is wanted at most two times more often than Least can be doubled
// before reaching Most; and once nothing is lost any more, a worker with missing operations is wanted within Most.
type Pace struct{ Least, Most effects.Duration }

// after returns how long a worker that is wanted now is not wanted again.
func (p Pace) after(now effects.Time, w *worker) effects.Duration {
	if w.waits == 0 || now.Sub(w.wanted) >= 2*p.Most {
		return p.Least
	}
	return min(2*w.waits, p.Most)
}

// Wanted examines the next few workers, at most [Config.Ends], and appends each worker that another directory hears
// and of which operations are missing here.
func (o Others) Wanted(now effects.Time, again Pace, wants []Want) []Want {
	d := o.d
	slots := d.known.workers.Slots()
	for range min(slots, int32(d.config.Ends)) {
		if d.looked++; d.looked >= slots {
			d.looked = 0
		}
		h := d.known.workers.At(d.looked)
		if h == 0 {
			continue
		}
		w := d.known.workers.Get(h)
		if w.by == 0 || w.syncs > 0 || why(&d.feeds, w) == NoSync || now.Sub(w.wanted) < w.waits {
			continue
		}
		w.wanted, w.waits = now, again.after(now, w)
		d.note(Wanted, w, "")
		wants = append(wants, Want{w.by, d.known.of(w).name, w.rank})
	}
	return wants
}

// Ask schedules a full sync of a worker that reports here, because another directory wants the worker. Ask returns
// NotFound if the worker does not report here.
func (o Others) Ask(s Sender) effects.Code {
	h := o.d.known.find(&s)
	if h == 0 || o.d.known.workers.Get(h).by != 0 {
		return effects.NotFound
	}
	if w := o.d.known.workers.Get(h); w.ask == NoSync {
		w.ask = Elsewhere
	}
	return effects.OK
}

// Forget drops a worker that reports to the directory s.By, which does not hear the worker any more.
func (o Others) Forget(s Sender) {
	if h := o.d.known.find(&s); h != 0 && s.By != 0 && o.d.known.workers.Get(h).by == s.By {
		o.d.note(Left, o.d.known.workers.Get(h), "")
		o.d.end(h)
	}
}

// Told returns the number of workers that are known only by the reports of another directory.
func (o Others) Told() int { return o.d.known.expected[1].Len() + o.d.known.quiet[1].Len() }
