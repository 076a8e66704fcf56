package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/layerwise"
	"github.com/kvferry/kvferry/sim/systems/p2p"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine handles a job in one of three ways. The engine reserves pages, fills and puts the pages, perhaps stores or
// shares the chunks, and releases the pages; or computes the job layer by layer; or gets chunks (or is shown chunks),
// and reads and releases them. Between the steps the engine pauses for a random time, and at times aborts a pending
// call.

// A kind says how an engine handles a job.
type kind uint8

const (
	putting   kind = iota
	getting        // get chunks that were sent
	fetching       // fetch chunks that the sender keeps in place
	bringing       // get chunks that another node shares
	computing      // push layer by layer
)

// A task is the progress of an engine on a job.
type task struct {
	job   int
	kind  kind
	phase int
	tries int
	call  *asked // the call that the task waits for
	holds uint64 // number of the call that gave the pages
	other uint64 // number of the call that gave the share or the prefill
	at    int    // position in the layer script
	kept  bool   // the cache owns the pages
	hasty bool   // the engine skips waits that are optional
	anew  bool   // the prefill was preempted and has started again
	blind bool   // the engine releases a holding that may not exist
	until int64  `snap:"instant"` // the task does not continue before this time
}

// The phases of a task. In each phase but the first, the task waits for a call.
const (
	begins = iota
	comes  // waits for the requested pages
	fills  // half of the pages are filled, or the engine reads
	puts
	stores    // stores or shares the pages
	shares    // the pages are shared
	withdraws // withdraws the share
	runs      // begins a prefill
	saves     // saves the layers of the prefill
	stops     // preempts the prefill
	waits     // waits for the return of the pages
	finishes
	leaves
)

// result returns the call that the task waits for, if that call has ended, and removes the call from the task.
func (t *task) result() (x *asked, ok bool) {
	if t.call == nil || !t.call.ended() {
		return nil, false
	}
	x, t.call = t.call, nil
	return x, true
}

// call makes a call for a task, and reports whether the call could be made.
func (e *engineProcess) call(t *task, m protocol.EngineCall, op protocol.CallOp) bool {
	x := e.ask(m, op, t.job, t.at)
	if x != nil {
		t.call = x
	}
	return x != nil
}

// pause makes a task continue after a random time with the given mean.
func (e *engineProcess) pause(t *task, mean effects.Duration) {
	t.until = e.a.w.Now + int64(e.a.while(mean))
	e.wake(effects.Duration(t.until - e.a.w.Now))
}

// waits reports whether a task has a call that may be aborted.
func (t *task) waits() bool { return t.call != nil && !t.call.answered && !t.call.aborted }

// abort aborts the call that the task waits for.
func (t *task) abort(e *engineProcess) {
	t.call.aborted = e.ask(protocol.EngineCall{Target: t.call.id}, protocol.CallAbort, -1, 0) != nil
}

// work continues a task.
func (e *engineProcess) work(t *task) {
	if t.waits() && !e.a.w.Healed && e.a.draw().Rarely(25) {
		t.abort(e)
	}
	switch t.phase {
	case begins:
		e.begin(t)
	case comes:
		if x, ok := t.result(); ok {
			e.came(t, x)
		}
	case fills:
		if t.kind != putting {
			e.reads(t)
			e.leave(t)
			return
		}
		e.fill(t, 1)
		if e.call(t, protocol.EngineCall{Target: t.holds}, protocol.CallPut) {
			t.phase = puts
		}
	case puts:
		e.put(t)
	case stores, shares, withdraws:
		e.share(t)
	case leaves:
		e.leaves(t)
	default:
		e.compute(t)
	}
}

