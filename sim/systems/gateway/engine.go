package gateway

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/custom"
)

// An engine is a plain engine of one rank. It produces for the requests that it is told to compute, and consumes what it
// wants. A restart makes another agent with another name, and loses everything.
type plainEngine struct {
	dialer
	boot  custom.Boot `snap:"share"`
	name  string      `snap:"share"`
	agent string      `snap:"share"` // the name of its agent
	now   effects.Time

	computed      map[string]effects.Time // requests that it has computed, and until when it keeps their blocks
	registrations []registration          // of the node, for blocks to write into
	seen          map[string]bool         // requests that were registered, with the agent that they name

	memory [layerCount * engineBlocks]string
	wants  []want
	front  string // the name of the node's front; "": not known

	foreseen      []foreseen
	nextHeartbeat effects.Time // for what is foreseen
}

// A foreseen request is one that the engine will register for.
type foreseen struct {
	name  string
	until effects.Time
}

// A registration is a registration of the node with a producer.
type registration struct {
	request string
	engine  string // the engine name of the agent to write to, as the registration states it
	port    uint16 // of its side channel
	agent   string // its name; "": not known yet
	asked   bool
	blocks  []uint32
	writing bool
	left    int // pages that are not stored yet
	ended   bool
}

// A want is a request that a consumer has registered for.
type want struct {
	ticket    effects.Ticket
	name      string
	blocks    []uint32
	required  bool
	sent      bool
	told      bool
	ended     bool         // its router has given it up, or it has its blocks
	repeats   effects.Time // when the registration arrives once more, though it is over; 0: never
	until     effects.Time // when its router gives it up
	heartbeat effects.Time // the next one
}

type (
	computeBody struct{ number uint32 } // finish a request
	foreseeBody struct{ number uint32 } // send heartbeats for a request that the node will lend, until it is registered
	wantBody    struct{ number uint32 } // register for a request that the node lends
)

func (*computeBody) IsCommand() {}
func (*foreseeBody) IsCommand() {}
func (*wantBody) IsCommand()    {}

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
		return &plainEngine{boot: b, name: name, agent: fmt.Sprintf("%s.%x", name, uint32(b.Seed)), now: b.Now,
			computed: map[string]effects.Time{}, seen: map[string]bool{}}, nil
	}
}

// Deadline returns when the engine has something to do without an event.
func (e *plainEngine) Deadline() (at effects.Time, any bool) {
	at, any = e.connDeadline()
	if len(e.foreseen) > 0 && (!any || e.nextHeartbeat < at) {
		at, any = e.nextHeartbeat, true
	}
	for i := range e.wants {
		w := &e.wants[i]
		if next := min(w.until, w.heartbeat); !w.ended && (!any || next < at) {
			at, any = next, true
		}
		if w.repeats != 0 && (!any || w.repeats < at) {
			at, any = w.repeats, true
		}
	}
	return at, any
}

// Step consumes one event.
func (e *plainEngine) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	e.now = now
	e.handleConnEvent(now, ev, out)
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
}

// sendForeseen sends heartbeats for the requests that the engine will register for.
func (e *plainEngine) sendForeseen(out *effects.Effects) {
	e.foreseen = slices.DeleteFunc(slices.Clone(e.foreseen), func(f foreseen) bool { return f.until <= e.now })
	if len(e.foreseen) == 0 || e.nextHeartbeat > e.now {
		return
	}
	e.nextHeartbeat = e.now.Add(heartbeatPeriod)
	if e.front == "" {
		e.queryFront(out)
		return
	}
	var m protocol.PushHeartbeat
	for _, f := range e.foreseen {
		m.RequestIDs = append(m.RequestIDs, []byte(f.name+"-00000003"))
	}
	e.toNode(out, &frame{kind: frameNote, to: e.front, body: m.Append(nil)}, purpose{kind: purposeForeseen})
}

// queryFront asks the node for the name of its front.
func (e *plainEngine) queryFront(out *effects.Effects) {
	q := protocol.NixlMetadataRequest{}
	e.toNode(out, &frame{kind: frameQuery, id: uint64(machine.Front), body: q.Append(nil)}, purpose{kind: purposeFrontQuery})
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
		e.foreseen = slices.DeleteFunc(slices.Clone(e.foreseen), func(f foreseen) bool { return f.name == requestName("s", b.number) })
		w := want{ticket: x.Ticket, name: requestName("s", b.number), until: e.now.Add(routerTimeout), heartbeat: e.now,
			required: mustSucceed(e.boot.Plan, b.number, "want", "lend")}
		// It has the beginning of the prompt, and wants the last blocks. Blocks are never used twice.
		n := positionCount - int(b.number%positionCount)
		first := 0
		for i := range e.wants {
			first += len(e.wants[i].blocks)
		}
		if first+n > engineBlocks {
			break
		}
		for i := range uint32(n) { // From the end, where the node's own cache has no blocks.
			w.blocks = append(w.blocks, engineBlocks-1-uint32(first)-i)
		}
		e.wants = append(e.wants, w)
		return
	}
	out.Deliver(effects.Deliver{Ticket: x.Ticket})
}

