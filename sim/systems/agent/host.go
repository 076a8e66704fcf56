package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// all is the state of the attached engines of a world. A clone of the world has a clone of this state.
type all struct {
	w        *pd.Cluster `snap:"scratch"` // the world that contains this state
	hosts    []*host
	engines  []*engineProcess
	present  map[[2]int32]int // index of the engine, by node and place
	streams  []*stream
	drawn    uint64 `snap:"skip"`
	healedAt int64  `snap:"skip"`

	window, holdings, sessions int
	share, bytes               int // sessions that one process may have; bytes that the open calls of an engine may take
}

// of returns the state of a world. The state is created on first use.
func of(w *pd.Cluster) *all {
	if w.Attached == nil {
		d := draw.Hash(w.Seed, draw.Engine, 1<<41, 0)
		w.Attached = &all{w: w, hosts: make([]*host, len(w.Nodes)), present: map[[2]int32]int{},
			window: d.Between(4, 8), holdings: d.Again().Between(4, 12), sessions: d.Again().Again().Between(2, 4), bytes: 1 << 20}
		a := w.Attached.(*all)
		a.share = a.sessions
		if d := draw.Hash(w.Seed, draw.Engine, 1<<41, 1); !a.small() {
			a.share = d.Between(1, a.sessions)
			if d = d.Again(); d.Permille(400) { // A limit so low that some calls are refused.
				a.bytes = d.Again().Between(1<<9, 5<<9)
			}
		}
	}
	a := w.Attached.(*all)
	a.w = w
	return a
}

// small reports whether the world is explored exhaustively. Nothing is drawn then: actions take no time, and the
// explorer tries every order.
func (a *all) small() bool { return a.w.Seed >= draw.RestlessSeed }

// while draws the duration of an action with the given mean, which is zero in a small world.
func (a *all) while(mean effects.Duration) effects.Duration {
	if d := a.draw(); !a.small() {
		return d.Heavy(mean)
	}
	return 0
}

// patience draws how long an engine waits for the result of a call, in nanoseconds and at most the given limit.
func (a *all) patience(d draw.Of, most effects.Duration) uint64 {
	if a.small() {
		return uint64(most)
	}
	return uint64(d.Span(effects.Millisecond, most))
}

// draw returns the next random choice for the attached engines.
func (a *all) draw() draw.Of {
	a.drawn++
	return draw.Hash(a.w.Seed, draw.Engine, 1<<40, a.drawn)
}

// A host is the agent of one incarnation of a node, the simulated counterpart of runtime/attach.
type host struct {
	a        *all `snap:"skip"`
	n        *world.Node
	life     uint32
	machine  *session.Machine
	out      session.Effects `snap:"scratch"`
	draining bool
	said     map[session.CallRef]*said    // calls, as the engines first sent them
	works    map[session.CallRef]*work    // calls in progress, and calls whose memory is not returned yet
	holds    map[session.CallRef]*holding // what the calls have given to the engines
	sessions map[uint64]*attached         // by session number
	tickets  map[effects.Ticket]*work     // commands in flight, for a call or for a holding that is given back
	gone     map[effects.Ticket]bool      // commands whose result was given back to the rank
	ends     []end                        // pending outcomes of calls that give the rank no command
	frees    []*work                      // holdings that are given back once the rank has returned their pages
}

// attached is a session from the point of view of the host.
type attached struct {
	engine int
	leaves bool // the engine has detached
}

// said is a call as the engine sent it.
type said struct {
	op              protocol.CallOp
	target, prefill uint64
	job             int  // the job of the call; -1 if unknown, as for a false message
	lists           int  // total number of entries in the lists of the call
	at              int  // position in the layer script
	taken           bool // the machine has accepted the call, or has refused it by number
	begun           bool
	read            uint32 // chunks that the engine was shown and has read
	lie             bool
	ended           bool
	told            session.Conn // the connection on which the answer was last sent
}

// A work is a call in progress, or a holding that is given back without a call.
type work struct {
	call     session.CallRef
	op       protocol.CallOp
	free     bool // a holding is given back without a call
	ends     *holding
	uses     []*holding
	job      int
	at       int
	t        effects.Ticket // the command in flight
	waits    bool           // waits for the pages of the holding before the command is given
	aborted  bool
	unwanted bool
	answered bool // the answer was sent, and the memory is not returned yet
	show     *showing
	late     *protocol.EngineAnswer // the answer that is sent once the memory is returned
}

