package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/table"
)

// Share lets the store serve pages that the engine continues to read: chunk i has key Keys[i] and lies in Pages[i].
// Nobody may write to these pages from now on, including the engine. The pages stay until Withdraw, even if room is
// needed, and their Reserve cannot be released before. The Hits of the outcome count the pages that are shared: if a
// chunk is in the store already, the page is not shared, but is withdrawn with the rest. All pages are taken or none:
// if a put or another Share holds any of the pages, the Share is refused as Invalid.
type Share struct {
	Reserved effects.Ticket
	Keys     [][]byte
	Pages    []effects.Page
}

// Withdraw ends the sharing that the Share with ticket Shared began. From then on no read of the pages begins unless
// the read was promised before. The outcome follows when nobody reads the pages any more; from then on the pages belong
// to the engine alone. If a Withdraw is aborted, the pages that are being read stay shared, and another Withdraw can
// wait for them.
type Withdraw struct{ Shared effects.Ticket }

// IsCommand marks Share as a command body.
func (*Share) IsCommand() {}

// IsCommand marks Withdraw as a command body.
func (*Withdraw) IsCommand() {}

// shares contains the engine's pages that the store serves as well.
type shares struct {
	rows   table.Slab[pageShare]
	chunks table.Slab[sharedChunk]
	byHash table.Index // chunks that were withdrawn but are still being read
}

type pageShare struct {
	ticket         effects.Ticket // of the Share
	withdrawTicket effects.Ticket // of the Withdraw that waits; 0: none does
	withdrawn      bool           // the pages were withdrawn
	pages          []effects.Page // all held pages, also pages that the store has not taken
	chunks         table.List     // the chunks that the store has
}

type sharedChunk struct {
	entry store.Entry
	hash  uint64
	share table.Handle
}

// recycle returns shares for at most this number of Shares, and of pages in them, in the memory of x.
func (x *shares) recycle(limit, pages uint32) shares {
	return shares{rows: x.rows.Recycle(int(limit)), chunks: x.chunks.Recycle(int(pages)), byHash: x.byHash.Recycle()}
}

// OnShare handles a Share with keys and pages that the store can take.
func (x *Engine) OnShare(v *env.Env, s *store.Store, t effects.Ticket, c *Share, draining bool) {
	_, code, why := x.reserves.findReserved(v, c.Reserved, c.Pages)
	switch {
	case draining:
		code, why = effects.Draining, &effects.Why{}
	case code == effects.OK && x.shares.rows.Full():
		v.Out.Mark(Marks.SharesFull)
		code, why = effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: formatCount(x.shares.rows.Max()) + ", and as many are shared",
			Remedy: "withdraw some, or raise tables.commands",
		}
	}
	if code != effects.OK {
		RefuseCommand(v, t, code, why)
		return
	}
	h, r := x.shares.rows.Add()
	*r = pageShare{ticket: t, pages: append(r.pages[:0], c.Pages...)}
	countTenant(v, c.Keys, c.Pages)
	for i, key := range c.Keys {
		page := c.Pages[i]
		page.Length = uint32(x.cfg.PageBytes)
		v.EnginePool().HoldPage(page)
		v.EnginePool().SetSum(page, page.Sum)
		hash := s.HashKey(key)
		if entry, kept := s.KeepEnginePage(v, hash, key, page); kept {
			at, chunk := x.shares.chunks.Add()
			*chunk = sharedChunk{entry: entry, hash: hash, share: h}
			x.shares.chunks.PushBack(&r.chunks, at)
		}
	}
	v.Tickets.Add(t, engineRef(kindShare, h))
	v.Out.Deliver(effects.Deliver{Ticket: t, Hits: uint32(r.chunks.Len())})
}

// OnWithdraw handles a Withdraw.
func (x *Engine) OnWithdraw(v *env.Env, s *store.Store, t effects.Ticket, c *Withdraw) {
	ref := v.Tickets.Find(c.Shared)
	if ref.Owner != kernel.OwnerEngine || ref.Kind != kindShare {
		RefuseCommand(v, t, effects.NotFound, &effects.Why{
			Field: "Shared", Theirs: formatCount(uint64(c.Shared)), Ours: "the ticket of a Share that was not withdrawn",
		})
		return
	}
	r := x.shares.rows.Get(ref.Subject)
	if r.withdrawTicket != 0 {
		RefuseCommand(v, t, effects.Invalid, &effects.Why{
			Field: "Shared", Theirs: "withdrawn by ticket " + formatCount(uint64(r.withdrawTicket)), Ours: "a Share that no other command withdraws",
		})
		return
	}
	v.Work.SpendRows(r.chunks.Len())
	r.withdrawTicket = t
	v.Tickets.Add(t, engineRef(kindWithdraw, ref.Subject))
	for at := r.chunks.Front(); at != 0 && !r.withdrawn; {
		next := x.shares.chunks.Next(at)
		chunk := x.shares.chunks.Get(at)
		if s.IsEngineKept(chunk.entry) { // Otherwise a drain has let go of the chunk.
			s.WithdrawPage(chunk.entry, v)
		}
		if s.IsWithdrawing(chunk.entry) {
			v.Out.Mark(Marks.WithdrawWaits)
			x.shares.byHash.Add(chunk.hash, at)
		} else {
			x.shares.chunks.Unlink(&r.chunks, at)
			x.shares.chunks.Remove(at)
		}
		at = next
	}
	r.withdrawn = true
	x.maybeFinishWithdraw(v, ref.Subject, r)
}

// ProcessWithdrawn handles the store's notifications that withdrawn chunks are not read any more.
func (x *Engine) ProcessWithdrawn(v *env.Env, s *store.Store) {
	for _, hash := range s.WithdrawnKeys() {
		v.Work.SpendLooks(1)
		for p := x.shares.byHash.Find(hash); p.Found(); p = x.shares.byHash.Next(p) {
			at := p.Handle()
			chunk := x.shares.chunks.Get(at)
			if s.IsWithdrawing(chunk.entry) {
				continue // another key with this hash
			}
			share := chunk.share
			r := x.shares.rows.Get(share)
			x.shares.byHash.Remove(hash, at)
			x.shares.chunks.Unlink(&r.chunks, at)
			x.shares.chunks.Remove(at)
			x.maybeFinishWithdraw(v, share, r)
			break // Each notification is about one chunk.
		}
	}
	s.ClearWithdrawnKeys()
}

// maybeFinishWithdraw delivers the outcome of a Withdraw if none of its chunks is read any more.
func (x *Engine) maybeFinishWithdraw(v *env.Env, h table.Handle, r *pageShare) {
	if r.withdrawTicket == 0 || r.chunks.Len() > 0 {
		return
	}
	for _, page := range r.pages {
		v.EnginePool().ReleaseHold(page)
	}
	v.Tickets.Remove(r.ticket)
	v.Tickets.Remove(r.withdrawTicket)
	DeliverOK(v, r.withdrawTicket)
	r.pages = table.TrimSlice(r.pages)
	x.shares.rows.Remove(h)
}

// abortWithdraw ends a Withdraw that waits.
func (x *shares) abortWithdraw(v *env.Env, h table.Handle) {
	r := x.rows.Get(h)
	v.Tickets.Remove(r.withdrawTicket)
	RefuseCommand(v, r.withdrawTicket, effects.Cancelled,
		&effects.Why{Field: "Shared", Theirs: formatCount(r.chunks.Len()) + " chunks that are read"})
	r.withdrawTicket = 0
}
