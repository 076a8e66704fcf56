package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/protocol"
)

// This file judges the gateway's limits on producers and on what the rank registers with them.

// subjectOfConn returns the producer to which the rank has opened a connection.
func (l *ledger) subjectOfConn(conn effects.Conn) subject {
	for _, c := range l.conns {
		if c.conn == conn {
			return subject{producer: placeOf(c.rank.Host, c.rank.Port), rank: c.rank}
		}
	}
	return subject{}
}

// closeConn records that the rank closes a connection.
func (l *ledger) closeConn(conn effects.Conn) {
	l.conns = slices.DeleteFunc(slices.Clone(l.conns), func(c openConn) bool { return c.conn == conn })
}

// countRanks returns the number of ranks of a place in a list, not counting except.
func countRanks(all []machine.PlainRank, except machine.PlainRank) (n int) {
	for i, r := range all {
		if r.Host == except.Host && r.Port == except.Port && r != except && !slices.Contains(all[:i], r) {
			n++
		}
	}
	return n
}

// parseRank returns the rank of a plain engine that an address names, which the engine need not have. It is written
// again here, as the gateway's own function is judged by it.
func parseRank(a effects.Addr) (p machine.PlainRank, ok bool) {
	i := strings.LastIndex(a.Host, "/pp")
	if i < 0 {
		return p, false
	}
	n, err := fmt.Sscanf(a.Host[i:], "/pp%dof%d/tp%dof%d", &p.Stage, &p.Stages, &p.Rank, &p.Ranks)
	p.Host, p.Port = strings.TrimPrefix(a.Host[:i], "vllm://"), a.Port
	return p, err == nil && n == 4
}

// isInUse reports whether the rank is connected to a producer, or the producer is being queried.
func (l *ledger) isInUse(producer string) bool {
	for _, c := range l.conns {
		if placeOf(c.rank.Host, c.rank.Port) == producer {
			return true
		}
	}
	for _, s := range l.queries {
		if s.producer == producer {
			return true
		}
	}
	return false
}

// verifyOpened judges whether a connection of the rank to a producer is opened or refused as the limits on producers and
// on their ranks say.
func (h *host) verifyOpened(e *effects.Open, o *machine.Effects, out *effects.Effects) {
	rank, ok := parseRank(e.Addr)
	if !ok {
		observe(out, factEngine, unjudged, "")
		return
	}
	exists := rank.Stage < rank.Stages && rank.Rank < rank.Ranks
	l := &h.ledger
	place := placeOf(rank.Host, rank.Port)
	for _, a := range o.DestroyAgents {
		if p := l.agentsOf[a].producer; p != "" && l.isInUse(p) {
			observe(out, factEngine, effects.Invalid, fmt.Sprintf("agent %d of %s ends to make room for %s, and the rank is connected to %s", a,
				p, place, p))
			return
		}
	}
	for _, ev := range o.Events {
		x, is := ev.(*effects.Opened)
		if !is || x.Corr != e.Corr {
			continue
		}
		switch {
		case (x.Code == effects.Invalid) == exists:
			observe(out, factEngine, effects.Invalid, fmt.Sprintf("the rank opens a connection to %s, and the result is %s", e.Addr.Host, x.Code))
			return
		case x.Code == effects.Invalid:
		case x.Code == effects.OK:
			l.conns = append(slices.Clone(l.conns), openConn{x.Conn, rank})
			var connected []machine.PlainRank
			for _, c := range l.conns {
				connected = append(connected, c.rank)
			}
			if n := 1 + countRanks(connected, rank); n > l.shape.ranksMax {
				observe(out, factEngine, effects.Invalid, fmt.Sprintf("the rank may connect to %d ranks of %s, and RanksMax is %d", n, place,
					l.shape.ranksMax))
				return
			}
			if n := 1 + l.countBusyProducers(place); n > l.limits.engines {
				observe(out, factEngine, effects.Invalid, fmt.Sprintf("the rank may connect to %d producers, and EnginesMax is %d", n,
					l.limits.engines))
				return
			}
			if !slices.Contains(l.opened, rank) {
				l.opened = append(slices.Clone(l.opened), rank)
			}
		case countRanks(l.opened, rank) < l.shape.ranksMax && l.countBusyProducers(place) < l.limits.engines:
			observe(out, factEngine, effects.Invalid, fmt.Sprintf("the rank may not connect to %s, with %d other producers and %d of its ranks",
				place, l.countBusyProducers(place), countRanks(l.opened, rank)))
			return
		}
		observe(out, factEngine, effects.OK, "")
	}
}

