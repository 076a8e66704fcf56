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
	Own      geometry.Regions      // this node's regions, with addresses; a single rank of one stage
	Metadata protocol.NixlMetadata // the same in the form that engines read; EngineID and Agent are filled in
	Front    protocol.NixlMetadata // what the front sends instead, for memory that nothing depends on
	Hash     string                // compatibility_hash that peers must have
	Host     string                // host on which engines reach the side channels of this node
	Life     effects.Incarnation   // the node's incarnation, which makes the names of its agents unique
	Plane    string                // the data plane's name, as the rank has it
	Layout   protocol.Layout       // layout of the rank's pages
	Window   uint16                // registrations in flight with one rank
	// Patience is how long an engine's registration may wait for its request.
	Patience effects.Duration
	// EnginesMax bounds the engines in each direction, AsksMax the registrations of this node that are in flight,
	// WaitingMax the pending registrations of engines, and RanksMax the ranks of one engine that exchange data with a
	// rank here.
	EnginesMax, AsksMax, WaitingMax, RanksMax int
	// TiesMax bounds the agents to which one engine may write: the current agent, and retired ones that are still
	// needed. TriesMax is how often an engine is queried, and a registration passed to the rank, before it is given up.
	TiesMax, TriesMax int
	Wire              protocol.Limits
}

// An Agent is the number of an agent that the driver makes. Numbers are never used again.
type Agent uint64

// Front is the agent to which engines send registrations.
const Front Agent = 1

// first is the lowest Conn and Request of a gateway; those of a control transport are lower.
const first = 1 << 62

// Ours reports whether a Conn or a Request belongs to a gateway.
func Ours[T ~uint64](id T) bool { return id >= first }

// A Gateway is the state machine. Its methods take what happened and append to an Out what the driver must do.
type Gateway struct {
	*core
	inward
	outward
}

// A core is the state that both directions share.
type core struct {
	cfg       Config
	lastID    uint64 // the newest number of a Conn, Request or query
	lastAgent Agent

	hello protocol.NixlHello
	meta  protocol.NixlMetadata
	end   protocol.PushEnd
}

// An inward handles engines that write to this node. The rank sends requests to these engines as to its peers.
type inward struct {
	*core
	conns     []conn
	producers []*producer
	asks      []*ask
	forgot    uint64 // the highest operation that ended and was dropped before the rank asked for its result

	init protocol.HixlInitRequest
	mem  protocol.HixlMemInfoRequest
	reg  protocol.PushRegistration
	off  protocol.PushWithdrawal
	keep protocol.PushKeep
	done protocol.PushCompletion
}

// An outward handles engines that this node writes to. The gateway sends requests to the rank in their names, as peers
// do.
type outward struct {
	*core
	consumers []*consumer
	questions []question // requests of the gateway to the rank
	lately    []string   // registrations that have ended, the oldest first, so that a repetition is ignored
	keeper    peer       // the peer in whose name heartbeats reach the rank
	beats     [][]byte   // request ids of heartbeats that are still to be passed to the rank

	inits protocol.HixlInitResponse
	beat  protocol.PushHeartbeat
}

// Out is what the driver must do after a step, in order within each list; Events go to the rank.
type Out struct {
	Events   []effects.Event
	Makes    []Agent  // agents to make, with memory that may be written to; each has a side channel (Made)
	Writers  []Agent  // agents to make that only write
	Loads    []Load   // completed by Loaded
	Says     []Say    // notes to send
	Asks     []Ask    // queries to side channels; completed by Answered
	Destroys []Agent  // completed by Destroyed
	Proven   []uint64 // expulsions that are complete
	Notes    []Note   // reports for people
}

// Reset empties all lists and keeps their memory.
func (o *Out) Reset() {
	*o = Out{
		Events: o.Events[:0], Makes: o.Makes[:0], Writers: o.Writers[:0], Loads: o.Loads[:0], Says: o.Says[:0],
		Asks: o.Asks[:0], Destroys: o.Destroys[:0], Proven: o.Proven[:0], Notes: o.Notes[:0],
	}
}

// A Load has an agent load the metadata of a peer's agent.
type Load struct {
	Agent    Agent
	Question uint64 // the number that Loaded returns
	Metadata []byte
}

// A Say is a note to send.
type Say struct {
	Agent Agent
	To    string // the name of the receiving agent
	Body  []byte
	Tag   uint64 // the operation that is notified if the note cannot be sent (Unsaid)
}

// An Ask is a query to a side channel.
type Ask struct {
	Question uint64
	Addr     effects.Addr
	Body     []byte
}

// A Note is a report for people.
type Note struct {
	Text string // what happened
	Why  effects.Why
}

