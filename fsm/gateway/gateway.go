package gateway

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// Config configures a Gateway. No field has a default.
type Config struct {
	Own           geometry.Regions      // this node's regions, with addresses; a single rank of one stage
	Metadata      protocol.NixlMetadata // the same in the form that engines read; EngineID and Agent are filled in
	FrontMetadata protocol.NixlMetadata // what the front sends instead, for memory that nothing depends on
	Hash          string                // compatibility_hash that peers must have
	Host          string                // host on which engines reach the side channels of this node
	Incarnation   effects.Incarnation   // the node's incarnation, which makes the names of its agents unique
	Plane         string                // the data plane's name, as the rank has it
	Layout        protocol.Layout       // layout of the rank's pages
	Window        uint16                // registrations in flight with one rank
	// RegistrationTimeout is how long an engine's registration may wait for its request.
	RegistrationTimeout effects.Duration
	// EnginesMax bounds the engines in each direction, RegistrationsMax the registrations of this node that are in
	// flight, PendingMax the pending registrations of engines, and RanksMax the ranks of one engine that exchange data
	// with a rank here.
	EnginesMax, RegistrationsMax, PendingMax, RanksMax int
	// AgentsMax bounds the agents to which one engine may write: the current agent, and retired ones that are still
	// needed. TriesMax is how often an engine is queried, and a registration passed to the rank, before it is given up.
	AgentsMax, TriesMax int
	Wire                protocol.Limits
}

// An Agent is the number of an agent that the driver makes. Numbers are never used again.
type Agent uint64

// Front is the agent to which engines send registrations.
const Front Agent = 1

// firstID is the lowest Conn and Request of a gateway; those of a control transport are lower.
const firstID = 1 << 62

// IsGatewayID reports whether a Conn or a Request belongs to a gateway.
func IsGatewayID[T ~uint64](id T) bool { return id >= firstID }

// A Gateway is the state machine. Its methods take what happened and append to an Out what the driver must do.
type Gateway struct {
	*core
	producerSide
	consumerSide
}

// A core is the state that both directions share.
type core struct {
	cfg       Config
	lastID    uint64 // the newest number of a Conn, Request or query
	lastAgent Agent

	nixlHello    protocol.NixlHello
	nixlMetadata protocol.NixlMetadata
	pushEnd      protocol.PushEnd
}

// An producerSide handles engines that write to this node. The rank sends requests to these engines as to its peers.
type producerSide struct {
	*core
	conns         []conn
	producers     []*producer
	registrations []*rankRegistration
	lastForgotten uint64 // the highest operation that ended and was dropped before the rank asked for its result

	helloRequest   protocol.HixlInitRequest
	memInfoRequest protocol.HixlMemInfoRequest
	registration   protocol.PushRegistration
	withdrawal     protocol.PushWithdrawal
	keepAlive      protocol.PushKeep
	completion     protocol.PushCompletion
}

// An consumerSide handles engines that this node writes to. The gateway sends requests to the rank in their names, as
// peers do.
type consumerSide struct {
	*core
	consumers     []*consumer
	requests      []gatewayRequest // requests of the gateway to the rank
	recentlyEnded []string         // registrations that have ended, the oldest first, so that a repetition is ignored
	heartbeatPeer peer             // the peer in whose name heartbeats reach the rank
	heartbeatIDs  [][]byte         // request ids of heartbeats that are still to be passed to the rank

	helloReply protocol.HixlInitResponse
	heartbeat  protocol.PushHeartbeat
}

// Effects is what the driver must do after a step, in order within each list; Events go to the rank.
type Effects struct {
	Events         []effects.Event
	MakeAgents     []Agent        // agents to make, with memory that may be written to; each has a side channel (OnAgentMade)
	MakeWriters    []Agent        // agents to make that only write
	Loads          []Load         // completed by OnAgentLoaded
	Notifications  []Notification // notes to send
	Queries        []Query        // queries to side channels; completed by OnQueryReply
	DestroyAgents  []Agent        // completed by OnAgentDestroyed
	DoneExpulsions []uint64       // expulsions that are complete
	Reports        []Report       // reports for people
}

// Reset empties all lists and keeps their memory.
func (o *Effects) Reset() {
	*o = Effects{
		Events: o.Events[:0], MakeAgents: o.MakeAgents[:0], MakeWriters: o.MakeWriters[:0], Loads: o.Loads[:0],
		Notifications: o.Notifications[:0],
		Queries:       o.Queries[:0], DestroyAgents: o.DestroyAgents[:0], DoneExpulsions: o.DoneExpulsions[:0], Reports: o.Reports[:0],
	}
}

// A Load has an agent load the metadata of a peer's agent.
type Load struct {
	Agent    Agent
	LoadID   uint64 // the number that OnAgentLoaded returns
	Metadata []byte
}

// A Notification is a note to send.
type Notification struct {
	Agent Agent
	To    string // the name of the receiving agent
	Body  []byte
	Tag   uint64 // the operation that is notified if the note cannot be sent (OnNotificationFailed)
}

// An Query is a query to a side channel.
type Query struct {
	QueryID uint64
	Addr    effects.Addr
	Body    []byte
}

// A Report is a report for people.
type Report struct {
	Text string // what happened
	Why  effects.Why
}

