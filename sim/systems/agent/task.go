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

// A taskKind says how an engine handles a job.
type taskKind uint8

const (
	taskPut     taskKind = iota
	taskGet              // get chunks that were sent
	taskFetch            // fetch chunks that the sender keeps in place
	taskBring            // get chunks that another node shares
	taskCompute          // push layer by layer
)

// A task is the progress of an engine on a job.
type task struct {
	job           int
	kind          taskKind
	phase         int
	tries         int
	call          *clientCall // the call that the task waits for
	pagesCall     uint64      // number of the call that gave the pages
	secondCall    uint64      // number of the call that gave the share or the prefill
	scriptPos     int         // position in the layer script
	stored        bool        // the cache owns the pages
	skipsWaits    bool        // the engine skips waits that are optional
	restarted     bool        // the prefill was preempted and has started again
	releasesBlind bool        // the engine releases a holding that may not exist
	resumeAt      int64       `snap:"instant"` // the task does not continue before this time
}

// The phases of a task. In each phase but the first, the task waits for a call.
const (
	phaseBegin      = iota
	phaseAwaitPages // waits for the requested pages
	phaseFill       // half of the pages are filled, or the engine reads
	phasePut
	phaseStore        // store or share the pages
	phaseShared       // the pages are shared
	phaseWithdraw     // withdraw the share
	phaseBeginPrefill // begins a prefill
	phaseSave         // save the layers of the prefill
	phasePreempt      // preempts the prefill
	phaseAwaitReturn  // wait for the return of the pages
	phaseFinish
	phaseRelease
)

// takeResult returns the call that the task waits for, if that call has ended, and removes the call from the task.
func (t *task) takeResult() (x *clientCall, ok bool) {
	if t.call == nil || !t.call.isOver() {
		return nil, false
	}
	x, t.call = t.call, nil
	return x, true
}

// makeCall makes a call for a task, and reports whether the call could be made.
func (e *engineProcess) makeCall(t *task, m protocol.EngineCall, op protocol.CallOp) bool {
	x := e.sendCall(m, op, t.job, t.scriptPos)
	if x != nil {
		t.call = x
	}
	return x != nil
}

// pauseTask makes a task continue after a random time with the given mean.
func (e *engineProcess) pauseTask(t *task, mean effects.Duration) {
	t.resumeAt = e.state.w.Now + int64(e.state.drawDelay(mean))
	e.scheduleTurn(effects.Duration(t.resumeAt - e.state.w.Now))
}

// isAbortable reports whether a task has a call that may be aborted.
func (t *task) isAbortable() bool { return t.call != nil && !t.call.answered && !t.call.aborted }

// abortCall aborts the call that the task waits for.
func (t *task) abortCall(e *engineProcess) {
	t.call.aborted = e.sendCall(protocol.EngineCall{Target: t.call.id}, protocol.CallAbort, -1, 0) != nil
}

// continueTask continues a task.
func (e *engineProcess) continueTask(t *task) {
	if t.isAbortable() && !e.state.w.Healed && e.state.nextDraw().ChanceIfRandom(25) {
		t.abortCall(e)
	}
	switch t.phase {
	case phaseBegin:
		e.beginTask(t)
	case phaseAwaitPages:
		if x, ok := t.takeResult(); ok {
			e.handlePages(t, x)
		}
	case phaseFill:
		if t.kind != taskPut {
			e.readPages(t)
			e.releasePages(t)
			return
		}
		e.fillPages(t, 1)
		if e.makeCall(t, protocol.EngineCall{Target: t.pagesCall}, protocol.CallPut) {
			t.phase = phasePut
		}
	case phasePut:
		e.continuePut(t)
	case phaseStore, phaseShared, phaseWithdraw:
		e.continueShare(t)
	case phaseRelease:
		e.continueRelease(t)
	default:
		e.continuePrefill(t)
	}
}

