package gateway

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// A host is the node of kvferry: a rank, its gateway, the agents of libnixl, and the memory of the node's engine.
type host struct {
	rank *rank.Rank
	g    *machine.Gateway
	dialer
	agentModel
	boot custom.Boot `snap:"share"`

	ledger ledger
	shape  shape  `snap:"share"`
	layout memory `snap:"share"`
	memory []string
	free   []uint32 // blocks that no job has
	jobs   []job

	events []effects.Event               `snap:"scratch"` // for the rank, in order
	sends  map[effects.Corr]effects.Conn // the rank's sends that have no completion yet
	asked  map[effects.Request]string    // registrations of consumers at the rank, by their keys in the ledger
	fx     effects.Effects               `snap:"scratch"` // of the rank's present step
	now    effects.Time

	forgetUntil effects.Time
	refuseUntil effects.Time // the rank refuses hellos
	refusal     uint32       // how it refuses them
}

// A job is a command of the node's engine with blocks. The blocks are not free until the rank has returned them.
type job struct {
	ticket   effects.Ticket
	name     string
	blocks   []uint32
	first    int // position of the first block
	lends    bool
	required bool // must succeed
	began    effects.Time
	timeout  effects.Duration
	ended    bool // the outcome was delivered
	back     bool // the blocks are back
}

// The times of the node.
const (
	registrationLease = 6 * effects.Second
	receiveTimeout    = 4 * effects.Second
)

func newHost(b custom.Boot) (effects.Machine, error) {
	s := shapeOf(b.Plan)
	geo := &geometry.Geometry{
		Ranks: 1, Stages: 1, Heads: s.heads, CellHeads: s.cellHeads, Blocks: blockCount, PerLogical: 1, BlockTokens: blockTokens,
	}
	for i := range uint32(layerCount) {
		geo.Layers = append(geo.Layers, geometry.Layer{Number: i})
	}
	cfg := rank.Config{Role: rank.RoleBoth, Planes: []rank.Plane{{Name: "plain"}}}
	cfg.Layout, cfg.LocalID, cfg.Pages, cfg.Leased = pageLayout, hostName, uint32(geo.CountPages()), true
	cfg.Geometry, cfg.EngineID = geo, hostName
	cfg.RegistrationLease, cfg.RegisterTimeout = registrationLease, s.rankTimeout
	if !isCalm(b.Plan) {
		// Grants end while what was registered under them is being withdrawn, and the rank forgets peers.
		cfg.Lease = effects.Duration(drawOf(b.Plan.Seed, 8).RoundedDuration(4100*time.Millisecond, 9*time.Second))
		cfg.PeersMax = uint32(drawOf(b.Plan.Seed, 9).Between(3, 6) + s.moreRanks(producers) + s.moreRanks(consumers) + s.ranksOfThird(b.Plan))
		cfg.ReplyTimeout = effects.Duration(drawOf(b.Plan.Seed, 10).RoundedDuration(2*time.Second, 5*time.Second))
		cfg.AllocTimeout = cfg.ReplyTimeout / 2
	}
	r, err := rank.New(cfg, b.Seed, b.Now)
	if err != nil {
		return nil, err
	}
	layout := memory{nodeBase, blockCount, s.sharesOf(hostName)}
	meta := layout.metadata(hostName, "")
	own, err := geometry.ParseRegions(&meta, &geometry.Worker{Ranks: 1, Stages: 1, Heads: s.heads, CellHeads: s.cellHeads})
	if err != nil {
		return nil, err
	}
	front := memory{frontBase, layout.blocks, layout.shares}
	c := machine.Config{
		Own: own, Metadata: meta, FrontMetadata: front.metadata(hostName, ""), Hash: compatibilityHash, Host: hostName, Plane: "plain",
		Layout:      pageLayout,
		Incarnation: effects.Incarnation(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, b.Seed), 1)),
		Window:      s.window, RegistrationTimeout: s.registrationTimeout, RanksMax: s.ranksMax, TriesMax: s.triesMax,
		Wire: protocol.DefaultLimits(),
	}
	c.Wire.BlockCount = s.blocksMax
	c.EnginesMax, c.AgentsMax = enginesMax(b.Plan), drawOf(b.Plan.Seed, 2).Between(1, 4)
	c.RegistrationsMax = registrationsMax(b.Plan)
	c.PendingMax = drawOf(b.Plan.Seed, 4).Between(3, 8) + s.moreRanks(consumers) + s.ranksOfThird(b.Plan)
	if isCalm(b.Plan) { // Otherwise what is refused for want of room would excuse every failure.
		c.PendingMax = 2 * ranksLimit * requestsMax
	}
	h := &host{rank: r, g: machine.New(c), boot: b, now: b.Now, shape: s, layout: layout, sends: map[effects.Corr]effects.Conn{},
		asked: map[effects.Request]string{}}
	h.agentModel = newAgentModel(b)
	h.ledger = newLedger(s, limits{c.EnginesMax, c.AgentsMax, c.RegistrationsMax, c.PendingMax})
	h.memory = make([]string, layout.countPages())
	for i := range uint32(blockCount) {
		h.free = append(h.free, i)
	}
	return h, nil
}