// A holding is the host's record of pages, a share or a prefill that an engine holds.
type holding struct {
	at     session.CallRef
	kind   session.HoldingKind
	t      effects.Ticket // the command that produced the holding
	of     *holding       // for a share: the holding of the shared pages
	uses   int            // calls and shares that use the holding
	shares int            // the shares among the uses
	lots   int            // layer commands whose pages are not returned yet
	ending bool
	short  bool // for a prefill: the rank did not accept the newest layer
	freed  bool
}

// A showing is a run of chunks that is presented to an engine for reading.
type showing struct {
	corr  effects.Corr `snap:"skip"` // the rank's correlation number
	first uint32
	pages int
}

// end is a pending outcome of a call.
type end struct {
	w    *work
	code effects.Code
}

var limits = protocol.DefaultLimits()

// lifeOf returns the identity of an incarnation of an agent, as engines see it.
func lifeOf(n *world.Node, life uint32) protocol.UUID {
	return protocol.UUID{byte(n.ID) + 1, byte(life), byte(life >> 8)}
}

// host returns the agent of a node, or nil if the node is down. A new incarnation gets a new agent.
func (a *all) host(n *world.Node) *host {
	if !n.Up {
		return nil
	}
	h := a.hosts[n.ID]
	if h == nil || h.life != n.Life {
		h = &host{a: a, n: n, life: n.Life, said: map[session.CallRef]*said{}, works: map[session.CallRef]*work{},
			holds: map[session.CallRef]*holding{}, sessions: map[uint64]*attached{}, tickets: map[effects.Ticket]*work{},
			gone: map[effects.Ticket]bool{}}
		layout := pd.Its(n).Cfg.Layout
		h.machine = session.New(session.Config{
			Response: protocol.AttachResponse{
				Version: protocol.AttachVersion, Incarnation: lifeOf(n, n.Life), Window: uint32(a.window), Format: layout.Format,
				Shape: layout.Shape, Dtype: layout.Dtype,
			},
			SessionsMax: a.sessions, ProcessMax: a.share, HoldingsMax: a.holdings, CallBytesMax: a.bytes, Wire: limits,
		})
		a.hosts[n.ID] = h
	}
	if n.Draining && !h.draining {
		h.draining = true
		h.step(func(out *session.Effects) { h.machine.Drain(out) })
		pd.Judged(a.w, checkDrains)
		for id := range h.sessions {
			if !h.has(id) {
				a.w.Fail(checkDrains.Property(), "node %d drains, and session %d stays, which has nothing", n.It(), id)
				break
			}
		}
	}
	return h
}

// step calls f on the session machine and carries out the effects that the machine returns.
func (h *host) step(f func(out *session.Effects)) {
	w, out := h.a.w, &h.out
	out.Reset()
	f(out)
	for _, x := range out.Sends {
		answers(h, x)
		if s := h.a.streams[x.Conn-1]; !s.shutAgent {
			s.down = protocol.AppendFrame(s.down, x.Body)
			h.a.engines[s.engine].wake(h.a.while(effects.Millisecond))
		}
	}
	for _, x := range out.Begins {
		h.begin(x)
	}
	for _, x := range out.Aborts {
		h.abort(h.works[x])
	}
	for _, x := range out.ShowResults {
		h.shown(x)
	}
	for _, x := range out.Frees {
		h.free(x)
	}
	for _, x := range out.Closes {
		s := h.a.streams[x.Conn-1]
		s.shutAgent = true
		if e := h.a.engines[s.engine]; e.s == s && s.attached && x.Why != "" && !e.lies {
			w.Fail(checkCalls.Property(), "node %d cuts an engine off that does nothing wrong: %s", h.n.It(), x.Why)
		}
		h.a.engines[s.engine].wake(h.a.while(effects.Millisecond))
	}
	for _, id := range out.EndedSessions {
		if delete(h.sessions, id); h.has(id) {
			w.Fail(checkLeft.Property(), "session %d of node %d is over, and something of it is not", id, h.n.It())
			return
		}
	}
	h.bounded()
	for len(h.ends) > 0 {
		x := h.ends[0]
		h.ends = h.ends[1:]
		h.end(x.w, &protocol.EngineAnswer{Code: uint32(x.code)}, x.code != effects.OK)
	}
}