// beginTask requests the pages or the chunks of a job.
func (e *engineProcess) beginTask(t *task) {
	w := e.state.w
	j, n := &w.Jobs[t.job], w.Nodes[e.node]
	d := e.state.nextDraw()
	m, op := protocol.EngineCall{}, protocol.CallReserve
	switch t.kind {
	case taskPut:
		m.Count = uint32(len(j.Keys))
	case taskCompute:
		m.Count = uint32(len(j.Keys) * max(1, j.SenderPagesPerChunk))
	case taskGet:
		op, m.PatienceNS = protocol.CallGet, e.state.drawPatience(d, pd.InfoOf(n).Cfg.GetWaitMax)
	case taskFetch:
		op, m.PatienceNS = protocol.CallFetch, e.state.drawPatience(d, pd.InfoOf(n).Cfg.FetchTimeout)
	case taskBring:
		if op = protocol.CallSharedGet; p2p.IsDelayed(n, j) {
			op = protocol.CallSharedFetch
		}
	}
	if op != protocol.CallReserve {
		m.Keys = e.state.keysOf(t)
	}
	if lookup := d.Rehash(); op != protocol.CallReserve && lookup.ChanceIfRandom(150) {
		lookupOp := protocol.CallContains
		if lookup.Rehash().ChancePermille(300) {
			lookupOp = protocol.CallLookup
		}
		e.sendCall(protocol.EngineCall{Keys: m.Keys}, lookupOp, t.job, 0)
	}
	if e.makeCall(t, m, op) {
		t.phase, t.pagesCall, t.skipsWaits = phaseAwaitPages, t.call.id, d.Rehash().Rehash().ChanceIfRandom(300)
	}
}

// handlePages continues the task with the outcome of the first call.
func (e *engineProcess) handlePages(t *task, x *clientCall) {
	switch {
	case x.pageCount > 0 && t.kind == taskCompute:
		if h, held := e.findHolding(t.pagesCall); h != nil && !e.isLiar {
			script := layerwise.ScriptOf(e.state.w, &e.state.w.Jobs[t.job])
			script.FillPages(h.node, &e.state.w.Commands[held.ticket-1])
		}
		t.phase = phaseBeginPrefill
		e.continuePrefill(t)
	case x.pageCount > 0:
		if t.phase = phaseFill; t.kind == taskPut {
			e.fillPages(t, 0)
		}
		e.pauseTask(t, 5*effects.Millisecond)
	case t.tries < 2 && (t.kind == taskPut || t.kind == taskCompute) || t.tries < 1 && x.code == effects.TooMany:
		t.tries++
		t.phase = phaseBegin
		e.pauseTask(t, 20*effects.Millisecond)
	case t.kind != taskPut && x.code != effects.OK && e.state.nextDraw().ChanceIfRandom(200):
		e.sendCall(protocol.EngineCall{}, protocol.CallAbandon, t.job, 0)
		e.removeTask(t)
	default:
		e.removeTask(t)
	}
}

// continuePut waits for a put to end, or at times leaves earlier. The pages are returned to the engine once the put is
// over.
func (e *engineProcess) continuePut(t *task) {
	d := e.state.nextDraw()
	x, ok := t.takeResult()
	if ok {
		e.reportEnd(t, x.code)
	}
	switch {
	case ok && pd.InfoOf(e.state.w.Nodes[e.node]).Cfg.Shares && x.code == effects.OK && d.ChanceIfRandom(600):
		op := protocol.CallStore
		if d.Rehash().ChancePermille(600) {
			op = protocol.CallShare
		}
		if e.makeCall(t, protocol.EngineCall{Target: t.pagesCall}, op) {
			t.phase, t.secondCall = phaseStore, t.call.id
			return
		}
		fallthrough
	case ok:
		e.fillPages(t, 2)
		e.releasePages(t)
	case t.call.answered && d.ChanceIfRandom(300), d.ChanceIfRandom(20) && !e.state.w.Healed:
		e.releasePages(t)
	}
}

// continueShare continues with pages that were put: another node may read them, and after the share is withdrawn the
// pages belong to the engine again.
func (e *engineProcess) continueShare(t *task) {
	switch t.phase {
	case phaseStore:
		x, ok := t.takeResult()
		switch {
		case !ok:
		case x.op == protocol.CallStore || x.code != effects.OK:
			t.stored = x.code == effects.OK
			e.releasePages(t)
		default:
			t.phase = phaseShared
			e.pauseTask(t, effects.Second/2)
		}
	case phaseShared:
		if t.call == nil && t.skipsWaits { // The pages are released once the share has ended.
			if x := e.sendCall(protocol.EngineCall{Target: t.pagesCall}, protocol.CallRelease, t.job, 0); x != nil {
				e.holdings[t.pagesCall], t.releasesBlind, t.skipsWaits = false, true, false
			}
		}
		if e.makeCall(t, protocol.EngineCall{Target: t.secondCall}, protocol.CallWithdraw) {
			t.phase, e.holdings[t.secondCall] = phaseWithdraw, false
		}
	case phaseWithdraw:
		x, ok := t.takeResult()
		switch {
		case !ok:
		case x.code != effects.OK: // The share is still in force.
			t.phase = phaseShared
			e.pauseTask(t, 10*effects.Millisecond)
		default:
			if !t.releasesBlind {
				e.fillPages(t, 2)
			}
			e.releasePages(t)
		}
	}
}