// toNode sends a frame to the node of kvferry.
func (e *plainEngine) toNode(out *effects.Effects, f *frame, p purpose) {
	f.from = e.agent
	e.send(e.now, out, e.boot.Addr(hostName, port), f, p)
}

// advanceWant does for a request what has become possible.
func (e *plainEngine) advanceWant(i int, out *effects.Effects) {
	w := &e.wants[i]
	switch {
	case w.repeats != 0 && w.repeats <= e.now:
		w.repeats = 0
		e.register(w, purpose{kind: purposeHeartbeat}, out)
		return
	case w.ended:
		return
	case w.until <= e.now:
		w.ended = true
		if w.required {
			observe(out, factTold, effects.Expired, fmt.Sprintf("%s is told nothing of %s, which must succeed", e.name, w.name))
		}
		out.Deliver(effects.Deliver{Ticket: w.ticket, Code: effects.Expired})
		return
	case w.heartbeat > e.now:
		return
	}
	w.heartbeat = e.now.Add(heartbeatPeriod)
	if e.front == "" {
		e.queryFront(out)
		return
	}
	if !w.sent {
		w.sent = true
		e.register(w, purpose{kind: purposeRegistration, id: uint64(i)}, out)
		if e.boot.Seed%3 == 0 { // Some engines repeat what they send.
			e.register(w, purpose{kind: purposeHeartbeat}, out)
		}
		return
	}
	m := protocol.PushHeartbeat{RequestIDs: [][]byte{[]byte(w.name + "-00000003")}}
	e.toNode(out, &frame{kind: frameNote, to: e.front, body: m.Append(nil)}, purpose{kind: purposeHeartbeat})
}

// register sends the registration of a request to the node's front.
func (e *plainEngine) register(w *want, p purpose, out *effects.Effects) {
	m := protocol.PushRegistration{
		RequestID: []byte(w.name + "-00000003"), EngineID: []byte(e.name), Host: []byte(e.name), Port: sidePort, TPSize: 1,
		Remote: protocol.PushProducer{EngineID: []byte(hostName), PPSize: 1},
	}
	var ids []uint64
	for _, block := range w.blocks {
		ids = append(ids, uint64(block))
	}
	m.Blocks = [][]uint64{ids}
	e.toNode(out, &frame{kind: frameNote, to: e.front, body: m.Append(nil)}, p)
}

// advanceRegistration does for a registration of the node what has become possible: the pages are written when the agent
// is known and the request is computed.
func (e *plainEngine) advanceRegistration(i int, out *effects.Effects) {
	r := &e.registrations[i]
	base := string(protocol.TrimRequestSuffix([]byte(r.request)))
	until, isComputed := e.computed[base]
	if r.ended || r.writing || !isComputed || until < e.now {
		return
	}
	if r.agent == "" {
		if !r.asked {
			r.asked = true
			q := protocol.NixlMetadataRequest{}
			e.toNode(out, &frame{kind: frameQuery, id: uint64(r.port), body: q.Append(nil)}, purpose{kind: purposeAgentQuery,
				id: uint64(i)})
		}
		return
	}
	r.writing, r.left = true, layerCount*len(r.blocks)
	for layer := range layerCount {
		for k, block := range r.blocks {
			f := &frame{kind: frameWrite, id: uint64(pageOf(layer, block)), to: r.agent,
				body: []byte(contentOf(base, layer, positionCount-len(r.blocks)+k))}
			e.toNode(out, f, purpose{kind: purposeStore, id: uint64(i)})
		}
	}
}

