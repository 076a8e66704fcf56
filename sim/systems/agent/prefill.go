package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/layerwise"
)

// continuePrefill continues a layerwise push.
func (e *engineProcess) continuePrefill(t *task) {
	x, ok := t.takeResult()
	if t.call != nil {
		return
	}
	script := layerwise.ScriptOf(e.state.w, &e.state.w.Jobs[t.job])
	message := protocol.EngineCall{Prefill: t.secondCall}
	switch t.phase {
	case phaseBeginPrefill:
		switch {
		case !ok:
			if e.makeCall(t, protocol.EngineCall{}, protocol.CallBeginPrefill) {
				t.secondCall = t.call.id
			}
		case x.code != effects.OK:
			e.releasePages(t)
		default:
			t.phase = phaseSave
			e.pauseTask(t, effects.Millisecond)
		}
	case phaseSave:
		switch {
		case ok && x.code == effects.TooMany && t.tries < 20:
			t.tries++
			e.pauseTask(t, 10*effects.Millisecond)
		case ok && (x.code == effects.TooMany || x.code == effects.NotFound):
			e.endPrefill(t, protocol.CallDropPrefill)
		case ok && x.code != effects.OK: // The push has failed; the call that finishes the prefill returns the reason.
			e.endPrefill(t, protocol.CallFinishPrefill)
		case ok:
			t.scriptPos++
			e.pauseTask(t, effects.Millisecond)
		case t.scriptPos >= script.Len():
			e.endPrefill(t, protocol.CallFinishPrefill)
		case script.IsDropped(t.scriptPos):
			e.endPrefill(t, protocol.CallDropPrefill)
		case script.IsPreempted(t.scriptPos) && !t.restarted:
			if e.makeCall(t, message, protocol.CallPreemptPrefill) {
				t.phase = phasePreempt
			}
		default:
			message.Target = t.pagesCall
			e.saveLayer(t, message, t.scriptPos+1 == script.Len())
		}
	case phasePreempt:
		switch {
		case !ok: // The window had no room for the call.
			t.phase = phaseSave
		case x.code != effects.OK:
			e.endPrefill(t, protocol.CallDropPrefill)
		default:
			t.phase = phaseAwaitReturn
		}
	case phaseAwaitReturn:
		switch {
		case !ok:
			e.makeCall(t, protocol.EngineCall{Target: t.pagesCall}, protocol.CallAwaitReturn)
		case x.code == effects.OK:
			if h, held := e.findHolding(t.pagesCall); h != nil && !e.isLiar {
				script.FillPages(h.node, &e.state.w.Commands[held.ticket-1])
			}
			t.phase, t.scriptPos, t.restarted = phaseSave, 0, true
		default:
			e.pauseTask(t, 10*effects.Millisecond)
		}
	case phaseFinish:
		switch {
		case !ok:
			e.endPrefill(t, protocol.CallDropPrefill)
		case x.code == effects.TooMany || x.code == effects.Invalid || x.code == effects.Cancelled:
			e.pauseTask(t, 10*effects.Millisecond) // The prefill may still exist.
		default:
			e.reportEnd(t, x.code)
			e.releasePages(t)
		}
	}
}

// saveLayer saves a layer. An engine that skips optional waits does not wait for the last save before the finish, or
// sometimes drops the request at once.
func (e *engineProcess) saveLayer(t *task, m protocol.EngineCall, last bool) {
	switch {
	case !e.makeCall(t, m, protocol.CallSaveLayer) || !t.skipsWaits:
	case last:
		if !e.endPrefill(t, protocol.CallFinishPrefill) {
			t.phase = phaseSave
		}
	case e.state.nextDraw().ChanceIfRandom(100):
		if e.endPrefill(t, protocol.CallDropPrefill) {
			e.releasePages(t)
		} else {
			t.phase = phaseSave
		}
	}
}

// endPrefill makes a call that ends a prefill, and reports whether the call could be made.
func (e *engineProcess) endPrefill(t *task, op protocol.CallOp) bool {
	t.phase = phaseFinish
	if !e.makeCall(t, protocol.EngineCall{Prefill: t.secondCall}, op) {
		return false
	}
	e.holdings[t.secondCall] = false
	return true
}
