package gateway

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// A plainEngine is a plain engine. It produces for the requests that it is told to compute, and consumes what it wants.
// Each of its ranks has an agent. A restart makes other agents with other names, and loses everything.
type plainEngine struct {
	dialer
	boot     custom.Boot `snap:"share"`
	shape    shape       `snap:"share"`
	name     string      `snap:"share"`
	layout   memory      `snap:"share"`
	agents   []string    // the names of its agents, by rank
	restarts int         // of the engine within this incarnation of the process
	now      effects.Time
	left     bool // it is gone for good
	oddity   oddity
	oddUntil effects.Time

	mutedUntil effects.Time // its side channel does not answer

	computed      map[string]effects.Time // requests that it has computed, and until when it keeps their blocks
	registrations []registration          // of the node, for blocks to write into
	seen          map[string]bool         // requests that were registered, with the agent that they name
	lateNotes     []lateNote

	memory [][]string // by rank
	wants  []want
	front  string // the name of the node's front; "": not known

	foreseen      []foreseen
	nextHeartbeat effects.Time // for what is foreseen
}

// A lateNote is a notification that is sent later.
type lateNote struct {
	at effects.Time
	f  frame
}

// An oddity is how a plain engine behaves for some time, or how it is configured after a restart.
type oddity uint8

const (
	oddNothing   oddity = iota
	losesNotes          // notifications that matter do not arrive
	doublesNotes        // they arrive twice
	delaysNotes         // they arrive late
	otherHash           // it restarts with another compatibility hash
	otherBlocks         // it restarts with another block size
	otherLayout         // it restarts with another layout of the cache
	otherLengths        // it restarts with other ranks, so that its pages are of another length
	badMetadata         // it restarts, and libnixl cannot load the metadata of its agents
	oddityCount  = iota
)

// isRestart reports whether an engine restarts at the beginning and at the end of an oddity.
func (o oddity) isRestart() bool { return o >= otherHash }

type (
	computeBody struct{ number uint32 } // finish a request
	foreseeBody struct{ number uint32 } // send heartbeats for a request that the node will lend, until it is registered
	wantBody    struct{ number uint32 } // register for a request that the node lends
	oddBody     struct {                // behave oddly for some time
		number uint32
		span   effects.Duration
	}
	leaveBody   struct{} // end, and do not return
	restartBody struct{} // restart at once, with the same configuration
	muteBody    struct { // the side channel does not answer, for some time
		span effects.Duration
	}
)

func (*computeBody) IsCommand() {}
func (*foreseeBody) IsCommand() {}
func (*wantBody) IsCommand()    {}
func (*oddBody) IsCommand()     {}
func (*leaveBody) IsCommand()   {}
func (*restartBody) IsCommand() {}
func (*muteBody) IsCommand()    {}

// The times of plain engines.
const (
	producerLease   = 6 * effects.Second // how long a producer keeps the blocks of a request
	routerTimeout   = 9 * effects.Second
	heartbeatPeriod = effects.Second
)

// The purposes of an engine's frames.
const (
	purposeAgentQuery purposeKind = iota + 10 // the side channel of the agent that a registration names
	purposeFrontQuery
	purposeRegistration
	purposeStore
	purposeDone
	purposeHeartbeat
	purposeForeseen // a heartbeat for what is foreseen
)

func newPlainEngine(name string) func(custom.Boot) (effects.Machine, error) {
	return func(b custom.Boot) (effects.Machine, error) {
		e := &plainEngine{boot: b, name: name, now: b.Now, shape: shapeOf(b.Plan), computed: map[string]effects.Time{},
			seen: map[string]bool{}}
		e.layout = memory{engineBase, engineBlocks, e.shape.sharesOf(name)}
		e.makeAgents()
		return e, nil
	}
}

// makeAgents gives the engine agents and memory.
func (e *plainEngine) makeAgents() {
	e.agents, e.memory = nil, nil
	for rank := range e.shape.ranksOf(e.name) {
		agent := fmt.Sprintf("%s.%x", e.name, uint32(e.boot.Seed))
		if rank > 0 {
			agent += fmt.Sprintf(".tp%d", rank)
		}
		if e.restarts > 0 {
			agent += fmt.Sprintf(".restart%d", e.restarts)
		}
		e.agents = append(e.agents, agent)
		e.memory = append(e.memory, make([]string, e.layout.countPages()))
	}
}

// rankOf returns the rank of an agent, or -1 if the agent is none of this engine, or one of a former incarnation.
func (e *plainEngine) rankOf(agent string) int { return slices.Index(e.agents, agent) }