// Deadline returns when the host has something to do without an event.
func (h *host) Deadline() (at effects.Time, any bool) {
	at, any = h.rank.Deadline()
	for _, next := range []func() (effects.Time, bool){h.connDeadline, h.nextTask} {
		if t, ok := next(); ok && (!any || t < at) {
			at, any = t, true
		}
	}
	return at, any
}

// roundsMax is the maximum number of events that the rank and the gateway give each other within one step of the host. A
// step takes some dozens.
const roundsMax = 10_000

// Step consumes one event.
func (h *host) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	h.now = now
	h.handleConnEvent(now, ev, out)
	switch e := ev.(type) {
	case *effects.Command:
		h.handleCommand(e, out)
	case *effects.Received:
		h.handleFrame(e, out)
	default: // A tick, or an event of a connection.
	}
	for rounds := 0; ; rounds++ {
		if rounds > roundsMax {
			observe(out, factOutcome, effects.Invalid, fmt.Sprintf("the rank and the gateway keep each other busy: %d events, and no time "+
				"passes", rounds))
			h.events, h.completions = nil, nil
			return
		}
		if h.runTask(out) || h.stepRank(out) {
			continue
		}
		all := h.takeCompletions()
		for i := range all {
			h.handleCompletion(&all[i], out)
		}
		if len(all) == 0 && len(h.events) == 0 {
			return
		}
	}
}

// stepRank gives the rank the next event, or a tick if a deadline is over, and reports whether there was any.
func (h *host) stepRank(out *effects.Effects) bool {
	var ev effects.Event
	if len(h.events) > 0 {
		ev, h.events = h.events[0], slices.Clone(h.events[1:])
	} else if at, any := h.rank.Deadline(); any && at <= h.now {
		ev = &effects.Tick{}
	} else {
		return false
	}
	switch e := ev.(type) {
	case *effects.Replied:
		h.completeSend(e.Corr, out)
	case *effects.Unanswered:
		h.completeSend(e.Corr, out)
	case *effects.Received:
		h.forgetPeer(e)
		h.refuseHello(e)
	default: // It completes no send.
	}
	h.fx.Reset()
	h.rank.Step(h.now, ev, &h.fx)
	for _, m := range h.fx.Marks() {
		out.Mark(m)
	}
	for i := range h.fx.Len() {
		h.carryOut(h.fx.At(i), out)
	}
	return true
}

// jobOf returns the job whose blocks contain the block of a page and are not back, or nil.
func (h *host) jobOf(page uint32) *job {
	for i := range h.jobs {
		if j := &h.jobs[i]; !j.back && slices.Contains(j.blocks, h.layout.blockOf(page)) {
			return j
		}
	}
	return nil
}

