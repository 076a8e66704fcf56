package gateway

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// An ask is a registration of the rank with a rank of a plain engine. The record is kept until nothing of the
// registration can be written any more and the rank has been notified of that.
type ask struct {
	asker, off asker // the registration, and its withdrawal
	echo       int64
	us         protocol.UUID
	operation  uint64
	to         *theirRank
	who        effects.Incarnation // the incarnation of the engine's rank that was asked
	tie        *tie
	name       string // name of that rank's agent
	request    []byte
	body       []byte // the registration without the agent's address; nil: it was sent
	told       bool
	withdrawn  bool
	unsure     bool // the note may not have been sent
	over       bool
	code       effects.Code // the result, when over
	why        *effects.Why
}

// register handles a registration of the rank, or its repetition. A repetition is never sent to the engine again.
func (g *inward) register(now effects.Time, to *theirRank, who asker, out *Out) {
	m := &g.reg
	if a := g.asked(m.Ext.Incarnation, m.Ext.Operation); a != nil {
		if a.asker.corr != 0 {
			unanswered(a.asker.corr, effects.Closed, out)
		}
		a.asker, a.echo = who, m.Ext.Stamps.ClockNS
		if a.over {
			g.hear(now, a, out)
		}
		return
	}
	code, why := g.may(to)
	if code != effects.OK {
		g.ends(now, &who, to.who, m.Ext.Operation, m.Ext.Stamps.ClockNS, code, why, out)
		return
	}
	plain := *m
	plain.HasExt = false
	t := g.current(to.of, out)
	a := &ask{
		asker: who, echo: m.Ext.Stamps.ClockNS, us: m.Ext.Incarnation, operation: m.Ext.Operation, to: to, who: to.who,
		tie: t, request: append([]byte(nil), m.RequestID...), body: plain.Append(nil),
	}
	g.asks = append(g.asks, a)
	g.advance(now, to.of, out)
}

// may reports whether a registration can be sent, or why it cannot.
func (g *inward) may(to *theirRank) (effects.Code, *effects.Why) {
	m := &g.reg
	if to.name == "" || effects.Incarnation(m.Ext.To) != to.who {
		return effects.Stale, &effects.Why{
			Field: "life", Theirs: "another one than that which is asked", Remedy: "none is needed: it is asked anew",
		}
	}
	for i, list := range m.Blocks {
		if len(list) == 0 { // The engine would take an empty list for all blocks of the group.
			return effects.Unsupported, &effects.Why{
				Field: "local_block_ids", Theirs: "none of group " + decimal(uint64(i)),
				Ours: "some of each group", Remedy: "register blocks of every group with engines of vLLM",
			}
		}
	}
	for _, x := range g.cfg.Own.Layers {
		if int(x.Group) >= len(m.Blocks) && x.Group != geometry.Shared {
			return effects.Unsupported, &effects.Why{
				Field: "local_block_ids", Theirs: "none of group " + decimal(uint64(x.Group)),
				Ours: "some of each group", Remedy: "register blocks of every group with engines of vLLM",
			}
		}
	}
	if to.of.tie == nil && len(to.of.ties) >= g.cfg.TiesMax {
		return effects.TooMany, &effects.Why{
			Field: "gateway.agents", Ours: "as many of this engine's registrations were taken back as may be at a time",
			Remedy: "retry when others of them have ended, or raise gateway.agents",
		}
	}
	if m.Ext.Operation <= g.forgot { // Operations only grow. The note may have been sent; the record is gone.
		return effects.Ended, &effects.Why{
			Field: "kvf_op", Theirs: decimal(m.Ext.Operation), Ours: "forgotten", Remedy: "dispatch the request anew",
		}
	}
	open := 0
	for _, a := range g.asks {
		if a.to.of == to.of && a.to == to && !a.over && string(a.request) == string(m.RequestID) {
			return effects.Refused, &effects.Why{
				Field: "request_id", Theirs: effects.Words(m.RequestID), Ours: "registered there already, and not over",
				Remedy: "give each request a name of its own",
			}
		}
		if !a.over {
			open++
		}
	}
	if open >= g.cfg.AsksMax {
		return effects.TooMany, &effects.Why{
			Field: "gateway.asks", Ours: decimal(uint64(g.cfg.AsksMax)) + ", and as many are with engines of vLLM",
			Remedy: "retry when one has ended, or raise gateway.asks",
		}
	}
	return effects.OK, nil
}

// asked returns a registration of the rank, or nil.
func (g *inward) asked(us protocol.UUID, operation uint64) *ask {
	for _, a := range g.asks {
		if a.operation == operation && a.us == us {
			return a
		}
	}
	return nil
}

// asksBy returns the registrations by a tie that are not over.
func (g *inward) asksBy(t *tie) []*ask {
	var list []*ask
	for _, a := range g.asks {
		if a.tie == t && !a.over {
			list = append(list, a)
		}
	}
	return list
}

