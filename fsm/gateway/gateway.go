package gateway

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
)

// Config is what a Gateway must know. Nothing has a default.
type Config struct {
	Own      geometry.Regions      // ours, with addresses; a single rank of one stage
	Metadata protocol.NixlMetadata // the same as engines read it; EngineID and Agent are filled in
	Front    protocol.NixlMetadata // what the front says instead: of memory that nobody misses
	Hash     string                // compatibility_hash that peers must have
	Host     string                // where engines reach our side channels
	Life     effects.Incarnation   // of the node: with it the names of agents are its own
	Plane    string                // the data plane's name, as the rank has it
	Layout   protocol.Layout       // of the rank's pages
	Window   uint16                // registrations at a time with one rank
	// Patience is how long a registration of an engine may wait for its request.
	Patience effects.Duration
	// EnginesMax bounds engines in each direction, AsksMax our registrations that are under way, WaitingMax those of
	// engines, and RanksMax the ranks of an engine that one of ours has to do with.
	EnginesMax, AsksMax, WaitingMax, RanksMax int
	// TiesMax bounds the agents that one engine may write to: one, and retired ones that something waits for yet.
	// TriesMax is how often an engine is asked, and a registration put, before it is given up.
	TiesMax, TriesMax int
	Wire              protocol.Limits
}

// An Agent is a number of an agent that the driver makes. Numbers are never used again.
type Agent uint64

// Front is the agent that engines send registrations to.
const Front Agent = 1

// first is the lowest Conn and Request of a gateway; a control transport's are below.
const first = 1 << 62

// Ours says whether a Conn or a Request is a gateway's.
func Ours[T ~uint64](id T) bool { return id >= first }

// A Gateway is the machine. Its methods take what happened and append to an Out what is to be done.
type Gateway struct {
	*core
	inward
	outward
}

// A core is what both directions have.
type core struct {
	cfg       Config
	lastID    uint64 // of Conns, Requests and questions
	lastAgent Agent

	hello protocol.NixlHello
	meta  protocol.NixlMetadata
	end   protocol.PushEnd
}

// An inward is about engines that write to us: the rank asks it as it asks its peers.
type inward struct {
	*core
	conns     []conn
	producers []*producer
	asks      []*ask
	forgot    uint64 // the highest operation that ended, and was forgotten unheard

	init protocol.HixlInitRequest
	mem  protocol.HixlMemInfoRequest
	reg  protocol.PushRegistration
	off  protocol.PushWithdrawal
	keep protocol.PushKeep
	done protocol.PushCompletion
}

// An outward is about engines that we write to: it asks the rank as its peers do.
type outward struct {
	*core
	consumers []*consumer
	questions []question // of ours to the rank
	lately    []string   // registrations that have ended, the oldest first: a repetition is none
	keeper    peer       // by which heartbeats reach the rank
	beats     [][]byte   // names that it is to be told

	inits protocol.HixlInitResponse
	beat  protocol.PushHeartbeat
}

// Out is what a step wants done, in order within each list; Events go to the rank.
type Out struct {
	Events   []effects.Event
	Makes    []Agent  // agents to be made, with memory that may be written to; each has a side channel (Made)
	Writers  []Agent  // agents to be made that only write
	Loads    []Load   // one Loaded answers
	Says     []Say    // notes to be sent
	Asks     []Ask    // questions to side channels; one Answered answers
	Destroys []Agent  // one Destroyed answers
	Proven   []uint64 // expulsions that are over
	Notes    []Note   // what people are told
}

// Reset forgets all of it, and keeps the memory.
func (o *Out) Reset() {
	*o = Out{
		Events: o.Events[:0], Makes: o.Makes[:0], Writers: o.Writers[:0], Loads: o.Loads[:0], Says: o.Says[:0],
		Asks: o.Asks[:0], Destroys: o.Destroys[:0], Proven: o.Proven[:0], Notes: o.Notes[:0],
	}
}

// A Load has an agent learn a peer's.
type Load struct {
	Agent    Agent
	Question uint64 // that Loaded brings back
	Metadata []byte
}

