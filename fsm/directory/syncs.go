package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// A sync is a full sync in progress. The sync fills a separate holder, which replaces the holder of the feed when
// everything has arrived. Operations that arrive meanwhile are applied to both holders.
type sync struct {
	feed    table.Handle
	id      []byte
	holder  index.Holder
	batches int
	left    int      // batches that have not arrived
	seen    []uint64 // bit set of the batches that arrived
	ended   bool     // the worker has sent all batches
	said    int64    // chunks by the worker's count
	told    int64    // chunks in the batches that arrived
	began   effects.Time
	at      effects.Time // time of the last progress that counted
	full    int          // batches that arrived with chunks
	gaps    uint64       // the worker's gaps when the sync began
}

// syncs holds the syncs in progress and the slots for them. A worker that was asked for a sync occupies a slot too,
// for a limited time. No origin gets more slots than remain free for further origins.
type syncs struct {
	rows    table.Slab[sync]
	waiting table.List // oldest progress first
	asked   table.Slab[promise]
	first   table.List // promises, oldest first
	share   table.Share
}

// A promise is the slot of a worker that was asked for a full sync and has not begun the sync.
type promise struct {
	worker table.Handle
	at     effects.Time
}

func newSyncs(c *Config) syncs {
	return syncs{
		rows: table.NewSlab[sync](c.Syncs), asked: table.NewSlab[promise](c.Syncs),
		share: new(table.Share).Emptied(c.Syncs, c.classes()),
	}
}

// may reports whether there is a slot for a sync of a worker.
func (t *syncs) may(w *worker) bool { return w.asked != 0 || t.share.May(w.class()) }

// ask reserves a slot for a worker; ok is false if there is none.
func (t *syncs) ask(now effects.Time, h table.Handle, w *worker) bool {
	if !t.may(w) {
		return false
	}
	p, x := t.asked.Add()
	*x = promise{worker: h, at: now}
	t.asked.PushBack(&t.first, p)
	t.share.Take(w.class())
	w.asked = p
	return true
}

// unask releases the slot that was reserved for a worker, if any.
func (t *syncs) unask(w *worker) {
	if w.asked != 0 {
		t.asked.Unlink(&t.first, w.asked)
		t.asked.Remove(w.asked)
		t.share.Give(w.class())
		w.asked = 0
	}
}

// promised returns the worker with the oldest reserved slot, and the instant of its reservation; ok is false if there
// is none.
func (t *syncs) promised() (h table.Handle, at effects.Time, ok bool) {
	if h = t.first.Front(); h == 0 {
		return 0, 0, false
	}
	x := t.asked.Get(h)
	return x.worker, x.at, true
}

// add begins a sync. The caller has checked that there is a slot.
func (t *syncs) add(now effects.Time, w *worker, b *SyncBegin, feed table.Handle, holder index.Holder) table.Handle {
	t.unask(w)
	h, s := t.rows.Add()
	words := (int(b.Batches) + 63) / 64
	*s = sync{
		feed: feed, id: append(table.ShedBytes(s.id), b.ID...), holder: holder, batches: int(b.Batches), left: int(b.Batches),
		seen: append(table.Shed(s.seen), make([]uint64, words)...), began: now, at: now, gaps: w.gaps,
	}
	t.rows.PushBack(&t.waiting, h)
	t.share.Take(w.class())
	w.syncs++
	return h
}

// batchesPer is the number of batches with chunks that a sync must deliver in each further span of the patience, once
// the first span is over. A slower sync does not count as making progress, because it would occupy a slot without an
// end.
const batchesPer = 64

// goes records the progress of a sync, if the sync has been fast enough.
func (t *syncs) goes(now effects.Time, h table.Handle, patience effects.Duration) {
	s := t.rows.Get(h)
	if now.Sub(s.began) > patience+effects.Duration(s.full)*(patience/batchesPer) {
		return
	}
	s.at = now
	t.rows.Unlink(&t.waiting, h)
	t.rows.PushBack(&t.waiting, h)
}

// went returns the sync with the oldest last progress, and the instant of that progress; ok is false if there is
// none.
func (t *syncs) went() (h table.Handle, at effects.Time, ok bool) {
	if h = t.waiting.Front(); h == 0 {
		return 0, 0, false
	}
	return h, t.rows.Get(h).at, true
}

// remove deletes a sync of a worker and frees the slot.
func (t *syncs) remove(h table.Handle, w *worker) {
	t.share.Give(w.class())
	w.syncs--
	t.rows.Unlink(&t.waiting, h)
	t.rows.Remove(h)
}

// come reports whether a batch has arrived.
func (s *sync) come(batch int64) bool { return s.seen[batch/64]>>(batch%64)&1 != 0 }

func (s *sync) progress(missing []int64) Progress {
	p := Progress{Missing: missing}
	if s.batches > 0 {
		p.Done = 10_000 * (s.batches - s.left) / s.batches
	}
	for n := range int64(s.batches) {
		if !s.come(n) && len(p.Missing) < cap(p.Missing) {
			p.Missing = append(p.Missing, n)
		}
	}
	return p
}
