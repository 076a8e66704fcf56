package gateway

import (
	"math"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// A rankRegistration is a registration of the rank with a rank of a plain engine. The record is kept until nothing of
// the registration can be written any more and the rank has been notified of that.
type rankRegistration struct {
	registerRequest, withdrawRequest rankRequest // the registration, and its withdrawal
	echoNS                           int64
	rankIncarnation                  protocol.UUID
	operation                        uint64
	target                           *producerRank
	targetIncarnation                effects.Incarnation // the incarnation of the engine's rank that was asked
	agent                            *writableAgent
	agentName                        string // agent name of that rank's agent
	requestID                        []byte
	body                             []byte // the registration without the agent's address; nil: it was sent
	sent                             bool
	withdrawn                        bool
	maybeUnsent                      bool         // the note may not have been sent
	hasPages                         bool         // the rank has granted pages for it
	until                            effects.Time // until when the rank waits for the result
	over                             bool
	code                             effects.Code // the result, when over
	why                              *effects.Why
}

// handleRegister handles a registration of the rank, or its repetition. A repetition is never sent to the engine again.
func (g *producerSide) handleRegister(now effects.Time, to *producerRank, req rankRequest, out *Effects) {
	m := &g.registration
	until := now.Add(effects.Duration(min(m.Ext.PatienceNS, math.MaxInt64/2)))
	g.endForgotten(now, out)
	if a := g.findRegistration(m.Ext.Incarnation, m.Ext.Operation); a != nil {
		a.until = max(a.until, until)
		if a.registerRequest.corr != 0 {
			failSend(a.registerRequest.corr, effects.Closed, out)
		}
		a.registerRequest, a.echoNS = req, m.Ext.Stamps.ClockNS
		if a.over {
			g.deliverOutcome(now, a, out)
		}
		return
	}
	code, why := g.checkRegistration(to)
	if code != effects.OK {
		g.sendEnd(now, &req, to.incarnation, m.Ext.Operation, m.Ext.Stamps.ClockNS, code, why, out)
		return
	}
	plain := *m
	plain.HasExt = false
	t := g.currentAgent(to.producer, out)
	a := &rankRegistration{
		registerRequest: req, echoNS: m.Ext.Stamps.ClockNS, rankIncarnation: m.Ext.Incarnation, operation: m.Ext.Operation, target: to,
		targetIncarnation: to.incarnation,
		hasPages:          m.Ext.Grant != 0, until: until,
		agent: t, requestID: append([]byte(nil), m.RequestID...), body: plain.Append(nil),
	}
	g.registrations = append(g.registrations, a)
	g.advanceProducer(now, to.producer, out)
}

// endForgotten ends the registrations without pages whose result the rank does not wait for any more. The rank revokes the
// grant of any other registration that it cannot withdraw, but for these there is no grant, and their agent would never be
// destroyed. Example: of ranks with the same heads only one has something to write. A connection breaks, the request
// expires, and the rank cannot withdraw what it has registered with the other ranks.
func (g *producerSide) endForgotten(now effects.Time, out *Effects) {
	for _, a := range slices.Clone(g.registrations) {
		switch {
		case a.over || a.withdrawn || a.hasPages || now < a.until:
		case !a.sent:
			g.endRegistration(now, a, effects.Expired, nil, out)
		default:
			a.withdrawn = true
			g.retireAgent(a.agent, out)
		}
	}
}

// checkRegistration reports whether a registration can be sent, or why it cannot.
func (g *producerSide) checkRegistration(to *producerRank) (effects.Code, *effects.Why) {
	m := &g.registration
	if to.agentName == "" || effects.Incarnation(m.Ext.To) != to.incarnation {
		return effects.Stale, &effects.Why{
			Field: "incarnation", Theirs: "not the incarnation that was requested", Remedy: "none is needed: the engine is queried again",
		}
	}
	for i, list := range m.Blocks {
		if len(list) == 0 { // The engine would take an empty list for all blocks of the group.
			return effects.Unsupported, &effects.Why{
				Field: "local_block_ids", Theirs: "none of group " + formatDecimal(uint64(i)),
				Ours: "some of each group", Remedy: "register blocks of every group with engines of vLLM",
			}
		}
	}
	for _, x := range g.cfg.Own.Layers {
		if int(x.Group) >= len(m.Blocks) && x.Group != geometry.Shared {
			return effects.Unsupported, &effects.Why{
				Field: "local_block_ids", Theirs: "none of group " + formatDecimal(uint64(x.Group)),
				Ours: "some of each group", Remedy: "register blocks of every group with engines of vLLM",
			}
		}
	}
	if to.producer.currentAgent == nil && len(to.producer.agents) >= g.cfg.AgentsMax {
		return effects.TooMany, &effects.Why{
			Field: "gateway.agents", Ours: "as many of this engine's registrations were taken back as may be at a time",
			Remedy: "retry when others of them have ended, or raise gateway.agents",
		}
	}
	if m.Ext.Operation <= g.lastForgotten { // Operations only grow. The note may have been sent; the record is gone.
		return effects.Ended, &effects.Why{
			Field: "kvf_op", Theirs: formatDecimal(m.Ext.Operation), Ours: "forgotten", Remedy: "dispatch the request anew",
		}
	}
	open := 0
	for _, a := range g.registrations {
		if a.target.producer == to.producer && a.target == to && !a.over && string(a.requestID) == string(m.RequestID) {
			return effects.Refused, &effects.Why{
				Field: "request_id", Theirs: effects.SanitizeText(m.RequestID), Ours: "registered there already, and not over",
				Remedy: "give each request a name of its own",
			}
		}
		if !a.over {
			open++
		}
	}
	if open >= g.cfg.RegistrationsMax {
		return effects.TooMany, &effects.Why{
			Field: "gateway.asks", Ours: formatDecimal(uint64(g.cfg.RegistrationsMax)) + ", and as many are with engines of vLLM",
			Remedy: "retry when one has ended, or raise gateway.asks",
		}
	}
	return effects.OK, nil
}

// findRegistration returns a registration of the rank, or nil.
func (g *producerSide) findRegistration(incarnation protocol.UUID, operation uint64) *rankRegistration {
	for _, a := range g.registrations {
		if a.operation == operation && a.rankIncarnation == incarnation {
			return a
		}
	}
	return nil
}

// openRegistrations returns the registrations by a tie that are not over.
func (g *producerSide) openRegistrations(t *writableAgent) []*rankRegistration {
	var list []*rankRegistration
	for _, a := range g.registrations {
		if a.agent == t && !a.over {
			list = append(list, a)
		}
	}
	return list
}

// sendRegistration sends a registration. From here on the engine may write.
func (g *producerSide) sendRegistration(a *rankRegistration, out *Effects) {
	m := &g.registration
	if err := m.Decode(a.body, &g.cfg.Wire); err != nil {
		panic("BUG: what we wrote cannot be read: " + err.Error())
	}
	m.EngineID, m.Host, m.Port = []byte(g.EngineOf(a.agent.id)), []byte(g.cfg.Host), uint32(a.agent.sidePort)
	m.TPSize = g.cfg.Own.Ranks
	m.Remote = protocol.PushProducer{
		EngineID: []byte(a.target.engineID), Host: []byte(a.target.address.Host), Port: uint32(a.target.address.Port),
		TPSize: a.target.address.Ranks, PPSize: a.target.address.Stages,
	}
	a.sent, a.body, a.agentName = true, nil, a.target.agentName
	out.Notifications = append(out.Notifications, Notification{Agent: a.agent.id, To: a.target.agentName, Body: m.Append(nil),
		Tag: a.operation})
}

// OnNotificationFailed reports that a note could not be sent. The note may have arrived all the same, so the agent that
// it names is retired.
func (g *producerSide) OnNotificationFailed(now effects.Time, agent Agent, tag uint64, out *Effects) {
	for _, a := range g.registrations {
		if a.agent.id != agent || a.operation != tag || a.over {
			continue
		}
		a.maybeUnsent = true
		to := a.target
		to.agentMetadata, to.agentName = nil, "" // The engine at that place is queried before anything else is sent to it.
		g.retireAgent(a.agent, out)
		if t := to.producer.currentAgent; t != nil { // That tie may have loaded another incarnation at that place.
			g.retireAgent(t, out)
		}
		for _, x := range slices.Clone(g.registrations) {
			if x.target == to && !x.sent && !x.over {
				g.endRegistration(now, x, effects.Stale, &effects.Why{
					Field: "incarnation", Theirs: "a notification could not be sent", Remedy: "none is needed: the engine is queried again",
				}, out)
			}
		}
		return
	}
}

// onNotification handles a note that arrived at an agent of this node, and reports false if the agent is not one that
// engines write to.
func (g *producerSide) onNotification(now effects.Time, agent Agent, from string, body []byte, out *Effects) bool {
	_, t := g.findAgent(agent)
	if t != nil {
		g.handleCompletion(now, t, from, body, out)
	}
	return t != nil
}

// handleCompletion handles a note that arrived at the agent of a tie.
func (g *producerSide) handleCompletion(now effects.Time, t *writableAgent, from string, body []byte, out *Effects) {
	if err := g.completion.Decode(body, &g.cfg.Wire); err != nil {
		out.addReport("a note of a plain engine makes no sense", effects.Why{Name: from, Field: "note", Theirs: err.Error()})
		return
	}
	for _, a := range g.registrations {
		if a.agent != t || a.over || !a.sent || a.agentName != from || string(a.requestID) != string(g.completion.RequestID) {
			continue
		}
		if a.target.address.Ranks != g.completion.Ranks {
			g.endRegistration(now, a, effects.Mismatch, &effects.Why{
				Field: "remote_tp_size", Ours: formatDecimal(uint64(a.target.address.Ranks)),
				Theirs: formatDecimal(uint64(g.completion.Ranks)),
				Remedy: "give the producer's tp_size",
			}, out)
			return
		}
		g.endRegistration(now, a, effects.OK, nil, out)
		return
	}
	out.addReport("a completion matches no registration", effects.Why{
		Name: from, Field: "request_id", Theirs: effects.SanitizeText(g.completion.RequestID),
	})
}

// handleWithdraw handles a withdrawal of the rank. The rank gets the reply when nothing of that registration can be
// written any more.
func (g *producerSide) handleWithdraw(now effects.Time, to *producerRank, req rankRequest, out *Effects) {
	a := g.findRegistration(g.withdrawal.Incarnation, g.withdrawal.Operation)
	if a == nil {
		g.sendEnd(now, &req, to.incarnation, g.withdrawal.Operation, 0, effects.Cancelled, nil, out)
		return
	}
	if a.withdrawRequest.corr != 0 {
		failSend(a.withdrawRequest.corr, effects.Closed, out)
	}
	a.withdrawRequest, a.withdrawn = req, true
	switch {
	case a.over:
		g.deliverOutcome(now, a, out)
	case !a.sent:
		g.endRegistration(now, a, effects.Cancelled, nil, out)
	default:
		g.retireAgent(a.agent, out)
	}
}

// endRegistration ends a registration: nothing of it is written any more.
func (g *producerSide) endRegistration(now effects.Time, a *rankRegistration, code effects.Code, why *effects.Why, out *Effects) {
	a.over, a.code, a.why = true, code, why
	g.deliverOutcome(now, a, out)
	g.destroyIfUnused(a.agent, out)
}

// deliverOutcome reports the result of a registration to the rank, if a request of the rank waits for it. Otherwise the
// result is kept for a later request.
func (g *producerSide) deliverOutcome(now effects.Time, a *rankRegistration, out *Effects) {
	delivered := a.registerRequest.corr != 0 || a.withdrawRequest.corr != 0
	for _, req := range []*rankRequest{&a.registerRequest, &a.withdrawRequest} {
		if req.corr != 0 {
			g.sendEnd(now, req, a.targetIncarnation, a.operation, a.echoNS, a.code, a.why, out)
		}
	}
	if delivered {
		g.removeRegistration(a)
		return
	}
	// The rank may never ask for a result. The oldest results are dropped.
	undelivered := 0
	for i := len(g.registrations) - 1; i >= 0; i-- {
		if x := g.registrations[i]; x.over {
			if undelivered++; undelivered > g.cfg.RegistrationsMax {
				g.lastForgotten = max(g.lastForgotten, x.operation)
				g.removeRegistration(x)
			}
		}
	}
}

// removeRegistration removes the record of a registration.
func (g *producerSide) removeRegistration(a *rankRegistration) {
	for i, x := range g.registrations {
		if x == a {
			g.registrations = append(g.registrations[:i], g.registrations[i+1:]...)
			return
		}
	}
}

// retireAgent excludes a tie from new registrations.
func (g *producerSide) retireAgent(t *writableAgent, out *Effects) {
	t.retired = true
	for _, p := range g.producers {
		if p.currentAgent == t {
			p.currentAgent = nil
		}
	}
	g.destroyIfUnused(t, out)
}

// destroyIfUnused destroys a retired tie that is no longer needed: all its registrations have ended, are withdrawn, or
// may not have been sent.
func (g *producerSide) destroyIfUnused(t *writableAgent, out *Effects) {
	if !t.retired || t.destroying {
		return
	}
	for _, a := range g.registrations {
		if a.agent == t && !a.over && !a.withdrawn && !a.maybeUnsent {
			return
		}
	}
	g.destroyAgent(t, out)
}

// destroyAgent has an agent destroyed. While the agent is being made, the driver does not know it yet, so onAgentMade
// continues.
func (g *producerSide) destroyAgent(t *writableAgent, out *Effects) {
	if t.destroying {
		return
	}
	t.destroying = true
	if t.isMade() {
		out.DestroyAgents = append(out.DestroyAgents, t.id)
	}
}

// Expel ends all access of an incarnation of an engine's rank, and has Effects.DoneExpulsions report when that is
// complete. The engine's other ranks reach this node by the same agents, so their access ends too.
func (g *producerSide) Expel(now effects.Time, incarnation effects.Incarnation, number uint64, out *Effects) {
	for _, a := range slices.Clone(g.registrations) { // A registration that was not sent yet never will be.
		if a.targetIncarnation == incarnation && !a.sent && !a.over {
			g.endRegistration(now, a, effects.PeerLost, nil, out)
		}
	}
	x := &expulsion{number: number}
	for _, p := range g.producers {
		for _, t := range p.agents {
			if !t.isKnownTo(incarnation) {
				continue
			}
			t.expulsions = append(t.expulsions, x)
			x.agentsLeft++
			g.retireAgent(t, out)
			g.destroyAgent(t, out)
		}
	}
	if x.agentsLeft == 0 {
		out.DoneExpulsions = append(out.DoneExpulsions, number)
	}
}

// isKnownTo reports whether an incarnation has received the agent's metadata, or may have received it.
func (t *writableAgent) isKnownTo(incarnation effects.Incarnation) bool {
	for _, x := range t.incarnations {
		if x == incarnation {
			return true
		}
	}
	return false
}

// onAgentDestroyed handles the end of an agent, or the failure to destroy it, and reports false if the agent is not one
// that engines write to.
func (g *producerSide) onAgentDestroyed(now effects.Time, agent Agent, code effects.Code, out *Effects) bool {
	p, t := g.findAgent(agent)
	switch {
	case t == nil:
		return false
	case code != effects.OK:
		out.addReport("an agent could not be destroyed, and what was registered by it stays", effects.Why{Field: "agent"})
	default:
		g.removeAgent(now, p, t, effects.PeerLost, nil, out)
	}
	return true
}

// removeAgent removes a tie: nothing is written by it any more.
func (g *producerSide) removeAgent(now effects.Time, p *producer, t *writableAgent, code effects.Code, why *effects.Why, out *Effects) {
	for i, x := range p.agents {
		if x == t {
			p.agents = append(p.agents[:i], p.agents[i+1:]...)
			break
		}
	}
	if p.currentAgent == t {
		p.currentAgent = nil
	}
	t.destroying = true
	for _, a := range g.openRegistrations(t) {
		outcome := code
		if a.withdrawn {
			outcome = effects.Cancelled
		}
		g.endRegistration(now, a, outcome, why, out)
	}
	for _, x := range t.expulsions {
		if x.agentsLeft--; x.agentsLeft == 0 {
			out.DoneExpulsions = append(out.DoneExpulsions, x.number)
		}
	}
	g.advanceProducer(now, p, out) // A hello may wait for an agent.
}

// handleKeepAlive asks an engine to keep requests for longer. An engine cannot be told that a request is not needed.
func (g *producerSide) handleKeepAlive(now effects.Time, to *producerRank, req rankRequest, out *Effects) {
	code := effects.OK
	switch {
	case to.agentName == "" || effects.Incarnation(g.keepAlive.To) != to.incarnation:
		code = effects.Stale
	case len(g.keepAlive.Keep) > 0:
		if t := g.heartbeatAgent(to, out); t != nil {
			m := protocol.PushHeartbeat{RequestIDs: g.keepAlive.Keep}
			out.Notifications = append(out.Notifications, Notification{Agent: t.id, To: to.agentName, Body: m.Append(nil)})
		} else {
			code = effects.Unreachable // Until the next interval.
		}
	}
	if code == effects.OK && len(g.keepAlive.Skip) > 0 {
		code = effects.Unsupported
	}
	g.sendEnd(now, &req, to.incarnation, 0, 0, code, nil, out)
}

// heartbeatAgent returns an agent that has loaded a rank's agent, or nil if none has yet. A retired agent will do: if a
// producer has as many retired agents as it may have, no agent is current, and its leases must not run out meanwhile.
func (g *producerSide) heartbeatAgent(to *producerRank, out *Effects) *writableAgent {
	for _, t := range to.producer.agents {
		if !t.destroying && slices.Contains(t.loaded, to) && t.isKnownTo(to.incarnation) {
			return t
		}
	}
	if t := g.currentAgent(to.producer, out); t != nil && g.loadMetadata(t, to, out) {
		return t
	}
	return nil
}