// A Say is a note.
type Say struct {
	Agent Agent
	To    string // the agent's name
	Body  []byte
	Tag   uint64 // of what is to hear if it cannot be sent (Unsaid)
}

// An Ask is a question to a side channel.
type Ask struct {
	Question uint64
	Addr     effects.Addr
	Body     []byte
}

// A Note is for people.
type Note struct {
	Text string // what happened
	Why  effects.Why
}

// New returns a gateway that knows nobody. The front, and the agents of engines, are to be made as Out says; the front
// is made by the driver before.
func New(cfg Config) *Gateway {
	c := &core{cfg: cfg, lastID: first, lastAgent: Front}
	g := &Gateway{core: c, inward: inward{core: c}, outward: outward{core: c}}
	g.keeper.name = "heartbeats of " + cfg.Own.EngineID
	g.keeper.who = life(g.keeper.name + string(cfg.Life[:]))
	return g
}

// EngineOf is the engine's name that an agent's side channel says. Only the front says the engine's own.
func (g *core) EngineOf(a Agent) string {
	if a == Front {
		return g.cfg.Own.EngineID
	}
	return g.cfg.Own.EngineID + "." + hex.EncodeToString(g.cfg.Life[:4]) + "." + decimal(uint64(a))
}

// Serve answers a question to the side channel of an agent. Only such questions are answered that an engine asks: ok
// says so.
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

func (g *core) id() uint64 {
	g.lastID++
	return g.lastID
}

func (g *core) agent() Agent {
	g.lastAgent++
	return g.lastAgent
}

// life is the incarnation by which a rank knows an agent: whoever has another agent is another life. Names of agents
// are anybody's to take, so how we met it is part of it.
func life(agent string, met ...string) effects.Incarnation {
	b := []byte(agent)
	for _, m := range met {
		b = append(append(b, 0), m...)
	}
	sum := sha256.Sum256(b)
	return effects.Incarnation(sum[:16])
}

func (o *Out) note(text string, why effects.Why) { o.Notes = append(o.Notes, Note{text, why}) }

// Answered takes what a side channel answered, or why it did not.
func (g *Gateway) Answered(now effects.Time, question uint64, body []byte, code effects.Code, out *Out) {
	if !g.inward.answered(now, question, body, code, out) {
		g.outward.answered(question, body, code, out)
	}
}

// Made says that an agent is there, and by which port its side channel is reached; or with a code that it is not.
func (g *Gateway) Made(now effects.Time, a Agent, port uint16, code effects.Code, out *Out) {
	if !g.inward.made(now, a, port, code, out) {
		g.outward.made(a, code, out)
	}
}

// Loaded says by which name an agent knows one now that it was to load; or with a code that it cannot.
func (g *Gateway) Loaded(now effects.Time, question uint64, name string, code effects.Code, out *Out) {
	if !g.inward.named(now, question, name, code, out) {
		g.outward.named(now, question, name, code, out)
	}
}

// Noted takes a note that came to an agent of ours.
func (g *Gateway) Noted(now effects.Time, agent Agent, from string, body []byte, out *Out) {
	if !g.inward.noted(now, agent, from, body, out) && agent == Front {
		g.outward.noted(now, from, body, out)
	}
}

// Destroyed says that an agent is gone. One that could not be destroyed keeps its pages for ever.
func (g *Gateway) Destroyed(now effects.Time, agent Agent, code effects.Code, out *Out) {
	if !g.destroyed(now, agent, code, out) {
		g.outward.gone(agent, out)
	}
}

// A Way is how the data plane reaches a peer.
type Way struct {
	Agent Agent               // of ours, that writes
	Name  string              // of the peer's
	To    *geometry.Regions   // where its pages are; nil: nobody here writes there
	Who   effects.Incarnation // that its hello said
}

// Engines is how many engines write here, or may, and how many are written to.
func (g *Gateway) Engines() (producers, consumers int) { return len(g.producers), len(g.consumers) }

// Reach finds the way that a blob of a hello names; false if there is none any more.
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
