package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// BeginSync begins a full sync of a location. A sync of the same location with another id is given up; if the id is
// the same, the sync continues. BeginSync returns TooMany if there is no sync slot or no holder for the worker.
func (d *Directory) BeginSync(now effects.Time, b *SyncBegin) effects.Code {
	wh, w, code := d.findReporter(now, &b.Sender)
	switch {
	case code != effects.OK:
		return code
	case b.Batches < 0:
		return effects.Invalid
	case b.Batches > int64(d.config.BatchesPerSync) || len(b.ID) > d.config.TextBytes:
		return effects.TooLarge
	}
	fh, code := d.findOrAddFeed(wh, w, b.Location)
	if code != effects.OK {
		return code
	}
	f := d.feeds.Get(fh)
	if f.sync != 0 {
		if string(d.syncs.rows.Get(f.sync).id) == string(b.ID) {
			return effects.OK
		}
		f.syncReason = SyncLost
		d.endSync(f.sync)
	}
	holder := index.Holder(0)
	if d.syncs.hasSlot(w) {
		holder = d.openHolder(w)
	}
	if holder == 0 {
		if w.directory != 0 {
			f.syncReason = SyncLost // The other directory let the worker begin the sync.
		}
		return effects.TooMany
	}
	h := d.syncs.addSync(now, w, b, fh, holder)
	f.sync, f.syncReason = h, NoSync
	f.expectAfterSync(b)
	d.addNote(SyncBegan, w, f.location)
	return effects.OK
}

// findSync returns the worker and the worker's sync with that id, or NotFound if no such sync is in progress.
func (d *Directory) findSync(now effects.Time, s *Sender, location, id []byte) (*worker, table.Handle, effects.Code) {
	_, w, code := d.findReporter(now, s)
	if code != effects.OK {
		return nil, 0, code
	}
	if f := d.findFeed(w, location); f != 0 {
		if h := d.feeds.Get(f).sync; h != 0 && string(d.syncs.rows.Get(h).id) == string(id) {
			return w, h, effects.OK
		}
	}
	return nil, 0, effects.NotFound
}

// AddSyncBatch adds a batch to a sync. A batch that arrived before is ignored. A batch that is too large is refused and
// counts as missing.
func (d *Directory) AddSyncBatch(now effects.Time, b *SyncBatch) effects.Code {
	w, h, code := d.findSync(now, &b.Sender, b.Location, b.ID)
	if code != effects.OK {
		return code
	}
	s := d.syncs.rows.Get(h)
	switch {
	case b.Batch < 0 || b.Batch >= int64(s.batches):
		return effects.Invalid
	case len(b.Hashes) > d.config.HashesPerBatch:
		return effects.TooLarge
	case s.hasBatch(b.Batch):
		return effects.OK
	}
	s.arrivedBits[b.Batch/64] |= 1 << (b.Batch % 64)
	s.batchesLeft--
	if s.arrivedChunks += int64(len(b.Hashes)); len(b.Hashes) > 0 {
		s.fullBatches++
	}
	for _, hash := range b.Hashes {
		if d.chunks.Add(s.holder, hash) == index.Crowded {
			code = effects.TooMany
		}
	}
	if code == effects.TooMany {
		d.addNote(ChunksLeftOut, w, d.feeds.Get(s.feed).location)
	}
	return firstError(code, d.advanceSync(now, w, h))
}

// EndSync records that the worker has sent all batches. The sync is completed as soon as all batches have arrived,
// now or later. Mismatch means that the sync was completed although the number of chunks differs from the worker's
// count.
func (d *Directory) EndSync(now effects.Time, e *SyncEnd) effects.Code {
	w, h, code := d.findSync(now, &e.Sender, e.Location, e.ID)
	if code != effects.OK {
		return code
	}
	s := d.syncs.rows.Get(h)
	s.endReceived, s.statedChunks = true, e.Chunks
	return d.advanceSync(now, w, h)
}

// advanceSync records progress of a sync, and completes the sync if all batches and the end have arrived. Completing
// exchanges the holders of the feed and of the sync in one step, so that lookups see either all old records or all
// new records.
func (d *Directory) advanceSync(now effects.Time, w *worker, h table.Handle) effects.Code {
	d.syncs.recordProgress(now, h, d.config.SyncTimeout)
	s := d.syncs.rows.Get(h)
	if !s.endReceived || s.batchesLeft > 0 {
		return effects.OK
	}
	code := effects.OK
	if s.statedChunks != s.arrivedChunks {
		code = effects.Mismatch
	}
	f := d.feeds.Get(s.feed)
	old := f.holder
	f.holder, s.holder = s.holder, old // endSync retires the old holder.
	d.feedByHolder[f.holder], d.feedByHolder[old] = s.feed, 0
	d.chunks.ShowHolder(f.holder)
	f.lastSyncID = append(table.TrimBytes(f.lastSyncID), s.id...)
	if s.gaps == w.gaps {
		w.syncReason = NoSync // Otherwise reports may have been lost since the sync began.
	}
	if (fader{d}).endFade(f); f.syncReason != NoSync || w.syncReason != NoSync {
		fader{d}.beginFade(s.feed)
	}
	d.addNote(SyncCompleted, w, f.location)
	d.endSync(h)
	return code
}

// endSync removes a sync and retires the holder of the sync.
func (d *Directory) endSync(h table.Handle) {
	s := d.syncs.rows.Get(h)
	f := d.feeds.Get(s.feed)
	f.sync = 0
	d.chunks.RetireHolder(s.holder)
	d.syncs.removeSync(h, d.roster.workers.Get(f.worker))
}

// giveUpSync ends a sync that makes no progress. The worker will be asked for a new sync.
func (d *Directory) giveUpSync(h table.Handle) {
	f := d.feeds.Get(d.syncs.rows.Get(h).feed)
	f.syncReason = SyncLost
	d.addNote(SyncGivenUp, d.roster.workers.Get(f.worker), f.location)
	d.endSync(h)
}

// SyncStatus returns the progress of a sync, and appends to missing the numbers of the batches that have not arrived,
// up to the capacity of the slice. For an unknown sync it returns NotFound and sets Resume: the worker need not wait,
// because it will be asked for another sync.
func (d *Directory) SyncStatus(now effects.Time, from Sender, id []byte, missing []int64) (Progress, effects.Code) {
	w, code := d.findRequester(now, &from)
	if code != effects.OK {
		return Progress{Resume: true, Missing: missing}, code
	}
	for h := w.feeds.Front(); h != 0; h = d.feeds.Next(h) {
		f := d.feeds.Get(h)
		if f.sync != 0 && string(d.syncs.rows.Get(f.sync).id) == string(id) {
			return d.syncs.rows.Get(f.sync).describeProgress(missing), effects.OK
		}
		if len(f.lastSyncID) > 0 && string(f.lastSyncID) == string(id) {
			return Progress{Complete: true, Resume: true, Done: 10_000, Missing: missing}, effects.OK
		}
	}
	return Progress{Resume: true, Missing: missing}, effects.NotFound
}
