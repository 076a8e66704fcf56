package agent

import (
	"slices"

	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
)

// The checks of the promises that an agent makes.

// checkLimits checks that no engine exceeds the limits on sessions, calls, bytes and holdings.
func (h *host) checkLimits() {
	h.state.w.CountJudged(checkBounds)
	if len(h.sessions) > h.state.sessionsMax {
		h.state.w.Fail(checkBounds.Property(), "node %d has %d sessions, and the limit is %d", h.node.AsSubject(), len(h.sessions),
			h.state.sessionsMax)
		return
	}
	sessionsOf := map[int]int{}
	for id, x := range h.sessions {
		if sessionsOf[x.engine]++; sessionsOf[x.engine] > h.state.sessionsPerProcess {
			h.state.w.Fail(checkBounds.Property(), "a process has more than %d of the %d sessions of node %d", h.state.sessionsPerProcess,
				h.state.sessionsMax, h.node.AsSubject())
			return
		}
		calls, holdings, longest, cost := 0, 0, 0, 0
		for at, x := range h.calls {
			if at.Session == id {
				calls++
				if m := h.sentCalls[at]; m != nil && !x.answered {
					longest, cost = max(longest, m.cost), cost+m.cost
				}
			}
		}
		if cost > longest && cost > h.state.callBytesMax { // A single call may exceed the limit.
			h.state.w.Fail(checkBounds.Property(), "the calls of an engine of node %d take %d bytes, and the limit is %d", h.node.AsSubject(),
				cost, h.state.callBytesMax)
			return
		}
		for at := range h.holdings {
			if at.Session == id {
				holdings++
			}
		}
		if calls > h.state.callWindow || holdings > h.state.holdingsMax {
			h.state.w.Fail(checkBounds.Property(), "an engine of node %d has %d calls and %d holdings; the limits are %d and %d",
				h.node.AsSubject(), calls, holdings, h.state.callWindow, h.state.holdingsMax)
			return
		}
	}
}

// costOf returns what the lists of a call take while it is carried out, in bytes: 512 for each entry, and the bytes of
// keys and of the numbers of blocks.
func costOf(m *protocol.EngineCall) int {
	n := 0
	for _, key := range slices.Concat(m.Keys, m.Producers) {
		n += 512 + len(key)
	}
	for _, blocks := range m.Blocks {
		n += 512 + 8*len(blocks)
	}
	return n
}

// checkWindow checks the number of calls that the engine of a session has not said to be done.
func (h *host) checkWindow(x *hostSession) {
	h.state.w.CountJudged(checkBounds)
	if n := len(x.unacknowledged); n > h.state.callWindow {
		h.state.w.Fail(checkBounds.Property(), "node %d accepts %d calls of an engine that it has not said to be done, and the limit is %d",
			h.node.AsSubject(), n, h.state.callWindow)
	}
}

// bringsHolding lists the calls that give the engine something to hold.
//
//kvferry:table
var bringsHolding = []protocol.CallOp{
	protocol.CallReserve, protocol.CallBeginPrefill, protocol.CallGet, protocol.CallShare, protocol.CallSharedGet,
}

// checkRefusedCall checks a call that is refused for lack of room: the room that the answer names must be used.
func (h *host) checkRefusedCall(at session.CallRef, refused *sentCall, field string) {
	holdings, cost := 0, 0
	for ref := range h.holdings {
		if ref.Session == at.Session {
			holdings++
		}
	}
	for ref, x := range h.calls {
		if m := h.sentCalls[ref]; ref.Session == at.Session && m != nil && !m.ended {
			cost += m.cost
			if slices.Contains(bringsHolding, x.op) {
				holdings++
			}
		}
	}
	switch field {
	case "holdings":
		h.state.w.CountJudged(checkRefused)
		if holdings < h.state.holdingsMax {
			h.state.w.Fail(checkRefused.Property(), "node %d refuses a call because of %d holdings, and the limit is %d", h.node.AsSubject(),
				holdings, h.state.holdingsMax)
		}
	case "bytes of open calls":
		h.state.w.CountJudged(checkRefused)
		if cost == 0 || cost+refused.cost <= h.state.callBytesMax {
			h.state.w.Fail(checkRefused.Property(), "node %d refuses a call of %d bytes beside %d bytes, and the limit is %d", h.node.AsSubject(),
				refused.cost, cost, h.state.callBytesMax)
		}
	}
}

