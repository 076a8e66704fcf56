package replica

import (
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol/sharedlog"
)

// seal makes an entry of the frames that wait, as many as one takes, if the one before is done with.
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
	if l.left { // All who read find that a number is missing. What is asked for then comes behind what was left out.
		l.left = false
		l.nth++
	}
	e := sharedlog.Entry{Teller: l.config.Life, Nth: l.nth, Frames: l.frames[:n]}
	l.nth++
	l.sealed = e.Append(l.sealed)
	l.frames = append(l.frames[:0], rest...)
}

// A Frame is what another directory tells.
type Frame struct {
	Kind   sharedlog.Kind
	Body   []byte // good until Next is called again, or Step
	Teller uint64
	Gaps   uint64 // the number of the teller's gaps before it
	First  bool   // of its entry
}

// Next hands out the next frame of what was read; ok is false if there is none. What is read after that, Step has to
// bring.
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

// follow says how many bytes of frames there are to hear in an entry that was read, and who tells them by which number
// of its gaps. There are none in one of ours, in one that was read before, and in what no directory appends.
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

// longest is how many bytes an entry of a directory has at the most.
func (c *Config) longest() int { return max(c.Entry, sharedlog.FrameBytes(c.Frame)) + entryRoom }

// teller is one that was heard before; 0: it was not.
func (l *Log) teller(life uint64) table.Handle {
	for h := l.order.Front(); h != 0; h = l.tellers.Next(h) {
		if l.tellers.Get(h).life == life {
			return h
		}
	}
	return 0
}

// meet begins to follow one, by the entry that is heard of it first. Nobody knows whether it told something before.
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

// entryRoom is what an entry has around its frames, and a frame around its body.
const entryRoom = 64

// Remembers shows what it keeps.
func (l *Log) Remembers(visit func(name string, n, most int)) {
	visit("tellers", l.tellers.Len(), l.config.Tellers)
	visit("bytes to tell", l.Waiting(), l.config.Buffer+l.config.longest())
}