// carryOut carries out an effect of the rank.
func (h *host) carryOut(e effects.Effect, out *effects.Effects) {
	switch e := e.(type) {
	case *effects.Open:
		h.callGateway(out, &subject{}, func(o *machine.Effects) {
			h.g.HandleOpen(e, o)
			h.verifyOpened(e, o, out)
		})
	case *effects.Close:
		h.ledger.closeConn(e.Conn)
		h.callGateway(out, &subject{}, func(o *machine.Effects) { h.g.HandleClose(e.Conn, o) })
		h.verifyClosed(e.Conn, out)
	case *effects.Send:
		x := *e
		x.Body = slices.Clone(e.Body)
		h.sends[e.Corr] = e.Conn
		about := h.ledger.subjectOfConn(e.Conn)
		h.callGateway(out, &about, func(o *machine.Effects) {
			h.g.HandleSend(h.now, &x, o)
			h.verifyAsked(&x, o, out)
		})
	case *effects.Reply:
		x := effects.Reply{Request: e.Request, Body: slices.Clone(e.Body)}
		h.passReply(&x, out)
	case *effects.Import:
		h.importLink(e)
	case *effects.Drop:
		h.dropLink(e.Link)
	case *effects.Grant:
		h.grants[e.ID] = e.Peer
	case *effects.Revoke:
		h.lastID++
		h.proofs[h.lastID] = e.Grant
		number, peer := h.lastID, h.grants[e.Grant]
		h.ledger.recordExpulsion(number, peer)
		h.callGateway(out, &subject{}, func(o *machine.Effects) { h.g.Expel(h.now, peer, number, o) })
	case *effects.Transfer:
		h.startTransfer(e, out)
	case *effects.Deliver:
		h.deliver(e, out)
	case *effects.Return:
		for i := range h.jobs {
			if h.jobs[i].ticket == e.Ticket {
				h.returnBlocks(&h.jobs[i], out)
			}
		}
	case *effects.Cancel, *effects.Publish, *effects.Observe, *effects.Confirm:
	default:
		observe(out, factOutcome, effects.Unsupported, fmt.Sprintf("the rank emits a %T, which a node between plain engines cannot do", e))
	}
}

// deliver passes an outcome of the rank to the engine.
func (h *host) deliver(e *effects.Deliver, out *effects.Effects) {
	for i := range h.jobs {
		j := &h.jobs[i]
		if j.ticket != e.Ticket {
			continue
		}
		switch late := h.now.Sub(j.began) - j.timeout; {
		case j.ended:
			observe(out, factOutcome, effects.Invalid, j.name+" has two outcomes")
		case j.required && e.Code != effects.OK:
			observe(out, factOutcome, e.Code, fmt.Sprintf("%s must succeed, and ends as %s", j.name, e.Code))
		case j.required && j.timeout > 0 && late > outcomeGrace:
			observe(out, factOutcome, effects.Expired, fmt.Sprintf("%s ends %d ns after its time", j.name, late))
		default:
			observe(out, factOutcome, effects.OK, "")
		}
		j.ended = true
		if e.Code == effects.OK && !j.lends {
			h.verifyBlocks(j, out)
		}
		if !e.Held {
			h.returnBlocks(j, out)
		}
	}
	out.Deliver(effects.Deliver{Ticket: e.Ticket, Code: e.Code})
}

// returnBlocks gives the blocks of a job back to the engine, which uses them for something else.
func (h *host) returnBlocks(j *job, out *effects.Effects) {
	if j.back {
		observe(out, factOutcome, effects.Invalid, "the blocks of "+j.name+" are returned twice")
		return
	}
	j.back = true
	h.free = append(h.free, j.blocks...)
	for _, block := range j.blocks {
		for layer := range layerCount {
			for cell := range h.layout.shares {
				h.memory[h.layout.pageOf(layer, block, cell)] = "another request"
			}
		}
	}
}

// VisitTables visits the tables that are empty at rest.
func (h *host) VisitTables(visit func(name string, n, most int)) {
	visit("blocks in use", blockCount-len(h.free), blockCount)
	visit("transfers", len(h.transfers), transfersMax)
	visit("tasks", len(h.tasks), tasksMax)
	visit("sends of the rank", len(h.sends), sendsMax)
	c := h.g.Counts()
	visit("requests of the gateway", c.Requests, c.RequestsMax)
	visit("registrations at producers", c.OpenRegistrations, h.ledger.limits.registrations)
	visit("registrations of consumers", c.PendingRegistrations, h.ledger.limits.pending)
	visit("agents that end", c.EndingAgents, c.AgentsMax)
	visit("agents that the gateway does not know", h.countAgents()-c.Agents, agentsUnknownMax)
}

// VisitKeptTables visits the tables that may have entries at rest.
func (h *host) VisitKeptTables(visit func(name string, n, most int)) {
	c := h.g.Counts()
	visit("producers", c.Producers, h.ledger.limits.engines)
	visit("consumers", c.Consumers, c.ConsumersMax)
	visit("consumers that are ready", c.ReadyConsumers, h.ledger.limits.engines)
	visit("consumers that are not known", c.UnknownConsumers, h.ledger.limits.engines)
	visit("results", c.Results, h.ledger.limits.registrations)
	visit("agents", c.Agents, c.AgentsMax)
}

// nodeOf returns the process that has an agent.
func nodeOf(agent string) string {
	name, _, _ := strings.Cut(agent, ".")
	return name
}

func drawOf(seed, nth uint64) draw.Value { return draw.Hash(seed, draw.Plan, 33, nth) }