// restart loses everything. What other processes still send goes to agents that do not exist any more.
func (e *plainEngine) restart(out *effects.Effects) {
	e.restarts++
	e.makeAgents()
	clear(e.computed)
	clear(e.seen)
	e.lateNotes, e.foreseen, e.front = nil, nil, ""
	for i := range e.registrations {
		e.registrations[i].ended = true
	}
	for i := range e.wants {
		if w := &e.wants[i]; !w.ended {
			w.ended, w.repeats = true, 0
			out.Deliver(effects.Deliver{Ticket: w.ticket, Code: effects.Closed})
		}
	}
}

// Deadline returns when the engine has something to do without an event.
func (e *plainEngine) Deadline() (at effects.Time, any bool) {
	at, any = e.connDeadline()
	sooner := func(next effects.Time) {
		if !any || next < at {
			at, any = next, true
		}
	}
	if e.oddity != oddNothing {
		sooner(e.oddUntil)
	}
	if len(e.foreseen) > 0 {
		sooner(e.nextHeartbeat)
	}
	for i := range e.lateNotes {
		sooner(e.lateNotes[i].at)
	}
	for i := range e.wants {
		w := &e.wants[i]
		if !w.ended {
			sooner(min(w.until, w.heartbeat))
		}
		if w.repeats != 0 {
			sooner(w.repeats)
		}
	}
	return at, any
}

// Step consumes one event.
func (e *plainEngine) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	e.now = now
	e.handleConnEvent(now, ev, out)
	if e.oddity != oddNothing && e.oddUntil <= now {
		e.endOddity(out)
	}
	switch x := ev.(type) {
	case *effects.Command:
		e.handleCommand(x, out)
	case *effects.Received:
		e.handleFrame(x, out)
	default: // A tick, or an event of a connection.
	}
	for _, c := range e.takeCompletions() {
		e.handleCompletion(&c, out)
	}
	for i := range e.wants {
		e.advanceWant(i, out)
	}
	e.sendForeseen(out)
	for i := len(e.lateNotes) - 1; i >= 0; i-- {
		if n := e.lateNotes[i]; n.at <= now {
			e.lateNotes = slices.Delete(slices.Clone(e.lateNotes), i, i+1)
			e.send(now, out, e.boot.Addr(hostName, port), &n.f, purpose{kind: purposeDone})
		}
	}
}

func (e *plainEngine) handleCommand(x *effects.Command, out *effects.Effects) {
	switch b := x.Body.(type) {
	case *computeBody:
		e.computed[requestName("r", b.number)] = e.now.Add(producerLease)
		for i := range e.registrations {
			e.advanceRegistration(i, out)
		}
	case *foreseeBody:
		e.foreseen = append(e.foreseen, foreseen{requestName("s", b.number), e.now.Add(effects.Duration(keptFor))})
	case *wantBody:
		if e.addWant(x.Ticket, b.number) {
			return
		}
	case *oddBody:
		e.endOddity(out)
		e.oddity, e.oddUntil = oddity(1+b.number%(oddityCount-1)), e.now.Add(b.span)
		if e.oddity.isRestart() {
			e.restart(out)
		}
	case *muteBody:
		e.mutedUntil = e.now.Add(b.span)
	case *restartBody:
		e.restart(out)
	case *leaveBody:
		e.restart(out) // Its commands end.
		e.left = true
	}
	out.Deliver(effects.Deliver{Ticket: x.Ticket})
}

// endOddity has the engine behave again. An engine that was configured wrongly restarts.
func (e *plainEngine) endOddity(out *effects.Effects) {
	if e.oddity.isRestart() {
		e.restart(out)
	}
	e.oddity = oddNothing
}

// toNode sends a frame of a rank to the node of kvferry.
func (e *plainEngine) toNode(out *effects.Effects, rank int, f *frame, p purpose) {
	if e.left {
		return
	}
	f.from = e.agents[rank]
	e.send(e.now, out, e.boot.Addr(hostName, port), f, p)
}

// sendNote sends a notification that matters, in the way that the engine does at present.
func (e *plainEngine) sendNote(out *effects.Effects, rank int, f *frame, p purpose) {
	switch e.oddity {
	case losesNotes:
		return
	case delaysNotes:
		f.from = e.agents[rank]
		delay := effects.Duration(drawOf(e.boot.Seed, uint64(e.now)).Between(300, 3000)) * effects.Millisecond
		e.lateNotes = append(e.lateNotes, lateNote{e.now.Add(delay), *f})
		return
	case doublesNotes:
		e.toNode(out, rank, f, purpose{kind: purposeDone})
	default:
	}
	e.toNode(out, rank, f, p)
}