// begin requests the pages or the chunks of a job.
func (e *engineProcess) begin(t *task) {
	w := e.a.w
	j, n := &w.Jobs[t.job], w.Nodes[e.node]
	d := e.a.draw()
	m, op := protocol.EngineCall{}, protocol.CallReserve
	switch t.kind {
	case putting:
		m.Count = uint32(len(j.Keys))
	case computing:
		m.Count = uint32(len(j.Keys) * max(1, j.Together))
	case getting:
		op, m.PatienceNS = protocol.CallGet, e.a.patience(d, pd.Its(n).Cfg.GetWaitMax)
	case fetching:
		op, m.PatienceNS = protocol.CallFetch, e.a.patience(d, pd.Its(n).Cfg.FetchTimeout)
	case bringing:
		if op = protocol.CallSharedGet; p2p.Delayed(n, j) {
			op = protocol.CallSharedFetch
		}
	}
	if look := d.Again(); op != protocol.CallReserve && look.Rarely(150) {
		how := protocol.CallContains
		if look.Again().Permille(300) {
			how = protocol.CallLookup
		}
		e.ask(protocol.EngineCall{}, how, t.job, 0)
	}
	if e.call(t, m, op) {
		t.phase, t.holds, t.hasty = comes, t.call.id, d.Again().Again().Rarely(300)
	}
}

// came continues the task with the outcome of the first call.
func (e *engineProcess) came(t *task, x *asked) {
	switch {
	case x.pages > 0 && t.kind == computing:
		if h, held := e.holding(t.holds); h != nil && !e.lies {
			script := layerwise.ScriptOf(e.a.w, &e.a.w.Jobs[t.job])
			script.Computes(h.n, &e.a.w.Commands[held.t-1])
		}
		t.phase = runs
		e.compute(t)
	case x.pages > 0:
		if t.phase = fills; t.kind == putting {
			e.fill(t, 0)
		}
		e.pause(t, 5*effects.Millisecond)
	case t.tries < 2 && (t.kind == putting || t.kind == computing) || t.tries < 1 && x.code == effects.TooMany:
		t.tries++
		t.phase = begins
		e.pause(t, 20*effects.Millisecond)
	case t.kind != putting && x.code != effects.OK && e.a.draw().Rarely(200):
		e.ask(protocol.EngineCall{}, protocol.CallAbandon, t.job, 0)
		e.over(t)
	default:
		e.over(t)
	}
}

// put waits for a put to end, or at times leaves earlier. The pages are returned to the engine once the put is over.
func (e *engineProcess) put(t *task) {
	d := e.a.draw()
	x, ok := t.result()
	if ok {
		e.tell(t, x.code)
	}
	switch {
	case ok && pd.Its(e.a.w.Nodes[e.node]).Cfg.Shares && x.code == effects.OK && d.Rarely(600):
		op := protocol.CallStore
		if d.Again().Permille(600) {
			op = protocol.CallShare
		}
		if e.call(t, protocol.EngineCall{Target: t.holds}, op) {
			t.phase, t.other = stores, t.call.id
			return
		}
		fallthrough
	case ok:
		e.fill(t, 2)
		e.leave(t)
	case t.call.answered && d.Rarely(300), d.Rarely(20) && !e.a.w.Healed:
		e.leave(t)
	}
}

// share continues with pages that were put: another node may read them, and after the share is withdrawn the pages
// belong to the engine again.
func (e *engineProcess) share(t *task) {
	switch t.phase {
	case stores:
		x, ok := t.result()
		switch {
		case !ok:
		case x.op == protocol.CallStore || x.code != effects.OK:
			t.kept = x.code == effects.OK
			e.leave(t)
		default:
			t.phase = shares
			e.pause(t, effects.Second/2)
		}
	case shares:
		if t.call == nil && t.hasty { // The pages are released once the share has ended.
			if x := e.ask(protocol.EngineCall{Target: t.holds}, protocol.CallRelease, t.job, 0); x != nil {
				e.held[t.holds], t.blind, t.hasty = false, true, false
			}
		}
		if e.call(t, protocol.EngineCall{Target: t.other}, protocol.CallWithdraw) {
			t.phase, e.held[t.other] = withdraws, false
		}
	case withdraws:
		x, ok := t.result()
		switch {
		case !ok:
		case x.code != effects.OK: // The share is still in force.
			t.phase = shares
			e.pause(t, 10*effects.Millisecond)
		default:
			if !t.blind {
				e.fill(t, 2)
			}
			e.leave(t)
		}
	}
}