// New returns a gateway without engines. The driver makes the front beforehand; the agents of engines are made as Out
// requests.
func New(cfg Config) *Gateway {
	c := &core{cfg: cfg, lastID: first, lastAgent: Front}
	g := &Gateway{core: c, inward: inward{core: c}, outward: outward{core: c}}
	g.keeper.name = "heartbeats of " + cfg.Own.EngineID
	g.keeper.who = life(g.keeper.name + string(cfg.Life[:]))
	return g
}

// EngineOf returns the engine name that an agent's side channel states. Only the front states the node's own engine
// name.
func (g *core) EngineOf(a Agent) string {
	if a == Front {
		return g.cfg.Own.EngineID
	}
	return g.cfg.Own.EngineID + "." + hex.EncodeToString(g.cfg.Life[:4]) + "." + decimal(uint64(a))
}

// Serve returns the answer to a query on the side channel of an agent, and reports false if the query is not one that
// an engine sends.
func (g *core) Serve(a Agent, agentMetadata, question []byte) (answer []byte, ok bool) {
	q := protocol.NixlQuestion{}
	if q.Decode(question, &g.cfg.Wire) != nil || q.PPRank != 0 || q.TPRank != 0 {
		return nil, false
	}
	m := g.cfg.Metadata
	if a == Front {
		m = g.cfg.Front
	}
	m.EngineID, m.Agent = []byte(g.EngineOf(a)), agentMetadata
	h := protocol.NixlHello{Hash: []byte(g.cfg.Hash), Metadata: m.Append(nil)}
	return h.Append(nil), true
}

// id returns a new number for a Conn, a Request or a query.
func (g *core) id() uint64 {
	g.lastID++
	return g.lastID
}

// agent returns a new agent number.
func (g *core) agent() Agent {
	g.lastAgent++
	return g.lastAgent
}

// life returns the incarnation by which a rank knows an agent: another agent is another incarnation. Any process can
// take the name of an agent, so the way in which the agent was met is part of the incarnation (M2).
func life(agent string, met ...string) effects.Incarnation {
	b := []byte(agent)
	for _, m := range met {
		b = append(append(b, 0), m...)
	}
	sum := sha256.Sum256(b)
	return effects.Incarnation(sum[:16])
}

// note appends a report for people.
func (o *Out) note(text string, why effects.Why) { o.Notes = append(o.Notes, Note{text, why}) }

// Answered handles the answer of a side channel, or the code that says why there is none.
func (g *Gateway) Answered(now effects.Time, question uint64, body []byte, code effects.Code, out *Out) {
	if !g.inward.answered(now, question, body, code, out) {
		g.outward.answered(question, body, code, out)
	}
}

// Made reports that an agent exists, and the port of its side channel; or, with a code, that it could not be made.
func (g *Gateway) Made(now effects.Time, a Agent, port uint16, code effects.Code, out *Out) {
	if !g.inward.made(now, a, port, code, out) {
		g.outward.made(a, code, out)
	}
}

// Loaded reports the name under which an agent now knows the agent that it was to load; or, with a code, that it cannot
// load it.
func (g *Gateway) Loaded(now effects.Time, question uint64, name string, code effects.Code, out *Out) {
	if !g.inward.named(now, question, name, code, out) {
		g.outward.named(now, question, name, code, out)
	}
}

// Noted handles a note that arrived at an agent of this node.
func (g *Gateway) Noted(now effects.Time, agent Agent, from string, body []byte, out *Out) {
	if !g.inward.noted(now, agent, from, body, out) && agent == Front {
		g.outward.noted(now, from, body, out)
	}
}

// Destroyed reports that an agent is gone. With another code than OK the agent could not be destroyed, and its pages
// are never freed.
func (g *Gateway) Destroyed(now effects.Time, agent Agent, code effects.Code, out *Out) {
	if !g.destroyed(now, agent, code, out) {
		g.outward.gone(agent, out)
	}
}

// A Way is how the data plane reaches a peer.
type Way struct {
	Agent Agent               // this node's agent that writes
	Name  string              // name of the peer's agent
	To    *geometry.Regions   // where its pages are; nil: this node does not write to it
	Who   effects.Incarnation // the incarnation that its hello stated
}

// Engines returns the number of engines that write here or may write here, and the number of engines that are written
// to.
func (g *Gateway) Engines() (producers, consumers int) { return len(g.producers), len(g.consumers) }

// Reach returns the way that the blob of a hello names, and reports false if there is none any more.
func (g *Gateway) Reach(key uint64) (Way, bool) {
	for _, c := range g.consumers {
		for _, p := range c.peers {
			if p.key == key && c.made && !c.leaving {
				return Way{Agent: c.writer, Name: p.name, To: &p.joined.Consumer, Who: p.who}, true
			}
		}
	}
	for _, e := range g.producers {
		for _, r := range e.ranks {
			if r.key == key && key != 0 {
				return Way{Name: r.name, Who: r.who}, true
			}
		}
	}
	return Way{}, false
}
