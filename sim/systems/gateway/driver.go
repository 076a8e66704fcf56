package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
)

// This file models the driver of the gateway: it carries out the gateway's effects, and tells it what happened.

// callGateway has the gateway do something, and carries out its effects. The ledger learns what the call is about.
func (h *host) callGateway(out *effects.Effects, about *subject, call func(o *machine.Effects)) {
	var o machine.Effects
	call(&o)
	h.recordEffects(about, &o, out)
	for _, a := range o.MakeAgents {
		h.agents[a] = &agent{writable: true}
		h.addTask(h.now, task{kind: taskMake, agent: a, code: h.mayFail()})
	}
	for _, a := range o.MakeWriters {
		h.agents[a] = &agent{}
		h.addTask(h.now, task{kind: taskMake, agent: a, code: h.mayFail()})
	}
	for _, l := range o.Loads {
		t := task{kind: taskLoad, agent: l.Agent, id: l.LoadID, name: string(l.Metadata), code: h.mayFail()}
		if strings.HasPrefix(t.name, unloadable) {
			t.code = effects.Faulted
		}
		h.addTask(h.now, t)
	}
	for _, n := range o.Notifications {
		h.sendNote(n, out)
	}
	for _, q := range o.Queries {
		to, p := h.boot.Addr(q.Addr.Host, port), purpose{purposeQuery, q.QueryID, q.Addr.Host}
		h.send(h.now, out, to, &frame{kind: frameQuery, id: uint64(q.Addr.Port), body: q.Body}, p)
	}
	for _, a := range o.DestroyAgents {
		h.destroyAgent(a)
	}
	for _, n := range o.DoneExpulsions {
		h.events = append(h.events, &effects.Revoked{Grant: h.proofs[n]})
		delete(h.proofs, n)
	}
	h.events = append(h.events, o.Events...)
}

// sendNote sends a notification. Its tag comes back if it fails.
func (h *host) sendNote(n machine.Notification, out *effects.Effects) {
	p := purpose{purposeNote, n.Tag, fmt.Sprint(uint64(n.Agent))}
	if x := h.agents[n.Agent]; x == nil || !x.made || x.closing {
		h.completions = append(h.completions, completion{p, effects.Closed, nil})
		return
	}
	h.verifyReached(n.Agent, n.To, out)
	f := &frame{kind: frameNote, to: n.To, from: h.nameOf(n.Agent), body: n.Body}
	if h.now < h.flakyUntil {
		all := h.flaky == losesAll || h.flaky == deniesAll
		switch fails := all || h.draw().ChancePermille(500); {
		case fails && (h.flaky == deniesAll || h.flaky == deniesSome):
			p.kind = purposeDenied
		case fails:
			h.completions = append(h.completions, completion{p, effects.Unreachable, nil})
			return
		}
	}
	h.send(h.now, out, h.boot.Addr(nodeOf(n.To), port), f, p)
}

// destroyAgent has an agent destroyed. Like the driver, it does not know an agent that is not made yet, and reports such
// an agent as destroyed.
func (h *host) destroyAgent(a machine.Agent) {
	x := h.agents[a]
	if x != nil && x.closing {
		return
	}
	if x != nil && x.made {
		x.closing = true
	}
	h.addTask(h.now, task{kind: taskDestroy, agent: a})
}

// runTask ends a task that is due, and reports whether there was any.
func (h *host) runTask(out *effects.Effects) bool {
	i := slices.IndexFunc(h.tasks, func(t task) bool { return t.at <= h.now })
	if i < 0 {
		return false
	}
	t := h.tasks[i]
	h.tasks = slices.Delete(slices.Clone(h.tasks), i, i+1)
	x := h.agents[t.agent]
	switch t.kind {
	case taskMake:
		if t.code != effects.OK {
			delete(h.agents, t.agent)
		} else if x != nil {
			x.made = true
		}
		about := h.ledger.agentsOf[t.agent]
		if t.code != effects.OK {
			h.ledger.removeAgent(t.agent)
		}
		h.callGateway(out, &about, func(o *machine.Effects) { h.g.OnAgentMade(h.now, t.agent, uint16(t.agent), t.code, o) })
	case taskLoad:
		if x == nil || x.closing {
			t.code = effects.Closed
		}
		if t.code == effects.OK {
			x.loaded = append(slices.Clone(x.loaded), t.name)
		}
		about := h.ledger.loads[t.id]
		delete(h.ledger.loads, t.id)
		h.callGateway(out, &about, func(o *machine.Effects) {
			h.g.OnAgentLoaded(h.now, t.id, t.name, t.code, o)
			h.recordLoaded(about.attempt, t.name, t.code, o)
		})
	case taskDestroy:
		if x != nil && x.closing {
			delete(h.agents, t.agent)
			h.settleTransfers(t.agent)
		}
		about := h.ledger.agentsOf[t.agent]
		h.ledger.removeAgent(t.agent)
		h.callGateway(out, &about, func(o *machine.Effects) { h.g.OnAgentDestroyed(h.now, t.agent, effects.OK, o) })
	}
	return true
}

