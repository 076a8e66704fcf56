package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// A sync is a location's account of all that it has. It fills a holder of its own, which takes the place of the one
// before when all is there. Operations that come meanwhile are applied to both.
type sync struct {
	feed    table.Handle
	id      []byte
	holder  index.Holder
	batches int
	left    int      // of them
	seen    []uint64 // which of them came, a bit each
	ended   bool     // the worker has sent all
	said    int64    // chunks
	told    int64    // that came
	began   effects.Time
	at      effects.Time // it went on
	full    int          // batches that came and told of a chunk
	gaps    uint64       // of the worker as it began
}

// syncs are those under way, and the places for them: a worker that was asked for one has a place too, for a while. No
// origin has more places than it leaves.
type syncs struct {
	rows    table.Slab[sync]
	waiting table.List // those that went on longest ago first
	asked   table.Slab[promise]
	first   table.List // of those, the oldest first
	share   table.Share
}

// A promise is the place of a worker that was asked for a full sync and has not begun it.
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

// may says whether there is a place for one of a worker.
func (t *syncs) may(w *worker) bool { return w.asked != 0 || t.share.May(w.class()) }

// ask gives a worker a place to begin one, if there is any.
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

// unask takes the place back.
func (t *syncs) unask(w *worker) {
	if w.asked != 0 {
		t.asked.Unlink(&t.first, w.asked)
		t.asked.Remove(w.asked)
		t.share.Give(w.class())
		w.asked = 0
	}
}

// promised is the worker that was asked longest ago, and when; ok is false if there is none.
func (t *syncs) promised() (h table.Handle, at effects.Time, ok bool) {
	if h = t.first.Front(); h == 0 {
		return 0, 0, false
	}
	x := t.asked.Get(h)
	return x.worker, x.at, true
}

// add begins one, for which there must be a place.
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

// batchesPer is how many batches with chunks a full sync tells within its patience at least, once that is over. One
// that tells less holds a place and does not go on.
const batchesPer = 64

// goes notes that one went on, if it did so fast enough.
func (t *syncs) goes(now effects.Time, h table.Handle, patience effects.Duration) {
	s := t.rows.Get(h)
	if now.Sub(s.began) > patience+effects.Duration(s.full)*(patience/batchesPer) {
		return
	}
	s.at = now
	t.rows.Unlink(&t.waiting, h)
	t.rows.PushBack(&t.waiting, h)
}

// went is the one that went on longest ago, and when; ok is false if there is none.
func (t *syncs) went() (h table.Handle, at effects.Time, ok bool) {
	if h = t.waiting.Front(); h == 0 {
		return 0, 0, false
	}
	return h, t.rows.Get(h).at, true
}

// remove ends one of a worker.
func (t *syncs) remove(h table.Handle, w *worker) {
	t.share.Give(w.class())
	w.syncs--
	t.rows.Unlink(&t.waiting, h)
	t.rows.Remove(h)
}

// come says whether a batch has come.
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
