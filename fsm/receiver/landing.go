package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/memory"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// A landing is what one grant is for: a fill for each of its pages. The grant is a sender's, who pushes, or our own,
// for what we read from an offer. It is open until all pages landed, or until it is revoked: then its pages are in
// quarantine, and come back when it is proven that nobody can touch them.
type landing struct {
	live     bool `snap:"life"`
	revoking bool
	id       effects.GrantID
	purpose
	fills []store.Entry  // by the page's position in the grant
	reply []byte         // what was answered, for a retry of the same operation
	timer kernel.TimerID `snap:"set"`
}

// A purpose is what a grant was made for.
type purpose struct {
	reading   bool // our own
	class     int
	peer      effects.Incarnation // zero: a plain sender
	operation uint64
	request   uint64       // hash of the request's id
	what      uint64       // hash of the keys that it is for, in order, and of the last tokens
	ends      effects.Time // who says later that all is whole is not believed, where nobody watches
	over      effects.Time // when it ends by itself
}

// landings are the grants to store into our pages, by the slot of the grant.
type landings struct {
	cfg         landingsConfig `snap:"share"`
	rows        []landing      // as many as there were grants at a time: none is held across begin
	byOperation table.Index    // handles are slots
	commits     tombstones     // grants that were committed
	planned     uint64         // numbers the plans
	plan        plan           `snap:"scratch"`
	pages       []effects.Page `snap:"scratch"`
}

type landingsConfig struct {
	leased     bool
	grantsMax  int
	claimTTL   effects.Duration
	pageBytes  uint64
	tokenBytes uint64 // of a page
}

func newLandings(cfg landingsConfig, classes int) landings {
	return landings{cfg: cfg, commits: newTombstones(cfg.grantsMax, classes)}
}

// room says whether one more grant, and fills of so many keys, fit the tables.
func (l *landings) room(v *env.Env, s *store.Store, keys int) bool {
	return v.Pools.Grants() < l.cfg.grantsMax && s.Room(keys)
}

// begin records a grant just made. Its fills are added by the caller, one for each page.
func (l *landings) begin(v *env.Env, id effects.GrantID, what purpose) *landing {
	slot := int(memory.SlotOf(id))
	for slot >= len(l.rows) {
		l.rows = append(l.rows, landing{})
	}
	x := &l.rows[slot]
	*x = landing{live: true, id: id, purpose: what, fills: x.fills[:0], reply: x.reply[:0]}
	v.Timers.Set(&x.timer, x.over, timerRef(timerGrant, slotHandle(id)))
	if x.operation != 0 {
		l.byOperation.Add(operationHash(x.peer, x.operation), slotHandle(id))
	}
	return x
}

func slotHandle(id effects.GrantID) table.Handle { return table.Handle(memory.SlotOf(id) + 1) }

func operationHash(peer effects.Incarnation, operation uint64) uint64 {
	return table.Hash(operation, peer[:])
}

// find is the landing of a grant; nil if it has ended.
func (l *landings) find(id effects.GrantID) *landing {
	slot := memory.SlotOf(id)
	if int(slot) >= len(l.rows) || !l.rows[slot].live || l.rows[slot].id != id {
		return nil
	}
	return &l.rows[slot]
}

// again is the live landing of an operation that is asked for again; nil if there is none.
func (l *landings) again(peer effects.Incarnation, operation uint64) *landing {
	for p := l.byOperation.Seek(operationHash(peer, operation)); p.Found(); p = l.byOperation.Next(p) {
		if x := &l.rows[p.Handle().Slot()]; x.peer == peer && x.operation == operation {
			return x
		}
	}
	return nil
}

// at is the landing at a slot, of a completion that is its own.
func (l *landings) at(slot int32) *landing { return &l.rows[slot] }

// due is the landing at a slot whose deadline has come.
func (l *landings) due(v *env.Env, slot int32) *landing {
	x := &l.rows[slot]
	x.timer = 0
	v.Out.Mark(MarkGrantExpired)
	return x
}

// undated takes the deadline away from a landing whose end was asked for already.
func (l *landings) undated(v *env.Env, x *landing) { v.Timers.Stop(&x.timer) }

// standing is the landing at a slot if nothing ends it yet, for sweeps in the order of slots.
func (l *landings) standing(slot int) *landing {
	if x := &l.rows[slot]; x.live && !x.revoking {
		return x
	}
	return nil
}

func (l *landings) slots() int      { return len(l.rows) }
func (l *landings) operations() int { return l.byOperation.Len() }

// landed takes the pages that a fenced plane says are whole. Its Confirm tells the sender that they are readable, not
// only that they were stored. Claims are kept only if somebody may come for them.
func (l *landings) landed(v *env.Env, s *store.Store, x *landing, ev *effects.Landed, keep bool) {
	code := effects.OK
	if !ev.Complete {
		v.Out.Mark(MarkLandedPartly)
		code = effects.Faulted
	}
	for _, page := range ev.Pages {
		if !l.land(v, s, x, page, keep) {
			code = effects.Withdrawn // OK would say that all of it was taken.
		}
	}
	v.Out.Confirm(ev.Landing, code)
	switch {
	case v.Pools.OpenPages(x.id) == 0 && !x.revoking:
		l.end(v, s, x)
	case !x.revoking:
		// The push is over, and with it the grant on what it left out.
		l.revoke(v, x)
	}
}

// landAll makes all pages readable that are still under the grant. Whoever says that they are whole wrote them all.
func (l *landings) landAll(v *env.Env, s *store.Store, x *landing, keep bool) {
	// The grant's own list shrinks while pages land: walk a copy.
	l.pages = append(l.pages[:0], v.Pools.Pages(x.id)...)
	for _, page := range l.pages {
		l.land(v, s, x, page, keep)
	}
}

// land makes one page readable, and says whether it was still under the grant. The page's grant becomes a reference
// in one step, of the store's entry or of nobody: so it is never free between, and never readable before it is
// whole.
func (l *landings) land(v *env.Env, s *store.Store, x *landing, page effects.Page, keep bool) bool {
	position, ok := v.Pools.Land(x.id, page)
	if !ok {
		v.Out.Mark(MarkLandedLate)
		return false
	}
	// The length granted is the chunk's; a plane may know only the page.
	page = v.Pools.Pages(x.id)[position]
	h := x.fills[position]
	took := s.EndFill(h, page, true)
	if !took {
		v.Out.Mark(MarkFillLostRace)
		v.Pool.Unref(page)
	}
	hash := s.HashOf(h)
	if keep {
		s.Claim(h, x.class, x.request, v)
	}
	s.Settle(h, v)
	if took {
		v.Out.Observe(effects.Observe{Fact: effects.FactReady, ID: hash, Peer: x.peer})
	}
	return true
}

// trust makes a plain sender's chunks readable although nothing will ever tell that they are whole (rule M5:
// trust_uncommitted, exempt from S1 by name). The grant stays in force beside the reference, so the pages are not
// reused early.
func (l *landings) trust(v *env.Env, s *store.Store, x *landing) {
	v.Out.Mark(MarkTrusted)
	for position, page := range v.Pools.Pages(x.id) {
		v.Pool.Share(page)
		h := x.fills[position]
		if !s.Trust(h, page) {
			v.Pool.Unref(page)
			continue
		}
		s.Claim(h, x.class, x.request, v)
	}
}
