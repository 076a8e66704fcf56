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

// Follow says of an entry that was read who tells it, what, and by which number of its gaps. ok is false if there is
// nothing to hear in it: it is one of ours, was read before, or is none at all.
func (l *Log) Follow(stored []byte) (e sharedlog.Entry, gaps uint64, ok bool) {
	if e.Decode(stored) != nil || e.Teller == l.config.Life {
		return e, 0, false
	}
	h := l.teller(e.Teller)
	if h == 0 {
		h = l.meet(&e)
	}
	t := l.tellers.Get(h)
	if e.Nth < t.next {
		return e, 0, false
	}
	if e.Nth > t.next {
		l.gaps++
		l.missed++
		t.gaps = l.gaps
	}
	t.next = e.Nth + 1
	l.tellers.Unlink(&l.order, h)
	l.tellers.PushBack(&l.order, h)
	return e, t.gaps, true
}

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
	visit("bytes to tell", l.Waiting(), l.config.Buffer+max(l.config.Entry, l.config.Frame)+entryRoom)
}