// New returns a gateway without engines. The driver makes the front beforehand; the agents of engines are made as Out
// requests.
func New(cfg Config) *Gateway {
	c := &core{cfg: cfg, lastID: firstID, lastAgent: Front}
	g := &Gateway{core: c, producerSide: producerSide{core: c}, consumerSide: consumerSide{core: c}}
	g.heartbeatPeer.agentName = "heartbeats of " + cfg.Own.EngineID
	g.heartbeatPeer.incarnation = agentIncarnation(g.heartbeatPeer.agentName + string(cfg.Incarnation[:]))
	return g
}

// EngineOf returns the engine name that an agent's side channel states. Only the front states the node's own engine
// name.
func (g *core) EngineOf(a Agent) string {
	if a == Front {
		return g.cfg.Own.EngineID
	}
	return g.cfg.Own.EngineID + "." + hex.EncodeToString(g.cfg.Incarnation[:4]) + "." + formatDecimal(uint64(a))
}

// AnswerQuery returns the answer to a query on the side channel of an agent, and reports false if the query is not one
// that an engine sends.
func (g *core) AnswerQuery(a Agent, agentMetadata, query []byte) (answer []byte, ok bool) {
	q := protocol.NixlMetadataRequest{}
	if q.Decode(query, &g.cfg.Wire) != nil || q.PPRank != 0 || q.TPRank != 0 {
		return nil, false
	}
	m := g.cfg.Metadata
	if a == Front {
		m = g.cfg.FrontMetadata
	}
	m.EngineID, m.Agent = []byte(g.EngineOf(a)), agentMetadata
	h := protocol.NixlHello{Hash: []byte(g.cfg.Hash), Metadata: m.Append(nil)}
	return h.Append(nil), true
}

// newID returns a new number for a Conn, a Request or a query.
func (g *core) newID() uint64 {
	g.lastID++
	return g.lastID
}

// newAgent returns a new agent number.
func (g *core) newAgent() Agent {
	g.lastAgent++
	return g.lastAgent
}

// agentIncarnation returns the incarnation by which a rank knows an agent: another agent is another incarnation. Any
// process can take the name of an agent, so the way in which the agent was met is part of the incarnation (M2).
func agentIncarnation(agent string, via ...string) effects.Incarnation {
	b := []byte(agent)
	for _, m := range via {
		b = append(append(b, 0), m...)
	}
	sum := sha256.Sum256(b)
	return effects.Incarnation(sum[:16])
}

// addReport appends a report for people.
func (o *Effects) addReport(text string, why effects.Why) {
	o.Reports = append(o.Reports, Report{text, why})
}

// OnQueryReply handles the answer of a side channel, or the code that says why there is none.
func (g *Gateway) OnQueryReply(now effects.Time, queryID uint64, body []byte, code effects.Code, out *Effects) {
	if !g.producerSide.onQueryReply(now, queryID, body, code, out) {
		g.consumerSide.onQueryReply(queryID, body, code, out)
	}
}

// OnAgentMade reports that an agent exists, and the port of its side channel; or, with a code, that it could not be
// made.
func (g *Gateway) OnAgentMade(now effects.Time, a Agent, port uint16, code effects.Code, out *Effects) {
	if !g.producerSide.onAgentMade(now, a, port, code, out) {
		g.consumerSide.onWriterMade(a, code, out)
	}
}

// OnAgentLoaded reports the name under which an agent now knows the agent that it was to load; or, with a code, that it
// cannot load it.
func (g *Gateway) OnAgentLoaded(now effects.Time, loadID uint64, name string, code effects.Code, out *Effects) {
	if !g.producerSide.onAgentLoaded(now, loadID, name, code, out) {
		g.consumerSide.onAgentLoaded(now, loadID, name, code, out)
	}
}

// OnNotification handles a note that arrived at an agent of this node.
func (g *Gateway) OnNotification(now effects.Time, agent Agent, from string, body []byte, out *Effects) {
	if !g.producerSide.onNotification(now, agent, from, body, out) && agent == Front {
		g.consumerSide.onNotification(now, from, body, out)
	}
}

// OnAgentDestroyed reports that an agent is gone. With another code than OK the agent could not be destroyed, and its
// pages are never freed.
func (g *Gateway) OnAgentDestroyed(now effects.Time, agent Agent, code effects.Code, out *Effects) {
	if !g.onAgentDestroyed(now, agent, code, out) {
		g.consumerSide.onWriterDestroyed(agent, out)
	}
}

// A Route is how the data plane reaches a peer.
type Route struct {
	Agent       Agent               // this node's agent that writes
	Name        string              // name of the peer's agent
	Regions     *geometry.Regions   // where its pages are; nil: this node does not write to it
	Incarnation effects.Incarnation // the incarnation that its hello stated
}

// CountEngines returns the number of engines that write here or may write here, and the number of engines that are
// written to.
func (g *Gateway) CountEngines() (producers, consumers int) {
	return len(g.producers), len(g.consumers)
}

// FindRoute returns the way that the blob of a hello names, and reports false if there is none any more.
func (g *Gateway) FindRoute(key uint64) (Route, bool) {
	for _, c := range g.consumers {
		for _, p := range c.peers {
			if p.key == key && c.writerMade && !c.leaving {
				return Route{Agent: c.writer, Name: p.agentName, Regions: &p.joined.Consumer, Incarnation: p.incarnation}, true
			}
		}
	}
	for _, e := range g.producers {
		for _, r := range e.ranks {
			if r.key == key && key != 0 {
				return Route{Name: r.agentName, Incarnation: r.incarnation}, true
			}
		}
	}
	return Route{}, false
}
