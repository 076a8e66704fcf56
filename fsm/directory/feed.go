package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// A sequenceState is the state of a feed's sequence check.
type sequenceState uint8

const (
	sequenceFresh     sequenceState = iota // no operation has arrived; the first must have sequence 0
	sequenceOpen                           // any sequence is accepted as the first
	sequenceFollowing                      // the next operation must have sequence next
	// As following, after a sync began without a number. Sequence 0 is accepted as well, because not all releases of
	// workers are known to continue their numbers.
	sequenceResumed
)

// A feed is one location of a worker, with the state of its operations and the holder of its chunks in the index.
type feed struct {
	worker       table.Handle
	location     string
	holder       index.Holder
	state        sequenceState
	nextSequence uint64
	syncReason   SyncReason   // why the location needs a full sync
	sync         table.Handle // sync in progress; 0: none
	fade         table.Handle // fade in progress; 0: none
	lastSyncID   []byte       // id of the last completed sync
}

// findFeed returns the feed of a worker at the named location, or 0 if there is none.
func (d *Directory) findFeed(w *worker, name []byte) table.Handle {
	for h := w.feeds.Front(); h != 0; h = d.feeds.Next(h) {
		if d.feeds.Get(h).location == string(name) {
			return h
		}
	}
	return 0
}

// findOrAddFeed returns the feed of a worker at the named location and creates it if necessary. It fails with TooLarge
// if the name is too long, and with TooMany if the worker has too many locations or no holder is free.
func (d *Directory) findOrAddFeed(wh table.Handle, w *worker, name []byte) (table.Handle, effects.Code) {
	if len(name) > d.config.TextBytes {
		return 0, effects.TooLarge
	}
	if h := d.findFeed(w, name); h != 0 {
		return h, effects.OK
	}
	if w.feeds.Len() >= d.config.LocationsPerWorker {
		return 0, effects.TooMany
	}
	holder := d.openHolder(w)
	if holder == 0 {
		return 0, effects.TooMany
	}
	d.chunks.ShowHolder(holder)
	h, f := d.feeds.Add()
	*f = feed{worker: wh, location: string(name), holder: holder, lastSyncID: table.TrimBytes(f.lastSyncID)}
	if w.anySequence {
		f.state = sequenceOpen
	}
	d.feeds.PushBack(&w.feeds, h)
	d.feedByHolder[holder] = h
	return h, effects.OK
}

// openHolder returns a new hidden holder for a worker; the result is 0 if the worker's origin has used up the share of
// holders, or none is free until more rows have been swept away.
func (d *Directory) openHolder(w *worker) index.Holder {
	holder := d.chunks.OpenHolder(w.shareClass(), int(w.instance.Slot()), w.rank)
	for len(d.feedByHolder) <= int(holder) {
		d.feedByHolder = append(d.feedByHolder, 0)
	}
	return holder
}

// ApplyReport applies the operations of a report in their order. It returns the first error: Stale if an operation was
// ignored because of the sequence, Mismatch if an operation was applied although the sequence was not the expected
// sequence, TooMany if chunks were left out at a limit. Reports of unknown workers, too large reports and too long
// names are refused.
func (d *Directory) ApplyReport(now effects.Time, r *Report) effects.Code {
	wh, w, code := d.findReporter(now, &r.Sender)
	if code != effects.OK {
		return code
	}
	h, code := d.findOrAddFeed(wh, w, r.Location)
	if code != effects.OK {
		return code
	}
	f := d.feeds.Get(h)
	if len(r.Operations) > d.config.HashesPerBatch {
		d.recordLoss(w, h)
		return effects.TooLarge
	}
	for i := range r.Operations {
		op, result := &r.Operations[i], effects.OK
		if !r.Unnumbered {
			result = d.checkSequence(w, h, op.Sequence)
		}
		if result != effects.Stale {
			result = firstError(result, d.applyOperation(f, op))
		}
		code = firstError(code, result)
	}
	if code == effects.TooMany {
		d.addNote(ChunksLeftOut, w, f.location)
	}
	return code
}

func firstError(a, b effects.Code) effects.Code {
	if a != effects.OK {
		return a
	}
	return b
}

// checkSequence checks the sequence of an operation. It returns Stale if the operation must be ignored, and Mismatch if
// operations are missing before this operation, or the operation arrives late. In the second case the feed follows
// the new sequence nevertheless: the order is lost, but applying the operation gives better hints than ignoring the
// operation.
func (d *Directory) checkSequence(w *worker, h table.Handle, sequence uint64) effects.Code {
	f := d.feeds.Get(h)
	switch f.state {
	case sequenceFresh:
		if sequence != 0 {
			d.recordLoss(w, h)
			return effects.Stale
		}
		f.syncReason = NoSync // Everything that arrived before belongs to an earlier incarnation.
		fader{d}.endFade(f)
	case sequenceOpen:
	case sequenceFollowing, sequenceResumed:
		if sequence != f.nextSequence && (sequence > 0 || f.state == sequenceFollowing) {
			f.state, f.nextSequence = sequenceFollowing, sequence+1
			d.recordLoss(w, h)
			return effects.Mismatch
		}
	}
	f.state, f.nextSequence = sequenceFollowing, sequence+1
	return effects.OK
}

// expectAfterSync sets the expected sequence when a sync begins that covers all earlier operations.
func (f *feed) expectAfterSync(b *SyncBegin) {
	switch {
	case b.Numbered:
		f.state, f.nextSequence = sequenceFollowing, b.NextSequence
	case f.state == sequenceFresh:
		f.state = sequenceOpen
	case f.state == sequenceFollowing:
		f.state = sequenceResumed
	}
}

// recordLoss records that operations of a feed are missing: the worker will be asked for a full sync, and a fade
// begins.
func (d *Directory) recordLoss(w *worker, h table.Handle) {
	f := d.feeds.Get(h)
	if f.syncReason == NoSync {
		d.addNote(OperationsLost, w, f.location)
	}
	f.syncReason = OperationGap
	fader{d}.beginFade(h)
}

// applyOperation executes an operation for the feed's holder, and also for the holders that may replace it: the holder
// that a sync fills, and the holder of a fade. It returns TooMany if a chunk was left out.
func (d *Directory) applyOperation(f *feed, op *Operation) effects.Code {
	targets, code := [...]index.Holder{f.holder, 0, 0}, effects.OK
	if f.sync != 0 {
		targets[1] = d.syncs.rows.Get(f.sync).holder
	}
	if f.fade != 0 {
		targets[2] = d.fades.rows.Get(f.fade).youngHolder
	}
	for _, h := range targets {
		switch {
		case h == 0:
		case op.Evict:
			d.chunks.Remove(h, op.Hash)
		case d.chunks.Add(h, op.Hash) == index.Crowded:
			code = effects.TooMany
		}
	}
	return code
}
