package gateway

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// Config configures a Gateway. Every field must be set: New fills in no defaults.
type Config struct {
	Own      geometry.Regions      // memory regions of this node, with addresses; the node is a single rank of one stage
	Metadata protocol.NixlMetadata // the same regions in the form that engines read; AnswerQuery fills in EngineID and Agent
	// FrontMetadata describes the regions that the front states instead: memory that nothing depends on, because any
	// engine may get this metadata.
	FrontMetadata protocol.NixlMetadata
	Hash          string              // compatibility_hash that the metadata of every engine must have
	Host          string              // host name at which engines reach the side channels of this node
	Incarnation   effects.Incarnation // incarnation of this node; it makes the engine names of the node's agents unique
	Plane         string              // name of the data plane in the rank's configuration
	Layout        protocol.Layout     // layout of the rank's pages
	Window        uint16              // number of registrations that may be in flight with one rank, as stated in hellos
	// RegistrationTimeout is how long a consumer's registration may wait for the rank's request (gateway.registration_timeout).
	RegistrationTimeout effects.Duration
	// EnginesMax limits the producers, the consumers that are ready, and the consumers that are still being queried,
	// each separately. RegistrationsMax limits this node's registrations with producers that are in flight, and the
	// results that the rank has not asked for. PendingMax limits the open registrations of consumers. RanksMax limits
	// the ranks of one engine that exchange data with this node.
	EnginesMax, RegistrationsMax, PendingMax, RanksMax int
	// AgentsMax limits the agents to which one producer may write: the agent for new registrations, and the retired
	// agents that older registrations still need. TriesMax is how often the side channel of a consumer is queried, and
	// how often a consumer's registration is passed to the rank again after Stale, or its hello is repeated, before the
	// gateway gives up.
	AgentsMax, TriesMax int
	Wire                protocol.Limits
}

// An Agent is the number of a NIXL agent that the driver creates for the gateway. A number is never used for a second
// agent, so an event of an old agent cannot be taken for an event of its successor.
type Agent uint64

// Front is the agent to which consumers send their registrations and heartbeats. The driver creates it before New.
const Front Agent = 1

// firstID is the lowest Conn and Request number of a gateway. Numbers of the control transport are lower, so the driver
// can tell from the number where an effect belongs.
const firstID = 1 << 62

// IsGatewayID reports whether a Conn or a Request was numbered by a gateway and not by the control transport.
func IsGatewayID[T ~uint64](id T) bool { return id >= firstID }

// A Gateway is the state machine that translates between one rank and plain engines. Its methods take what happened and
// append to an Effects what the driver must do. A Gateway is not safe for concurrent use.
type Gateway struct {
	*core
	producerSide
	consumerSide
}

// A core is the state that producerSide and consumerSide share: the configuration, the counters for new numbers, and
// scratch memory for messages.
type core struct {
	cfg       Config `snap:"share"`
	lastID    uint64 // latest number given to a Conn, a Request, a query or a Load
	lastAgent Agent

	nixlHello    protocol.NixlHello    `snap:"scratch"`
	nixlMetadata protocol.NixlMetadata `snap:"scratch"`
	pushEnd      protocol.PushEnd      `snap:"scratch"`
}

// A producerSide handles producers: plain engines that write to this node. The rank sends them requests as to any peer,
// and producerSide forwards these as queries and notifications and completes the rank's Sends.
type producerSide struct {
	*core
	conns         []conn
	producers     []*producer
	registrations []*rankRegistration
	// lastForgotten is the highest operation whose result was dropped before the rank asked for it. Operations up to
	// it are refused as Ended, because their registration may have been sent.
	lastForgotten uint64

	helloRequest   protocol.HixlInitRequest    `snap:"scratch"`
	memInfoRequest protocol.HixlMemInfoRequest `snap:"scratch"`
	registration   protocol.PushRegistration   `snap:"scratch"`
	withdrawal     protocol.PushWithdrawal     `snap:"scratch"`
	keepAlive      protocol.PushKeep           `snap:"scratch"`
	completion     protocol.PushCompletion     `snap:"scratch"`
}

// A consumerSide handles consumers: plain engines that this node writes to. For each rank of a consumer, consumerSide
// acts as a peer of the rank: it sends the rank a hello, registrations and heartbeats in the name of the consumer's rank.
type consumerSide struct {
	*core
	consumers     []*consumer
	requests      []gatewayRequest // requests to the rank that have no reply yet
	recentlyEnded []string         // dedup keys of registrations that ended, oldest first, to recognize a repetition
	heartbeatPeer peer             // the peer in whose name heartbeats of all consumers are passed to the rank
	heartbeatIDs  [][]byte         // request ids from the latest heartbeat that were not passed to the rank yet

	helloReply protocol.HixlInitResponse `snap:"scratch"`
	heartbeat  protocol.PushHeartbeat    `snap:"scratch"`
}

