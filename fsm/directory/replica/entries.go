package replica

import (
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// seal makes an entry of the waiting frames, as many as fit, unless an entry is still unconfirmed.
func (l *Log) seal() {
	if len(l.sealed) > 0 {
		return
	}
	n, rest := 0, l.frames
	for n == 0 || n < l.config.Entry {
		_, _, after, ok := sharedlog.CutFrame(rest)
		if !ok || n > 0 && len(l.frames)-len(after) > l.config.Entry {
			break
		}
		n, rest = len(l.frames)-len(after), after
	}
	// Skipping a number shows all readers that frames are missing. The full syncs that the readers then request come
	// after the dropped frames.
	if l.left {
		l.left = false
		l.nth++
	}
	e := sharedlog.Entry{Teller: l.config.Life, Nth: l.nth, Frames: l.frames[:n]}
	l.nth++
	l.sealed = e.Append(l.sealed)
	l.frames = append(l.frames[:0], rest...)
}

// A Frame is a report of another directory.
type Frame struct {
	Kind   sharedlog.Kind
	Body   []byte // valid until the next call of Next or Step
	Teller uint64
	Gaps   uint64 // number of the gap of the teller that precedes the frame
	First  bool   // first frame of an entry
}

// Next returns the next frame that was read. When all frames were returned, ok is false, and further frames arrive by
// Step.
func (l *Log) Next() (f Frame, ok bool) {
	for l.frame == l.frameEnd {
		if l.entry == len(l.unread) {
			l.unread, l.entry, l.frame, l.frameEnd = table.ShedBytes(l.unread), 0, 0, 0
			return f, false
		}
		x, rest, _ := sharedlog.CutStored(l.unread[l.entry:])
		l.entry = len(l.unread) - len(rest)
		if frames, from := l.follow(x.Entry); frames > 0 {
			l.from, l.first = from, true
			l.frameEnd = l.entry - sharedlog.EntryTail
			l.frame = l.frameEnd - frames
		}
	}
	k, body, rest, _ := sharedlog.CutFrame(l.unread[l.frame:l.frameEnd])
	f = Frame{Kind: k, Body: body, Teller: l.from.life, Gaps: l.from.gaps, First: l.first}
	l.frame, l.first = l.frameEnd-len(rest), false
	return f, true
}

// follow decodes an entry that was read. It returns the length of the frames to return and the author of the entry.
// The length is 0 for entries of this directory, for entries that were read before, and for content that no directory
// appends.
func (l *Log) follow(stored []byte) (frames int, from teller) {
	var e sharedlog.Entry
	if len(stored) > l.config.longest() || e.Decode(stored) != nil || e.Teller == l.config.Life {
		return 0, from
	}
	h := l.teller(e.Teller)
	if h == 0 {
		h = l.meet(&e)
	}
	t := l.tellers.Get(h)
	if e.Nth < t.next {
		return 0, from
	}
	if e.Nth > t.next {
		l.gaps++
		l.missed++
		t.gaps = l.gaps
	}
	t.next = e.Nth + 1
	l.tellers.Unlink(&l.order, h)
	l.tellers.PushBack(&l.order, h)
	return len(e.Frames), *t
}

// longest returns the largest size in bytes of an entry of a directory.
func (c *Config) longest() int { return max(c.Entry, sharedlog.FrameBytes(c.Frame)) + entryRoom }

// teller returns the known teller of an incarnation, or 0 if it is unknown.
func (l *Log) teller(life uint64) table.Handle {
	for h := l.order.Front(); h != 0; h = l.tellers.Next(h) {
		if l.tellers.Get(h).life == life {
			return h
		}
	}
	return 0
}

// meet begins to follow a teller, from the first entry that was read. Earlier entries may have been missed, so a new
// gap number is used. If the table is full, the teller heard longest ago is removed.
func (l *Log) meet(e *sharedlog.Entry) table.Handle {
	if l.tellers.Full() {
		h := l.order.Front()
		l.tellers.Unlink(&l.order, h)
		l.tellers.Remove(h)
	}
	h, t := l.tellers.Add()
	l.gaps++
	*t = teller{life: e.Teller, next: e.Nth, gaps: l.gaps}
	l.tellers.PushBack(&l.order, h)
	return h
}

// entryRoom is an upper bound of the bytes of an entry around the frames, and of a frame around the body.
const entryRoom = 64

// Remembers reports the sizes of the tables and buffers, with their limits.
func (l *Log) Remembers(visit func(name string, n, most int)) {
	visit("tellers", l.tellers.Len(), l.config.Tellers)
	visit("bytes to tell", l.Waiting(), l.config.Buffer+l.config.longest())
}
