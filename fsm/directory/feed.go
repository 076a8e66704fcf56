package directory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/index"
	"github.com/kvferry/kvferry/fsm/table"
)

// A follow is how the operations of a feed are counted.
type follow uint8

const (
	fresh     follow = iota // from 0 on: nothing of it has come
	open                    // from whichever comes first
	following               // from next on
	resumed                 // from next on after a sync began, or from 0: it is not known of all releases that they go on
)

// A feed is one location of a worker, and where its operations are.
type feed struct {
	worker   table.Handle
	location string
	holder   index.Holder
	follow   follow
	next     uint64
	ask      Reason
	sync     table.Handle // under way; 0: none is
	fade     table.Handle // likewise
	synced   []byte       // the id of the last one that came to its end
}

// location is the feed of a worker at a location; 0: there is none.
func (d *Directory) location(w *worker, name []byte) table.Handle {
	for h := w.feeds.Front(); h != 0; h = d.feeds.Next(h) {
		if d.feeds.Get(h).location == string(name) {
			return h
		}
	}
	return 0
}

// feed is that one, or a new one.
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

// open gives a holder that nobody is told of; 0: the worker's address has its share of them, or there is none until
// more is swept away.
func (d *Directory) open(w *worker) index.Holder {
	holder := d.chunks.Open(w.class(), int(w.instance.Slot()), w.rank)
	for len(d.owners) <= int(holder) {
		d.owners = append(d.owners, 0)
	}
	return holder
}

// Operate follows what happened at a location. It answers with the first thing that was wrong: operations that are not
// the next ones are Mismatch, or Stale where they are not believed; TooMany says that chunks are left out.
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

// count takes the sequence of an operation. Stale: it is not to be believed. Mismatch: there is a gap before it, or it
// comes late. What comes then is followed all the same: the order is lost, and better hints than none are had by it.
func (d *Directory) count(w *worker, h table.Handle, sequence uint64) effects.Code {
	f := d.feeds.Get(h)
	switch f.follow {
	case fresh:
		if sequence != 0 {
			d.lose(w, h)
			return effects.Stale
		}
		f.ask = NoSync // What came before this one was of an earlier incarnation.
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

// resume counts on as a sync begins that tells of all operations before it.
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

// lose notes that operations of a feed are missing.
func (d *Directory) lose(w *worker, h table.Handle) {
	f := d.feeds.Get(h)
	if f.ask == NoSync {
		d.note(OrderLost, w, f.location)
	}
	f.ask = Gap
	age{d}.begin(h)
}

// apply does an operation for the holder of a feed, and for those that come to be it: as a sync is complete, and as
// what was told before fades.
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
