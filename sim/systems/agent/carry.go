package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/layerwise"
	"github.com/kvferry/kvferry/sim/systems/p2p"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// rule states the requirements of docs/protocol-agent.md for an operation.
type rule struct {
	target, prefill session.HoldingKind
	may             bool // the target is optional
	brings          session.HoldingKind
	ends            bool
	// do gives the rank a command or ends the call. The result is false if the call is refused.
	do func(h *host, x *work, b *protocol.EngineCall) bool
}

// rules holds the rules of the operations that truthful engines of this package call.
//
//kvferry:table
var rules = map[protocol.CallOp]rule{
	protocol.CallReserve:        {brings: session.Pages, do: (*host).reserve},
	protocol.CallGet:            {brings: session.Pages, do: (*host).get},
	protocol.CallSharedGet:      {brings: session.Pages, do: (*host).bring},
	protocol.CallFetch:          {do: (*host).fetch},
	protocol.CallSharedFetch:    {do: (*host).bring},
	protocol.CallContains:       {do: (*host).contains},
	protocol.CallLookup:         {do: (*host).contains},
	protocol.CallAbandon:        {do: (*host).abandon},
	protocol.CallPut:            {target: session.Pages, do: (*host).put},
	protocol.CallAwaitReturn:    {target: session.Pages, do: (*host).awaitReturn},
	protocol.CallRelease:        {target: session.Pages, ends: true, do: (*host).release},
	protocol.CallStore:          {target: session.Pages, do: (*host).store},
	protocol.CallShare:          {target: session.Pages, brings: session.Share, do: (*host).store},
	protocol.CallWithdraw:       {target: session.Share, ends: true, do: (*host).release},
	protocol.CallBeginPrefill:   {brings: session.Prefill, do: (*host).layers},
	protocol.CallSaveLayer:      {target: session.Pages, may: true, prefill: session.Prefill, do: (*host).layers},
	protocol.CallPreemptPrefill: {prefill: session.Prefill, do: (*host).layers},
	protocol.CallFinishPrefill:  {prefill: session.Prefill, ends: true, do: (*host).layers},
	protocol.CallDropPrefill:    {prefill: session.Prefill, ends: true, do: (*host).layers},
	protocol.CallRecall:         {target: session.Pages},
	protocol.CallEnd:            {do: (*host).tellEnd},
}

// begin gives a call to the rank, after checking that the machine begins each call once, unchanged, and only if the
// engine is allowed to make the call.
func (h *host) begin(b session.Begin) {
	w, n := h.a.w, h.n
	pd.Judged(w, checkOnce, checkUsed)
	m := h.said[b.CallRef]
	switch {
	case m.begun:
		w.Fail(checkOnce.Property(), "node %d begins call %d of session %d a second time", n.It(), b.ID, b.Session)
		return
	case b.Op != m.op || b.Body.Target != m.target || b.Body.Prefill != m.prefill:
		w.Fail(checkOnce.Property(), "node %d begins call %d of session %d as another", n.It(), b.ID, b.Session)
		return
	}
	m.begun = true
	x := &work{call: b.CallRef, op: b.Op, job: m.job, at: m.at}
	h.works[b.CallRef] = x
	r := rules[b.Op]
	if !h.about(x, r.target, m.target, r.may) || !h.about(x, r.prefill, m.prefill, false) {
		return
	}
	if r.ends && len(x.uses) > 0 {
		x.ends = x.uses[len(x.uses)-1]
		x.uses = nil
		if x.ends.uses > 0 {
			w.Fail(checkUsed.Property(), "node %d begins to give back what a call or a share still uses", n.It())
			return
		}
		x.ends.ending = true
	}
	for _, u := range x.uses {
		u.uses++
	}
	if m.job < 0 && !r.ends || r.do == nil || !r.do(h, x, b.Body) {
		h.ends = append(h.ends, end{x, effects.Invalid})
	}
}

// about checks that the target of a call is a holding of the engine, and records the use. The result is false if the
// check failed.
func (h *host) about(x *work, kind session.HoldingKind, id uint64, may bool) bool {
	if kind == session.NoHolding || may && id == 0 {
		return true
	}
	held := h.holds[session.CallRef{Session: x.call.Session, ID: id}]
	if held == nil || held.kind != kind || held.ending || held.freed {
		h.a.w.Fail(checkUsed.Property(), "node %d begins %v about %d, which is not held, ends, or is another thing", h.n.It(),
			x.op, id)
		return false
	}
	x.uses = append(x.uses, held)
	return true
}

func (h *host) reserve(x *work, b *protocol.EngineCall) bool {
	if !h.n.Sends() || b.Count == 0 {
		return false
	}
	if j := &h.a.w.Jobs[x.job]; j.Sender == h.n.ID { // A lying engine may reserve for a job to the engine's own node.
		j.Life = h.life
	}
	h.give(x, pd.Command{Want: plan.WantReserve, Job: x.job, Count: b.Count, Body: &engine.Reserve{Count: b.Count}},
		pd.Its(h.n).Cfg.ReserveTimeout)
	if !h.said[x.call].lie {
		h.a.w.Jobs[x.job].Batches[0].Reserve = x.t
	}
	return true
}

