package gateway

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// A producer is an engine that writes to this node, identified by its side channel.
type producer struct {
	host         string
	port         uint16
	ranks        []*producerRank
	agents       []*writableAgent // all agents of this node that the engine was told of and that may still exist
	currentAgent *writableAgent   // the agent for new registrations; nil: the next registration needs a new agent
}

// A producerRank is one rank of a producer.
type producerRank struct {
	producer      *producer `snap:"skip"`
	address       PlainRank
	key           uint64
	connCount     int
	helloRequest  rankRequest // its hello that has no reply yet
	echoNS        int64
	queryID       uint64 // its query to the side channel that has no answer yet; 0: none
	agentMetadata []byte // metadata of its agent; nil: not known
	engineID      string
	joined        geometry.RankPair
	agentName     string // name of its agent; empty: not known
	incarnation   effects.Incarnation
}

// A writableAgent is an agent of this node to which one engine may write.
type writableAgent struct {
	id           Agent
	sidePort     uint16 // of its side channel; 0: the agent is not made yet
	loaded       []*producerRank
	incarnations []effects.Incarnation // incarnations of the loaded ranks
	pendingLoads []pendingLoad
	retired      bool // no new registration may use the agent
	destroying   bool
	expulsions   []*expulsion
}

// isMade reports whether the driver has made the agent.
func (t *writableAgent) isMade() bool { return t.sidePort != 0 }

// A pendingLoad is a Load that is not completed.
type pendingLoad struct {
	loadID   uint64
	rank     *producerRank
	metadata []byte // the metadata that is being loaded
}

// An expulsion waits for the end of all ties of an engine.
type expulsion struct {
	number     uint64
	agentsLeft int
}

// findOrAddProducer returns the engine at a place, and adds a new engine if necessary. The result is nil if there is no
// room.
func (g *producerSide) findOrAddProducer(at PlainRank, out *Effects) *producer {
	for _, p := range g.producers {
		if p.host == at.Host && p.port == at.Port {
			return p
		}
	}
	if len(g.producers) >= g.cfg.EnginesMax && !g.makeRoom(out) {
		return nil
	}
	p := &producer{host: at.Host, port: at.Port}
	g.producers = append(g.producers, p)
	return p
}

// makeRoom removes an engine to which no rank here is connected and that has no agent of this node. makeRoom also
// retires the agents of other engines without connections, so that there is room soon. The result says whether an
// engine was removed.
func (g *producerSide) makeRoom(out *Effects) bool {
	for i, p := range g.producers {
		idle := true
		for _, r := range p.ranks {
			idle = idle && r.connCount == 0 && r.queryID == 0
		}
		if idle && p.currentAgent != nil {
			g.retireAgent(p.currentAgent, out)
		}
		if idle && len(p.agents) == 0 {
			g.producers = append(g.producers[:i], g.producers[i+1:]...)
			return true
		}
	}
	return false
}

// findOrAddRank returns the rank of the engine at a place, and adds a new rank if necessary. The result is nil if the
// engine has limit ranks already.
func (p *producer) findOrAddRank(at PlainRank, limit int) *producerRank {
	for _, r := range p.ranks {
		if r.address == at {
			return r
		}
	}
	if len(p.ranks) >= limit {
		return nil
	}
	r := &producerRank{producer: p, address: at}
	p.ranks = append(p.ranks, r)
	return r
}

// handleHello handles the rank's hello. The engine is queried anew each time, because another engine may have taken the
// address.
func (g *producerSide) handleHello(now effects.Time, to *producerRank, req rankRequest, echo int64, out *Effects) {
	g.endForgotten(now, out)
	if to.helloRequest.corr != 0 {
		failSend(to.helloRequest.corr, effects.Closed, out)
	}
	to.helloRequest, to.echoNS = req, echo
	if to.queryID != 0 {
		return // The query is in flight already.
	}
	to.queryID = g.newID()
	q := protocol.NixlMetadataRequest{PPRank: to.address.Stage, TPRank: to.address.Rank}
	out.Queries = append(out.Queries, Query{
		QueryID: to.queryID, Addr: effects.Addr{Host: to.address.Host, Port: to.address.Port}, Body: q.Append(nil),
	})
}

// onQueryReply handles the answer of a side channel, and reports false if the query was not sent by this direction.
func (g *producerSide) onQueryReply(now effects.Time, queryID uint64, body []byte, code effects.Code, out *Effects) bool {
	for _, p := range g.producers {
		for _, r := range p.ranks {
			if r.queryID == queryID {
				r.queryID = 0
				g.handleMetadata(now, r, body, code, out)
				return true
			}
		}
	}
	return false
}

