package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// A follow is the state of a feed's sequence check.
type follow uint8

const (
	fresh     follow = iota // no operation has arrived; the first must have sequence 0
	open                    // any sequence is accepted as the first
	following               // the next operation must have sequence next
	// As following, after a sync began without a number. Sequence 0 is accepted as well, because not all releases of
	// workers are known to continue their numbers.
	resumed
)

// A feed is one location of a worker, with the state of its operations and the holder of its chunks in the index.
type feed struct {
	worker   table.Handle
	location string
	holder   index.Holder
	follow   follow
	next     uint64
	ask      Reason       // why the location needs a full sync
	sync     table.Handle // sync in progress; 0: none
	fade     table.Handle // fade in progress; 0: none
	synced   []byte       // id of the last completed sync
}

// location returns the feed of a worker at the named location, or 0 if there is none.
func (d *Directory) location(w *worker, name []byte) table.Handle {
	for h := w.feeds.Front(); h != 0; h = d.feeds.Next(h) {
		if d.feeds.Get(h).location == string(name) {
			return h
		}
	}
	return 0
}

// feed returns the feed of a worker at the named location and creates it if necessary. It fails with TooLarge if the
// name is too long, and with TooMany if the worker has too many locations or no holder is free.
func (d *Directory) feed(wh table.Handle, w *worker, name []byte) (table.Handle, effects.Code) {
	if len(name) > d.config.Text {
		return 0, effects.TooLarge
	}
	if h := d.location(w, name); h != 0 {
		return h, effects.OK
	}
	if w.feeds.Len() >= d.config.Locations {
		return 0, effects.TooMany
	}
	holder := d.open(w)
	if holder == 0 {
		return 0, effects.TooMany
	}
	d.chunks.Show(holder)
	h, f := d.feeds.Add()
	*f = feed{worker: wh, location: string(name), holder: holder, synced: table.ShedBytes(f.synced)}
	if w.midway {
		f.follow = open
	}
	d.feeds.PushBack(&w.feeds, h)
	d.owners[holder] = h
	return h, effects.OK
}

// open returns a new hidden holder for a worker; the result is 0 if the worker's origin has used up the share of
// holders, or none is free until more rows have been swept away.
func (d *Directory) open(w *worker) index.Holder {
	holder := d.chunks.Open(w.class(), int(w.instance.Slot()), w.rank)
	for len(d.owners) <= int(holder) {
		d.owners = append(d.owners, 0)
	}
	return holder
}

// Operate applies the operations of a report in their order. It returns the first error: Stale if an operation was
// ignored because of the sequence, Mismatch if an operation was applied although the sequence was not the expected
// sequence, TooMany if chunks were left out at a limit. Reports of unknown workers, too large reports and too long
// names are refused.
func (d *Directory) Operate(now effects.Time, r *Report) effects.Code {
	wh, w, code := d.sender(now, &r.Sender)
	if code != effects.OK {
		return code
	}
	h, code := d.feed(wh, w, r.Location)
	if code != effects.OK {
		return code
	}
	f := d.feeds.Get(h)
	if len(r.Operations) > d.config.Hashes {
		d.lose(w, h)
		return effects.TooLarge
	}
	for i := range r.Operations {
		op, did := &r.Operations[i], effects.OK
		if !r.Unnumbered {
			did = d.count(w, h, op.Sequence)
		}
		if did != effects.Stale {
			did = first(did, d.apply(f, op))
		}
		code = first(code, did)
	}
	if code == effects.TooMany {
		d.note(LeftOut, w, f.location)
	}
	return code
}

func first(a, b effects.Code) effects.Code {
	if a != effects.OK {
		return a
	}
	return b
}

// count checks the sequence of an operation. It returns Stale if the operation must be ignored, and Mismatch if
// operations are missing before this operation, or the operation arrives late. In the second case the feed follows
// the new sequence nevertheless: the order is lost, but applying the operation gives better hints than ignoring the
// operation.
func (d *Directory) count(w *worker, h table.Handle, sequence uint64) effects.Code {
	f := d.feeds.Get(h)
	switch f.follow {
	case fresh:
		if sequence != 0 {
			d.lose(w, h)
			return effects.Stale
		}
		f.ask = NoSync // Everything that arrived before belongs to an earlier incarnation.
		age{d}.end(f)
	case open:
	case following, resumed:
		if sequence != f.next && (sequence > 0 || f.follow == following) {
			f.follow, f.next = following, sequence+1
			d.lose(w, h)
			return effects.Mismatch
		}
	}
	f.follow, f.next = following, sequence+1
	return effects.OK
}

// resume sets the expected sequence when a sync begins that covers all earlier operations.
func (f *feed) resume(b *SyncBegin) {
	switch {
	case b.Numbered:
		f.follow, f.next = following, b.Next
	case f.follow == fresh:
		f.follow = open
	case f.follow == following:
		f.follow = resumed
	}
}

// lose records that operations of a feed are missing: the worker will be asked for a full sync, and a fade begins.
func (d *Directory) lose(w *worker, h table.Handle) {
	f := d.feeds.Get(h)
	if f.ask == NoSync {
		d.note(OrderLost, w, f.location)
	}
	f.ask = Gap
	age{d}.begin(h)
}

// apply executes an operation for the feed's holder, and also for the holders that may replace it: the holder that a
// sync fills, and the holder of a fade. It returns TooMany if a chunk was left out.
func (d *Directory) apply(f *feed, op *Operation) effects.Code {
	all, code := [...]index.Holder{f.holder, 0, 0}, effects.OK
	if f.sync != 0 {
		all[1] = d.syncs.rows.Get(f.sync).holder
	}
	if f.fade != 0 {
		all[2] = d.fades.rows.Get(f.fade).young
	}
	for _, h := range all {
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