// tell sends a registration. From here on the engine may write.
func (g *inward) tell(a *ask, out *Out) {
	m := &g.reg
	if err := m.Decode(a.body, &g.cfg.Wire); err != nil {
		panic("BUG: what we wrote cannot be read: " + err.Error())
	}
	m.EngineID, m.Host, m.Port = []byte(g.EngineOf(a.tie.agent)), []byte(g.cfg.Host), uint32(a.tie.port)
	m.TPSize = g.cfg.Own.Ranks
	m.Remote = protocol.PushProducer{
		EngineID: []byte(a.to.engine), Host: []byte(a.to.place.Host), Port: uint32(a.to.place.Port),
		TPSize: a.to.place.Ranks, PPSize: a.to.place.Stages,
	}
	a.told, a.body, a.name = true, nil, a.to.name
	out.Says = append(out.Says, Say{Agent: a.tie.agent, To: a.to.name, Body: m.Append(nil), Tag: a.operation})
}

// Unsaid reports that a note could not be sent. The note may have arrived all the same, so the agent that it names is
// retired.
func (g *inward) Unsaid(now effects.Time, agent Agent, tag uint64, out *Out) {
	for _, a := range g.asks {
		if a.tie.agent != agent || a.operation != tag || a.over {
			continue
		}
		a.unsure = true
		to := a.to
		to.agent, to.name = nil, "" // The engine at that place is queried before anything else is sent to it.
		g.retire(a.tie, out)
		if t := to.of.tie; t != nil { // That tie may have loaded another incarnation at that place.
			g.retire(t, out)
		}
		for _, x := range slices.Clone(g.asks) {
			if x.to == to && !x.told && !x.over {
				g.conclude(now, x, effects.Stale, &effects.Why{
					Field: "life", Theirs: "cannot be told anything", Remedy: "none is needed: it is asked anew",
				}, out)
			}
		}
		return
	}
}

// noted handles a note that arrived at an agent of this node, and reports false if the agent is not one that engines
// write to.
func (g *inward) noted(now effects.Time, agent Agent, from string, body []byte, out *Out) bool {
	_, t := g.tieOf(agent)
	if t != nil {
		g.completed(now, t, from, body, out)
	}
	return t != nil
}

// completed handles a note that arrived at the agent of a tie.
func (g *inward) completed(now effects.Time, t *tie, from string, body []byte, out *Out) {
	if err := g.done.Decode(body, &g.cfg.Wire); err != nil {
		out.note("a note of a plain engine makes no sense", effects.Why{Name: from, Field: "note", Theirs: err.Error()})
		return
	}
	for _, a := range g.asks {
		if a.tie != t || a.over || !a.told || a.name != from || string(a.request) != string(g.done.RequestID) {
			continue
		}
		if a.to.place.Ranks != g.done.Ranks {
			g.conclude(now, a, effects.Mismatch, &effects.Why{
				Field: "remote_tp_size", Ours: decimal(uint64(a.to.place.Ranks)), Theirs: decimal(uint64(g.done.Ranks)),
				Remedy: "give the producer's tp_size",
			}, out)
			return
		}
		g.conclude(now, a, effects.OK, nil, out)
		return
	}
	out.note("a completion of nothing that is registered", effects.Why{
		Name: from, Field: "request_id", Theirs: effects.Words(g.done.RequestID),
	})
}

// withdraw handles a withdrawal of the rank. The rank gets the reply when nothing of that registration can be written
// any more.
func (g *inward) withdraw(now effects.Time, to *theirRank, who asker, out *Out) {
	a := g.asked(g.off.Incarnation, g.off.Operation)
	if a == nil {
		g.ends(now, &who, to.who, g.off.Operation, 0, effects.Cancelled, nil, out)
		return
	}
	if a.off.corr != 0 {
		unanswered(a.off.corr, effects.Closed, out)
	}
	a.off, a.withdrawn = who, true
	switch {
	case a.over:
		g.hear(now, a, out)
	case !a.told:
		g.conclude(now, a, effects.Cancelled, nil, out)
	default:
		g.retire(a.tie, out)
	}
}

// conclude ends a registration: nothing of it is written any more.
func (g *inward) conclude(now effects.Time, a *ask, code effects.Code, why *effects.Why, out *Out) {
	a.over, a.code, a.why = true, code, why
	g.hear(now, a, out)
	g.review(a.tie, out)
}