// verifyAgentMade judges whether a producer has room for another agent to write to.
func (h *host) verifyAgentMade(about *subject, out *effects.Effects) {
	if about.producer == "" {
		observe(out, factAgent, unjudged, "")
		return
	}
	if n := h.ledger.countAgentsOf(about.producer) + 1; n > h.ledger.limits.agents {
		observe(out, factAgent, effects.Invalid, fmt.Sprintf("%s may write to %d agents, and AgentsMax is %d", about.producer, n,
			h.ledger.limits.agents))
		return
	}
	observe(out, factAgent, effects.OK, "")
}

// verifyAsked judges whether a registration of the rank with a producer is taken or refused as the limits say.
func (h *host) verifyAsked(e *effects.Send, o *machine.Effects, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	var m protocol.PushRegistration
	if protocol.PushKindOf(e.Body) != protocol.PushKindRegistration || m.Decode(e.Body, &limits) != nil {
		return
	}
	l := &h.ledger
	end, ended := replyTo(e.Corr, o)
	if ended && effects.CodeFromWire(end.Code) == effects.Ended && l.mostResults <= l.limits.registrations {
		observe(out, factAsked, effects.Invalid, fmt.Sprintf("the result of registration %d is dropped, at most %d were kept at a time, and "+
			"RegistrationsMax is %d", m.Ext.Operation, l.mostResults, l.limits.registrations))
		return
	}
	if slices.ContainsFunc(l.asks, func(x ask) bool { return x.operation == m.Ext.Operation }) {
		return // It is repeated.
	}
	producer := l.subjectOfConn(e.Conn).producer
	maybe, certain := l.countAsks()
	reason := string(end.Reason)
	switch {
	case ended && effects.CodeFromWire(end.Code) == effects.TooMany && strings.Contains(reason, "gateway.agents"):
		if n := l.countAgentsOf(producer); n < l.limits.agents {
			observe(out, factAgent, effects.Invalid, fmt.Sprintf("a registration with %s is refused with %d agents, and AgentsMax is %d",
				producer, n, l.limits.agents))
			return
		}
		observe(out, factAgent, effects.OK, "")
	case ended && effects.CodeFromWire(end.Code) == effects.TooMany && maybe < l.limits.registrations:
		observe(out, factAsked, effects.Invalid, fmt.Sprintf("a registration with %s is refused while at most %d are open, and "+
			"RegistrationsMax is %d", producer, maybe, l.limits.registrations))
		return
	case !ended && certain >= l.limits.registrations:
		observe(out, factAsked, effects.Invalid, fmt.Sprintf("a registration with %s is taken while %d are open, and RegistrationsMax is %d",
			producer, certain, l.limits.registrations))
		return
	default:
		observe(out, factAsked, effects.OK, "")
	}
	if !ended {
		l.untold[m.Ext.Operation] = true
		l.asks = append(slices.DeleteFunc(slices.Clone(l.asks), func(x ask) bool { return x.over }),
			ask{operation: m.Ext.Operation, producer: producer, request: string(m.RequestID)})
	}
}

// replyTo returns the end of a registration with which the gateway answers a send of the rank.
func replyTo(corr effects.Corr, o *machine.Effects) (end protocol.PushEnd, ok bool) {
	limits := protocol.DefaultLimits()
	for _, ev := range o.Events {
		if x, is := ev.(*effects.Replied); is && x.Corr == corr && end.Decode(x.Body, &limits) == nil {
			return end, true
		}
	}
	return end, false
}

// recordSent records that a registration was sent to a producer, and judges that it was not sent before: the producer may
// have carried it out.
func (l *ledger) recordSent(n *machine.Notification, out *effects.Effects) {
	if protocol.NotificationKindOf(n.Body) != protocol.NixlRegistration {
		return
	}
	if l.sent[n.Tag] {
		observe(out, factRegistered, effects.Invalid, fmt.Sprintf("registration %d is sent to %s again", n.Tag, n.To))
	}
	l.sent[n.Tag] = true
	l.told[n.Agent] = append(slices.Clone(l.told[n.Agent]), target{l.agentsOf[n.Agent].producer, n.To})
	for i := range l.asks {
		if x := &l.asks[i]; x.operation == n.Tag && !x.over {
			x.agent, x.to = n.Agent, n.To
		}
	}
}

// verifyOpen judges the number of registrations with producers that the gateway has open: those that a producer may still
// write are open, and those that have ended are not.
func (h *host) verifyOpen(out *effects.Effects) {
	l := &h.ledger
	now := l.counted
	now.open = h.g.Counts().OpenRegistrations
	now.maybe, now.certain = l.countAsks()
	l.mostResults = max(l.mostResults, len(l.untold)-now.certain)
	if now == l.counted {
		return
	}
	l.counted = now
	switch {
	case now.open < now.certain:
		observe(out, factOpen, effects.Invalid, fmt.Sprintf("%d registrations with producers are open, and %d were sent, have no "+
			"completion, and their agents exist", now.open, now.certain))
	case now.open > now.maybe:
		observe(out, factOpen, effects.Invalid, fmt.Sprintf("%d registrations with producers are open, and all but %d have ended: "+
			"their completions came, or their agents are gone", now.open, now.maybe))
	default:
		observe(out, factOpen, effects.OK, "")
	}
}

