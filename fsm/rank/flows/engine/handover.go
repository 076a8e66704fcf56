package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Store makes pages of the Reserve with ticket Reserved the store's: chunk i has key Keys[i], fills Pages[i] and may be
// read by whoever wants it from the outcome on, so the engine touches it no more. It stays while there is room. A page
// whose chunk is there already is free again. The other pages of the Reserve stay the engine's, and its Release gives
// back those. All pages or none: one that a put has is refused with Invalid.
type Store struct {
	Reserved effects.Ticket
	Keys     [][]byte
	Pages    []effects.Page
}

// IsCommand marks a command body.
func (*Store) IsCommand() {}

// HandOver takes pages from what the engine has reserved: their references are the caller's. They are named in the
// order in which the Reserve gave them. The error says what keeps them; then none was taken.
func (x *Engine) HandOver(v *env.Env, c *Store) (effects.Code, *effects.Why) {
	return x.reserves.handOver(v, c)
}

func (x *reserves) handOver(v *env.Env, c *Store) (effects.Code, *effects.Why) {
	r, code, why := x.has(v, c.Reserved, c.Pages)
	if code != effects.OK {
		return code, why
	}
	left := r.pages[:0]
	found := 0
	for _, p := range r.pages {
		if next(c.Pages, found, p) {
			v.Filled().Unreserve(p)
			found++
		} else {
			left = append(left, p)
		}
	}
	r.pages = left
	if x.cfg.inLine {
		v.Pools.Discharge(v.Filled(), uint32(found))
	}
	return effects.OK, nil
}

// has is what a ticket reserved, if these pages are of it, in its order, and nothing else has one of them.
func (x *reserves) has(v *env.Env, reserved effects.Ticket, pages []effects.Page) (*reserve, effects.Code,
	*effects.Why) {
	of := v.Tickets.Find(reserved)
	if of.Owner != kernel.OwnerEngine || of.Kind != kindReserve || x.waits(of.Subject) {
		return nil, effects.NotFound, &effects.Why{
			Field: "Reserved", Theirs: number(uint64(reserved)), Ours: "the ticket of a Reserve that was not released",
		}
	}
	r := x.slab.Get(of.Subject)
	found := 0
	for _, p := range r.pages {
		if !next(pages, found, p) {
			continue
		}
		if found++; v.Filled().Held(p) {
			return nil, effects.Invalid, inUse("Pages")
		}
	}
	if found < len(pages) {
		return nil, effects.Invalid, &effects.Why{
			Field: "Pages", Theirs: "page " + number(pages[found].Index), Ours: "pages of the Reserve, each once, in its order",
		}
	}
	return r, effects.OK, nil
}

// inUse says why pages cannot be taken from the engine.
func inUse(field string) *effects.Why {
	return &effects.Why{Field: field, Theirs: "in use by a put or a Share", Ours: "pages that nothing uses"}
}

// next says whether the next page that is named, after so many, is this one.
func next(named []effects.Page, after int, p effects.Page) bool {
	return after < len(named) && named[after].Index == p.Index && named[after].Generation == p.Generation
}
