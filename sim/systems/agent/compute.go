package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/layerwise"
)

// compute continues a layerwise push.
func (e *engineProcess) compute(t *task) {
	x, ok := t.result()
	if t.call != nil {
		return
	}
	script := layerwise.ScriptOf(e.a.w, &e.a.w.Jobs[t.job])
	of := protocol.EngineCall{Prefill: t.other}
	switch t.phase {
	case runs:
		switch {
		case !ok:
			if e.call(t, protocol.EngineCall{}, protocol.CallBeginPrefill) {
				t.other = t.call.id
			}
		case x.code != effects.OK:
			e.leave(t)
		default:
			t.phase = saves
			e.pause(t, effects.Millisecond)
		}
	case saves:
		switch {
		case ok && x.code == effects.TooMany && t.tries < 20:
			t.tries++
			e.pause(t, 10*effects.Millisecond)
		case ok && (x.code == effects.TooMany || x.code == effects.NotFound):
			e.ends(t, protocol.CallDropPrefill)
		case ok && x.code != effects.OK: // The push has failed; the call that finishes the prefill returns the reason.
			e.ends(t, protocol.CallFinishPrefill)
		case ok:
			t.at++
			e.pause(t, effects.Millisecond)
		case t.at >= script.Len():
			e.ends(t, protocol.CallFinishPrefill)
		case script.Dropped(t.at):
			e.ends(t, protocol.CallDropPrefill)
		case script.Preempted(t.at) && !t.anew:
			if e.call(t, of, protocol.CallPreemptPrefill) {
				t.phase = stops
			}
		default:
			of.Target = t.holds
			e.save(t, of, t.at+1 == script.Len())
		}
	case stops:
		switch {
		case !ok: // The window had no room for the call.
			t.phase = saves
		case x.code != effects.OK:
			e.ends(t, protocol.CallDropPrefill)
		default:
			t.phase = waits
		}
	case waits:
		switch {
		case !ok:
			e.call(t, protocol.EngineCall{Target: t.holds}, protocol.CallAwaitReturn)
		case x.code == effects.OK:
			if h, held := e.holding(t.holds); h != nil && !e.lies {
				script.Computes(h.n, &e.a.w.Commands[held.t-1])
			}
			t.phase, t.at, t.anew = saves, 0, true
		default:
			e.pause(t, 10*effects.Millisecond)
		}
	case finishes:
		switch {
		case !ok:
			e.ends(t, protocol.CallDropPrefill)
		case x.code == effects.TooMany || x.code == effects.Invalid || x.code == effects.Cancelled:
			e.pause(t, 10*effects.Millisecond) // The prefill may still exist.
		default:
			e.tell(t, x.code)
			e.leave(t)
		}
	}
}

// save saves a layer. An engine that skips optional waits does not wait for the last save before the finish, or
// sometimes drops the request at once.
func (e *engineProcess) save(t *task, m protocol.EngineCall, last bool) {
	switch {
	case !e.call(t, m, protocol.CallSaveLayer) || !t.hasty:
	case last:
		if !e.ends(t, protocol.CallFinishPrefill) {
			t.phase = saves
		}
	case e.a.draw().Rarely(100):
		if e.ends(t, protocol.CallDropPrefill) {
			e.leave(t)
		} else {
			t.phase = saves
		}
	}
}

// ends makes a call that ends a prefill, and reports whether the call could be made.
func (e *engineProcess) ends(t *task, how protocol.CallOp) bool {
	t.phase = finishes
	if !e.call(t, protocol.EngineCall{Prefill: t.other}, how) {
		return false
	}
	e.held[t.other] = false
	return true
}
