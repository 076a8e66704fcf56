// Package landing decides what becomes of each key of a batch, and keeps the grants under which chunks land: those of
// peers that push, and our own for what we read. It may be relied on for this: no chunk is readable before its page is
// whole; a page that was granted is free again only when its writer is proven quiet; and what was said of a grant once
// is said again. It knows no message.
package landing

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Landing is what one grant is for: a fill for each of its pages. The grant is a sender's, who pushes, or our own,
// for what we read from an offer. It is open until all pages landed, or until it is revoked: then its pages are in
// quarantine, and come back when it is proven that nobody can touch them.
type Landing struct {
	live     bool `snap:"life"`
	Revoking bool // its pages are in quarantine
	ID       effects.GrantID
	For
	fills []store.Entry // by the page's position in the grant; of layers, their places in bundles
	Reply []byte        // what was answered, for a retry of the same operation
	born  kernel.Birth
	timer kernel.TimerID `snap:"set"`
}

// A For is what a grant was made for.
type For struct {
	Owner     kernel.Owner // of the grant: who hears of what lands, and that its time is over
	Class     int
	Peer      effects.Incarnation // zero: a plain sender
	Operation uint64
	Request   uint64       // hash of the request's id
	Layers    bool         // its pages are of bundles
	What      uint64       // hash of the keys that it is for, in order, and of the last tokens
	Ends      effects.Time // who says later that all is whole is not believed, where nobody watches
	Over      effects.Time // when it ends by itself
}

// Landings are the grants to store into our pages, by the slot of the grant.
type Landings struct {
	cfg         Config      `snap:"share"`
	rows        []Landing   // as many as there were grants at a time: none is held across begin
	byOperation table.Index // handles are slots
	losses      kernel.Losses
	commits     replies.Words // grants that were committed
	taken       replies.Words // operations whose chunks came with the question
	Bundles     bundle.Bundles
	plan        Plan              `snap:"scratch"`
	pages       []effects.Page    `snap:"scratch"`
	grants      []effects.GrantID `snap:"scratch"`
}

// Config is what landings go by.
type Config struct {
	Leased     bool             // nobody sees what peers store
	GrantsMax  int              // of the rank
	ClaimTTL   effects.Duration // for which a commit is remembered, too
	PageBytes  uint64
	TokenBytes uint64 // of a page
	KeyBytes   int    // of a key, at the most
	Bundles    bundle.Config
}

// Emptied returns an empty table, in the memory of l, which is not used any more.
func (l *Landings) Emptied(cfg Config, classes int) Landings {
	clear(l.rows)
	return Landings{
		cfg: cfg, rows: l.rows[:0], byOperation: l.byOperation.Emptied(), losses: l.losses.Emptied(classes),
		commits: l.commits.Emptied(cfg.GrantsMax, classes), taken: l.taken.Emptied(cfg.GrantsMax, classes),
		Bundles: l.Bundles.Emptied(cfg.Bundles, classes),
		plan:    l.plan, pages: l.pages, grants: l.grants[:0],
	}
}

// MayGrant says whether a class may have one more grant.
func (l *Landings) MayGrant(v *env.Env, class int) bool {
	return v.Pools.Grants() < l.cfg.GrantsMax && v.Pools.MayGrant(class)
}

// GrantsMax is the most grants at a time.
func (l *Landings) GrantsMax() int { return l.cfg.GrantsMax }

// Room says whether one more grant, and fills of so many keys, fit the tables.
func (l *Landings) Room(v *env.Env, s *store.Store, keys int) bool {
	return v.Pools.Grants() < l.cfg.GrantsMax && s.Room(keys)
}