// handleMetadata handles the metadata of a rank.
func (g *producerSide) handleMetadata(now effects.Time, r *producerRank, body []byte, code effects.Code, out *Effects) {
	if code != effects.OK {
		g.failHello(r, code, effects.Why{}, out)
		return
	}
	own := &g.cfg.Own
	agent, regions, code, why := g.decodeMetadata(body, &geometry.Worker{
		Ranks: r.address.Ranks, Rank: r.address.Rank, Stages: r.address.Stages, Stage: r.address.Stage, Heads: own.Heads,
		CellHeads: own.CellHeads,
	})
	if code != effects.OK {
		g.failHello(r, code, why, out)
		return
	}
	joined, err := geometry.Join(&regions, own, nil)
	if err != nil {
		g.failHello(r, effects.Mismatch, whyUnfit(err), out)
		return
	}
	if string(agent) != string(r.agentMetadata) && r.agentMetadata != nil && r.producer.currentAgent != nil {
		g.retireAgent(r.producer.currentAgent, out) // The tie's agent has loaded the former agent for that place.
	}
	r.agentMetadata, r.engineID, r.joined = agent, regions.EngineID, joined
	g.advanceProducer(now, r.producer, out)
}

// failHello ends a hello without success. The rank tries again, as it does with any peer.
func (g *producerSide) failHello(r *producerRank, code effects.Code, why effects.Why, out *Effects) {
	why.Addr = effects.Addr{Host: r.address.Host, Port: r.address.Port}
	out.addReport("a plain engine cannot be registered with", why)
	if r.helloRequest.corr == 0 {
		return
	}
	if why.Field == "" {
		failSend(r.helloRequest.corr, code, out)
		r.helloRequest = rankRequest{}
		return
	}
	m := protocol.HixlInitResponse{EngineID: []byte(r.address.Host), HasExt: true, Ext: protocol.HelloExt{
		ProtoMin: link.VersionMin, ProtoMax: link.VersionMax, Code: uint32(code), Reason: why.Reason(),
	}}
	r.helloRequest.sendReply(m.Append(nil), out)
}

// advanceProducer does for an engine what has become possible: hellos are answered, and registrations are sent.
func (g *producerSide) advanceProducer(now effects.Time, p *producer, out *Effects) {
	for _, r := range p.ranks {
		if r.helloRequest.corr == 0 || r.agentMetadata == nil || r.queryID != 0 {
			continue
		}
		if t := g.currentAgent(p, out); t != nil && g.loadMetadata(t, r, out) {
			g.answerHello(now, r, out)
		}
	}
	for _, a := range g.registrations {
		if a.target.producer == p && !a.sent && !a.over && !a.agent.destroying && g.loadMetadata(a.agent, a.target, out) {
			g.sendRegistration(a, out)
		}
	}
}

// currentAgent returns the tie for new registrations, and makes a tie if necessary. The result is nil if the engine has
// too many ties.
func (g *producerSide) currentAgent(p *producer, out *Effects) *writableAgent {
	if p.currentAgent == nil && len(p.agents) >= g.cfg.AgentsMax {
		return nil
	}
	if p.currentAgent == nil {
		p.currentAgent = &writableAgent{id: g.newAgent()}
		p.agents = append(p.agents, p.currentAgent)
		out.MakeAgents = append(out.MakeAgents, p.currentAgent.id)
	}
	return p.currentAgent
}

// loadMetadata has an agent load the metadata of a rank's agent, and reports whether the agent has loaded it already.
func (g *producerSide) loadMetadata(t *writableAgent, r *producerRank, out *Effects) bool {
	for _, x := range t.loaded {
		if x == r {
			return true
		}
	}
	if !t.isMade() || t.destroying || r.agentMetadata == nil {
		return false
	}
	for _, x := range t.pendingLoads {
		if x.rank == r {
			return false
		}
	}
	x := pendingLoad{g.newID(), r, r.agentMetadata}
	t.pendingLoads = append(t.pendingLoads, x)
	out.Loads = append(out.Loads, Load{Agent: t.id, LoadID: x.loadID, Metadata: r.agentMetadata})
	return false
}

// answerHello answers a hello.
func (g *producerSide) answerHello(now effects.Time, r *producerRank, out *Effects) {
	if r.key == 0 {
		r.key = g.newID()
	}
	m := protocol.HixlInitResponse{EngineID: []byte(r.engineID), HasExt: true, Ext: g.makeHelloExt(now, r.incarnation, r.echoNS,
		&r.joined.Producer.Geometry, r.key)}
	r.helloRequest.sendReply(m.Append(nil), out)
}

