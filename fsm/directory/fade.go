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
	feed        table.Handle
	youngHolder index.Holder // chunks reported since the fade began; 0: no holder was free
	beganAt     effects.Time
	lostAgain   bool // more operations were lost since the fade began
}

// fades holds the fades in progress.
type fades struct {
	rows  table.Slab[fade]
	order table.List // oldest first
}

// fader groups the methods of a Directory that handle fades.
type fader struct{ *Directory }

// oldestFade returns the oldest fade and the instant at which the fade's time is over; ok is false if there is none.
func (d fader) oldestFade() (h table.Handle, at effects.Time, ok bool) {
	if h = d.fades.order.Front(); h == 0 {
		return 0, 0, false
	}
	return h, d.fades.rows.Get(h).beganAt.Add(d.config.Fade), true
}

// beginFade starts a fade of a feed, or records in the feed's current fade that more operations were lost.
func (d fader) beginFade(fh table.Handle) {
	f := d.feeds.Get(fh)
	switch {
	case d.config.Fade == 0:
	case f.fade != 0:
		d.fades.rows.Get(f.fade).lostAgain = true
	default:
		h, x := d.fades.rows.Add()
		*x = fade{feed: fh, youngHolder: d.openHolder(d.roster.workers.Get(f.worker)), beganAt: d.now}
		d.fades.rows.PushBack(&d.fades.order, h)
		f.fade = h
	}
}

// beginFades starts a fade for each location of a worker.
func (d fader) beginFades(w *worker) {
	for h := w.feeds.Front(); h != 0; h = d.feeds.Next(h) {
		d.beginFade(h)
	}
}

// endFade cancels the fade of a feed, because a full sync replaced the records or the location was removed. It does
// nothing if the feed has no fade.
func (d fader) endFade(f *feed) {
	if f.fade == 0 {
		return
	}
	if young := d.fades.rows.Get(f.fade).youngHolder; young != 0 {
		d.chunks.RetireHolder(young)
	}
	d.fades.rows.Unlink(&d.fades.order, f.fade)
	d.fades.rows.Remove(f.fade)
	f.fade = 0
}

// completeFade completes a fade: the chunks reported since the fade began replace all earlier ones. If no holder was
// free, or more operations were lost meanwhile, a new fade begins.
func (d fader) completeFade(h table.Handle) {
	x := d.fades.rows.Get(h)
	fh, again := x.feed, x.lostAgain || x.youngHolder == 0
	f := d.feeds.Get(fh)
	if x.youngHolder != 0 {
		f.holder, x.youngHolder = x.youngHolder, f.holder // end retires the old holder with the fade.
		d.feedByHolder[f.holder], d.feedByHolder[x.youngHolder] = fh, 0
		d.chunks.ShowHolder(f.holder)
		d.addNote(RecordsFaded, d.roster.workers.Get(f.worker), f.location)
	}
	if d.endFade(f); again {
		d.beginFade(fh)
	}
}
