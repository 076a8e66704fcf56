package landing

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// How a grant to store into our pages ends. Its pages are used again only after its writer is proven quiet: by the
// plane's proof (Revoked), by its own word where nobody watches (a commit, an abort), or by time, of a plain sender.

// Revoke takes a grant back: its pages are in quarantine until the driver proves that nobody can touch them.
func (l *Landings) Revoke(v *env.Env, x *Landing) {
	l.Quarantine(v, x)
	v.Out.Revoke(x.ID)
}

// Quarantine keeps the pages of a landing from everybody, until what may still store into them is known to be over.
func (l *Landings) Quarantine(v *env.Env, x *Landing) {
	v.Timers.Stop(&x.timer)
	x.Revoking = true
	v.Pools.Quarantine(x.ID)
}

// Revoked ends the quarantine: nobody can touch the pages any more.
func (l *Landings) Revoked(v *env.Env, s *store.Store, id effects.GrantID) {
	if x := l.Find(id); x != nil && x.Revoking && !x.Reads() {
		l.End(v, s, x)
	}
}

// Overdue ends a writer's grant whose time is over. Of a plain sender nothing will ever tell more: the stated
// residual is in that time (rule M5).
func (l *Landings) Overdue(v *env.Env, s *store.Store, x *Landing) {
	if x.Peer == (effects.Incarnation{}) {
		l.End(v, s, x)
		return
	}
	l.Revoke(v, x)
}

// Lose condemns, on fenced planes, what a peer that is gone was granted: it cannot push any more. On leased planes only
// time and proof end a grant (rule M4). Until the sweep comes to it such a grant is what it was, which is safe: its
// pages are nobody else's before its plane has proven the end, and what lands under it was whole.
func (l *Landings) Lose(class int) {
	if !l.cfg.Leased {
		l.losses.Add(class)
		l.Bundles.Lose(class)
	}
}

// RevokeLost takes a grant back that is condemned, if nothing ends it yet.
func (l *Landings) RevokeLost(v *env.Env, x *Landing) {
	if !x.Revoking && !x.Reads() && l.losses.Over(x.Class, x.born) {
		v.Out.Mark(Marks.WriterLost)
		v.Work.Spend(x.Size())
		l.Revoke(v, x)
	}
}

// End forgets a grant whose writer is quiet. What never landed is lost.
func (l *Landings) End(v *env.Env, s *store.Store, x *Landing) {
	v.Timers.Stop(&x.timer)
	l.clear(v, s, x)
	v.Pools.End(x.ID)
	if x.Operation != 0 {
		l.byOperation.Remove(table.Hash(x.Operation, x.Peer[:]), slotHandle(x.ID))
	}
	x.fills, x.Reply = table.Shed(x.fills), table.ShedBytes(x.Reply)
	x.live = false
}

// clear takes the pages of a grant back whose writer is quiet.
func (l *Landings) clear(v *env.Env, s *store.Store, x *Landing) {
	if x.Layers {
		l.clearLayers(v, s, x)
	}
	for position, h := range x.fills {
		if !x.Layers && v.Pools.Under(x.ID, position) {
			hash := s.HashOf(h)
			s.EndFill(h, effects.Page{}, false)
			s.Settle(h, v)
			v.Out.Observe(effects.Observe{Fact: effects.FactFillLost, Code: effects.Withdrawn, ID: hash, Peer: x.Peer})
			s.Lose(hash)
		}
	}
	if freed := v.Pools.Clear(x.ID); freed > 0 {
		v.Out.Observe(effects.Observe{Fact: effects.FactReclaimed, Count: freed, ID: uint64(x.ID), Peer: x.Peer})
	}
}

// Committed is the landing whose writer says that all its writes are settled and whole, if that is believed. Said
// twice, it is answered twice the same (again). A grant that ended or is taken back stays so: its pages may be
// another's.
func (l *Landings) Committed(v *env.Env, peer effects.Incarnation, id effects.GrantID) (x *Landing, again bool) {
	x = l.Find(id)
	if x == nil {
		again = l.commits.Find(peer, uint64(id), 0) != nil
		if again {
			v.Out.Mark(Marks.CommitRepeated)
		}
		return nil, again
	}
	if x.Peer != peer || x.Reads() {
		return nil, false // Nobody but us says when a read is whole.
	}
	if x.Revoking || !l.cfg.Leased || v.Now > x.Ends {
		v.Out.Mark(Marks.CommitLate)
		return nil, false
	}
	return x, false
}

// Commit lands what committed has found, and says whether all of it was taken: layers are not whose bundle is gone.
func (l *Landings) Commit(v *env.Env, s *store.Store, x *Landing, keep bool) (taken bool) {
	if taken = l.LandAll(v, s, x, keep); taken {
		l.commits.Say(replies.Said{
			Class: x.Class, Peer: x.Peer, Operation: uint64(x.ID), Done: true, When: v.Now, Over: v.Now.Add(l.cfg.ClaimTTL),
		})
	}
	l.End(v, s, x)
	return taken
}

// Abort handles the writer's word that it will not write any more.
func (l *Landings) Abort(v *env.Env, s *store.Store, peer effects.Incarnation, id effects.GrantID) {
	x := l.Find(id)
	if x == nil || x.Peer != peer || x.Reads() {
		return
	}
	v.Out.Mark(Marks.GrantAborted)
	l.Quiet(v, s, x)
}

// Quiet takes a writer's word that nothing of its stores under a grant any more: what has not landed is lost.
func (l *Landings) Quiet(v *env.Env, s *store.Store, x *Landing) {
	v.Work.Spend(x.Size())
	switch {
	case l.cfg.Leased && !x.Revoking:
		// Its word that the writes are settled is the proof, also in quarantine.
		l.End(v, s, x)
	case l.cfg.Leased:
		// The driver is still at it, so it stays a grant, of no page, until Revoked: else a peer that lets grants end
		// and aborts them would have more Revokes under way than the driver was told to expect.
		l.clear(v, s, x)
	case !x.Revoking:
		l.Revoke(v, x)
	}
}

// Remembered is how many commits are remembered; to look at only.
func (l *Landings) Remembered() int { return l.commits.Len() }

// Left handles that a class is another peer's from now on.
func (l *Landings) Left(class int) {
	l.commits.Left(class)
	l.taken.Left(class)
}
