package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
)

// A Get waits as long as its next chunk may still come: its time is not over, and what it was expected from is not
// all gone. Hope is a fill under way, an offer that is kept, or a request or an offer that waits for memory. A Get
// that asked before any of them came has lost none, and waits on: its sender may not have begun. One that had hope
// and has none left ends with the prefix that is here. What was lost while it waited for a chunk before is not
// remembered: then it waits its whole time.

// loseAll notes that what a refused request or offer was for is not expected from it any more. One that its sender
// is to repeat at once still brings it.
func (r *Receiver) loseAll(keys [][]byte, code effects.Code) {
	if r.byWanted.Len() == 0 || code == effects.Stale || code == effects.Expired {
		return
	}
	for _, key := range keys {
		r.Store.Lose(r.Store.Hash(key))
	}
}

// despair ends the Gets whose last hope is gone. What was lost is looked at again in the same step if chunks
// became ready after it, because a Get may have come to it then.
func (r *Receiver) despair(v *env.Env) {
	for _, hash := range r.Store.Lost() {
		if !r.byWanted.Seek(hash).Found() || r.pending.asked(hash) {
			continue
		}
		for p := r.byWanted.Seek(hash); p.Found(); {
			h := p.Handle()
			g := r.gets.Get(h)
			if r.expected(hash, g.key(g.from)) {
				p = r.byWanted.Next(p)
				continue
			}
			v.Out.Mark(MarkGetHopeless)
			r.onGetDeadline(v, h)
			p = r.byWanted.Seek(hash)
		}
	}
}

// Hope says whether a chunk is here, or may come of what is here; to look at only.
func (r *Receiver) Hope(key []byte) bool {
	hash := r.Store.Hash(key)
	return r.expected(hash, key) || r.pending.asked(hash)
}

// expected says whether a chunk is here, or on its way, or kept by its sender.
func (r *Receiver) expected(hash uint64, key []byte) bool {
	e := r.Store.Find(hash, key)
	_, ready := r.Store.Ready(e)
	return ready || r.Store.Expected(e)
}
