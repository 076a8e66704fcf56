package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// How a grant to store into our pages ends. Its pages are used again only after its writer is proven quiet: by the
// plane's proof (Revoked), by its own word where nobody watches (a commit, an abort), or by time, of a plain sender.

// revoke takes a grant back: its pages are in quarantine until the driver proves that nobody can touch them.
func (l *landings) revoke(v *env.Env, x *landing) {
	l.quarantine(v, x)
	v.Out.Revoke(x.id)
}

// quarantine keeps the pages of a landing from everybody, until what may still store into them is known to be over.
func (l *landings) quarantine(v *env.Env, x *landing) {
	v.Timers.Stop(&x.timer)
	x.revoking = true
	v.Pools.Quarantine(x.id)
}

// revoked ends the quarantine: nobody can touch the pages any more.
func (l *landings) revoked(v *env.Env, s *store.Store, id effects.GrantID) {
	if x := l.find(id); x != nil && x.revoking && !x.reading {
		l.end(v, s, x)
	}
}

// overdue ends a writer's grant whose time is over. Of a plain sender nothing will ever tell more: the stated
// residual is in that time (rule M5).
func (l *landings) overdue(v *env.Env, s *store.Store, x *landing) {
	if x.peer == (effects.Incarnation{}) {
		l.end(v, s, x)
		return
	}
	l.revoke(v, x)
}

// peerLost takes back, on fenced planes, what a peer that is gone was granted: it cannot push any more. On leased
// planes only time and proof end a grant (rule M4).
func (l *landings) peerLost(v *env.Env, peer effects.Incarnation) {
	if l.cfg.leased || peer == (effects.Incarnation{}) {
		return
	}
	for slot := range l.slots() {
		if x := l.standing(slot); x != nil && !x.reading && x.peer == peer {
			v.Out.Mark(MarkWriterLost)
			l.revoke(v, x)
		}
	}
}

// end forgets a grant whose writer is quiet. What never landed is lost.
func (l *landings) end(v *env.Env, s *store.Store, x *landing) {
	v.Timers.Stop(&x.timer)
	l.clear(v, s, x)
	v.Pools.End(x.id)
	if x.operation != 0 {
		l.byOperation.Remove(operationHash(x.peer, x.operation), slotHandle(x.id))
	}
	x.fills, x.reply = table.Shed(x.fills), table.ShedBytes(x.reply)
	x.live = false
}

// clear takes the pages of a grant back whose writer is quiet.
func (l *landings) clear(v *env.Env, s *store.Store, x *landing) {
	for position, h := range x.fills {
		if v.Pools.Under(x.id, position) {
			hash := s.HashOf(h)
			s.EndFill(h, effects.Page{}, false)
			s.Settle(h, v)
			v.Out.Observe(effects.Observe{Fact: effects.FactFillLost, Code: effects.Withdrawn, ID: hash, Peer: x.peer})
			s.Lose(hash)
		}
	}
	if freed := v.Pools.Clear(x.id); freed > 0 {
		v.Out.Observe(effects.Observe{Fact: effects.FactReclaimed, Count: freed, ID: uint64(x.id), Peer: x.peer})
	}
}

// committed is the landing whose writer says that all its writes are settled and whole, if that is believed. Said
// twice, it is answered twice the same (again). A grant that ended or is taken back stays so: its pages may be
// another's.
func (l *landings) committed(v *env.Env, peer effects.Incarnation, id effects.GrantID) (x *landing, again bool) {
	x = l.find(id)
	if x == nil {
		again = l.commits.find(v.Now, peer, uint64(id), 0) != nil
		if again {
			v.Out.Mark(MarkCommitRepeated)
		}
		return nil, again
	}
	if x.peer != peer || x.reading {
		return nil, false // Nobody but us says when a read is whole.
	}
	if x.revoking || !l.cfg.leased || v.Now > x.ends {
		v.Out.Mark(MarkCommitLate)
		return nil, false
	}
	return x, false
}

// commit lands what committed has found.
func (l *landings) commit(v *env.Env, s *store.Store, x *landing, keep bool) {
	l.landAll(v, s, x, keep)
	l.commits.add(tombstone{
		class: x.class, peer: x.peer, operation: uint64(x.id), done: true, said: v.Now, over: v.Now.Add(l.cfg.claimTTL),
	})
	l.end(v, s, x)
}

// abort handles the writer's word that it will not write any more.
func (l *landings) abort(v *env.Env, s *store.Store, peer effects.Incarnation, id effects.GrantID) {
	x := l.find(id)
	if x == nil || x.peer != peer || x.reading {
		return
	}
	v.Out.Mark(MarkGrantAborted)
	switch {
	case l.cfg.leased && !x.revoking:
		// Its word that the writes are settled is the proof, also in quarantine.
		l.end(v, s, x)
	case l.cfg.leased:
		// The driver is still at it, so it stays a grant, of no page, until Revoked: else a peer that lets grants end
		// and aborts them would have more Revokes under way than the driver was told to expect.
		l.clear(v, s, x)
	case !x.revoking:
		l.revoke(v, x)
	}
}

// left handles that a class is another peer's from now on.
func (l *landings) left(class int) { l.commits.left(class) }
