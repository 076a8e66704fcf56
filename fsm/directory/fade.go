package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// A fade limits how long old records of a location with missing operations are trusted. Chunks that were reported
// before the gap may have been evicted since, and a worker that sends no heartbeats is never asked for a full sync.
// Therefore, when the fade's time is over, only chunks reported since the gap are kept.
type fade struct {
	feed  table.Handle
	young index.Holder // chunks reported since the fade began; 0: no holder was free
	began effects.Time
	again bool // more operations were lost since the fade began
}

// fades holds the fades in progress.
type fades struct {
	rows    table.Slab[fade]
	waiting table.List // oldest first
}

// age groups the methods of a Directory that handle fades.
type age struct{ *Directory }

// next returns the oldest fade and the instant at which the fade's time is over; ok is false if there is none.
func (d age) next() (h table.Handle, at effects.Time, ok bool) {
	if h = d.fades.waiting.Front(); h == 0 {
		return 0, 0, false
	}
	return h, d.fades.rows.Get(h).began.Add(d.config.Fade), true
}

// begin starts a fade of a feed, or records in the feed's current fade that more operations were lost.
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

// beginAll starts a fade for each location of a worker.
func (d age) beginAll(w *worker) {
	for h := w.feeds.Front(); h != 0; h = d.feeds.Next(h) {
		d.begin(h)
	}
}

// end cancels the fade of a feed, because a full sync replaced the records or the location was removed. It does
// nothing if the feed has no fade.
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

// over completes a fade: the chunks reported since the fade began replace all earlier ones. If no holder was free, or
// more operations were lost meanwhile, a new fade begins.
func (d age) over(h table.Handle) {
	x := d.fades.rows.Get(h)
	fh, again := x.feed, x.again || x.young == 0
	f := d.feeds.Get(fh)
	if x.young != 0 {
		f.holder, x.young = x.young, f.holder // end retires the old holder with the fade.
		d.owners[f.holder], d.owners[x.young] = fh, 0
		d.chunks.Show(f.holder)
		d.note(Faded, d.known.workers.Get(f.worker), f.location)
	}
	if d.end(f); again {
		d.begin(fh)
	}
}
