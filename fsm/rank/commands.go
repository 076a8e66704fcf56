package rank

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
)

// onCommand passes a command of the engine to the room or the flow that handles it. onCommand refuses the command as
// Unsupported if no part of this rank handles it.
func (r *Rank) onCommand(e *flow.Env, x *effects.Command) {
	switch c := x.Body.(type) {
	case *Drain:
		r.onDrain(e, x.Ticket, c)
		return
	case *SetTenantShare:
		r.onSetTenantShare(e, x.Ticket, c)
		return
	case *engine.Abort:
		r.onAbort(e, x.Ticket, c)
		return
	}
	for _, owner := range r.flows.commanders {
		if r.flowOf(owner).(flow.Commander).OnCommand(e, x) {
			return
		}
	}
	if r.cfg.registersBlocks() {
		engine.RefuseCommand(&e.Env, x.Ticket, effects.Unsupported, &effects.Why{
			Field: "register", Ours: "true: the pool is the engine's own", Theirs: "a command for pages of ours",
			Remedy: "send it to a node without register",
		})
		return
	}
	if r.cfg.Role.Sends() && r.onSenderCommand(e, x) || r.cfg.Role.Receives() && r.onReceiverCommand(e, x) {
		return
	}
	e.Out.Deliver(effects.Deliver{Ticket: x.Ticket, Code: effects.Unsupported, Why: &effects.Why{
		Stage: effects.StageCommand, Field: "pd_role", Theirs: r.cfg.Role.String(), Ours: "the other one for this command",
		Remedy: "send the command to the right node",
	}})
}

// onSenderCommand handles a command for the rooms of a sender (Reserve, Release), and reports false for every other
// command.
func (r *Rank) onSenderCommand(e *flow.Env, x *effects.Command) bool {
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
	if ref.Owner == kernel.OwnerNone || !r.flowOf(ref.Owner).AbortCommand(e, ref) {
		engine.RefuseCommand(&e.Env, t, effects.NotFound, &effects.Why{
			Field: "Target", Theirs: strconv.FormatUint(uint64(c.Target), 10),
			Ours: "the ticket of a command that has not ended",
		})
		return
	}
	engine.DeliverOK(&e.Env, t)
}

// onReceiverCommand handles a command for the rooms of a receiver, and reports false for every other command.
func (r *Rank) onReceiverCommand(e *flow.Env, x *effects.Command) bool {
	switch c := x.Body.(type) {
	case *engine.Get:
		r.onGet(e, x.Ticket, c)
	case *engine.Contains:
		r.onContains(e, x.Ticket, c)
	case *engine.Unpin:
		e.Gets.OnUnpin(&e.Env, &e.Store, x.Ticket, c)
	case *engine.Abandon:
		r.onAbandon(e, x.Ticket, c)
	case *p2p.Bring, *p2p.Locate, *engine.Store, *engine.Share, *engine.Withdraw:
		r.onSharingCommand(e, x)
	default:
		return false
	}
	return true
}

// onSharingCommand handles a command about chunks that are shared between peers. onSharingCommand refuses the command
// unless Config.Shares is set.
func (r *Rank) onSharingCommand(e *flow.Env, x *effects.Command) {
	if !r.cfg.Shares {
		engine.RefuseCommand(&e.Env, x.Ticket, effects.Unsupported, &effects.Why{
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
		code, why = flow.CheckDuration("Wait", c.Wait)
	}
	if code == effects.OK && c.Layered {
		code, why = checkLayered(&r.cfg, len(c.Keys))
	}
	if code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
		return
	}
	e.Gets.OnGet(&e.Env, &e.Store, &e.Outcomes, t, c)
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
			Field: "Keys", Theirs: flow.FormatCount(chunks), Ours: "at most " + flow.FormatCount(int(cfg.BatchMax)/layers) +
				" of " + flow.FormatCount(layers) + " layers each (limits.keys_per_batch)",
		}
	}
	return effects.OK, nil
}

