package rank

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
)

// onCommand passes a command of the engine to the room or the flow that handles it. onCommand refuses the command as
// Unsupported if no part of this rank handles it.
func (r *Rank) onCommand(e *flow.Env, x *effects.Command) {
	switch c := x.Body.(type) {
	case *Drain:
		r.onDrain(e, x.Ticket, c)
		return
	case *engine.Abort:
		r.onAbort(e, x.Ticket, c)
		return
	}
	for _, of := range r.flows.commanders {
		if r.owner(of).(flow.Commander).Command(e, x) {
			return
		}
	}
	if r.cfg.registers() {
		engine.TurnDown(&e.Env, x.Ticket, effects.Unsupported, &effects.Why{
			Field: "register", Ours: "true: the pool is the engine's own", Theirs: "a command for pages of ours",
			Remedy: "send it to a node without register",
		})
		return
	}
	if r.cfg.Role.Sends() && r.onSend(e, x) || r.cfg.Role.Receives() && r.onReceive(e, x) {
		return
	}
	e.Out.Deliver(effects.Deliver{Ticket: x.Ticket, Code: effects.Unsupported, Why: &effects.Why{
		Stage: effects.StageCommand, Field: "pd_role", Theirs: r.cfg.Role.String(), Ours: "the other one for this command",
		Remedy: "send the command to the right node",
	}})
}

// onSend handles a command for the rooms of a sender (Reserve, Release), and reports false for every other command.
func (r *Rank) onSend(e *flow.Env, x *effects.Command) bool {
	switch c := x.Body.(type) {
	case *engine.Reserve:
		r.commands.OnReserve(&e.Env, x.Ticket, c, e.Draining)
	case *engine.Release:
		r.commands.OnRelease(&e.Env, x.Ticket, c)
	default:
		return false
	}
	return true
}

// onAbort ends the command that has the target's ticket. onAbort refuses the Abort as NotFound if there is no such
// command or if the command cannot be ended early.
func (r *Rank) onAbort(e *flow.Env, t effects.Ticket, c *engine.Abort) {
	ref := r.tickets.Find(c.Target)
	if ref.Owner == kernel.OwnerNone || !r.owner(ref.Owner).Abort(e, ref) {
		engine.TurnDown(&e.Env, t, effects.NotFound, &effects.Why{
			Field: "Target", Theirs: strconv.FormatUint(uint64(c.Target), 10),
			Ours: "the ticket of a command that has not ended",
		})
		return
	}
	engine.Agree(&e.Env, t)
}

// onReceive handles a command for the rooms of a receiver, and reports false for every other command.
func (r *Rank) onReceive(e *flow.Env, x *effects.Command) bool {
	switch c := x.Body.(type) {
	case *engine.Get:
		r.onGet(e, x.Ticket, c)
	case *engine.Contains:
		r.onContains(e, x.Ticket, c)
	case *engine.Unpin:
		e.Gets.Unpin(&e.Env, &e.Store, x.Ticket, c)
	case *engine.Abandon:
		r.onAbandon(e, x.Ticket, c)
	case *p2p.Bring, *p2p.Locate, *engine.Store, *engine.Share, *engine.Withdraw:
		r.onShared(e, x)
	default:
		return false
	}
	return true
}

// onShared handles a command about chunks that are shared between peers. onShared refuses the command unless
// Config.Shares is set.
func (r *Rank) onShared(e *flow.Env, x *effects.Command) {
	if !r.cfg.Shares {
		engine.TurnDown(&e.Env, x.Ticket, effects.Unsupported, &effects.Why{
			Field: "enable_p2p", Theirs: "false", Ours: "true for this command", Remedy: "set enable_p2p: true",
		})
		return
	}
	switch c := x.Body.(type) {
	case *engine.Store:
		r.onStore(e, x.Ticket, c)
	case *engine.Share:
		r.onShare(e, x.Ticket, c)
	case *engine.Withdraw:
		r.commands.OnWithdraw(&e.Env, &e.Store, x.Ticket, c)
	}
}

// onGet checks and opens a Get.
func (r *Rank) onGet(e *flow.Env, t effects.Ticket, c *engine.Get) {
	code, why := e.CheckKeys(c.Keys)
	if code == effects.OK {
		code, why = flow.Waitable("Wait", c.Wait)
	}
	if code == effects.OK && c.Layered {
		code, why = checkLayered(&r.cfg, len(c.Keys))
	}
	if code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
		return
	}
	e.Gets.Open(&e.Env, &e.Store, &e.Ended, t, c)
}