func (h *host) get(x *work, b *protocol.EngineCall) bool {
	if !h.n.Receives() {
		return false
	}
	j := &h.a.w.Jobs[x.job]
	wait := min(effects.Duration(b.PatienceNS), pd.Its(h.n).Cfg.GetWaitMax)
	h.gives(x, j, wait)
	return true
}

// gives gives the rank a get command for the chunks of a job.
func (h *host) gives(x *work, j *pd.Job, wait effects.Duration) {
	keys := j.Keys
	if j.Layers > 0 {
		keys = j.ChunkKeys
	}
	h.give(x, pd.Command{Want: plan.WantGet, Job: j.Place, Body: &engine.Get{Request: j.Name, Keys: keys, Wait: wait,
		Layered: j.Layers > 0}}, wait)
}

func (h *host) contains(x *work, _ *protocol.EngineCall) bool {
	if !h.n.Receives() || h.a.w.Jobs[x.job].Layers > 0 {
		return false
	}
	h.give(x, pd.Command{Want: plan.WantContains, Job: x.job, Body: &engine.Contains{Keys: h.a.w.Jobs[x.job].Keys}}, 0)
	return true
}

func (h *host) abandon(x *work, _ *protocol.EngineCall) bool {
	if !h.n.Receives() {
		return false
	}
	h.give(x, pd.Command{Want: plan.WantAbandon, Job: x.job, Body: &engine.Abandon{Request: h.a.w.Jobs[x.job].Name}}, 0)
	return true
}

// fetch makes the rank read chunks that the sender keeps in place; the rank shows the chunks to the engine.
func (h *host) fetch(x *work, b *protocol.EngineCall) bool {
	if !h.n.Delays {
		return false
	}
	h.fetches(x, len(h.a.w.Jobs[x.job].Keys), effects.Duration(b.PatienceNS))
	return true
}

// fetches gives the rank a fetch command for the first chunks of a job.
func (h *host) fetches(x *work, first int, patience effects.Duration) {
	j := &h.a.w.Jobs[x.job]
	h.give(x, pd.Command{Want: plan.WantFetch, Job: x.job, Count: uint32(first), Body: &engine.Fetch{Request: j.Name,
		Keys: j.Keys[:first], Patience: patience}}, min(patience, pd.Its(h.n).Cfg.FetchTimeout))
}

// bring gets chunks that another node shares. The outcome continues the call.
func (h *host) bring(x *work, _ *protocol.EngineCall) bool {
	j := &h.a.w.Jobs[x.job]
	if !j.Said[p2p.Flow.Word] || p2p.Delayed(h.n, j) != (x.op == protocol.CallSharedFetch) {
		return false
	}
	h.give(x, pd.Command{Want: p2p.Brings, Job: x.job, Body: p2p.Bring(h.a.w, h.n, j)}, pd.Its(h.n).Cfg.BringTimeout)
	return true
}

func (h *host) put(x *work, _ *protocol.EngineCall) bool {
	w, cfg := h.a.w, &pd.Its(h.n).Cfg
	j := &w.Jobs[x.job]
	held := &w.Commands[x.uses[0].t-1]
	if held.Want != plan.WantReserve || held.Job != x.job || j.Batches[0].Put != 0 {
		return false
	}
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	j.Puts++
	j.Batches[0].Life, j.Batches[0].Reserve = r.Life, x.uses[0].t
	h.give(x, pd.Command{Want: plan.WantPut, Job: x.job, Pages: held.Pages, Body: &engine.Put{
		Peer:    engine.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port},
		Request: j.Name, Keys: j.Keys, Pages: held.Pages, Layout: cfg.Layout, LastChunkTokens: j.TokensOf(len(j.Keys) - 1),
		Last: true,
	}}, cfg.PutTimeout)
	w.Jobs[x.job].Batches[0].Put = x.t
	return true
}

// store transfers the pages of an engine that hold whole chunks to the cache, or shares them.
func (h *host) store(x *work, _ *protocol.EngineCall) bool {
	w := h.a.w
	j := &w.Jobs[x.job]
	of := x.uses[0]
	c := w.Commands[of.t-1]
	if !pd.Its(h.n).Cfg.Shares || !h.n.Caches || c.Want != plan.WantReserve || c.Job != x.job {
		return false
	}
	body := engine.Store{Reserved: of.t}
	for i, p := range c.Pages {
		if p.Length == h.n.Pool.PageBytes {
			body.Keys, body.Pages = append(body.Keys, j.Keys[i]), append(body.Pages, p)
		}
	}
	if len(body.Keys) == 0 {
		return false
	}
	given := pd.Command{Want: p2p.Stores, Job: x.job, Target: of.t, Body: &body, Pages: body.Pages}
	if x.op == protocol.CallShare {
		share := engine.Share(body)
		given.Want, given.Body = p2p.Shares, &share
	}
	h.give(x, given, 0)
	return true
}

