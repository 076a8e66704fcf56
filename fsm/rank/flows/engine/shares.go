package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// Share lets the store have pages that the engine goes on reading itself: chunk i has key Keys[i] and lies in Pages[i],
// which nobody writes to from now on, the engine included. They stay as they are until Withdraw, whatever room is
// wanted, and their Reserve cannot be released before. Hits counts those that are shared: where a chunk is here already
// its page is the engine's alone, though it goes the same way. All pages or none: one that a put or another Share has
// is refused with Invalid.
type Share struct {
	Reserved effects.Ticket
	Keys     [][]byte
	Pages    []effects.Page
}

// Withdraw ends what the Share with ticket Shared began. From then on nobody begins to read its pages who had not been
// promised them, and the outcome is when nobody reads them: then they are the engine's alone. If it is aborted, those
// that are read stay, and another Withdraw waits for them.
type Withdraw struct{ Shared effects.Ticket }

// IsCommand marks a command body.
func (*Share) IsCommand() {}

// IsCommand marks a command body.
func (*Withdraw) IsCommand() {}

// shares are the pages of the engine's that its store has as well.
type shares struct {
	rows   table.Slab[shared]
	chunks table.Slab[sharedChunk]
	byHash table.Index // of chunks that are read still, though they were withdrawn
}

type shared struct {
	ticket effects.Ticket // of the Share
	ending effects.Ticket // of the Withdraw that waits; 0: none does
	begun  bool           // it is withdrawn
	pages  []effects.Page // held, those included that the store has not
	chunks table.List     // that the store has
}

type sharedChunk struct {
	entry store.Entry
	hash  uint64
	of    table.Handle
}

// emptied has room for so many Shares, and pages of them.
func (x *shares) emptied(most, pages uint32) shares {
	return shares{rows: x.rows.Emptied(int(most)), chunks: x.chunks.Emptied(int(pages)), byHash: x.byHash.Emptied()}
}

// OnShare handles a Share whose keys fit the store.
func (x *Engine) OnShare(v *env.Env, s *store.Store, t effects.Ticket, c *Share, draining bool) {
	_, code, why := x.reserves.has(v, c.Reserved, c.Pages)
	switch {
	case draining:
		code, why = effects.Draining, &effects.Why{}
	case code == effects.OK && x.shares.rows.Full():
		v.Out.Mark(Marks.SharesFull)
		code, why = effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(x.shares.rows.Max()) + ", and as many are shared",
			Remedy: "withdraw some, or raise tables.commands",
		}
	}
	if code != effects.OK {
		TurnDown(v, t, code, why)
		return
	}
	h, r := x.shares.rows.Add()
	*r = shared{ticket: t, pages: append(r.pages[:0], c.Pages...)}
	for i, key := range c.Keys {
		page := c.Pages[i]
		page.Length = uint32(x.cfg.PageBytes)
		v.Filled().Hold(page)
		hash := s.Hash(key)
		if entry, kept := s.Keep(v, hash, key, page); kept {
			at, chunk := x.shares.chunks.Add()
			*chunk = sharedChunk{entry: entry, hash: hash, of: h}
			x.shares.chunks.PushBack(&r.chunks, at)
		}
	}
	v.Tickets.Add(t, ref(kindShare, h))
	v.Out.Deliver(effects.Deliver{Ticket: t, Hits: uint32(r.chunks.Len())})
}

// OnWithdraw handles a Withdraw.
func (x *Engine) OnWithdraw(v *env.Env, s *store.Store, t effects.Ticket, c *Withdraw) {
	of := v.Tickets.Find(c.Shared)
	if of.Owner != kernel.OwnerEngine || of.Kind != kindShare {
		TurnDown(v, t, effects.NotFound, &effects.Why{
			Field: "Shared", Theirs: number(uint64(c.Shared)), Ours: "the ticket of a Share that was not withdrawn",
		})
		return
	}
	r := x.shares.rows.Get(of.Subject)
	if r.ending != 0 {
		TurnDown(v, t, effects.Invalid, &effects.Why{
			Field: "Shared", Theirs: "withdrawn by ticket " + number(uint64(r.ending)), Ours: "one that nobody waits for",
		})
		return
	}
	v.Work.Spend(r.chunks.Len())
	r.ending = t
	v.Tickets.Add(t, ref(kindWithdraw, of.Subject))
	for at := r.chunks.Front(); at != 0 && !r.begun; {
		next := x.shares.chunks.Next(at)
		chunk := x.shares.chunks.Get(at)
		if s.Kept(chunk.entry) { // Else a drain has let it go.
			s.Withdraw(chunk.entry, v)
		}
		if s.Leaving(chunk.entry) {
			v.Out.Mark(Marks.WithdrawWaits)
			x.shares.byHash.Add(chunk.hash, at)
		} else {
			x.shares.chunks.Unlink(&r.chunks, at)
			x.shares.chunks.Remove(at)
		}
		at = next
	}
	r.begun = true
	x.maybeWithdrawn(v, of.Subject, r)
}

// HearWithdrawn takes word of the store that nobody reads chunks any more which were withdrawn.
func (x *Engine) HearWithdrawn(v *env.Env, s *store.Store) {
	for _, hash := range s.Withdrawn() {
		v.Work.Looks(1)
		for p := x.shares.byHash.Seek(hash); p.Found(); p = x.shares.byHash.Next(p) {
			at := p.Handle()
			chunk := x.shares.chunks.Get(at)
			if s.Leaving(chunk.entry) {
				continue // Another key with this hash.
			}
			of := chunk.of
			r := x.shares.rows.Get(of)
			x.shares.byHash.Remove(hash, at)
			x.shares.chunks.Unlink(&r.chunks, at)
			x.shares.chunks.Remove(at)
			x.maybeWithdrawn(v, of, r)
			break // Each word is of one chunk.
		}
	}
	s.HeardWithdrawn()
}

// maybeWithdrawn gives a Withdraw its outcome if nobody reads what it is of.
func (x *Engine) maybeWithdrawn(v *env.Env, h table.Handle, r *shared) {
	if r.ending == 0 || r.chunks.Len() > 0 {
		return
	}
	for _, page := range r.pages {
		v.Filled().Unhold(page)
	}
	v.Tickets.Remove(r.ticket)
	v.Tickets.Remove(r.ending)
	Agree(v, r.ending)
	r.pages = table.Shed(r.pages)
	x.shares.rows.Remove(h)
}

// abort ends a Withdraw that waits.
func (x *shares) abort(v *env.Env, h table.Handle) {
	r := x.rows.Get(h)
	v.Tickets.Remove(r.ending)
	TurnDown(v, r.ending, effects.Cancelled,
		&effects.Why{Field: "Shared", Theirs: number(r.chunks.Len()) + " chunks that are read"})
	r.ending = 0
}