// Effects lists what the driver must do after a step. The order matters within each list only. The driver empties it
// with Reset.
type Effects struct {
	Events         []effects.Event // events for the rank
	MakeAgents     []Agent         // create an agent with writable memory and a side channel; OnAgentMade completes it
	MakeWriters    []Agent         // create an agent that only writes; OnAgentMade completes it
	Loads          []Load          // load metadata into an agent; OnAgentLoaded completes it
	Notifications  []Notification  // send a notification; OnNotificationFailed if sending failed (it may have arrived)
	Queries        []Query         // query a side channel; OnQueryReply completes it
	DestroyAgents  []Agent         // destroy an agent; OnAgentDestroyed completes it
	DoneExpulsions []uint64        // numbers passed to Expel: the incarnation cannot write to this node any more
	Reports        []Report        // log lines for operators
}

// Reset empties all lists and keeps their memory.
func (o *Effects) Reset() {
	*o = Effects{
		Events: o.Events[:0], MakeAgents: o.MakeAgents[:0], MakeWriters: o.MakeWriters[:0], Loads: o.Loads[:0],
		Notifications: o.Notifications[:0],
		Queries:       o.Queries[:0], DestroyAgents: o.DestroyAgents[:0], DoneExpulsions: o.DoneExpulsions[:0], Reports: o.Reports[:0],
	}
}

// A Load asks the driver to load the metadata of an engine's agent into an agent of this node.
type Load struct {
	Agent    Agent
	LoadID   uint64 // returned by OnAgentLoaded
	Metadata []byte
}

// A Notification is a message from an agent of this node to an agent of an engine.
type Notification struct {
	Agent Agent
	To    string // the name of the receiving agent
	Body  []byte
	Tag   uint64 // the registration's operation; OnNotificationFailed returns it
}

// A Query is a request to the side channel of an engine.
type Query struct {
	QueryID uint64
	Addr    effects.Addr
	Body    []byte
}

// A Report is a log line for operators: a plain engine itself cannot be notified of a failure.
type Report struct {
	Text string // what happened
	Why  effects.Why
}

// New returns a gateway that knows no engines. The driver must have created the agent Front.
func New(cfg Config) *Gateway {
	c := &core{cfg: cfg, lastID: firstID, lastAgent: Front}
	g := &Gateway{core: c, producerSide: producerSide{core: c}, consumerSide: consumerSide{core: c}}
	g.heartbeatPeer.agentName = "heartbeats of " + cfg.Own.EngineID
	g.heartbeatPeer.incarnation = agentIncarnation(g.heartbeatPeer.agentName + string(cfg.Incarnation[:]))
	return g
}

// EngineOf returns the engine name in the metadata of an agent. Every agent has an engine name of its own, so that an
// engine treats each agent as a separate engine; only Front has the node's own engine name.
func (g *core) EngineOf(a Agent) string {
	if a == Front {
		return g.cfg.Own.EngineID
	}
	return g.cfg.Own.EngineID + "." + hex.EncodeToString(g.cfg.Incarnation[:4]) + "." + formatDecimal(uint64(a))
}

// AnswerQuery returns the reply to a query on the side channel of agent a. It reports false if the query is malformed
// or asks for a rank other than 0, because this node is a single rank.
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

// newID returns a number that no Conn, Request, query or Load of this gateway had before.
func (g *core) newID() uint64 {
	g.lastID++
	return g.lastID
}

// newAgent returns a number that no agent had before.
func (g *core) newAgent() Agent {
	g.lastAgent++
	return g.lastAgent
}

// agentIncarnation returns the incarnation by which the rank knows an agent of an engine: a hash of the agent's name and
// of the strings via. An agent that replaces another has a new name, so it is a new incarnation. Any process can choose
// any agent name, so via binds the incarnation to the way in which the gateway reached the agent (M2). Example: for a
// producer, via is the address of its rank.
func agentIncarnation(agent string, via ...string) effects.Incarnation {
	b := []byte(agent)
	for _, m := range via {
		b = append(append(b, 0), m...)
	}
	sum := sha256.Sum256(b)
	return effects.Incarnation(sum[:16])
}

// addReport appends a report for operators.
func (o *Effects) addReport(text string, why effects.Why) {
	o.Reports = append(o.Reports, Report{text, why})
}

// OnQueryReply handles the reply of a side channel. If code is not OK, there was no reply and body is ignored.
func (g *Gateway) OnQueryReply(now effects.Time, queryID uint64, body []byte, code effects.Code, out *Effects) {
	if !g.producerSide.onQueryReply(now, queryID, body, code, out) {
		g.consumerSide.onQueryReply(queryID, body, code, out)
	}
}

// OnAgentMade reports that agent a was created and that port is the port of its side channel. If code is not OK, the
// agent could not be created.
func (g *Gateway) OnAgentMade(now effects.Time, a Agent, port uint16, code effects.Code, out *Effects) {
	if !g.onAgentMade(now, a, port, code, out) {
		g.onWriterMade(a, code, out)
	}
}

