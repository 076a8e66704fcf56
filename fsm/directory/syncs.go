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
	at      effects.Time
	gaps    uint64 // of the worker as it began
}

// syncs are those under way, and the places for them: those who were asked for one have a place too. No instance has
// more than it leaves.
type syncs struct {
	rows    table.Slab[sync]
	waiting table.List // those that went on longest ago first
	share   table.Share
	asked   int // workers
}

func newSyncs(c *Config) syncs {
	return syncs{rows: table.NewSlab[sync](c.Syncs), share: new(table.Share).Emptied(c.Syncs, c.Instances)}
}

// may says whether there is a place for one of a worker.
func (t *syncs) may(w *worker) bool { return t.share.May(group(w)) }

// ask gives a worker a place to begin one, if there is any.
func (t *syncs) ask(w *worker) bool {
	if t.rows.Len()+t.asked >= t.rows.Max() || !t.may(w) {
		return false
	}
	w.asked = true
	t.asked++
	return true
}

// unask takes the place back.
func (t *syncs) unask(w *worker) {
	if w.asked {
		w.asked = false
		t.asked--
	}
}

// add begins one, for which there must be a place.
func (t *syncs) add(now effects.Time, w *worker, b *SyncBegin, feed table.Handle, holder index.Holder) table.Handle {
	h, s := t.rows.Add()
	words := (int(b.Batches) + 63) / 64
	*s = sync{
		feed: feed, id: append(table.ShedBytes(s.id), b.ID...), holder: holder, batches: int(b.Batches), left: int(b.Batches),
		seen: append(table.Shed(s.seen), make([]uint64, words)...), at: now, gaps: w.gaps,
	}
	t.rows.PushBack(&t.waiting, h)
	t.share.Take(group(w))
	w.syncs++
	t.unask(w)
	return h
}

// goes notes that one went on.
func (t *syncs) goes(now effects.Time, h table.Handle) {
	t.rows.Get(h).at = now
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
	t.share.Give(group(w))
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