// checkLayered checks whether a layerwise Get can deliver this many chunks, one page for each layer of each chunk, and
// returns the reason if not.
func checkLayered(cfg *Config, chunks int) (effects.Code, *effects.Why) {
	switch layers := int(cfg.Layers); {
	case layers == 0:
		return effects.Unsupported, &effects.Why{
			Field: "Layered", Theirs: "true", Ours: "false", Remedy: "set use_layerwise: true, or leave it out",
		}
	case chunks > int(cfg.BatchMax)/layers:
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: flow.Number(chunks), Ours: "at most " + flow.Number(int(cfg.BatchMax)/layers) +
				" of " + flow.Number(layers) + " layers each (limits.keys_per_batch)",
		}
	}
	return effects.OK, nil
}

// onContains delivers how many chunks, counted from the first, are ready here or are known to lie at a peer.
func (r *Rank) onContains(e *flow.Env, t effects.Ticket, c *engine.Contains) {
	if code, why := e.CheckKeys(c.Keys); code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
		return
	}
	hits := uint32(0)
	for _, key := range c.Keys {
		at := e.Store.Find(e.Store.Hash(key), key)
		if _, ok := e.Store.Ready(at); !ok && e.Deferred.Location(&e.Env, &e.Store, at, 0) == 0 {
			break
		}
		hits++
	}
	e.Out.Deliver(effects.Deliver{Ticket: t, Hits: hits})
}

// onAbandon cancels a request in all tables of this rank. The senders of the request are notified.
func (r *Rank) onAbandon(e *flow.Env, t effects.Ticket, c *engine.Abandon) {
	if len(c.Request) == 0 {
		engine.TurnDown(&e.Env, t, effects.Invalid, flow.NoRequest())
		return
	}
	request := e.Store.Hash(c.Request)
	if len(c.Reason) > 0 {
		e.Ended.NoteOf(request, &effects.Why{Remedy: effects.Words(c.Reason)})
	}
	r.abandon(e, t, request)
}

// onStore moves pages from the engine's reservation into the store. If the store has a chunk already, the chunk's page
// becomes free.
func (r *Rank) onStore(e *flow.Env, t effects.Ticket, c *engine.Store) {
	code, why := r.admits(e, c.Keys, c.Pages)
	if code == effects.OK {
		code, why = r.commands.HandOver(&e.Env, c)
	}
	if code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
		return
	}
	for i, key := range c.Keys {
		page := c.Pages[i]
		page.Length = uint32(r.shared.PageBytes)
		if !e.Store.Admit(&e.Env, e.Store.Hash(key), key, page) {
			e.Pool.Unref(page)
		}
	}
	engine.Agree(&e.Env, t)
}

// onShare lets the store serve pages that the engine keeps for its own use as well.
func (r *Rank) onShare(e *flow.Env, t effects.Ticket, c *engine.Share) {
	if code, why := r.admits(e, c.Keys, c.Pages); code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
		return
	}
	r.commands.OnShare(&e.Env, &e.Store, t, c, e.Draining)
}

// admits checks whether the store can take these chunks in these pages, and returns the reason if not.
func (r *Rank) admits(e *flow.Env, keys [][]byte, pages []effects.Page) (effects.Code, *effects.Why) {
	if code, why := e.CheckKeys(keys); code != effects.OK {
		return code, why
	}
	switch {
	case len(pages) != len(keys):
		return effects.Invalid, &effects.Why{
			Field: "Pages", Theirs: flow.Number(len(pages)), Ours: flow.Number(len(keys)) + ", one for each key",
		}
	case r.cfg.Retention != store.Cache:
		return effects.Unsupported, &effects.Why{
			Field: "store.retention", Theirs: "consume", Ours: "cache",
			Remedy: "else a chunk that nobody expects is gone at once",
		}
	case !e.Store.Room(len(keys)):
		return effects.TooMany, &effects.Why{
			Field: e.Pool.Key(), Ours: flow.Number(e.Store.Entries()) + " of " + flow.Number(e.Store.EntriesMax()) +
				" names of chunks in use, as many as the pool allows",
			Theirs: flow.Number(len(keys)) + " more", Remedy: "retry later, or enlarge " + e.Pool.Key(),
		}
	}
	return effects.OK, nil
}
