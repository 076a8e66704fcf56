package agent

import (
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// state is the state of the attached engines of a world. A clone of the world has a clone of this state.
type state struct {
	w         *pd.Cluster `snap:"scratch"` // the world that contains this state
	hosts     []*host
	engines   []*engineProcess
	engineAt  map[[2]int32]int // index of the engine, by node and place
	streams   []*stream
	drawCount uint64 `snap:"skip"`
	healedAt  int64  `snap:"skip"`

	callWindow, holdingsMax, sessionsMax int
	sessionsPerProcess, callBytesMax     int // sessions that one process may have; bytes that the open calls of an engine may take
}

// stateOf returns the state of a world. The state is created on first use.
func stateOf(w *pd.Cluster) *state {
	if w.AttachedState == nil {
		d := draw.Hash(w.Seed, draw.Engine, 1<<41, 0)
		w.AttachedState = &state{w: w, hosts: make([]*host, len(w.Nodes)), engineAt: map[[2]int32]int{},
			callWindow: d.Between(4, 8), holdingsMax: d.Rehash().Between(4, 12), sessionsMax: d.Rehash().Rehash().Between(2, 4),
			callBytesMax: 1 << 20}
		a := w.AttachedState.(*state)
		a.sessionsPerProcess = a.sessionsMax
		if d := draw.Hash(w.Seed, draw.Engine, 1<<41, 1); !a.isSmallWorld() {
			a.sessionsMax = d.Rehash().Rehash().Rehash().Between(2, 6)
			a.sessionsPerProcess = d.Between(1, max(1, a.sessionsMax-1))
			if d = d.Rehash(); d.ChancePermille(600) { // A limit so low that some calls are refused.
				a.callBytesMax = d.Rehash().Between(1<<9, 5<<9)
			}
		}
	}
	a := w.AttachedState.(*state)
	a.w = w
	return a
}

// isSmallWorld reports whether the world is explored exhaustively. Nothing is drawn then: actions take no time, and the
// explorer tries every order.
func (a *state) isSmallWorld() bool { return draw.IsFixed(a.w.Seed) }

// drawDelay draws the duration of an action with the given mean, which is zero in a small world.
func (a *state) drawDelay(mean effects.Duration) effects.Duration {
	if d := a.nextDraw(); !a.isSmallWorld() {
		return d.HeavyTail(mean)
	}
	return 0
}

// drawPatience draws how long an engine waits for the result of a call, in nanoseconds and at most the given limit.
func (a *state) drawPatience(d draw.Value, limit effects.Duration) uint64 {
	if a.isSmallWorld() {
		return uint64(limit)
	}
	return uint64(d.Duration(effects.Millisecond, limit))
}

// nextDraw returns the next random choice for the attached engines.
func (a *state) nextDraw() draw.Value {
	a.drawCount++
	return draw.Hash(a.w.Seed, draw.Engine, 1<<40, a.drawCount)
}

// A host is the agent of one incarnation of a node, the simulated counterpart of runtime/attach.
type host struct {
	state           *state `snap:"skip"`
	node            *world.Node
	incarnation     uint32
	machine         *session.Machine
	out             session.Effects `snap:"scratch"`
	draining        bool
	sentCalls       map[session.CallRef]*sentCall // calls, as the engines first sent them
	calls           map[session.CallRef]*hostCall // calls in progress, and calls whose memory is not returned yet
	holdings        map[session.CallRef]*holding  // what the calls have given to the engines
	sessions        map[uint64]*hostSession       // by session number
	callByTicket    map[effects.Ticket]*hostCall  // commands in flight, for a call or for a holding that is given back
	returnedTickets map[effects.Ticket]bool       // commands whose result was given back to the rank
	pendingEnds     []pendingEnd                  // pending outcomes of calls that give the rank no command
	pendingFrees    []*hostCall                   // holdings that are given back once the rank has returned their pages
}

// hostSession is a session from the point of view of the host.
type hostSession struct {
	engine   int
	detached bool // the engine has detached
	left     bool // the engine has detached, or the machine was notified that its process has ended
	// unacknowledged holds the numbers of accepted calls that the engine has not said to be done. It is nil once the session
	// ends.
	unacknowledged map[uint64]bool
}

// sentCall is a call as the engine sent it.
type sentCall struct {
	op              protocol.CallOp
	target, prefill uint64
	job             int  // the job of the call; -1 if unknown, as for a false message
	cost            int  // what the lists of the call take while it is carried out, in bytes
	scriptPos       int  // position in the layer script
	accepted        bool // the machine has accepted the call, or has refused it by number
	begun           bool
	chunksRead      uint32 // chunks that the engine was shown and has read
	isFalse         bool
	ended           bool
	answeredOn      session.Conn // the connection on which the answer was last sent
}

// A hostCall is a call in progress, or a holding that is given back without a call.
type hostCall struct {
	ref           session.CallRef
	op            protocol.CallOp
	isFree        bool // a holding is given back without a call
	holdingToEnd  *holding
	usedHoldings  []*holding
	job           int
	scriptPos     int
	ticket        effects.Ticket // the command in flight
	waitsForPages bool           // wait for the pages of the holding before the command is given
	aborted       bool
	heldAborted   bool // aborted after the answer, which said that the memory is held
	abandoned     bool
	answered      bool // the answer was sent, and the memory is not returned yet
	show          *pendingShow
	lateAnswer    *protocol.EngineAnswer // the answer that is sent once the memory is returned
}

// A holding is the host's record of pages, a share or a prefill that an engine holds.
type holding struct {
	call           session.CallRef
	kind           session.HoldingKind
	ticket         effects.Ticket // the command that produced the holding
	pagesOf        *holding       // for a share: the holding of the shared pages
	users          int            // calls and shares that use the holding
	shareCount     int            // the shares among the uses
	pendingReturns int            // layer commands whose pages are not returned yet
	ending         bool
	layerRefused   bool // for a prefill: the rank did not accept the newest layer
	freed          bool
}

// A pendingShow is a run of chunks that is presented to an engine for reading.
type pendingShow struct {
	corr       effects.Corr `snap:"skip"` // the rank's correlation number
	firstChunk uint32
	pageCount  int
}

// pendingEnd is a pending outcome of a call.
type pendingEnd struct {
	call *hostCall
	code effects.Code
}

var wireLimits = protocol.DefaultLimits()

// incarnationOf returns the identity of an incarnation of an agent, as engines see it.
func incarnationOf(n *world.Node, incarnation uint32) protocol.UUID {
	return protocol.UUID{byte(n.ID) + 1, byte(incarnation), byte(incarnation >> 8)}
}

// hostOf returns the agent of a node, or nil if the node is down. A new incarnation gets a new agent.
func (a *state) hostOf(n *world.Node) *host {
	if !n.Up {
		return nil
	}
	h := a.hosts[n.ID]
	if h == nil || h.incarnation != n.Incarnation {
		h = &host{state: a, node: n, incarnation: n.Incarnation, sentCalls: map[session.CallRef]*sentCall{},
			calls:    map[session.CallRef]*hostCall{},
			holdings: map[session.CallRef]*holding{}, sessions: map[uint64]*hostSession{}, callByTicket: map[effects.Ticket]*hostCall{},
			returnedTickets: map[effects.Ticket]bool{}}
		layout := pd.InfoOf(n).Cfg.Layout
		h.machine = session.New(session.Config{
			Response: protocol.AttachResponse{
				Version: protocol.AttachVersion, Incarnation: incarnationOf(n, n.Incarnation), Window: uint32(a.callWindow),
				Format: layout.Format,
				Shape:  layout.Shape, Dtype: layout.Dtype,
			},
			SessionsMax: a.sessionsMax, ProcessMax: a.sessionsPerProcess, HoldingsMax: a.holdingsMax, CallBytesMax: a.callBytesMax,
			Wire: wireLimits,
		})
		a.hosts[n.ID] = h
	}
	if n.Draining && !h.draining {
		h.draining = true
		h.stepMachine(func(out *session.Effects) { h.machine.Drain(out) })
		a.w.CountJudged(checkDrains)
		for id := range h.sessions {
			if !h.sessionInUse(id) {
				a.w.Fail(checkDrains.Property(), "node %d drains, and keeps session %d, which has no calls and no holdings", n.AsSubject(), id)
				break
			}
		}
	}
	return h
}

// stepMachine calls f on the session machine and carries out the effects that the machine returns.
func (h *host) stepMachine(f func(out *session.Effects)) {
	w, out := h.state.w, &h.out
	out.Reset()
	f(out)
	for _, x := range out.Sends {
		recordAnswer(h, x)
		if s := h.state.streams[x.Conn-1]; !s.closedByAgent {
			s.toEngine = protocol.AppendFrame(s.toEngine, x.Body)
			h.state.engines[s.engine].scheduleTurn(h.state.drawDelay(effects.Millisecond))
		}
	}
	for _, x := range out.Begins {
		h.beginCall(x)
	}
	for _, x := range out.Aborts {
		h.abortCall(h.calls[x])
	}
	for _, x := range out.ShowResults {
		h.handleShown(x)
	}
	for _, x := range out.Frees {
		h.freeHolding(x)
	}
	for _, x := range out.Closes {
		s := h.state.streams[x.Conn-1]
		s.closedByAgent = true
		if e := h.state.engines[s.engine]; e.stream == s && s.attached && x.Why != "" && !e.isLiar {
			w.Fail(checkCalls.Property(), "node %d closes the connection of an engine that made no mistake: %s", h.node.AsSubject(), x.Why)
		}
		h.state.engines[s.engine].scheduleTurn(h.state.drawDelay(effects.Millisecond))
	}
	for _, id := range out.EndedSessions {
		if delete(h.sessions, id); h.sessionInUse(id) {
			w.Fail(checkLeftovers.Property(), "session %d of node %d has ended, and some of its calls or holdings have not", id, h.node.AsSubject())
			return
		}
	}
	h.checkLimits()
	h.checkLeftHoldings()
	for len(h.pendingEnds) > 0 {
		x := h.pendingEnds[0]
		h.pendingEnds = h.pendingEnds[1:]
		h.endCall(x.call, &protocol.EngineAnswer{Code: uint32(x.code)}, x.code != effects.OK)
	}
}

// handleFrame handles a message from an engine.
func (h *host) handleFrame(s *stream, body []byte) {
	e := h.state.engines[s.engine]
	switch {
	case s.closedByAgent:
	case s.firstReceived:
		h.handleCall(s, body)
	case e.exited:
		s.closedByAgent = true // The kernel knows that the process has ended.
	default:
		s.firstReceived = true
		h.handleAttach(s, body)
	}
}

// handleCall handles a message from an attached engine.
func (h *host) handleCall(s *stream, body []byte) {
	id := h.machine.EngineOf(s.id).ID
	var m protocol.EngineCall
	if id == 0 || !protocol.MayHaveTag(body, protocol.TagEngineCall, &wireLimits) || m.Decode(body, &wireLimits) != nil {
		h.stepMachine(func(out *session.Effects) { h.machine.HandleMessage(s.id, body, out) })
		return
	}
	at := session.CallRef{Session: id, ID: m.ID}
	x := h.sentCalls[at]
	if x == nil { // The call is a false message.
		x = &sentCall{job: -1, isFalse: true}
		h.sentCalls[at] = x
	}
	if x.op == protocol.CallUnknown {
		x.op, x.target, x.prefill = protocol.ParseCallOp(m.Op), m.Target, m.Prefill
		x.cost = costOf(&m)
	}
	known := h.sessions[id]
	if known != nil {
		for _, done := range m.Done {
			delete(known.unacknowledged, done)
			if open := h.calls[session.CallRef{Session: id, ID: done}]; open != nil && !open.answered {
				open.abandoned = true
			}
		}
	}
	isNew := !x.accepted
	h.stepMachine(func(out *session.Effects) { h.machine.HandleMessage(s.id, body, out) })
	if h.machine.EngineOf(s.id).ID == 0 && !x.accepted && !x.begun {
		// The machine has closed the connection without accepting the call, so the session may reuse the number.
		x.op = protocol.CallUnknown
		return
	}
	x.accepted = true
	if known != nil && isNew && x.op == protocol.CallDetach {
		known.unacknowledged = nil // The machine ends the calls of the session, also if the message was false.
	}
	if known != nil && isNew && known.unacknowledged != nil {
		known.unacknowledged[m.ID] = true
		h.checkWindow(known)
	}
	t := h.calls[session.CallRef{Session: id, ID: m.Target}]
	if x.op == protocol.CallAbort && !x.isFalse && t != nil && !t.answered && !t.aborted {
		h.state.w.Fail(checkCalls.Property(), "an engine of node %d aborts call %d, and the call goes on", h.node.AsSubject(), m.Target)
	}
	if x.op == protocol.CallDetach && h.sessions[id] != nil && !x.isFalse {
		h.sessions[id].detached, h.sessions[id].left = true, true
		h.checkAbandonedCalls(func(call session.CallRef) bool { return call.Session == id })
	}
}

// recordCall records a call that an engine is about to send. Once the machine has accepted a call under a number, the
// number belongs to that call, even if a lying engine sends another call with the same number later.
func (h *host) recordCall(at session.CallRef, x *sentCall) {
	if earlier := h.sentCalls[at]; earlier == nil || !earlier.accepted {
		h.sentCalls[at] = x
	}
}

// handleAttach handles the first message of a connection.
func (h *host) handleAttach(s *stream, body []byte) {
	e := h.state.engines[s.engine]
	var response protocol.AttachResponse
	h.stepMachine(func(out *session.Effects) {
		h.machine.HandleAttach(s.id, e.processID(), body, out)
		if len(out.Sends) == 0 || response.Decode(out.Sends[0].Body, &wireLimits) != nil {
			response = protocol.AttachResponse{}
		}
	})
	id := h.machine.EngineOf(s.id).ID
	if id == 0 {
		if effects.Code(response.Code) == effects.TooMany {
			h.checkRefusal(s.engine)
		}
		return
	}
	s.attached = true
	if earlier := h.sessions[id]; earlier != nil && earlier.engine != s.engine {
		h.state.w.Fail(checkHeld.Property(), "an engine of node %d resumes session %d of another process", h.node.AsSubject(), id)
		return
	} else if earlier == nil {
		h.sessions[id] = &hostSession{engine: s.engine, unacknowledged: map[uint64]bool{}}
		return
	}
	var m protocol.AttachRequest
	if m.Decode(body, &wireLimits) == nil {
		checkResumed(h, s, id, m.Open)
		maps.DeleteFunc(h.sessions[id].unacknowledged, func(call uint64, _ bool) bool { return !slices.Contains(m.Open, call) })
	}
}

// recordAnswer records the answer that is sent to an engine.
func recordAnswer(h *host, x session.Send) {
	var a protocol.EngineAnswer
	if protocol.MayHaveTag(x.Body, protocol.TagEngineAnswer, &wireLimits) && a.Decode(x.Body, &wireLimits) == nil {
		at := session.CallRef{Session: h.machine.EngineOf(x.Conn).ID, ID: a.ID}
		if m := h.sentCalls[at]; m != nil {
			if !m.ended && !m.begun && effects.Code(a.Code) == effects.TooMany {
				h.checkRefusedCall(at, m, string(a.Field))
			}
			m.ended, m.answeredOn = true, x.Conn
		}
	}
}

// sessionInUse reports whether a session has calls in progress or holds anything.
func (h *host) sessionInUse(id uint64) bool {
	for at := range h.calls {
		if at.Session == id {
			return true
		}
	}
	for at := range h.holdings {
		if at.Session == id {
			return true
		}
	}
	return false
}

// handleExit notifies the machine that a process has ended, and checks that all calls of the process are aborted.
func (h *host) handleExit(e *engineProcess) {
	h.stepMachine(func(out *session.Effects) { h.machine.OnProcessExit(e.processID(), out) })
	for _, x := range h.sessions {
		x.left = x.left || x.engine == e.index
	}
	h.checkAbandonedCalls(func(call session.CallRef) bool {
		x := h.sessions[call.Session]
		return x != nil && x.engine == e.index
	})
}