// releasePages gives back the holdings of a task.
func (e *engineProcess) releasePages(t *task) {
	t.phase = phaseRelease
	if t.call = nil; !e.makeCall(t, protocol.EngineCall{Target: t.pagesCall}, protocol.CallRelease) {
		return
	}
	e.holdings[t.pagesCall] = false
	if e.state.nextDraw().ChanceIfRandom(100) { // Another thread of the engine still waits for the pages.
		e.sendCall(protocol.EngineCall{Target: t.pagesCall}, protocol.CallAwaitReturn, t.job, 0)
	}
}

// continueRelease waits until the holdings are given back. The engine keeps a holding that could not be given back.
func (e *engineProcess) continueRelease(t *task) {
	if t.call == nil {
		e.releasePages(t)
		return
	}
	x, ok := t.takeResult()
	switch {
	case !ok:
	case x.code == effects.OK, x.code == effects.NotFound && (t.releasesBlind || e.isLiar):
		e.removeTask(t)
	case x.code == effects.TooMany || x.code == effects.Cancelled:
		e.pauseTask(t, 10*effects.Millisecond)
	case !e.isLiar:
		e.state.w.Fail(checkHeld.Property(), "an engine of node %d cannot release the result of call %d: %s",
			e.state.w.Nodes[e.node].AsSubject(), t.pagesCall, x.code)
	default:
		e.removeTask(t)
	}
}

// findHolding returns the agent's record of what a call has given, or nil if this incarnation of the agent has none.
func (e *engineProcess) findHolding(id uint64) (*host, *holding) {
	h := e.findHost()
	if h == nil {
		return nil, nil
	}
	x := h.holdings[session.CallRef{Session: e.sessionID, ID: id}]
	if x == nil {
		if !e.isLiar {
			e.state.w.Fail(checkHeld.Property(), "the result of call %d of an engine of node %d does not exist any more", id, h.node.AsSubject())
		}
		return nil, nil
	}
	return h, x
}

// fillPages writes a half of the chunks of a task, or unrelated content after the put.
func (e *engineProcess) fillPages(t *task, half int) {
	h, x := e.findHolding(t.pagesCall)
	if h == nil || e.isLiar && (e.state.w.Commands[x.ticket-1].Job != t.job || wasReturned(h, x)) ||
		!e.isLiar && !h.checkStillHeld(x, "fills") {
		return
	}
	w, c := e.state.w, &e.state.w.Commands[x.ticket-1]
	j := &w.Jobs[t.job]
	if half == 0 {
		c.Count = w.NewFill()
		for i := range c.Pages {
			c.Pages[i].Length = uint32(uint64(h.node.Pool.PageBytes) * uint64(j.TokensOf(i)) / world.Parts)
		}
	}
	for i, p := range c.Pages {
		pg := &h.node.Pool.Pages[p.Index]
		if half == 2 {
			pg.Stamps = [world.Parts]world.Stamp{}
			h.node.Pool.UpdateInUse(p.Index)
			continue
		}
		for part := half * world.Parts / 2; part < (half+1)*world.Parts/2; part++ {
			pg.Stamps[part] = world.MakeStamp(j.KeyNumbers[i], c.Count<<5|uint32(i), part)
		}
	}
}

// readPages makes an engine read the chunks of a task once more.
func (e *engineProcess) readPages(t *task) {
	if h, x := e.findHolding(t.pagesCall); h != nil && (e.isLiar || h.checkStillHeld(x, "reads")) {
		if c := &e.state.w.Commands[x.ticket-1]; c.Job == t.job && !e.isLiar {
			pd.OnPagesRead.Report(&e.state.w.Panel, h.node.ID, pd.PagesRead{Node: h.node, Job: &e.state.w.Jobs[t.job], Pages: c.Pages})
		}
	}
}