// leave gives back the holdings of a task.
func (e *engineProcess) leave(t *task) {
	t.phase = leaves
	if t.call = nil; !e.call(t, protocol.EngineCall{Target: t.holds}, protocol.CallRelease) {
		return
	}
	e.held[t.holds] = false
	if e.a.draw().Rarely(100) { // Another thread of the engine still waits for the pages.
		e.ask(protocol.EngineCall{Target: t.holds}, protocol.CallAwaitReturn, t.job, 0)
	}
}

// leaves waits until the holdings are given back. The engine keeps a holding that could not be given back.
func (e *engineProcess) leaves(t *task) {
	if t.call == nil {
		e.leave(t)
		return
	}
	x, ok := t.result()
	switch {
	case !ok:
	case x.code == effects.OK, x.code == effects.NotFound && (t.blind || e.lies):
		e.over(t)
	case x.code == effects.TooMany || x.code == effects.Cancelled:
		e.pause(t, 10*effects.Millisecond)
	case !e.lies:
		e.a.w.Fail(checkHeld.Property(), "an engine of node %d gives back what it holds by call %d, and cannot: %s",
			e.a.w.Nodes[e.node].It(), t.holds, x.code)
	default:
		e.over(t)
	}
}

// holding returns the agent's record of what a call has given, or nil if this incarnation of the agent has none.
func (e *engineProcess) holding(id uint64) (*host, *holding) {
	h := e.agent()
	if h == nil {
		return nil, nil
	}
	x := h.holds[session.CallRef{Session: e.session, ID: id}]
	if x == nil {
		if !e.lies {
			e.a.w.Fail(checkHeld.Property(), "what call %d brought an engine of node %d is not held any more", id, h.n.It())
		}
		return nil, nil
	}
	return h, x
}

// fill writes a half of the chunks of a task, or unrelated content after the put.
func (e *engineProcess) fill(t *task, half int) {
	h, x := e.holding(t.holds)
	if h == nil || e.lies && (e.a.w.Commands[x.t-1].Job != t.job || lost(h, x)) ||
		!e.lies && !h.holdsStill(x, "fills") {
		return
	}
	w, c := e.a.w, &e.a.w.Commands[x.t-1]
	j := &w.Jobs[t.job]
	if half == 0 {
		c.Count = w.NewFill()
		for i := range c.Pages {
			c.Pages[i].Length = uint32(uint64(h.n.Pool.PageBytes) * uint64(j.TokensOf(i)) / world.Parts)
		}
	}
	for i, p := range c.Pages {
		pg := &h.n.Pool.Pages[p.Index]
		if half == 2 {
			pg.Stamps = [world.Parts]world.Stamp{}
			h.n.Pool.Touch(p.Index)
			continue
		}
		for part := half * world.Parts / 2; part < (half+1)*world.Parts/2; part++ {
			pg.Stamps[part] = world.MakeStamp(j.Ids[i], c.Count<<5|uint32(i), part)
		}
	}
}

// reads makes an engine read the chunks of a task once more.
func (e *engineProcess) reads(t *task) {
	if h, x := e.holding(t.holds); h != nil && (e.lies || h.holdsStill(x, "reads")) {
		if c := &e.a.w.Commands[x.t-1]; c.Job == t.job && !e.lies {
			pd.OnRead.Report(&e.a.w.Panel, h.n.ID, pd.Read{Node: h.n, Job: &e.a.w.Jobs[t.job], Pages: c.Pages})
		}
	}
}