// queryFront asks the node for the name of its front.
func (e *plainEngine) queryFront(out *effects.Effects) {
	q := protocol.NixlMetadataRequest{}
	e.toNode(out, 0, &frame{kind: frameQuery, id: uint64(machine.Front), body: q.Append(nil)}, purpose{kind: purposeFrontQuery})
}

func (e *plainEngine) handleCompletion(c *completion, out *effects.Effects) {
	switch c.purpose.kind {
	case purposeAgentQuery, purposeFrontQuery:
		limits := protocol.DefaultLimits()
		var h protocol.NixlHello
		var m protocol.NixlMetadata
		ok := c.code == effects.OK && h.Decode(c.body, &limits) == nil && m.Decode(h.Metadata, &limits) == nil
		ok = ok && (e.oddity == otherHash || string(h.Hash) == compatibilityHash) // Like vLLM, it compares the hash.
		switch {
		case c.purpose.kind == purposeFrontQuery && ok:
			e.front = string(m.Agent)
		case c.purpose.kind == purposeAgentQuery:
			e.handleAgentMetadata(int(c.purpose.id), &m, ok, out)
		}
	case purposeRegistration:
		if c.code != effects.OK { // The node's front may be another one.
			w := &e.wants[c.purpose.id/ranksLimit]
			e.front, w.sent[c.purpose.id%ranksLimit] = "", false
		}
	case purposeForeseen:
		if c.code != effects.OK {
			e.front = ""
		}
	case purposeStore:
		e.handleStored(int(c.purpose.id), c.code, out)
	default: // Nobody waits for it.
	}
}

// handleFrame handles a frame of the node.
func (e *plainEngine) handleFrame(x *effects.Received, out *effects.Effects) {
	var f frame
	var answer []byte
	switch ok := f.decode(x.Body); {
	case !ok || e.left:
	case f.kind == frameQuery:
		answer = e.describe(f.body, out)
	case e.rankOf(f.to) < 0: // It is for a former incarnation.
	case f.kind == frameNote:
		answer = accepted
		e.handleNote(e.rankOf(f.to), f.body, out)
	case f.kind == frameWrite:
		answer = accepted
		e.storePage(e.rankOf(f.to), f.id, string(f.body), out)
	}
	out.Reply(effects.Reply{Request: x.Request, Body: out.Cut(append(out.Arena(), answer...))})
}

// describe returns what the side channel answers to a query. The listener of vLLM ends at a query for a rank that its
// engine does not have.
func (e *plainEngine) describe(query []byte, out *effects.Effects) []byte {
	limits := protocol.DefaultLimits()
	var q protocol.NixlMetadataRequest
	if err := q.Decode(query, &limits); err != nil || q.PPRank != 0 || int(q.TPRank) >= len(e.agents) {
		observe(out, factEngine, effects.Invalid, fmt.Sprintf("the node queries %s, which has %d ranks, for rank %d of stage %d, at which "+
			"its listener ends", e.name, len(e.agents), q.TPRank, q.PPRank))
		return nil
	}
	if e.now < e.mutedUntil {
		return nil
	}
	agent, hash := e.agents[q.TPRank], compatibilityHash
	if e.oddity == badMetadata {
		agent = unloadable + agent
	}
	m := e.layout.metadata(e.name, agent)
	switch e.oddity {
	case otherHash:
		hash = "other"
	case otherBlocks:
		m.BlockSize = 2 * blockTokens
	case otherLayout:
		m.Layout = []byte("LBNHC")
	case otherLengths:
		for i := range m.BlockLens {
			m.BlockLens[i], m.BlockStrides[i] = 2*m.BlockLens[i], 2*m.BlockStrides[i]
		}
	default:
	}
	h := protocol.NixlHello{Hash: []byte(hash), Metadata: m.Append(nil)}
	return h.Append(nil)
}

func (e *plainEngine) handleNote(rank int, body []byte, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	switch protocol.NotificationKindOf(body) {
	case protocol.NixlRegistration:
		e.handleRegistration(rank, body, out)
	case protocol.NixlHeartbeat:
		var m protocol.PushHeartbeat
		if m.Decode(body, &limits) == nil {
			for _, id := range m.RequestIDs {
				base := string(protocol.TrimRequestSuffix(id))
				if until, is := e.computed[base]; is && until >= e.now {
					e.computed[base] = max(until, e.now.Add(producerLease*2/3))
				}
			}
		}
	case protocol.NixlCompletion:
		var m protocol.PushCompletion
		if m.Decode(body, &limits) == nil {
			e.handleDone(rank, string(m.RequestID), out)
		}
	}
}