// hear reports the result of a registration to the rank, if a request of the rank waits for it. Otherwise the result is
// kept for a later request.
func (g *inward) hear(now effects.Time, a *ask, out *Out) {
	heard := a.asker.corr != 0 || a.off.corr != 0
	for _, who := range []*asker{&a.asker, &a.off} {
		if who.corr != 0 {
			g.ends(now, who, a.who, a.operation, a.echo, a.code, a.why, out)
		}
	}
	if heard {
		g.drop(a)
		return
	}
	// The rank may never ask for a result. The oldest results are dropped.
	kept := 0
	for i := len(g.asks) - 1; i >= 0; i-- {
		if x := g.asks[i]; x.over {
			if kept++; kept > g.cfg.AsksMax {
				g.forgot = max(g.forgot, x.operation)
				g.drop(x)
			}
		}
	}
}

// drop removes the record of a registration.
func (g *inward) drop(a *ask) {
	for i, x := range g.asks {
		if x == a {
			g.asks = append(g.asks[:i], g.asks[i+1:]...)
			return
		}
	}
}

// retire excludes a tie from new registrations.
func (g *inward) retire(t *tie, out *Out) {
	t.retired = true
	for _, p := range g.producers {
		if p.tie == t {
			p.tie = nil
		}
	}
	g.review(t, out)
}

// review destroys a retired tie that is no longer needed: all its registrations have ended, are withdrawn, or may not
// have been sent.
func (g *inward) review(t *tie, out *Out) {
	if !t.retired || t.destroying {
		return
	}
	for _, a := range g.asks {
		if a.tie == t && !a.over && !a.withdrawn && !a.unsure {
			return
		}
	}
	g.destroy(t, out)
}

// destroy has the agent of a tie destroyed.
func (g *inward) destroy(t *tie, out *Out) {
	if !t.destroying {
		t.destroying = true
		out.Destroys = append(out.Destroys, t.agent)
	}
}

// Expel ends all access of an incarnation of an engine's rank, and has Out.Proven report when that is complete. The
// engine's other ranks reach this node by the same agents, so their access ends too.
func (g *inward) Expel(now effects.Time, who effects.Incarnation, number uint64, out *Out) {
	for _, a := range slices.Clone(g.asks) { // A registration that was not sent yet never will be.
		if a.who == who && !a.told && !a.over {
			g.conclude(now, a, effects.PeerLost, nil, out)
		}
	}
	x := &expulsion{number: number}
	for _, p := range g.producers {
		for _, t := range p.ties {
			if !t.knows(who) {
				continue
			}
			t.proofs = append(t.proofs, x)
			x.left++
			g.retire(t, out)
			g.destroy(t, out)
		}
	}
	if x.left == 0 {
		out.Proven = append(out.Proven, number)
	}
}

// knows reports whether an incarnation has received the agent's metadata, or may have received it.
func (t *tie) knows(who effects.Incarnation) bool {
	for _, x := range t.lives {
		if x == who {
			return true
		}
	}
	return false
}

// destroyed handles the end of an agent, or the failure to destroy it, and reports false if the agent is not one that
// engines write to.
func (g *inward) destroyed(now effects.Time, agent Agent, code effects.Code, out *Out) bool {
	p, t := g.tieOf(agent)
	switch {
	case t == nil:
		return false
	case code != effects.OK:
		out.note("an agent could not be destroyed, and what was registered by it stays", effects.Why{Field: "agent"})
	default:
		g.gone(now, p, t, effects.PeerLost, nil, out)
	}
	return true
}

// gone removes a tie: nothing is written by it any more.
func (g *inward) gone(now effects.Time, p *producer, t *tie, code effects.Code, why *effects.Why, out *Out) {
	for i, x := range p.ties {
		if x == t {
			p.ties = append(p.ties[:i], p.ties[i+1:]...)
			break
		}
	}
	if p.tie == t {
		p.tie = nil
	}
	t.destroying = true
	for _, a := range g.asksBy(t) {
		with := code
		if a.withdrawn {
			with = effects.Cancelled
		}
		g.conclude(now, a, with, why, out)
	}
	for _, x := range t.proofs {
		if x.left--; x.left == 0 {
			out.Proven = append(out.Proven, x.number)
		}
	}
	g.advance(now, p, out) // A hello may wait for an agent.
}

// keepsAlive asks an engine to keep requests for longer. An engine cannot be told that a request is not needed.
func (g *inward) keepsAlive(now effects.Time, to *theirRank, who asker, out *Out) {
	code := effects.OK
	switch {
	case to.name == "" || effects.Incarnation(g.keep.To) != to.who:
		code = effects.Stale
	case len(g.keep.Keep) > 0:
		if t := g.current(to.of, out); t != nil && g.load(t, to, out) {
			m := protocol.PushHeartbeat{RequestIDs: g.keep.Keep}
			out.Says = append(out.Says, Say{Agent: t.agent, To: to.name, Body: m.Append(nil)})
		} else {
			code = effects.Unreachable // Until the next interval.
		}
	}
	if code == effects.OK && len(g.keep.Skip) > 0 {
		code = effects.Unsupported
	}
	g.ends(now, &who, to.who, 0, 0, code, nil, out)
}
