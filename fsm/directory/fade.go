package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// A fade is a location of which operations are missing. What it told before may have gone since, and who sends no
// heartbeats is never asked for all that it has: so after a while only what it told since is believed.
type fade struct {
	feed  table.Handle
	young index.Holder // what was told since; 0: there was no room for it
	began effects.Time
	again bool // more is missing since
}

// fades are those under way.
type fades struct {
	rows    table.Slab[fade]
	waiting table.List // those that began longest ago first
}

// age is a directory in this regard.
type age struct{ *Directory }

// next is the fade that began longest ago, and when its time is over; ok is false if there is none.
func (d age) next() (h table.Handle, at effects.Time, ok bool) {
	if h = d.fades.waiting.Front(); h == 0 {
		return 0, 0, false
	}
	return h, d.fades.rows.Get(h).began.Add(d.config.Fade), true
}

// begin begins one, or notes that more is missing.
func (d age) begin(fh table.Handle) {
	f := d.feeds.Get(fh)
	switch {
	case d.config.Fade == 0:
	case f.fade != 0:
		d.fades.rows.Get(f.fade).again = true
	default:
		h, x := d.fades.rows.Add()
		*x = fade{feed: fh, young: d.open(d.known.workers.Get(f.worker)), began: d.now}
		d.fades.rows.PushBack(&d.fades.waiting, h)
		f.fade = h
	}
}

// beginAll begins one of each location of a worker.
func (d age) beginAll(w *worker) {
	for h := w.feeds.Front(); h != 0; h = d.feeds.Next(h) {
		d.begin(h)
	}
}

// end ends one: all was told, or nothing of that location counts any more. Without one it does nothing.
func (d age) end(f *feed) {
	if f.fade == 0 {
		return
	}
	if young := d.fades.rows.Get(f.fade).young; young != 0 {
		d.chunks.Retire(young)
	}
	d.fades.rows.Unlink(&d.fades.waiting, f.fade)
	d.fades.rows.Remove(f.fade)
	f.fade = 0
}

// over takes one whose time is over. Where there was no room it begins anew.
func (d age) over(h table.Handle) {
	x := d.fades.rows.Get(h)
	fh, again := x.feed, x.again || x.young == 0
	f := d.feeds.Get(fh)
	if x.young != 0 {
		f.holder, x.young = x.young, f.holder // What was before goes with the fade.
		d.owners[f.holder], d.owners[x.young] = fh, 0
		d.chunks.Show(f.holder)
		d.note(Faded, d.known.workers.Get(f.worker), f.location)
	}
	if d.end(f); again {
		d.begin(fh)
	}
}