// layers carries out the calls of a layerwise push.
func (h *host) layers(x *work, _ *protocol.EngineCall) bool {
	if x.job < 0 || !h.a.w.Jobs[x.job].Said[layerwise.Flow.Word] || !h.n.Sends() {
		return false
	}
	j := &h.a.w.Jobs[x.job]
	script, run := layerwise.ScriptOf(h.a.w, j), effects.Ticket(0)
	for _, u := range append(x.uses, x.ends) {
		if u != nil && u.kind == session.Prefill {
			run = u.t
		}
	}
	pages := h.holdingOf(j.Batches[0].Reserve)
	if pages == nil || x.op != protocol.CallBeginPrefill && h.a.w.Commands[run-1].Job != x.job {
		return false
	}
	var c pd.Command
	switch x.op { //nolint:exhaustive // The other operations have no prefill.
	case protocol.CallBeginPrefill:
		c = script.Begin()
	case protocol.CallSaveLayer:
		c = script.Save(x.at, run)
	case protocol.CallPreemptPrefill:
		c = script.Preempt(run)
	case protocol.CallFinishPrefill:
		if x.ends.short { // The agent refuses this itself.
			return false
		}
		c = script.Finish(run)
	default:
		c = script.Drop(run)
	}
	c.Job, c.Target = x.job, j.Batches[0].Reserve
	if pages.lots++; len(c.Pages) == 0 {
		pages.lots--
	}
	h.give(x, c, layerwise.Patience(h.n, &c))
	return true
}

// holdingOf returns the holding that a command of the rank produced, or nil if no engine has such a holding.
func (h *host) holdingOf(t effects.Ticket) *holding {
	for _, x := range h.holds {
		if x.t == t {
			return x
		}
	}
	return nil
}

// awaitReturn waits until no transfer reads the pages any more.
func (h *host) awaitReturn(x *work, _ *protocol.EngineCall) bool {
	if x.waits = x.uses[0].lots > 0; !x.waits {
		h.ends = append(h.ends, end{x, effects.OK})
	}
	return true
}

// release gives a holding of an engine back. At times the agent refuses, and the engine still has the holding.
func (h *host) release(x *work, _ *protocol.EngineCall) bool {
	if h.a.draw().Rarely(60) && !h.a.w.Healed {
		h.ends = append(h.ends, end{x, effects.TooMany})
		return true
	}
	if x.waits = x.ends.lots > 0; !x.waits {
		h.giveBack(x)
	}
	return true
}

// free gives back a holding that no engine holds any more.
func (h *host) free(f session.Free) {
	held := h.holds[session.CallRef{Session: f.Session, ID: f.Holding}]
	if held == nil || held.freed || held.kind != f.Kind || held.uses > 0 {
		h.a.w.Fail(checkUsed.Property(), "node %d gives back what is given back, is used, or is another thing", h.n.It())
		return
	}
	held.freed, held.ending = true, true
	x := &work{call: held.at, free: true, ends: held, job: h.a.w.Commands[held.t-1].Job}
	if x.waits = held.lots > 0; x.waits {
		h.frees = append(h.frees, x)
		return
	}
	h.giveBack(x)
}

// giveBack gives the result of a call back to the rank.
func (h *host) giveBack(x *work) {
	w, t := h.a.w, x.ends.t
	of := w.Commands[t-1]
	c := pd.Command{Want: plan.WantRelease, Target: t, Body: &engine.Release{Reserved: t}}
	patience := effects.Duration(0)
	switch of.Want { //nolint:exhaustive // The other commands use pages of a Reserve.
	case plan.WantGet:
		c.Want, c.Body = plan.WantUnpin, &engine.Unpin{Got: t}
	case p2p.Shares:
		c = pd.Command{Want: p2p.Withdraws, Job: of.Job, Target: t, Body: &engine.Withdraw{Shared: t}, Pages: of.Pages}
		patience = p2p.Patience(h.n)
	case layerwise.Begins:
		script := layerwise.ScriptOf(w, &w.Jobs[of.Job])
		c = script.Drop(t)
		c.Job, c.Target = of.Job, of.Target
	}
	if h.gone[t] = of.Want != p2p.Shares; h.gone[t] && of.Want != layerwise.Begins {
		pd.OnReleasing.Report(&w.Panel, h.n.ID, pd.Releasing{Node: h.n, Ticket: t})
	}
	h.give(x, c, patience)
}

// give gives the rank a command on behalf of a call, or to give a holding back.
func (h *host) give(x *work, c pd.Command, patience effects.Duration) {
	c.Attached = true
	x.t = h.a.w.Give(h.n, c, patience)
	h.tickets[x.t] = x
}

// abort makes a call end early.
func (h *host) abort(x *work) {
	x.aborted = true
	switch {
	case x.waits && x.op == protocol.CallAwaitReturn:
		x.waits = false
		h.ends = append(h.ends, end{x, effects.Cancelled})
	case x.t != 0 && (x.ends == nil || x.op == protocol.CallFinishPrefill || x.op == protocol.CallWithdraw):
		if c := &h.a.w.Commands[x.t-1]; !c.Over || c.Held {
			h.a.w.GiveAbort(h.n, x.t)
		}
	}
	if x.show != nil {
		h.scattered(x, effects.Faulted)
	}
}
