package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Store moves pages of the Reserve with ticket Reserved into the store: chunk i has key Keys[i] and fills Pages[i].
// From the outcome on every reader may read the chunks, so the engine must not touch these pages any more. A chunk
// stays while there is room. If the store has a chunk already, its page becomes free. The remaining pages of the
// Reserve stay with the engine, and Release gives back only the remaining pages. All pages are taken or none: if a put
// or a Share holds any of the pages, the Store is refused as Invalid.
type Store struct {
	Reserved effects.Ticket
	Keys     [][]byte
	Pages    []effects.Page
}

// IsCommand marks Store as a command body.
func (*Store) IsCommand() {}

// HandOver removes pages from the engine's reservation; their references belong to the caller then. The pages must be
// in the order in which the Reserve gave them. If HandOver returns a code other than OK, no page was removed.
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

// has returns the reservation with a ticket if it contains these pages, in its own order, and nothing holds any of
// these pages. Otherwise has returns the code and the reason.
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

// inUse returns the reason that pages cannot be taken from the engine.
func inUse(field string) *effects.Why {
	return &effects.Why{Field: field, Theirs: "in use by a put or a Share", Ours: "pages that nothing uses"}
}

// next reports whether p is the next page in named after the first after pages.
func next(named []effects.Page, after int, p effects.Page) bool {
	return after < len(named) && named[after].Index == p.Index && named[after].Generation == p.Generation
}
