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

// What an engine does with a job: it reserves, fills, puts, perhaps stores or shares, and releases; it computes layer
// by layer; or it gets, or is shown chunks, reads and releases. Between it takes its time, and changes its mind.

// A kind is what an engine does with a job.
type kind uint8

const (
	putting   kind = iota
	getting        // what was sent
	fetching       // what was sent, and is kept where it is
	bringing       // what others share
	computing      // layer by layer
)

// A task is a job that an engine works on.
type task struct {
	job   int
	kind  kind
	phase int
	tries int
	call  *asked // that it waits for
	holds uint64 // pages, by the number of the call
	other uint64 // what is shared, or the prefill, likewise
	at    int    // place in what it computes
	kept  bool   // the cache has its pages
	hasty bool   // it does not wait where it need not
	anew  bool   // it was preempted
	blind bool   // it gives back what it does not know whether it has
	until int64  `snap:"instant"` // it goes on no sooner
}

// Phases of a task; each but the first waits for the call that it has made.
const (
	begins = iota
	comes  // pages that it asked for
	fills  // half of them is filled, or it reads
	puts
	stores    // or shares
	shares    // it is shared
	withdraws // and taken back
	runs      // a prefill begins
	saves     // or goes on
	stops     // it is preempted
	waits     // for its pages
	finishes
	leaves
)

// result takes the end of a task's call.
func (t *task) result() (x *asked, ok bool) {
	if t.call == nil || !t.call.ended() {
		return nil, false
	}
	x, t.call = t.call, nil
	return x, true
}

// call calls for something for a task, and says whether it could.
func (e *engineProcess) call(t *task, m protocol.EngineCall, op protocol.CallOp) bool {
	x := e.ask(m, op, t.job, t.at)
	if x != nil {
		t.call = x
	}
	return x != nil
}

// pause has a task go on in a while.
func (e *engineProcess) pause(t *task, mean effects.Duration) {
	t.until = e.a.w.Now + int64(e.a.while(mean))
	e.wake(effects.Duration(t.until - e.a.w.Now))
}

// waits says whether a task has a call that may be aborted.
func (t *task) waits() bool { return t.call != nil && !t.call.answered && !t.call.aborted }

func (t *task) abort(e *engineProcess) {
	t.call.aborted = e.ask(protocol.EngineCall{Target: t.call.id}, protocol.CallAbort, -1, 0) != nil
}

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

// begin asks for the pages of a job, or for its chunks.
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

// came goes on with what was asked for first.
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

// put waits for a put, or not: its pages go back once it is over.
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

// share goes on with pages that were put: others read them, and then they are the engine's again.
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
		if t.call == nil && t.hasty { // They go back when they are not shared any more.
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
		case x.code != effects.OK: // It is shared still.
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

// leave gives back what a task has.
func (e *engineProcess) leave(t *task) {
	t.phase = leaves
	if t.call = nil; !e.call(t, protocol.EngineCall{Target: t.holds}, protocol.CallRelease) {
		return
	}
	e.held[t.holds] = false
	if e.a.draw().Rarely(100) { // Another of its threads waits for them still.
		e.ask(protocol.EngineCall{Target: t.holds}, protocol.CallAwaitReturn, t.job, 0)
	}
}

// leaves waits for that. What could not be given back is the engine's still.
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

// holding is what a call brought, as the agent has it; nil: nothing that is of this agent's life.
func (e *engineProcess) holding(id uint64) (*host, *holding) {
	h := e.agent()
	if h == nil {
		return nil, nil
	}
	x := h.holds[session.Call{Session: e.session, ID: id}]
	if x == nil {
		if !e.lies {
			e.a.w.Fail(checkHeld.Property(), "what call %d brought an engine of node %d is not held any more", id, h.n.It())
		}
		return nil, nil
	}
	return h, x
}

// fill writes a half of a task's chunks, or what they have nothing to do with.
func (e *engineProcess) fill(t *task, half int) {
	h, x := e.holding(t.holds)
	if h == nil || e.lies && (e.a.w.Commands[x.t-1].Job != t.job || lost(h, x)) || !e.lies && !h.holdsStill(x, "fills") {
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

// reads has an engine read once more what it got.
func (e *engineProcess) reads(t *task) {
	if h, x := e.holding(t.holds); h != nil && (e.lies || h.holdsStill(x, "reads")) {
		if c := &e.a.w.Commands[x.t-1]; c.Job == t.job && !e.lies {
			pd.OnRead.Report(&e.a.w.Panel, h.n.ID, pd.Read{Node: h.n, Job: &e.a.w.Jobs[t.job], Pages: c.Pages})
		}
	}
}
