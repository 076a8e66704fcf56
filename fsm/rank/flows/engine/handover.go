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

// HandOverPages removes pages from the engine's reservation; their references belong to the caller then. The pages must
// be in the order in which the Reserve gave them. If HandOverPages returns a code other than OK, no page was removed.
func (x *Engine) HandOverPages(v *env.Env, c *Store) (effects.Code, *effects.Why) {
	return x.reserves.handOverPages(v, c)
}

func (x *reserves) handOverPages(v *env.Env, c *Store) (effects.Code, *effects.Why) {
	r, code, why := x.findReserved(v, c.Reserved, c.Pages)
	if code != effects.OK {
		return code, why
	}
	remaining := r.pages[:0]
	found := 0
	for _, p := range r.pages {
		if isNextPage(c.Pages, found, p) {
			v.EnginePool().UnreservePage(p)
			found++
		} else {
			remaining = append(remaining, p)
		}
	}
	r.pages = remaining
	countTenant(v, c.Keys, c.Pages)
	if x.cfg.inAllocQueue {
		v.Pools.DischargeEngine(v.EnginePool(), uint32(found))
	}
	return effects.OK, nil
}

// findReserved returns the reservation with a ticket if it contains these pages, in its own order, and nothing holds
// any of these pages. Otherwise findReserved returns the code and the reason.
func (x *reserves) findReserved(v *env.Env, reserved effects.Ticket, pages []effects.Page) (*reserve, effects.Code,
	*effects.Why) {
	ref := v.Tickets.Find(reserved)
	if ref.Owner != kernel.OwnerEngine || ref.Kind != kindReserve || x.isWaiting(ref.Subject) {
		return nil, effects.NotFound, &effects.Why{
			Field: "Reserved", Theirs: formatCount(uint64(reserved)), Ours: "the ticket of a Reserve that was not released",
		}
	}
	r := x.slab.Get(ref.Subject)
	found := 0
	for _, p := range r.pages {
		if !isNextPage(pages, found, p) {
			continue
		}
		if found++; v.EnginePool().HasHold(p) {
			return nil, effects.Invalid, pagesInUseReason("Pages")
		}
	}
	if found < len(pages) {
		return nil, effects.Invalid, &effects.Why{
			Field: "Pages", Theirs: "page " + formatCount(pages[found].Index), Ours: "pages of the Reserve, each once, in its order",
		}
	}
	return r, effects.OK, nil
}

// pagesInUseReason returns the reason that pages cannot be taken from the engine.
func pagesInUseReason(field string) *effects.Why {
	return &effects.Why{Field: field, Theirs: "in use by a put or a Share", Ours: "unused pages"}
}

// isNextPage reports whether p is the next page in named after the first after pages.
func isNextPage(named []effects.Page, after int, p effects.Page) bool {
	return after < len(named) && named[after].Index == p.Index && named[after].Generation == p.Generation
}