// Begin grants the pages of a pool that a plan needs, which must fit, and records what they are for. From here on a
// page is free again only by way of the grant's end.
func (l *Landings) Begin(v *env.Env, p *Plan, of *memory.Pool, what For) (*Landing, []effects.Page) {
	id, pages := v.Pools.Grant(of, what.Class, p.Lengths, kernel.Ref{Owner: what.Owner})
	slot := int(memory.SlotOf(id))
	for slot >= len(l.rows) {
		l.rows = append(l.rows, Landing{})
	}
	x := &l.rows[slot]
	*x = Landing{
		live: true, ID: id, For: what, fills: x.fills[:0], Reply: x.Reply[:0], born: l.losses.Of(what.Class),
	}
	v.Timers.Set(&x.timer, x.Over, kernel.Ref{Owner: what.Owner, Subject: slotHandle(id)})
	if x.Operation != 0 {
		l.byOperation.Add(table.Hash(x.Operation, x.Peer[:]), slotHandle(id))
	}
	for i := range p.Spots {
		if at := &p.Spots[i]; at.Fills() {
			x.fills = append(x.fills, at.entry)
		}
	}
	if x.Layers {
		l.granted(v, x)
	}
	return x, pages
}

// Reads says that we store into the pages ourselves, and no peer does.
func (x *Landing) Reads() bool {
	return x.Owner == kernel.OwnerPullTarget || x.Owner == kernel.OwnerP2PRequester
}

// Size is how many pages were granted.
func (x *Landing) Size() int { return max(1, len(x.fills)) }

// Handle names the landing of a grant, among those of now.
func (x *Landing) Handle() table.Handle { return slotHandle(x.ID) }

func slotHandle(id effects.GrantID) table.Handle { return table.Handle(memory.SlotOf(id) + 1) }

// Find is the landing of a grant; nil if it has ended.
func (l *Landings) Find(id effects.GrantID) *Landing {
	slot := memory.SlotOf(id)
	if int(slot) >= len(l.rows) || !l.rows[slot].live || l.rows[slot].ID != id {
		return nil
	}
	return &l.rows[slot]
}

// Again is the live landing of an operation that is asked for again; nil if there is none. One that is condemned is
// taken back here: its writer shall not be told of it again.
func (l *Landings) Again(v *env.Env, peer effects.Incarnation, operation uint64) *Landing {
	for p := l.byOperation.Seek(table.Hash(operation, peer[:])); p.Found(); p = l.byOperation.Next(p) {
		if x := &l.rows[p.Handle().Slot()]; x.Peer == peer && x.Operation == operation {
			l.RevokeLost(v, x)
			return x
		}
	}
	return nil
}

// At is the landing at a slot, of a completion that is its own.
func (l *Landings) At(slot int32) *Landing { return &l.rows[slot] }

// Due is the landing at a slot whose deadline has come.
func (l *Landings) Due(v *env.Env, slot int32) *Landing {
	x := &l.rows[slot]
	x.timer = 0
	v.Out.Mark(Marks.GrantExpired)
	return x
}

// Undated takes the deadline away from a landing whose end was asked for already.
func (l *Landings) Undated(v *env.Env, x *Landing) { v.Timers.Stop(&x.timer) }

// Standing is the landing at a slot if nothing ends it yet, for sweeps in the order of slots.
func (l *Landings) Standing(slot int) *Landing {
	if x := &l.rows[slot]; x.live && !x.Revoking {
		return x
	}
	return nil
}

// Slots is the range for At and Standing.
func (l *Landings) Slots() int { return len(l.rows) }

// Operations is how many live grants have a number by which a retry is known.
func (l *Landings) Operations() int { return l.byOperation.Len() }

// Landed takes the pages that a fenced plane says are whole. Its Confirm tells the sender that they are readable, not
// only that they were stored. Claims are kept only if somebody may come for them.
func (l *Landings) Landed(v *env.Env, s *store.Store, x *Landing, ev *effects.Landed, keep bool) {
	code := effects.OK
	if !ev.Complete {
		v.Out.Mark(Marks.LandedPartly)
		code = effects.Faulted
	}
	for _, page := range ev.Pages {
		if !l.Land(v, s, x, page, keep) {
			code = effects.Withdrawn // OK would say that all of it was taken.
		}
	}
	v.Out.Confirm(ev.Landing, code)
	switch {
	case v.Pools.OpenPages(x.ID) == 0 && !x.Revoking:
		l.End(v, s, x)
	case !x.Revoking:
		// The push is over, and with it the grant on what it left out.
		l.Revoke(v, x)
	}
}