// onContains delivers how many chunks, counted from the first, are ready here or are known to lie at a peer.
func (r *Rank) onContains(e *flow.Env, t effects.Ticket, c *engine.Contains) {
	if code, why := e.CheckKeys(c.Keys); code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
		return
	}
	hits := uint32(0)
	for _, key := range c.Keys {
		entry := e.Store.Find(e.Store.HashIn(c.Realm, key), key)
		if _, ok := e.Store.ReadyPage(entry); !ok && e.Deferred.FindLocation(&e.Env, &e.Store, entry, 0) == 0 {
			break
		}
		hits++
	}
	e.Out.Deliver(effects.Deliver{Ticket: t, Hits: hits})
}

// onAbandon cancels a request in all tables of this rank. The senders of the request are notified.
func (r *Rank) onAbandon(e *flow.Env, t effects.Ticket, c *engine.Abandon) {
	if len(c.Request) == 0 {
		engine.RefuseCommand(&e.Env, t, effects.Invalid, flow.NoRequestReason())
		return
	}
	request := e.Store.HashKey(c.Request)
	if len(c.Reason) > 0 {
		e.Outcomes.SetSenderNote(outcomes.NewID(request, c.Tenant), &effects.Why{Remedy: effects.SanitizeText(c.Reason)})
	}
	r.abandonRequest(e, t, request)
}

// onStore moves pages from the engine's reservation into the store. If the store has a chunk already, the chunk's page
// becomes free.
func (r *Rank) onStore(e *flow.Env, t effects.Ticket, c *engine.Store) {
	code, why := r.checkAdmission(e, c.Keys, c.Pages)
	if code == effects.OK {
		code, why = r.commands.HandOverPages(&e.Env, c)
	}
	if code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
		return
	}
	for i, key := range c.Keys {
		page := c.Pages[i]
		page.Length = uint32(r.flowConfig.PageBytes)
		e.Pool.SetSum(page, page.Sum)
		if !e.Store.AdmitPage(&e.Env, e.Store.HashKey(key), key, page) {
			e.Pool.DropRef(page)
		}
	}
	engine.DeliverOK(&e.Env, t)
}

// onShare lets the store serve pages that the engine keeps for its own use as well.
func (r *Rank) onShare(e *flow.Env, t effects.Ticket, c *engine.Share) {
	if code, why := r.checkAdmission(e, c.Keys, c.Pages); code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
		return
	}
	r.commands.OnShare(&e.Env, &e.Store, t, c, e.Draining)
}

// checkAdmission checks whether the store can take these chunks in these pages, and returns the reason if not.
func (r *Rank) checkAdmission(e *flow.Env, keys [][]byte, pages []effects.Page) (effects.Code, *effects.Why) {
	if code, why := e.CheckKeys(keys); code != effects.OK {
		return code, why
	}
	switch {
	case len(pages) != len(keys):
		return effects.Invalid, &effects.Why{
			Field: "Pages", Theirs: flow.FormatCount(len(pages)), Ours: flow.FormatCount(len(keys)) + ", one for each key",
		}
	case r.cfg.Retention != store.Cache:
		return effects.Unsupported, &effects.Why{
			Field: "store.retention", Theirs: "consume", Ours: "cache",
			Remedy: "otherwise a chunk that no request expects is evicted at once",
		}
	case !e.Store.HasRoom(len(keys)):
		return effects.TooMany, &effects.Why{
			Field: e.Pool.ConfigKey(), Ours: flow.FormatCount(e.Store.CountEntries()) + " of " + flow.FormatCount(e.Store.EntriesMax()) +
				" names of chunks in use, as many as the pool allows",
			Theirs: flow.FormatCount(len(keys)) + " more", Remedy: "retry later, or enlarge " + e.Pool.ConfigKey(),
		}
	}
	return effects.OK, nil
}