func (e *plainEngine) handleCompletion(c *completion, out *effects.Effects) {
	switch c.purpose.kind {
	case purposeAgentQuery, purposeFrontQuery:
		limits := protocol.DefaultLimits()
		var h protocol.NixlHello
		var m protocol.NixlMetadata
		ok := c.code == effects.OK && h.Decode(c.body, &limits) == nil && m.Decode(h.Metadata, &limits) == nil
		if c.purpose.kind == purposeAgentQuery { // Like vLLM, it refuses another engine at that address.
			ok = ok && string(m.EngineID) == e.registrations[c.purpose.id].engine
		}
		switch {
		case c.purpose.kind == purposeFrontQuery && ok:
			e.front = string(m.Agent)
		case c.purpose.kind == purposeAgentQuery && ok:
			e.registrations[c.purpose.id].agent = string(m.Agent)
			e.advanceRegistration(int(c.purpose.id), out)
		case c.purpose.kind == purposeAgentQuery:
			e.registrations[c.purpose.id].ended = true
		}
	case purposeRegistration:
		if c.code != effects.OK { // The node's front may be another one.
			e.front, e.wants[c.purpose.id].sent = "", false
		}
	case purposeForeseen:
		if c.code != effects.OK {
			e.front = ""
		}
	case purposeStore:
		r := &e.registrations[c.purpose.id]
		if c.code != effects.OK {
			r.ended = true
		}
		if r.left--; r.left == 0 && !r.ended {
			r.ended = true
			m := protocol.PushCompletion{RequestID: []byte(r.request), Ranks: 1}
			e.toNode(out, &frame{kind: frameNote, to: r.agent, body: m.Append(nil)}, purpose{kind: purposeDone})
		}
	default: // Nobody waits for it.
	}
}

// handleFrame handles a frame of the node.
func (e *plainEngine) handleFrame(x *effects.Received, out *effects.Effects) {
	var f frame
	var answer []byte
	switch ok := f.decode(x.Body); {
	case !ok:
	case f.kind == frameQuery:
		m := metadataOf(e.name, e.agent, engineBlocks)
		h := protocol.NixlHello{Hash: []byte(compatibilityHash), Metadata: m.Append(nil)}
		answer = h.Append(nil)
	case f.to != e.agent: // It is for a former incarnation.
	case f.kind == frameNote:
		answer = accepted
		e.handleNote(f.body, out)
	case f.kind == frameWrite:
		answer = accepted
		e.storePage(uint32(f.id), string(f.body), out)
	}
	out.Reply(effects.Reply{Request: x.Request, Body: out.Cut(append(out.Arena(), answer...))})
}

func (e *plainEngine) handleNote(body []byte, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	switch protocol.NotificationKindOf(body) {
	case protocol.NixlRegistration:
		var m protocol.PushRegistration
		if m.Decode(body, &limits) != nil || len(m.Blocks) != 1 {
			observe(out, factRegistered, effects.Malformed, "the node sends "+e.name+" a registration that makes no sense")
			return
		}
		if e.seen[string(m.RequestID)] {
			observe(out, factRegistered, effects.Invalid, fmt.Sprintf("the node registers %s twice with %s, which writes twice",
				m.RequestID, e.name))
			return
		}
		e.seen[string(m.RequestID)] = true
		observe(out, factRegistered, effects.OK, "")
		r := registration{request: string(m.RequestID), engine: string(m.EngineID), port: uint16(m.Port)}
		for _, block := range m.Blocks[0] {
			r.blocks = append(r.blocks, uint32(block))
		}
		e.registrations = append(e.registrations, r)
		e.advanceRegistration(len(e.registrations)-1, out)
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
			e.handleDone(string(m.RequestID), out)
		}
	}
}

// storePage stores a page that the node writes. The block must belong to a request that the engine has registered for.
func (e *plainEngine) storePage(page uint32, text string, out *effects.Effects) {
	owned := slices.ContainsFunc(e.wants, func(w want) bool { return slices.Contains(w.blocks, page%engineBlocks) })
	if int(page) >= len(e.memory) || !owned {
		observe(out, factWritten, effects.Invalid, fmt.Sprintf("%q is written into page %d of %s, which it has not registered", text,
			page, e.name))
		return
	}
	e.memory[page] = text
	observe(out, factWritten, effects.OK, "")
}

// handleDone judges what the engine is told to have.
func (e *plainEngine) handleDone(request string, out *effects.Effects) {
	base := string(protocol.TrimRequestSuffix([]byte(request)))
	i := slices.IndexFunc(e.wants, func(w want) bool { return w.name == base })
	if i < 0 || e.wants[i].told {
		observe(out, factTold, effects.Invalid, fmt.Sprintf("%s is told that it has %s, once too often", e.name, request))
		return
	}
	w := &e.wants[i]
	w.told = true
	for layer := range layerCount {
		for k, block := range w.blocks {
			got, want := e.memory[uint32(layer)*engineBlocks+block], contentOf(base, layer, positionCount-len(w.blocks)+k)
			if got != want {
				observe(out, factTold, effects.Invalid, fmt.Sprintf("%s is told that it has %s, and its block %d holds %q, not %q",
					e.name, base, block, got, want))
				return
			}
		}
	}
	observe(out, factTold, effects.OK, "")
	if e.boot.Seed%2 == 0 {
		w.repeats = e.now.Add(effects.Duration(e.boot.Seed/2%3000) * effects.Millisecond)
	}
	if !w.ended {
		w.ended = true
		out.Deliver(effects.Deliver{Ticket: w.ticket})
	}
}
