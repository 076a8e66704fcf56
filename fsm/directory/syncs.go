package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// A sync is a full sync in progress. The sync fills a separate holder, which replaces the holder of the feed when
// everything has arrived. Operations that arrive meanwhile are applied to both holders.
type sync struct {
	feed          table.Handle
	id            []byte
	holder        index.Holder
	batches       int
	batchesLeft   int      // batches that have not arrived
	arrivedBits   []uint64 // bit set of the batches that arrived
	endReceived   bool     // the worker has sent all batches
	statedChunks  int64    // chunks by the worker's count
	arrivedChunks int64    // chunks in the batches that arrived
	beganAt       effects.Time
	progressAt    effects.Time // time of the last progress that counted
	fullBatches   int          // batches that arrived with chunks
	gaps          uint64       // the worker's gaps when the sync began
}

// syncs holds the syncs in progress and the slots for them. A worker that was asked for a sync occupies a slot too,
// for a limited time. No origin gets more slots than remain free for further origins.
type syncs struct {
	rows             table.Slab[sync]
	progressOrder    table.List // oldest progress first
	reservations     table.Slab[reservation]
	reservationOrder table.List // promises, oldest first
	share            table.Share
}

// A reservation is the slot of a worker that was asked for a full sync and has not begun the sync.
type reservation struct {
	worker table.Handle
	at     effects.Time
}

func newSyncs(c *Config) syncs {
	return syncs{
		rows: table.NewSlab[sync](c.Syncs), reservations: table.NewSlab[reservation](c.Syncs),
		share: new(table.Share).Recycle(c.Syncs, c.maxOrigins()),
	}
}

// hasSlot reports whether there is a slot for a sync of a worker.
func (t *syncs) hasSlot(w *worker) bool { return w.reservation != 0 || t.share.HasRoom(w.shareClass()) }

// reserveSlot reserves a slot for a worker; ok is false if there is none.
func (t *syncs) reserveSlot(now effects.Time, h table.Handle, w *worker) bool {
	if !t.hasSlot(w) {
		return false
	}
	p, x := t.reservations.Add()
	*x = reservation{worker: h, at: now}
	t.reservations.PushBack(&t.reservationOrder, p)
	t.share.Acquire(w.shareClass())
	w.reservation = p
	return true
}

// releaseSlot releases the slot that was reserved for a worker, if any.
func (t *syncs) releaseSlot(w *worker) {
	if w.reservation != 0 {
		t.reservations.Unlink(&t.reservationOrder, w.reservation)
		t.reservations.Remove(w.reservation)
		t.share.Release(w.shareClass())
		w.reservation = 0
	}
}

// oldestReservation returns the worker with the oldest reserved slot, and the instant of its reservation; ok is false
// if there is none.
func (t *syncs) oldestReservation() (h table.Handle, at effects.Time, ok bool) {
	if h = t.reservationOrder.Front(); h == 0 {
		return 0, 0, false
	}
	x := t.reservations.Get(h)
	return x.worker, x.at, true
}

// addSync begins a sync. The caller has checked that there is a slot.
func (t *syncs) addSync(now effects.Time, w *worker, b *SyncBegin, feed table.Handle, holder index.Holder) table.Handle {
	t.releaseSlot(w)
	h, s := t.rows.Add()
	words := (int(b.Batches) + 63) / 64
	*s = sync{
		feed: feed, id: append(table.TrimBytes(s.id), b.ID...), holder: holder, batches: int(b.Batches), batchesLeft: int(b.Batches),
		arrivedBits: append(table.TrimSlice(s.arrivedBits), make([]uint64, words)...), beganAt: now, progressAt: now, gaps: w.gaps,
	}
	t.rows.PushBack(&t.progressOrder, h)
	t.share.Acquire(w.shareClass())
	w.syncs++
	return h
}

// minBatchesPerSpan is the number of batches with chunks that a sync must deliver in each further span of the patience,
// once the first span is over. A slower sync does not count as making progress, because it would occupy a slot without
// an end.
const minBatchesPerSpan = 64

// recordProgress records the progress of a sync, if the sync has been fast enough.
func (t *syncs) recordProgress(now effects.Time, h table.Handle, patience effects.Duration) {
	s := t.rows.Get(h)
	if now.Sub(s.beganAt) > patience+effects.Duration(s.fullBatches)*(patience/minBatchesPerSpan) {
		return
	}
	s.progressAt = now
	t.rows.Unlink(&t.progressOrder, h)
	t.rows.PushBack(&t.progressOrder, h)
}

// oldestProgress returns the sync with the oldest last progress, and the instant of that progress; ok is false if there
// is none.
func (t *syncs) oldestProgress() (h table.Handle, at effects.Time, ok bool) {
	if h = t.progressOrder.Front(); h == 0 {
		return 0, 0, false
	}
	return h, t.rows.Get(h).progressAt, true
}

// removeSync deletes a sync of a worker and frees the slot.
func (t *syncs) removeSync(h table.Handle, w *worker) {
	t.share.Release(w.shareClass())
	w.syncs--
	t.rows.Unlink(&t.progressOrder, h)
	t.rows.Remove(h)
}

// hasBatch reports whether a batch has arrived.
func (s *sync) hasBatch(batch int64) bool { return s.arrivedBits[batch/64]>>(batch%64)&1 != 0 }

func (s *sync) describeProgress(missing []int64) Progress {
	p := Progress{Missing: missing}
	if s.batches > 0 {
		p.Done = 10_000 * (s.batches - s.batchesLeft) / s.batches
	}
	for n := range int64(s.batches) {
		if !s.hasBatch(n) && len(p.Missing) < cap(p.Missing) {
			p.Missing = append(p.Missing, n)
		}
	}
	return p
}
