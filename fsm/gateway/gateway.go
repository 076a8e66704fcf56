package gateway

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/geometry"
	"github.com/kvferry/kvferry/fsm/link"
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
	Wire                                      protocol.Limits
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
	cfg       Config
	lastID    uint64 // of Conns, Requests and questions
	lastAgent Agent

	conns     []conn
	producers []*producer // engines that write to us
	asks      []*ask
	forgot    uint64 // the highest operation that ended, and was forgotten unheard

	consumers []*consumer // engines that we write to
	questions []question  // of ours to the rank
	lately    []string    // registrations of engines that have ended, the oldest first: a repetition is none
	keeper    peer        // by which heartbeats reach the rank
	beats     [][]byte    // names that it is to be told

	init  protocol.HixlInitRequest
	inits protocol.HixlInitResponse
	mem   protocol.HixlMemInfoRequest
	reg   protocol.PushRegistration
	off   protocol.PushWithdrawal
	keep  protocol.PushKeep
	end   protocol.PushEnd
	hello protocol.NixlHello
	meta  protocol.NixlMetadata
	done  protocol.PushCompletion
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
	g := &Gateway{cfg: cfg, lastID: first, lastAgent: Front}
	g.keeper.name = "heartbeats of " + cfg.Own.EngineID
	g.keeper.who = life(g.keeper.name + string(cfg.Life[:]))
	return g
}

// EngineOf is the engine's name that an agent's side channel says. Only the front says the engine's own.
func (g *Gateway) EngineOf(a Agent) string {
	if a == Front {
		return g.cfg.Own.EngineID
	}
	return g.cfg.Own.EngineID + "." + hex.EncodeToString(g.cfg.Life[:4]) + "." + decimal(uint64(a))
}

// Serve answers a question to the side channel of an agent. Only such questions are answered that an engine asks: ok
// says so.
func (g *Gateway) Serve(a Agent, agentMetadata, question []byte) (answer []byte, ok bool) {
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

func (g *Gateway) id() uint64 {
	g.lastID++
	return g.lastID
}

func (g *Gateway) agent() Agent {
	g.lastAgent++
	return g.lastAgent
}

// life is the incarnation by which a rank knows an agent: whoever has another agent is another life.
func life(agent string) effects.Incarnation {
	sum := sha256.Sum256([]byte(agent))
	return effects.Incarnation(sum[:16])
}

// read takes what a side channel answered. The hash is compared before anything else is decoded: what it stands for is
// what the rest means.
func (g *Gateway) read(body []byte, w *geometry.Worker) (agent []byte, r geometry.Regions, code effects.Code, why effects.Why) {
	if err := g.hello.Decode(body, &g.cfg.Wire); err != nil {
		return nil, r, effects.Malformed, link.Undecodable(err)
	}
	if string(g.hello.Hash) != g.cfg.Hash {
		return nil, r, effects.Mismatch, effects.Why{
			Field: "compatibility_hash", Ours: g.cfg.Hash, Theirs: effects.Words(g.hello.Hash),
			Remedy: "run the same model, dtype and attention backend at both ends, and give register.vllm.hash that of the engine",
		}
	}
	if err := g.meta.Decode(g.hello.Metadata, &g.cfg.Wire); err != nil {
		return nil, r, effects.Malformed, link.Undecodable(err)
	}
	r, err := geometry.Of(&g.meta, w)
	if err != nil {
		return nil, r, effects.Mismatch, unfit(err)
	}
	return append([]byte(nil), g.meta.Agent...), r, effects.OK, effects.Why{}
}

// unfit is what is said of an error of geometry's.
func unfit(err error) effects.Why {
	x, ok := err.(*geometry.Error) //nolint:errorlint // It is one.
	if !ok {
		return effects.Why{Field: "metadata", Theirs: err.Error()}
	}
	field := x.Field
	if x.Side != "" {
		field = x.Side + "'s " + field
	}
	return effects.Why{Field: field, Theirs: x.Value, Remedy: x.Remedy}
}

func (o *Out) note(text string, why effects.Why) { o.Notes = append(o.Notes, Note{text, why}) }