// recordExpulsion records the agents that were named to a rank of a producer whose expulsion begins.
func (l *ledger) recordExpulsion(number uint64, peer effects.Incarnation) {
	at, is := l.stated[peer]
	if !is {
		return
	}
	x := expulsion{target: at}
	for _, a := range sortedKeys(l.told) {
		if slices.Contains(l.told[a], at) {
			x.agents = append(x.agents, a)
		}
	}
	l.expulsions[number] = x
}

// verifyProof judges that a rank of a producer whose expulsion is done can reach no agent that was named to it before: all
// of them are gone.
func (h *host) verifyProof(number uint64, out *effects.Effects) {
	l := &h.ledger
	x, is := l.expulsions[number]
	delete(l.expulsions, number)
	if !is {
		observe(out, factProof, unjudged, "")
		return
	}
	for _, a := range x.agents {
		if _, exists := l.agentsOf[a]; exists {
			observe(out, factProof, effects.Invalid, fmt.Sprintf("the expulsion of %s at %s is done, and agent %d, to which it may write, "+
				"exists", x.target.agent, x.target.producer, a))
			return
		}
	}
	observe(out, factProof, effects.OK, "")
}

// recordCompletion records a notification of a producer that it has written everything.
func (l *ledger) recordCompletion(a machine.Agent, from string, body []byte) {
	limits := protocol.DefaultLimits()
	var m protocol.PushCompletion
	if m.Decode(body, &limits) != nil {
		return
	}
	for i := range l.asks {
		if x := &l.asks[i]; x.agent == a && x.to == from && x.request == string(m.RequestID) {
			x.over = true
		}
	}
}

// verifyReplied judges a reply to the rank. A hello states the window, and the agent that the side channel stated last. A
// registration that is answered is over: its producer does not write any more.
func (h *host) verifyReplied(e *effects.Replied, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	var end protocol.PushEnd
	if end.Decode(e.Body, &limits) == nil && end.Operation != 0 {
		delete(h.ledger.untold, end.Operation)
		for i := range h.ledger.asks {
			x := &h.ledger.asks[i]
			if x.operation != end.Operation {
				continue
			}
			if _, exists := h.ledger.agentsOf[x.agent]; exists && !x.over {
				observe(out, factOpen, effects.Invalid, fmt.Sprintf("the rank is told that registration %d has ended as %s, and agent %d, "+
					"which was named to %s, exists", x.operation, effects.CodeFromWire(end.Code), x.agent, x.to))
			}
			x.over = true
		}
		return
	}
	var m protocol.HixlInitResponse
	if m.Decode(e.Body, &limits) == nil && m.HasExt && m.Ext.Code == 0 {
		h.verifyWindow(&m.Ext, out)
		h.verifyAnswered(h.ledger.subjectOfConn(h.sends[e.Corr]), &m.Ext, out)
	}
}

// verifyAnswered judges the answer to a hello of the rank: it is in the name of the agent that the side channel of the
// producer's rank stated last.
func (h *host) verifyAnswered(about subject, x *protocol.HelloExt, out *effects.Effects) {
	if about.producer == "" || len(x.Blobs) != 1 {
		return
	}
	r, ok := h.g.FindRoute(keyOf(x.Blobs[0]))
	if want := h.ledger.described[about.rank]; !ok || r.Name != want || r.Incarnation != effects.Incarnation(x.Incarnation) {
		observe(out, factGreeting, effects.Invalid, fmt.Sprintf("the rank is told that rank %d of %s is agent %q, and its side channel "+
			"states %q", about.rank.Rank, about.producer, r.Name, want))
		return
	}
	h.ledger.stated[r.Incarnation] = target{about.producer, r.Name}
	observe(out, factGreeting, effects.OK, "")
}

// verifyWindow judges the window that the gateway states for a rank of a plain engine.
func (h *host) verifyWindow(x *protocol.HelloExt, out *effects.Effects) {
	if x.Window != uint32(h.shape.window) {
		observe(out, factWindow, effects.Invalid, fmt.Sprintf("a hello states a window of %d, want %d", x.Window, h.shape.window))
		return
	}
	observe(out, factWindow, effects.OK, "")
}