// handleMemInfo answers the last step of a hello.
func (g *producerSide) handleMemInfo(now effects.Time, to *producerRank, req rankRequest, out *Effects) {
	if to.agentName == "" {
		failSend(req.corr, effects.Closed, out)
		return
	}
	m := protocol.HixlMemInfoResponse{
		Buffers: g.bufferInfos(to.incarnation, &to.joined.Producer.Geometry), HasExt: true,
		Stamps: protocol.Stamps{ClockNS: int64(now), EchoNS: g.memInfoRequest.Stamps.ClockNS},
	}
	req.sendReply(m.Append(nil), out)
}

// findAgent returns the tie of an agent and the engine of the tie.
func (g *producerSide) findAgent(a Agent) (*producer, *writableAgent) {
	for _, p := range g.producers {
		for _, t := range p.agents {
			if t.id == a {
				return p, t
			}
		}
	}
	return nil, nil
}

// onAgentMade handles an agent that exists now, or cannot be made. The result is false if the agent is not one that
// engines write to.
func (g *producerSide) onAgentMade(now effects.Time, a Agent, port uint16, code effects.Code, out *Effects) bool {
	p, t := g.findAgent(a)
	switch {
	case t == nil:
		return false
	case code != effects.OK && t.destroying:
		g.removeAgent(now, p, t, effects.PeerLost, nil, out)
	case code != effects.OK:
		g.failAgent(now, p, t, code, out)
	case t.destroying: // It is not needed any more.
		t.sidePort = port
		out.DestroyAgents = append(out.DestroyAgents, t.id)
	default:
		t.sidePort = port
		g.advanceProducer(now, p, out)
	}
	return true
}

// failAgent ends what waits for an agent that cannot be made.
func (g *producerSide) failAgent(now effects.Time, p *producer, t *writableAgent, code effects.Code, out *Effects) {
	why := effects.Why{Field: "agent", Theirs: code.String(), Remedy: "see the log of libnixl"}
	for _, r := range p.ranks {
		if r.helloRequest.corr != 0 && r.queryID == 0 {
			g.failHello(r, code, why, out)
		}
	}
	g.removeAgent(now, p, t, code, &why, out)
}

// onAgentLoaded handles the name of a rank's agent, or the failure to load the agent, and reports false if the load was
// not of this direction.
func (g *producerSide) onAgentLoaded(now effects.Time, loadID uint64, name string, code effects.Code, out *Effects) bool {
	for _, p := range g.producers {
		for _, t := range p.agents {
			for i, x := range t.pendingLoads {
				if x.loadID == loadID {
					t.pendingLoads = append(t.pendingLoads[:i], t.pendingLoads[i+1:]...)
					g.finishLoad(now, p, t, x, name, code, out)
					return true
				}
			}
		}
	}
	return false
}

// finishLoad handles the result of loading a rank's agent. Registrations that were meant for another incarnation of the
// rank end as Stale. If the rank has got another agent since the load began, the result says nothing about the rank: for
// example, an engine restarts while its former agent is still being loaded, and the new agent is loaded sooner.
func (g *producerSide) finishLoad(now effects.Time, p *producer, t *writableAgent, x pendingLoad, name string, code effects.Code,
	out *Effects) {
	r := x.rank
	if string(x.metadata) != string(r.agentMetadata) {
		if code == effects.OK {
			t.incarnations = append(t.incarnations, r.incarnationOf(name)) // It may know t, and Expel must find it.
		}
		g.advanceProducer(now, p, out)
		return
	}
	if code == effects.OK && name == "" {
		code = effects.Faulted
	}
	if code != effects.OK {
		why := effects.Why{
			Field: "agent_metadata", Theirs: "cannot be loaded", Remedy: "run one version of NIXL at both ends",
		}
		g.failHello(r, code, why, out)
		for _, a := range g.openRegistrations(t) {
			if a.target == r && !a.sent {
				g.endRegistration(now, a, code, &why, out)
			}
		}
		return
	}
	r.agentName, r.incarnation = name, r.incarnationOf(name)
	for _, a := range slices.Clone(g.registrations) { // What was granted to another incarnation is not sent to this one.
		if a.target == r && a.targetIncarnation != r.incarnation && !a.sent && !a.over {
			g.endRegistration(now, a, effects.Stale, &effects.Why{
				Field: "incarnation", Theirs: "changed since the registration", Remedy: "none is needed: the engine is queried again",
			}, out)
		}
	}
	t.loaded, t.incarnations = append(t.loaded, r), append(t.incarnations, r.incarnation)
	g.advanceProducer(now, p, out)
}

// incarnationOf returns the incarnation by which the rank here knows an agent of this rank of the engine.
func (r *producerRank) incarnationOf(agent string) effects.Incarnation {
	return agentIncarnation(agent, r.address.Addr().Host, formatDecimal(uint64(r.address.Port)))
}
