// Package outcomes remembers the requests that peers send here, whose each of them is, and how those ended that did. So
// a Get or a Fetch of a request of which nothing more comes ends at once, whether it asks before its sender says so or
// after.
//
// It may be relied on for this: what is remembered is bounded, for each class and in time; a peer's word ends no
// request that another peer sends, while that peer is there; and no word about one attempt ends a later one.
package outcomes

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Requests are the requests of which something came lately.
type Requests struct {
	cfg    Config `snap:"share"`
	rows   table.Slab[row]
	byID   table.Index // by the hash of the request's id
	of     []table.List
	share  table.Share
	losses kernel.Losses
	lives  kernel.Losses // of classes: which peer has one
	news   []uint64      // requests that ended and whose Gets have not heard of it
	notes  []note        // by class
}

// Config bounds what is remembered.
type Config struct {
	Max int              // requests
	TTL effects.Duration // how long the end of one is remembered
}

// A row is one request. Invariant: byID has one row of each id, and of[row.class] lists it, the one that was heard of
// longest ago first.
type row struct {
	request   uint64
	class     int          // of the peer that sends it; 0: of none that has proven who it is
	born      kernel.Birth // when it was heard of last, among the losses of its class
	name      int          // the class of the peer that is said to send it, proven or not; 0: of none that is known here
	life      kernel.Birth // when it was heard of last, among the peers that have had the class in name
	operation uint64       // the newest that its sender spoke of
	key       []byte       // a chunk of it; none came if it is empty
	ended     bool
	fresh     bool // it is in news
	code      effects.Code
	said      string
	until     effects.Time // the end is remembered so long
}

// A note is what a peer is to be told with the next answer: chunks of its were not what is waited for here.
type note struct{ why *effects.Why }

// An End is how a request ended at its sender.
type End struct {
	Code  effects.Code // OK: all of it was sent
	Said  string       // the sender's words
	Class int          // the sender's
	Key   []byte       // a chunk that it sent, if any came; it is valid until the next call
}

// Emptied returns no requests, in the memory of x, which is not used any more.
func (x *Requests) Emptied(cfg Config, classes int) Requests {
	return Requests{
		cfg: cfg, rows: x.rows.Emptied(cfg.Max), byID: x.byID.Emptied(), of: table.Zeroed(x.of, classes),
		share: x.share.Emptied(cfg.Max, classes), losses: x.losses.Emptied(classes), lives: x.lives.Emptied(classes), news: x.news[:0],
		notes: table.Zeroed(x.notes, classes),
	}
}

func (x *Requests) find(request uint64) (table.Handle, *row) {
	h := x.byID.Seek(request).Handle()
	return h, x.rows.Get(h)
}

// by says whether a request is said to be a class's, which no other peer has had since. Such a peer may have been lost
// meanwhile: it is the same one when it is back.
func (x *Requests) by(r *row, class int) bool {
	return r.name == class && !x.lives.Over(class, r.life)
}

// owned says whether a request is a peer's that is there, and goes on: then no other peer has a say in it.
func (x *Requests) owned(r *row) bool {
	return r.class != 0 && !r.ended && !x.losses.Over(r.class, r.born)
}

// Began notes that a batch of a request came from a peer, whose first chunk has this key. One that had ended goes on,
// unless the batch is not of a later attempt than that end: its sender asks once more for what it gave up, or what it
// asked for was long under way, perhaps until after the peer was lost.
func (x *Requests) Began(v *env.Env, class int, request, operation uint64, key []byte) {
	if request == 0 {
		return
	}
	h, r := x.find(request)
	switch {
	case r == nil:
		if r = x.add(v, class, request); r == nil {
			return
		}
	case !x.by(r, class) && x.owned(r):
		v.Out.Mark(Marks.OfOther)
		return
	case x.by(r, class) && r.ended && operation <= r.operation:
		v.Out.Mark(Marks.BatchOfFormer)
		return
	default:
		x.move(h, r, class)
	}
	r.operation = max(r.operation, operation)
	r.born, r.name, r.life = x.losses.Of(class), class, x.lives.Of(class)
	r.ended, r.said = false, ""
	r.key = append(r.key[:0], key...)
}

