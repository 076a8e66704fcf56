package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Others is a directory as far as it has to do with other ones. Several tell each other what workers told them. Who
// hears a worker itself believes that alone, and what another tells of it is for those who do not hear it. What is told
// comes in the order in which it was heard, so it leads to what the teller knows; where something of it was lost, the
// worker is wanted, and whoever hears it asks it for all that it has.
type Others struct{ d *Directory }

// Others is the directory in this regard.
func (d *Directory) Others() Others { return Others{d} }

// passes says whether a fact comes the way on which its worker is known. Who was heard by nobody on that way for a
// while is known by whichever way it is heard now. What was missed meanwhile nobody can say: so it is to tell all that
// it has.
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

// yields says whether a worker may become known another way than by those who heard it until now.
func (o Others) yields(now effects.Time, w *worker) bool { return now.Sub(w.heard) >= o.d.config.Yield }

// older says whether what is told of another incarnation may be of one before that which is heard here itself. A
// directory that began anew reads of workers' former lives what was told in its own: were they believed, the present
// one would be taken for one that is over, and never be heard again.
func (o Others) older(now effects.Time, w *worker, s *Sender) bool {
	return s.By != 0 && w.by == 0 && !o.yields(now, w)
}

// adopt has a worker be known by another way. What is known of it stays until it has told all.
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

// joins notes that a worker is known by a registration. Who has not read yet what others told does not know whether
// they hear of it by somebody else, such as a life of its own before this one, of which they will hear no more.
func (o Others) joins(w *worker) {
	if o.d.read == 0 {
		o.meets(w)
	}
}

// meets notes that one is known by a heartbeat: it registered with a life before this one, or with somebody else.
func (o Others) meets(w *worker) {
	if w.by == 0 {
		o.d.known.takes(w)
	}
}

// Taken gives the workers that are heard here since it was called last, and that other directories told of until then,
// or may have told of.
func (o Others) Taken() []Want {
	all := o.d.known.taken
	o.d.known.taken = all[:0]
	return all
}

// Gone gives the workers that were heard here and were forgotten since it was called last, though they said nothing of
// leaving.
func (o Others) Gone() []Want {
	all := o.d.known.gone
	o.d.known.gone = all[:0]
	return all
}

// Take has a worker be known by another directory from now on, whoever told of it, unless it is heard here.
func (o Others) Take(now effects.Time, s Sender) {
	h := o.d.known.find(&s)
	if w := o.d.known.workers.Get(h); h != 0 && w.by != 0 && w.by != s.By {
		o.adopt(h, w, &s)
		o.d.known.hear(now, h, w, &s)
	}
}

// CaughtUp says that all was heard by now that other directories told. A worker of theirs is silent if they tell
// nothing of it: while nothing can be heard of them, none is.
func (o Others) CaughtUp(now effects.Time) { o.d.read = max(o.d.read, now) }

// silent is the worker of which was told longest ago, if that is too long ago; 0: there is none.
func (o Others) silent() table.Handle {
	d := o.d
	h := d.known.expected[1].Front()
	if h == 0 || d.config.Silence == 0 || d.known.workers.Get(h).heard.Add(d.config.Silence) > d.read {
		return 0
	}
	return h
}

// A Want is a worker that another directory hears.
type Want struct {
	By       uint64
	Instance string
	Worker   uint32
}

// A Pace is how soon a worker is wanted again: after Least, then each time after twice as long, to Most. One that was
// not wanted for twice Most, or was forgotten, begins anew. So whatever is lost, in any span of twice Most it is wanted
// at most twice more often than Least can be doubled until it is Most; and when nothing is lost any more, Most later at
// the latest.
type Pace struct{ Least, Most effects.Duration }

// after is how long a worker is not wanted again that is wanted now.
func (p Pace) after(now effects.Time, w *worker) effects.Duration {
	if w.waits == 0 || now.Sub(w.wanted) >= 2*p.Most {
		return p.Least
	}
	return min(2*w.waits, p.Most)
}

// Wanted appends of which workers something is missing here, of the next few.
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

// Ask has a worker that is heard here be asked for a full sync, because another directory wants it. NotFound: it is not
// heard here.
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

// Forget ends a worker that is known by s.By alone, which does not hear it any more.
func (o Others) Forget(s Sender) {
	if h := o.d.known.find(&s); h != 0 && s.By != 0 && o.d.known.workers.Get(h).by == s.By {
		o.d.note(Left, o.d.known.workers.Get(h), "")
		o.d.end(h)
	}
}

// Told is how many workers are known by what other directories tell alone.
func (o Others) Told() int { return o.d.known.expected[1].Len() + o.d.known.quiet[1].Len() }