// checkResumed checks that the agent reports the outcomes of the open calls again to an engine that resumes a session.
// The engine no longer waits for calls that are missing in the list of open calls.
func checkResumed(h *host, s *stream, id uint64, open []uint64) {
	h.state.w.CountJudged(checkRepeated)
	for at, x := range h.calls {
		x.abandoned = x.abandoned || at.Session == id && !x.answered && !slices.Contains(open, at.ID)
	}
	for _, call := range open {
		m := h.sentCalls[session.CallRef{Session: id, ID: call}]
		if m != nil && !m.isFalse && m.ended && m.answeredOn != s.id {
			h.state.w.Fail(checkRepeated.Property(), "an engine of node %d resumes its session, and is not told again how call %d ended",
				h.node.AsSubject(), call)
			return
		}
	}
}

// checkRefusal checks a refusal for lack of room: no unused session may occupy a place. The check covers all sessions,
// or only the sessions of the engine's own process if that process has reached its limit.
func (h *host) checkRefusal(engine int) {
	ownSessions := 0
	for _, x := range h.sessions {
		if x.engine == engine {
			ownSessions++
		}
	}
	if len(h.sessions) < h.state.sessionsMax && ownSessions < h.state.sessionsPerProcess {
		h.state.w.Fail(checkBounds.Property(), "node %d refuses an engine although it has room", h.node.AsSubject())
		return
	}
	for id, x := range h.sessions {
		if ownSessions >= h.state.sessionsPerProcess && x.engine != engine {
			continue
		}
		used := h.sessionInUse(id)
		for _, s := range h.state.streams {
			used = used || s.node == h.node.ID && s.incarnation == h.incarnation && !s.ended && h.machine.EngineOf(s.id).ID == id
		}
		if !used {
			h.state.w.Fail(checkBounds.Property(), "node %d refuses an engine although session %d is not in use",
				h.node.AsSubject(), id)
			return
		}
	}
}

// isAborted reports whether everything that a call still does was aborted. An abort before the answer came before there
// was anything to take back, so a call whose answer says that its memory is held has to be aborted anew.
func (x *hostCall) isAborted() bool { return x.aborted && (x.heldAborted || !x.answered) }

// checkAbandonedCalls checks that the calls for which no engine waits any more are aborted.
func (h *host) checkAbandonedCalls(matches func(session.CallRef) bool) {
	h.state.w.CountJudged(checkAbandoned)
	for call, x := range h.calls {
		if matches(call) && !x.isAborted() && x.op != protocol.CallDetach {
			h.state.w.Fail(checkAbandoned.Property(), "an engine of node %d has exited or detached, and one of its calls is not aborted",
				h.node.AsSubject())
			return
		}
	}
}

// checkStillHeld checks that a holding of an engine was not given back to the rank, and returns the result.
func (h *host) checkStillHeld(x *holding, action string) bool {
	w := h.state.w
	w.CountJudged(checkHeld)
	if wasReturned(h, x) {
		w.Fail(checkHeld.Property(), "an engine %s the result of call %d, and node %d has returned it to the rank", action, x.call.ID,
			h.node.AsSubject())
		return false
	}
	return true
}

// wasReturned reports whether the result of the rank's command was given back.
func wasReturned(h *host, x *holding) bool {
	c := &h.state.w.Commands[x.ticket-1]
	returned := h.returnedTickets[x.ticket] || c.Released
	if x.kind == session.Pages && c.StoredPages == 0 && x.shareCount == 0 {
		for _, p := range c.Pages {
			returned = returned || givesFreePages(c) && h.node.Pool.Pages[p.Index].Reserved != x.ticket
		}
	}
	return returned
}

// checkLeftHoldings checks that what engines held is given back in the step after which nothing uses it any more, if
// the engines have detached or their processes have ended.
func (h *host) checkLeftHoldings() {
	for at, x := range h.holdings {
		if s := h.sessions[at.Session]; s == nil || !s.left {
			continue
		}
		if h.state.w.CountJudged(checkGivenBack); x.users == 0 && !x.ending && !x.freed {
			h.state.w.Fail(checkGivenBack.Property(), "node %d keeps what an engine held that has exited or detached",
				h.node.AsSubject())
			return
		}
	}
}