// End notes how a request ended, as a peer says, and says whether that is to be believed: not if the request is another
// peer's, or goes on by a later attempt. The name is the class of the peer that the word says it comes from; the class
// is the same if that is proven, else 0. A word is older than another in its name whether that is proven or not: nobody
// but the sender loses by it.
//
// Example: a sender's link is cut, and it says how its first attempt ended before it has shaken hands again. The word
// arrives when chunks of the second attempt are here: it ends nothing, although the request is nobody's that is there.
func (x *Requests) End(
	v *env.Env, class, name int, request, operation uint64, code effects.Code, said string,
) bool {
	h, r := x.find(request)
	switch {
	case r == nil:
		if r = x.add(v, class, request); r == nil {
			return false
		}
	case x.by(r, name) && operation < r.operation:
		v.Out.Mark(Marks.EndOfFormer)
		return false
	case !x.says(r, class, name) && (x.owned(r) || r.ended && r.until > v.Now):
		v.Out.Mark(Marks.EndOfOther)
		return false
	default:
		x.move(h, r, class)
	}
	r.operation, r.born = operation, x.losses.Of(class)
	r.name, r.life = name, x.lives.Of(name)
	r.ended, r.code, r.said, r.until = true, code, said, v.Now.Add(x.cfg.TTL)
	if !r.fresh {
		r.fresh = true
		x.news = append(x.news, request)
	}
	return true
}

// says reports whether a word in a name is of the peer that sends a request, as far as that has to be proven: not where
// nothing about the request is.
func (x *Requests) says(r *row, class, name int) bool {
	return x.by(r, name) && (class != 0 || r.class == 0)
}

// Of says how a request ended, if it did and that is remembered.
func (x *Requests) Of(now effects.Time, request uint64) (End, bool) {
	if request == 0 {
		return End{}, false
	}
	_, r := x.find(request)
	if r == nil || !r.ended || r.until <= now {
		return End{}, false
	}
	return End{Code: r.code, Said: r.said, Class: r.class, Key: r.key}, true
}

// News is a request that has ended, of which the next may be asked for after Heard; 0: there is none.
func (x *Requests) News() uint64 {
	if len(x.news) == 0 {
		return 0
	}
	return x.news[0]
}

// Heard says that all Gets of that request have heard of its end.
func (x *Requests) Heard() {
	if _, r := x.find(x.news[0]); r != nil {
		r.fresh = false
	}
	x.news = append(x.news[:0], x.news[1:]...)
}

// Lost notes that a peer is gone: what it sent may be ended by others, which may be later lives of it.
func (x *Requests) Lost(class int) { x.losses.Add(class) }

// Left notes that a class is another peer's from now on. How requests of the former one ended stays known.
func (x *Requests) Left(class int) {
	x.notes[class] = note{}
	x.losses.Add(class)
	x.lives.Add(class)
}

// Note keeps what a peer is to be told with the next answer, until then; the newest counts.
func (x *Requests) Note(class int, why *effects.Why) { x.notes[class] = note{why} }

// NoteOf is the same of the peer that sends a request, if it is known.
func (x *Requests) NoteOf(request uint64, why *effects.Why) {
	if _, r := x.find(request); r != nil && r.class != 0 {
		x.Note(r.class, why)
	}
}

// Noted takes what a peer is to be told; nil: nothing.
func (x *Requests) Noted(class int) (why *effects.Why) {
	why, x.notes[class] = x.notes[class].why, note{}
	return why
}

// Len is how many are remembered.
func (x *Requests) Len() int { return x.rows.Len() }

// add makes a row. Where a class has its share, its oldest goes; where it has none to give, nothing is remembered. Of
// those whose time is over two go as one comes, and never all at once.
func (x *Requests) add(v *env.Env, class int, request uint64) *row {
	for range 2 {
		h := x.of[class].Front()
		if r := x.rows.Get(h); r != nil && (!x.share.May(class) || r.ended && r.until <= v.Now) {
			x.forget(h)
		}
	}
	if !x.share.May(class) {
		v.Out.Mark(Marks.Full)
		return nil
	}
	x.share.Take(class)
	h, r := x.rows.Add()
	*r = row{request: request, class: class, key: r.key[:0]}
	x.byID.Add(request, h)
	x.rows.PushBack(&x.of[class], h)
	return r
}

// move makes a row a class's, and the newest of it.
func (x *Requests) move(h table.Handle, r *row, class int) {
	x.rows.Unlink(&x.of[r.class], h)
	if r.class != class {
		x.share.Give(r.class)
		x.share.Take(class) // The other one had the place: there is room for it.
		r.class, r.operation, r.key = class, 0, r.key[:0]
	}
	x.rows.PushBack(&x.of[class], h)
}

func (x *Requests) forget(h table.Handle) {
	r := x.rows.Get(h)
	x.byID.Remove(r.request, h)
	x.rows.Unlink(&x.of[r.class], h)
	x.share.Give(r.class)
	r.key, r.said = table.ShedBytes(r.key), ""
	x.rows.Remove(h)
}