// LandAll makes all pages readable that are still under the grant, and says whether all were taken. Whoever says that
// they are whole wrote them all.
func (l *Landings) LandAll(v *env.Env, s *store.Store, x *Landing, keep bool) (taken bool) {
	// The grant's own list shrinks while pages land: walk a copy.
	l.pages, taken = append(l.pages[:0], v.Pools.Pages(x.ID)...), true
	for _, page := range l.pages {
		taken = l.Land(v, s, x, page, keep) && taken
	}
	return taken
}

// Take makes all pages readable into which the driver copied the chunks that came with a question, and ends the
// landing. Asked again, the operation is answered as before (Taken).
func (l *Landings) Take(v *env.Env, s *store.Store, x *Landing, keep bool) {
	v.Work.Spend(x.Size())
	l.LandAll(v, s, x, keep)
	if x.Operation != 0 {
		l.taken.Say(replies.Said{
			Class: x.Class, Peer: x.Peer, Operation: x.Operation, Done: true, What: x.What, When: v.Now,
			Over: v.Now.Add(l.cfg.ClaimTTL),
		})
	}
	l.End(v, s, x)
}

// Taken says whether the chunks of an operation were taken with its question, and of what it was then.
func (l *Landings) Taken(peer effects.Incarnation, operation uint64) (what uint64, taken bool) {
	x := l.taken.Find(peer, operation, 0)
	if x == nil {
		return 0, false
	}
	return x.What, true
}

// LandFirst does so with the first pages of the grant, of which its writer says that they are whole, where nobody
// watches and if that is believed.
func (l *Landings) LandFirst(v *env.Env, s *store.Store, x *Landing, pages uint32, keep bool) {
	if x.Revoking || !l.cfg.Leased || v.Now > x.Ends {
		v.Out.Mark(Marks.CommitLate)
		return
	}
	l.pages = append(l.pages[:0], v.Pools.Pages(x.ID)[:pages]...)
	for _, page := range l.pages {
		l.Land(v, s, x, page, keep)
	}
}

// Land makes one page readable, and says whether it was still under the grant. The page's grant becomes a reference
// in one step, of the store's entry or of nobody: so it is never free between, and never readable before it is
// whole.
func (l *Landings) Land(v *env.Env, s *store.Store, x *Landing, page effects.Page, keep bool) bool {
	position, ok := v.Pools.Land(x.ID, page)
	if !ok {
		v.Out.Mark(Marks.LandedLate)
		return false
	}
	// The length granted is the chunk's; a plane may know only the page.
	page = v.Pools.Pages(x.ID)[position]
	h := x.fills[position]
	if x.Layers {
		if took := l.Bundles.Take(v, s, h, page, keep); !took {
			v.Pools.Of(page).Unref(page)
			return false
		}
		return true
	}
	took := s.EndFill(h, page, true)
	if !took {
		v.Out.Mark(Marks.FillLostRace)
		v.Pools.Of(page).Unref(page)
	}
	hash := s.HashOf(h)
	if keep {
		s.Claim(h, x.Class, x.Request, v)
	}
	s.Settle(h, v)
	if took {
		v.Out.Observe(effects.Observe{Fact: effects.FactReady, ID: hash, Peer: x.Peer})
	}
	return true
}

// Trust makes a plain sender's chunks readable although nothing will ever tell that they are whole (rule M5:
// trust_uncommitted, exempt from S1 by name). The grant stays in force beside the reference, so the pages are not
// reused early.
func (l *Landings) Trust(v *env.Env, s *store.Store, x *Landing) {
	v.Out.Mark(Marks.Trusted)
	for position, page := range v.Pools.Pages(x.ID) {
		v.Pools.Of(page).Share(page)
		h := x.fills[position]
		if !s.Trust(h, page) {
			v.Pools.Of(page).Unref(page)
			continue
		}
		s.Claim(h, x.Class, x.Request, v)
	}
}

// Unknown answers what landed under no grant that we gave for landing.
func Unknown(v *env.Env, ev *effects.Landed) {
	v.Out.Mark(Marks.LandedUnknown)
	v.Out.Confirm(ev.Landing, effects.Withdrawn)
}