// heard handles a message from an engine.
func (h *host) heard(s *stream, body []byte) {
	e := h.a.engines[s.engine]
	switch {
	case s.shutAgent:
	case s.first:
		h.called(s, body)
	case e.gone:
		s.shutAgent = true // The kernel knows that the process has ended.
	default:
		s.first = true
		h.attach(s, body)
	}
}

// called handles a message from an attached engine.
func (h *host) called(s *stream, body []byte) {
	id := h.machine.EngineOf(s.id).ID
	var m protocol.EngineCall
	if id == 0 || !protocol.MayHaveTag(body, protocol.TagEngineCall, &limits) || m.Decode(body, &limits) != nil {
		h.step(func(out *session.Effects) { h.machine.HandleMessage(s.id, body, out) })
		return
	}
	at := session.CallRef{Session: id, ID: m.ID}
	x := h.said[at]
	if x == nil { // The call is a false message.
		x = &said{job: -1, lie: true}
		h.said[at] = x
	}
	if x.op == protocol.CallUnknown {
		x.op, x.target, x.prefill = protocol.ParseCallOp(m.Op), m.Target, m.Prefill
		x.lists = len(m.Keys) + len(m.Producers) + len(m.Blocks)
	}
	h.step(func(out *session.Effects) { h.machine.HandleMessage(s.id, body, out) })
	if h.machine.EngineOf(s.id).ID == 0 && !x.taken && !x.begun {
		// The machine has closed the connection without accepting the call, so the session may reuse the number.
		x.op = protocol.CallUnknown
		return
	}
	x.taken = true
	t := h.works[session.CallRef{Session: id, ID: m.Target}]
	if x.op == protocol.CallAbort && !x.lie && t != nil && !t.answered && !t.aborted {
		h.a.w.Fail(checkCalls.Property(), "an engine of node %d aborts call %d, and it goes on", h.n.It(), m.Target)
	}
	if x.op == protocol.CallDetach && h.sessions[id] != nil && !x.lie {
		h.sessions[id].leaves = true
		h.unwanted(func(call session.CallRef) bool { return call.Session == id })
	}
}

// says records a call that an engine is about to send. Once the machine has accepted a call under a number, the number
// belongs to that call, even if a lying engine sends another call with the same number later.
func (h *host) says(at session.CallRef, x *said) {
	if was := h.said[at]; was == nil || !was.taken {
		h.said[at] = x
	}
}

// attach handles the first message of a connection.
func (h *host) attach(s *stream, body []byte) {
	e := h.a.engines[s.engine]
	var told protocol.AttachResponse
	h.step(func(out *session.Effects) {
		h.machine.HandleAttach(s.id, e.process(), body, out)
		if len(out.Sends) == 0 || told.Decode(out.Sends[0].Body, &limits) != nil {
			told = protocol.AttachResponse{}
		}
	})
	id := h.machine.EngineOf(s.id).ID
	if id == 0 {
		if effects.Code(told.Code) == effects.TooMany {
			h.crowded(s.engine)
		}
		return
	}
	s.attached = true
	if was := h.sessions[id]; was != nil && was.engine != s.engine {
		h.a.w.Fail(checkHeld.Property(), "an engine of node %d goes on with session %d of another process", h.n.It(), id)
		return
	} else if was == nil {
		h.sessions[id] = &attached{engine: s.engine}
		return
	}
	var m protocol.AttachRequest
	if m.Decode(body, &limits) == nil {
		resumes(h, s, id, m.Open)
	}
}

// answers records the answer that is sent to an engine.
func answers(h *host, x session.Send) {
	var a protocol.EngineAnswer
	if protocol.MayHaveTag(x.Body, protocol.TagEngineAnswer, &limits) && a.Decode(x.Body, &limits) == nil {
		if m := h.said[session.CallRef{Session: h.machine.EngineOf(x.Conn).ID, ID: a.ID}]; m != nil {
			m.ended, m.told = true, x.Conn
		}
	}
}

// has reports whether a session has calls in progress or holds anything.
func (h *host) has(id uint64) bool {
	for at := range h.works {
		if at.Session == id {
			return true
		}
	}
	for at := range h.holds {
		if at.Session == id {
			return true
		}
	}
	return false
}

// exited notifies the machine that a process has ended, and checks that all calls of the process are aborted.
func (h *host) exited(e *engineProcess) {
	h.step(func(out *session.Effects) { h.machine.OnProcessExit(e.process(), out) })
	h.unwanted(func(call session.CallRef) bool {
		x := h.sessions[call.Session]
		return x != nil && x.engine == e.place
	})
}