// verifyReached judges whether an agent may send to an agent of a plain engine: libnixl knows only agents whose metadata
// was loaded, and an engine that has restarted has another agent.
func (h *host) verifyReached(from machine.Agent, to string, out *effects.Effects) {
	if !slices.Contains(h.agents[from].loaded, to) {
		observe(out, factReached, effects.Invalid, fmt.Sprintf("agent %d sends to %s, and has loaded %q", from, to, h.agents[from].loaded))
		return
	}
	observe(out, factReached, effects.OK, "")
}

// verifyRead judges whether a page that a write reads is lent.
func (h *host) verifyRead(page uint32, out *effects.Effects) {
	if j := h.jobOf(page); j == nil || !j.lends {
		observe(out, factRead, effects.Invalid, fmt.Sprintf("page %d is read by a write, and is not lent", page))
		return
	}
	observe(out, factRead, effects.OK, "")
}

// handleCompletion handles the end of a frame of the host.
func (h *host) handleCompletion(c *completion, out *effects.Effects) {
	switch c.purpose.kind {
	case purposeQuery:
		about := h.ledger.queries[c.purpose.id]
		delete(h.ledger.queries, c.purpose.id)
		h.callGateway(out, &about, func(o *machine.Effects) {
			h.g.OnQueryReply(h.now, c.purpose.id, c.body, c.code, o)
			h.verifyQueryReply(&about, c, o, out)
		})
	case purposeNote, purposeDenied:
		if c.code != effects.OK || c.purpose.kind == purposeDenied {
			var a uint64
			_, _ = fmt.Sscan(c.purpose.name, &a)
			about := h.ledger.agentsOf[machine.Agent(a)]
			h.callGateway(out, &about, func(o *machine.Effects) {
				h.g.OnNotificationFailed(h.now, machine.Agent(a), c.purpose.id, o)
			})
		}
	case purposeWrite:
		corr := effects.Corr(c.purpose.id)
		t := h.transfers[corr]
		switch {
		case t == nil || t.failed:
		case c.code != effects.OK: // The agent fails, and is destroyed.
			t.failed = true
			h.events = append(h.events, &effects.TransferDone{Corr: corr, Code: effects.Faulted, At: h.now})
			h.failWriter(t.agent, out)
		default:
			h.verifyRead(t.pairs[len(t.pairs)-t.left].Local.Index, out)
			if t.left--; t.left == 0 {
				delete(h.transfers, corr)
				h.events = append(h.events, &effects.TransferDone{Corr: corr, Code: effects.OK, Settled: true, At: h.now})
			}
		}
	}
}

// failWriter reports to the gateway that a writer has failed, and destroys it.
func (h *host) failWriter(a machine.Agent, out *effects.Effects) {
	about := h.ledger.agentsOf[a]
	h.ledger.leave(a)
	h.callGateway(out, &about, func(o *machine.Effects) { h.g.OnWriterFailed(a, o) })
	h.destroyAgent(a)
}

// handleFrame handles a frame of a plain engine.
func (h *host) handleFrame(e *effects.Received, out *effects.Effects) {
	var f frame
	var answer []byte
	if !f.decode(e.Body) {
		out.Reply(effects.Reply{Request: e.Request})
		return
	}
	switch f.kind {
	case frameQuery:
		a := machine.Agent(f.id)
		if x := h.agents[a]; x != nil && x.made && !x.closing {
			answer, _ = h.g.AnswerQuery(a, []byte(h.nameOf(a)), f.body)
			h.verifyAnswer(a, f.body, answer, out)
		}
	case frameNote:
		if a := h.agentNamed(f.to); a != 0 {
			answer = accepted
			h.passNotification(a, &f, out)
		}
	case frameWrite:
		if a := h.agentNamed(f.to); a != 0 && h.agents[a].writable {
			answer = accepted
			h.storePage(f.id, string(f.body), out)
		}
	}
	out.Reply(effects.Reply{Request: e.Request, Body: out.Cut(append(out.Arena(), answer...))})
}

// storePage stores a page that a producer writes. The page must belong to a request that is being received.
func (h *host) storePage(address uint64, text string, out *effects.Effects) {
	page, ok := h.layout.locate(address)
	switch j := h.jobOf(page); {
	case !ok || j == nil || j.lends:
		observe(out, factStored, effects.Invalid, fmt.Sprintf("%q is stored at address %#x, which belongs to no request that is received",
			text, address))
		return
	default:
		h.memory[page] = text
		observe(out, factStored, effects.OK, "")
	}
}
