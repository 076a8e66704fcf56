package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// BeginSync begins a full sync of a location. A sync of the same location with another id is given up; if the id is
// the same, the sync continues. BeginSync returns TooMany if there is no sync slot or no holder for the worker.
func (d *Directory) BeginSync(now effects.Time, b *SyncBegin) effects.Code {
	wh, w, code := d.sender(now, &b.Sender)
	switch {
	case code != effects.OK:
		return code
	case b.Batches < 0:
		return effects.Invalid
	case b.Batches > int64(d.config.Batches) || len(b.ID) > d.config.Text:
		return effects.TooLarge
	}
	fh, code := d.feed(wh, w, b.Location)
	if code != effects.OK {
		return code
	}
	f := d.feeds.Get(fh)
	if f.sync != 0 {
		if string(d.syncs.rows.Get(f.sync).id) == string(b.ID) {
			return effects.OK
		}
		f.ask = SyncLost
		d.endSync(f.sync)
	}
	holder := index.Holder(0)
	if d.syncs.may(w) {
		holder = d.open(w)
	}
	if holder == 0 {
		if w.by != 0 {
			f.ask = SyncLost // The other directory let the worker begin the sync.
		}
		return effects.TooMany
	}
	h := d.syncs.add(now, w, b, fh, holder)
	f.sync, f.ask = h, NoSync
	f.resume(b)
	d.note(SyncBegan, w, f.location)
	return effects.OK
}

// syncing returns the worker and the worker's sync with that id, or NotFound if no such sync is in progress.
func (d *Directory) syncing(now effects.Time, s *Sender, location, id []byte) (*worker, table.Handle, effects.Code) {
	_, w, code := d.sender(now, s)
	if code != effects.OK {
		return nil, 0, code
	}
	if f := d.location(w, location); f != 0 {
		if h := d.feeds.Get(f).sync; h != 0 && string(d.syncs.rows.Get(h).id) == string(id) {
			return w, h, effects.OK
		}
	}
	return nil, 0, effects.NotFound
}

// SyncBatch adds a batch to a sync. A batch that arrived before is ignored. A batch that is too large is refused and
// counts as missing.
func (d *Directory) SyncBatch(now effects.Time, b *SyncBatch) effects.Code {
	w, h, code := d.syncing(now, &b.Sender, b.Location, b.ID)
	if code != effects.OK {
		return code
	}
	s := d.syncs.rows.Get(h)
	switch {
	case b.Batch < 0 || b.Batch >= int64(s.batches):
		return effects.Invalid
	case len(b.Hashes) > d.config.Hashes:
		return effects.TooLarge
	case s.come(b.Batch):
		return effects.OK
	}
	s.seen[b.Batch/64] |= 1 << (b.Batch % 64)
	s.left--
	if s.told += int64(len(b.Hashes)); len(b.Hashes) > 0 {
		s.full++
	}
	for _, hash := range b.Hashes {
		if d.chunks.Add(s.holder, hash) == index.Crowded {
			code = effects.TooMany
		}
	}
	if code == effects.TooMany {
		d.note(LeftOut, w, d.feeds.Get(s.feed).location)
	}
	return first(code, d.went(now, w, h))
}

// EndSync records that the worker has sent all batches. The sync is completed as soon as all batches have arrived,
// now or later. Mismatch means that the sync was completed although the number of chunks differs from the worker's
// count.
func (d *Directory) EndSync(now effects.Time, e *SyncEnd) effects.Code {
	w, h, code := d.syncing(now, &e.Sender, e.Location, e.ID)
	if code != effects.OK {
		return code
	}
	s := d.syncs.rows.Get(h)
	s.ended, s.said = true, e.Chunks
	return d.went(now, w, h)
}

// went records progress of a sync, and completes the sync if all batches and the end have arrived. Completing
// exchanges the holders of the feed and of the sync in one step, so that lookups see either all old records or all
// new records.
func (d *Directory) went(now effects.Time, w *worker, h table.Handle) effects.Code {
	d.syncs.goes(now, h, d.config.Patience)
	s := d.syncs.rows.Get(h)
	if !s.ended || s.left > 0 {
		return effects.OK
	}
	code := effects.OK
	if s.said != s.told {
		code = effects.Mismatch
	}
	f := d.feeds.Get(s.feed)
	old := f.holder
	f.holder, s.holder = s.holder, old // endSync retires the old holder.
	d.owners[f.holder], d.owners[old] = s.feed, 0
	d.chunks.Show(f.holder)
	f.synced = append(table.ShedBytes(f.synced), s.id...)
	if s.gaps == w.gaps {
		w.ask = NoSync // Otherwise reports may have been lost since the sync began.
	}
	if (age{d}).end(f); f.ask != NoSync || w.ask != NoSync {
		age{d}.begin(s.feed)
	}
	d.note(SyncTaken, w, f.location)
	d.endSync(h)
	return code
}

// endSync removes a sync and retires the holder of the sync.
func (d *Directory) endSync(h table.Handle) {
	s := d.syncs.rows.Get(h)
	f := d.feeds.Get(s.feed)
	f.sync = 0
	d.chunks.Retire(s.holder)
	d.syncs.remove(h, d.known.workers.Get(f.worker))
}

// giveUp ends a sync that makes no progress. The worker will be asked for a new sync.
func (d *Directory) giveUp(h table.Handle) {
	f := d.feeds.Get(d.syncs.rows.Get(h).feed)
	f.ask = SyncLost
	d.note(SyncGivenUp, d.known.workers.Get(f.worker), f.location)
	d.endSync(h)
}

// SyncStatus returns the progress of a sync, and appends to missing the numbers of the batches that have not arrived,
// up to the capacity of the slice. For an unknown sync it returns NotFound and sets Resume: the worker need not wait,
// because it will be asked for another sync.
func (d *Directory) SyncStatus(now effects.Time, from Sender, id []byte, missing []int64) (Progress, effects.Code) {
	w, code := d.asker(now, &from)
	if code != effects.OK {
		return Progress{Resume: true, Missing: missing}, code
	}
	for h := w.feeds.Front(); h != 0; h = d.feeds.Next(h) {
		f := d.feeds.Get(h)
		if f.sync != 0 && string(d.syncs.rows.Get(f.sync).id) == string(id) {
			return d.syncs.rows.Get(f.sync).progress(missing), effects.OK
		}
		if len(f.synced) > 0 && string(f.synced) == string(id) {
			return Progress{Complete: true, Resume: true, Done: 10_000, Missing: missing}, effects.OK
		}
	}
	return Progress{Resume: true, Missing: missing}, effects.NotFound
}