// verifyAnswer judges what a side channel of this node answers: the memory that belongs to the agent, and the hash. The
// front states memory that nothing depends on, because any process may get its metadata.
func (h *host) verifyAnswer(a machine.Agent, query, answer []byte, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	var q protocol.NixlMetadataRequest
	if q.Decode(query, &limits) != nil || q.PPRank != 0 || q.TPRank != 0 {
		return
	}
	var hello protocol.NixlHello
	var m protocol.NixlMetadata
	if hello.Decode(answer, &limits) != nil || m.Decode(hello.Metadata, &limits) != nil {
		observe(out, factAnswer, effects.Invalid, fmt.Sprintf("the side channel of agent %d answers %q", a, answer))
		return
	}
	want := h.layout
	if a == machine.Front {
		want.base = frontBase
	}
	x := want.metadata(string(m.EngineID), h.nameOf(a))
	if string(hello.Hash) != compatibilityHash || (string(m.EngineID) == hostName) != (a == machine.Front) ||
		string(x.Append(nil)) != string(m.Append(nil)) {
		observe(out, factAnswer, effects.Invalid, fmt.Sprintf("the side channel of agent %d answers with the hash %q, engine %q, addresses %x "+
			"and blocks of %d bytes", a, hello.Hash, m.EngineID, m.BaseAddrs, m.BlockLens))
		return
	}
	observe(out, factAnswer, effects.OK, "")
}

// verifyQueryReply judges what follows from the answer of a side channel: an engine with other pages is refused by the
// name of a field that differs, no other engine is, and a silent consumer is queried again TriesMax times in all.
func (h *host) verifyQueryReply(about *subject, c *completion, o *machine.Effects, out *effects.Effects) {
	t := h.ledger.attemptOf(about.attempt)
	if about.producer == "" && t == nil {
		return
	}
	if c.code != effects.OK {
		if t != nil {
			h.verifyTries(t, len(o.Queries) > 0, out)
		}
		return
	}
	ranks, engine := h.shape.ranksOf(about.host), ""
	if t != nil {
		ranks, engine = t.ranks, t.engine
	}
	wrong := h.shape.differences(c.body, ranks, engine)
	refused := ""
	for i := range o.Reports {
		r := &o.Reports[i]
		if strings.HasPrefix(r.Text, "a plain engine cannot be registered with") || strings.HasPrefix(r.Text, "an engine cannot be written to") {
			refused = r.Why.Field
		}
	}
	field := strings.TrimPrefix(strings.TrimPrefix(refused, "producer's "), "consumer's ")
	field, _, _ = strings.Cut(field, "[")
	if refused == "" && about.producer != "" {
		h.ledger.described[about.rank] = agentIn(c.body)
	}
	switch {
	case len(wrong) > 0 && !slices.Contains(wrong, field):
		observe(out, factFits, effects.Invalid, fmt.Sprintf("%s has another %v, and the gateway names %q", about.host, wrong, refused))
	case len(wrong) == 0 && refused != "":
		observe(out, factFits, effects.Invalid, fmt.Sprintf("%s fits, and the gateway refuses it for its %s", about.host, refused))
	default:
		observe(out, factFits, effects.OK, "")
	}
}

// agentIn returns the agent that the answer of a side channel states.
func agentIn(body []byte) string {
	limits := protocol.DefaultLimits()
	var hello protocol.NixlHello
	var m protocol.NixlMetadata
	if hello.Decode(body, &limits) != nil || m.Decode(hello.Metadata, &limits) != nil {
		return ""
	}
	return string(m.Agent)
}

// differences returns the names of the fields of a side channel's answer that do not fit the node. The rank that
// answered is one of a number of ranks; engine is the name that it must have, or "" for any.
func (s *shape) differences(body []byte, ranks uint32, engine string) (fields []string) {
	limits := protocol.DefaultLimits()
	var hello protocol.NixlHello
	var m protocol.NixlMetadata
	if hello.Decode(body, &limits) != nil || m.Decode(hello.Metadata, &limits) != nil {
		return []string{"metadata"}
	}
	if string(hello.Hash) != compatibilityHash {
		return []string{"compatibility_hash"} // Nothing else has a meaning.
	}
	add := func(field string, wrong bool) {
		if wrong {
			fields = append(fields, field)
		}
	}
	heads := max(1, s.heads/ranks)
	add("cell_heads", heads%s.cellHeads != 0)
	add("kv_cache_layout", string(m.Layout) != cacheLayout)
	add("block_size", m.BlockSize != blockTokens)
	add("block_lens", m.BlockLens[0] != pageBytes*uint64(max(1, heads/s.cellHeads)))
	add("engine_id", engine != "" && string(m.EngineID) != engine)
	return fields
}
