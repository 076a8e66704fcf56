package agent

import (
	"slices"

	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// The checks of the promises that an agent makes.

// bounded checks that no engine exceeds the limits on sessions, calls, bytes and holdings.
func (h *host) bounded() {
	pd.Judged(h.a.w, checkBounds)
	of := map[int]int{}
	for id, x := range h.sessions {
		if of[x.engine]++; of[x.engine] > h.a.share {
			h.a.w.Fail(checkBounds.Property(), "a process has more than %d of the %d places of node %d", h.a.share,
				h.a.sessions, h.n.It())
			return
		}
		works, holds, most, entries := 0, 0, 0, 0
		for at, x := range h.works {
			if at.Session == id {
				works++
				if m := h.said[at]; m != nil && !x.answered {
					most, entries = max(most, m.lists), entries+m.lists
				}
			}
		}
		if entries > most && entries<<9 > h.a.bytes { // A single call may exceed the limit.
			h.a.w.Fail(checkBounds.Property(), "the calls of an engine of node %d name %d keys, which take more than %d bytes",
				h.n.It(), entries, h.a.bytes)
			return
		}
		for at := range h.holds {
			if at.Session == id {
				holds++
			}
		}
		if works > h.a.window || holds > h.a.holdings {
			h.a.w.Fail(checkBounds.Property(), "an engine of node %d has %d calls and holds %d things, and may %d and %d",
				h.n.It(), works, holds, h.a.window, h.a.holdings)
			return
		}
	}
}

// resumes checks that the agent reports the outcomes of the open calls again to an engine that resumes a session. The
// engine no longer waits for calls that are missing in the list of open calls.
func resumes(h *host, s *stream, id uint64, open []uint64) {
	pd.Judged(h.a.w, checkAgain)
	for at, x := range h.works {
		x.unwanted = x.unwanted || at.Session == id && !x.answered && !slices.Contains(open, at.ID)
	}
	for _, call := range open {
		m := h.said[session.CallRef{Session: id, ID: call}]
		if m != nil && !m.lie && m.ended && m.told != s.id {
			h.a.w.Fail(checkAgain.Property(), "an engine of node %d goes on, and is not told again how its call %d ended",
				h.n.It(), call)
			return
		}
	}
}

// crowded checks a refusal for lack of room: no unused session may occupy a place. The check covers all sessions, or
// only the sessions of the engine's own process if that process has reached its limit.
func (h *host) crowded(engine int) {
	its := 0
	for _, x := range h.sessions {
		if x.engine == engine {
			its++
		}
	}
	if len(h.sessions) < h.a.sessions && its < h.a.share {
		h.a.w.Fail(checkBounds.Property(), "node %d turns an engine away, and has room", h.n.It())
		return
	}
	for id, x := range h.sessions {
		if its >= h.a.share && x.engine != engine {
			continue
		}
		used := h.has(id)
		for _, s := range h.a.streams {
			used = used || s.node == h.n.ID && s.life == h.life && !s.over && h.machine.EngineOf(s.id).ID == id
		}
		if !used {
			h.a.w.Fail(checkBounds.Property(), "node %d turns an engine away, and session %d has nothing",
				h.n.It(), id)
			return
		}
	}
}

// unwanted checks that the calls for which no engine waits any more are aborted.
func (h *host) unwanted(are func(session.CallRef) bool) {
	pd.Judged(h.a.w, checkUnwanted)
	for call, x := range h.works {
		if are(call) && !x.aborted && x.op != protocol.CallDetach {
			h.a.w.Fail(checkUnwanted.Property(), "an engine of node %d is gone, and a call of its is not aborted", h.n.It())
			return
		}
	}
}

// holdsStill checks that a holding of an engine was not given back to the rank, and returns the result.
func (h *host) holdsStill(x *holding, how string) bool {
	w := h.a.w
	pd.Judged(w, checkHeld)
	if lost(h, x) {
		w.Fail(checkHeld.Property(), "an engine %s what call %d brought it, and node %d has given that back", how, x.at.ID,
			h.n.It())
		return false
	}
	return true
}

// lost reports whether the result of the rank's command was given back.
func lost(h *host, x *holding) bool {
	c := &h.a.w.Commands[x.t-1]
	lost := h.gone[x.t] || c.Released
	if x.kind == session.Pages && c.Stored == 0 && x.shares == 0 {
		for _, p := range c.Pages {
			lost = lost || givesPages(c) && h.n.Pool.Pages[p.Index].Reserved != x.t
		}
	}
	return lost
}