// OnAgentLoaded completes a Load: name is the name of the agent whose metadata was loaded. If code is not OK, the
// metadata could not be loaded.
func (g *Gateway) OnAgentLoaded(now effects.Time, loadID uint64, name string, code effects.Code, out *Effects) {
	if !g.producerSide.onAgentLoaded(now, loadID, name, code, out) {
		g.consumerSide.onAgentLoaded(now, loadID, name, code, out)
	}
}

// OnNotification handles a notification that the agent from sent to an agent of this node.
func (g *Gateway) OnNotification(now effects.Time, agent Agent, from string, body []byte, out *Effects) {
	if !g.producerSide.onNotification(now, agent, from, body, out) && agent == Front {
		g.consumerSide.onNotification(now, from, body, out)
	}
}

// OnAgentDestroyed reports that an agent was destroyed. If code is not OK, a producer may still reach the agent's memory.
// Then a registration that used the agent stays open unless its completion arrives, so its pages are not freed (M4). For
// a writer the code is ignored, because no engine writes to this node through a writer.
func (g *Gateway) OnAgentDestroyed(now effects.Time, agent Agent, code effects.Code, out *Effects) {
	if !g.onAgentDestroyed(now, agent, code, out) {
		g.onWriterDestroyed(agent, out)
	}
}

// A Route tells the data plane how to reach a rank of a plain engine.
type Route struct {
	Agent       Agent               // agent of this node that writes; 0: this node does not write to the engine
	Name        string              // name of the engine rank's agent
	Regions     *geometry.Regions   // memory regions of the engine's rank; nil: this node does not write to the engine
	Incarnation effects.Incarnation // incarnation that the gateway stated in the hello
}

// CountEngines returns the number of producers and the number of consumers, including those that are not ready yet.
func (g *Gateway) CountEngines() (producers, consumers int) {
	return len(g.producers), len(g.consumers)
}

// FindRoute returns the route for the key in the blob of a hello. It reports false if the key is unknown or its engine
// has left. Ranks that are not known yet have no key, and the key 0 is that of the peer in whose name heartbeats are passed
// on: no route leads to either.
func (g *Gateway) FindRoute(key uint64) (Route, bool) {
	if key == 0 {
		return Route{}, false
	}
	for _, c := range g.consumers {
		for _, p := range c.peers {
			if p.key == key && c.writerMade && !c.leaving {
				return Route{Agent: c.writer, Name: p.agentName, Regions: &p.joined.Consumer, Incarnation: p.incarnation}, true
			}
		}
	}
	for _, e := range g.producers {
		for _, r := range e.ranks {
			if r.key == key {
				return Route{Name: r.agentName, Incarnation: r.incarnation}, true
			}
		}
	}
	return Route{}, false
}

// Counts are the numbers of the gateway's records, each with its limit.
type Counts struct {
	Producers, Consumers, EnginesMax, ConsumersMax int
	Agents, AgentsMax                              int // agents that exist or are being made, the front included
	OpenRegistrations, Results, RegistrationsMax   int // with producers: in flight, and results that were not asked for
	PendingRegistrations, PendingMax               int // of consumers
	Requests, RequestsMax                          int // of the gateway to the rank
	Hellos                                         int // hellos of the rank that have no reply yet
	EndingAgents                                   int // agents that are not needed any more and still exist
	UnknownConsumers                               int // consumers that are not known yet; at most EnginesMax
	ReadyConsumers                                 int // consumers that take registrations; at most EnginesMax
}

// Counts returns the numbers of the gateway's records.
func (g *Gateway) Counts() Counts {
	c := Counts{
		Producers: len(g.producers), EnginesMax: g.cfg.EnginesMax, Consumers: len(g.consumers), Agents: 1,
		RegistrationsMax: g.cfg.RegistrationsMax, PendingRegistrations: len(g.consumerSide.openRegistrations()),
		PendingMax: g.cfg.PendingMax, Requests: len(g.requests),
	}
	// Consumers that are known, leave or are being queried have a limit each.
	c.ConsumersMax = 3 * g.cfg.EnginesMax
	c.AgentsMax = 1 + g.cfg.EnginesMax*g.cfg.AgentsMax + c.ConsumersMax
	// Each registration has at most one request, each peer a hello, and all heartbeats one.
	c.RequestsMax = g.cfg.PendingMax + c.ConsumersMax*g.cfg.RanksMax + 2
	for _, p := range g.producers {
		c.Agents += len(p.agents)
		for _, t := range p.agents {
			if t.destroying {
				c.EndingAgents++
			}
		}
		for _, r := range p.ranks {
			if r.helloRequest.corr != 0 {
				c.Hellos++
			}
		}
	}
	for _, x := range g.consumers {
		if x.writer != 0 {
			c.Agents++
		}
		switch {
		case x.phase != phaseKnown:
			c.UnknownConsumers++
		case !x.leaving:
			c.ReadyConsumers++
		}
	}
	for _, a := range g.registrations {
		if a.over {
			c.Results++
		} else {
			c.OpenRegistrations++
		}
	}
	return c
}
