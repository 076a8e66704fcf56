package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// all is what a world has of engines in processes of their own: a clone of the world has a clone of it.
type all struct {
	w        *pd.Cluster `snap:"scratch"` // whose it is, as of says
	hosts    []*host
	engines  []*engineProcess
	present  map[[2]int32]int // the engine of a node in a place
	streams  []*stream
	drawn    uint64 `snap:"skip"`
	healedAt int64  `snap:"skip"`

	window, holdings, sessions int
	share, bytes               int // places of one process; what the open calls of an engine may take
}

func of(w *pd.Cluster) *all {
	if w.Attached == nil {
		d := draw.Hash(w.Seed, draw.Engine, 1<<41, 0)
		w.Attached = &all{w: w, hosts: make([]*host, len(w.Nodes)), present: map[[2]int32]int{},
			window: d.Between(4, 8), holdings: d.Again().Between(4, 12), sessions: d.Again().Again().Between(2, 4), bytes: 1 << 20}
		a := w.Attached.(*all)
		a.share = a.sessions
		if d := draw.Hash(w.Seed, draw.Engine, 1<<41, 1); !a.small() {
			a.share = d.Between(1, a.sessions)
			if d = d.Again(); d.Permille(400) { // So few that some calls are refused.
				a.bytes = d.Again().Between(1<<9, 5<<9)
			}
		}
	}
	a := w.Attached.(*all)
	a.w = w
	return a
}

// small says whether nothing is drawn: then things take no time, and happen in every order.
func (a *all) small() bool { return a.w.Seed >= draw.RestlessSeed }

// while is how long something takes.
func (a *all) while(mean effects.Duration) effects.Duration {
	if d := a.draw(); !a.small() {
		return d.Heavy(mean)
	}
	return 0
}

// patience is how long an engine waits for what it asks for.
func (a *all) patience(d draw.Of, most effects.Duration) uint64 {
	if a.small() {
		return uint64(most)
	}
	return uint64(d.Span(effects.Millisecond, most))
}

// draw is what comes next of what goes wrong here.
func (a *all) draw() draw.Of {
	a.drawn++
	return draw.Hash(a.w.Seed, draw.Engine, 1<<40, a.drawn)
}

// A host is the agent of one life of a node: what runtime/attach is.
type host struct {
	a        *all `snap:"skip"`
	n        *world.Node
	life     uint32
	machine  *session.Machine
	out      session.Out `snap:"scratch"`
	draining bool
	said     map[session.Call]*said    // calls as engines sent them first
	works    map[session.Call]*work    // calls that are carried out, or whose memory is not back
	holds    map[session.Call]*holding // what they brought
	sessions map[uint64]*attached      // by their numbers
	tickets  map[effects.Ticket]*work  // of commands under way: a call's, or of what is given back
	gone     map[effects.Ticket]bool   // given back to the rank
	ends     []end                     // of calls that no rank hears of
	frees    []*work                   // that wait for pages
}

// An attached is a session as its host knows it.
type attached struct {
	engine int
	leaves bool // the engine has detached
}

// A said is a call as its engine sent it.
type said struct {
	op              protocol.CallOp
	target, prefill uint64
	job             int  // that it is for; -1: nobody knows, as of a lie
	lists           int  // entries of all of its lists
	at              int  // place in a script of layers
	taken           bool // the machine has it, or has refused it by its number
	begun           bool
	read            uint32 // chunks that its engine was shown, and has read
	lie             bool
	ended           bool
	told            session.Conn // the connection on which its answer was said last
}

// A work is a call that is carried out, or something that is given back without one.
type work struct {
	call     session.Call
	op       protocol.CallOp
	free     bool // it is no call
	ends     *holding
	uses     []*holding
	job      int
	at       int
	t        effects.Ticket // of the command under way
	waits    bool           // for pages of what it is about, before it gives one
	aborted  bool
	unwanted bool
	answered bool // and its memory is not back
	show     *showing
	late     *protocol.EngineAnswer // that goes out when its memory is back
}

// A holding is something that an engine holds, as its host has it.
type holding struct {
	at     session.Call
	kind   session.Kind
	t      effects.Ticket // of the command that gave it
	of     *holding       // of what is shared: its pages
	uses   int            // calls and what is shared of it
	shares int            // of those
	lots   int            // commands of layers whose pages are not back
	ending bool
	short  bool // of a prefill: the newest layer was not taken
	freed  bool
}

// A showing is chunks that an engine is shown.
type showing struct {
	corr  effects.Corr `snap:"skip"` // the rank knows what it is for
	first uint32
	pages int
}

type end struct {
	w    *work
	code effects.Code
}

var limits = protocol.DefaultLimits()

func lifeOf(n *world.Node, life uint32) protocol.UUID {
	return protocol.UUID{byte(n.ID) + 1, byte(life), byte(life >> 8)}
}

// host is the agent of a node; nil: it is down.
func (a *all) host(n *world.Node) *host {
	if !n.Up {
		return nil
	}
	h := a.hosts[n.ID]
	if h == nil || h.life != n.Life {
		h = &host{a: a, n: n, life: n.Life, said: map[session.Call]*said{}, works: map[session.Call]*work{},
			holds: map[session.Call]*holding{}, sessions: map[uint64]*attached{}, tickets: map[effects.Ticket]*work{},
			gone: map[effects.Ticket]bool{}}
		layout := pd.Its(n).Cfg.Layout
		h.machine = session.New(session.Config{
			Told: protocol.AttachResponse{
				Version: protocol.AttachVersion, Incarnation: lifeOf(n, n.Life), Window: uint32(a.window), Format: layout.Format,
				Shape: layout.Shape, Dtype: layout.Dtype,
			},
			SessionsMax: a.sessions, ProcessMax: a.share, HoldingsMax: a.holdings, CallBytesMax: a.bytes, Wire: limits,
		})
		a.hosts[n.ID] = h
	}
	if n.Draining && !h.draining {
		h.draining = true
		h.step(func(out *session.Out) { h.machine.Drain(out) })
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

// step lets the machine do something, and carries out what it wants.
func (h *host) step(f func(out *session.Out)) {
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
	for _, x := range out.Showns {
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
	for _, id := range out.Leaves {
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

func (h *host) heard(s *stream, body []byte) {
	e := h.a.engines[s.engine]
	switch {
	case s.shutAgent:
	case s.first:
		h.called(s, body)
	case e.gone:
		s.shutAgent = true // The kernel knows.
	default:
		s.first = true
		h.attach(s, body)
	}
}

// called takes a message of an engine that is attached.
func (h *host) called(s *stream, body []byte) {
	id := h.machine.Of(s.id).ID
	var m protocol.EngineCall
	if id == 0 || !protocol.MayBe(body, protocol.TagEngineCall, &limits) || m.Decode(body, &limits) != nil {
		h.step(func(out *session.Out) { h.machine.Heard(s.id, body, out) })
		return
	}
	at := session.Call{Session: id, ID: m.ID}
	x := h.said[at]
	if x == nil { // Of a lie.
		x = &said{job: -1, lie: true}
		h.said[at] = x
	}
	if x.op == protocol.CallUnknown {
		x.op, x.target, x.prefill = protocol.CallOpOf(m.Op), m.Target, m.Prefill
		x.lists = len(m.Keys) + len(m.Producers) + len(m.Blocks)
	}
	h.step(func(out *session.Out) { h.machine.Heard(s.id, body, out) })
	if h.machine.Of(s.id).ID == 0 && !x.taken && !x.begun {
		// The machine has hung up and taken nothing: the number is free for another call of the session.
		x.op = protocol.CallUnknown
		return
	}
	x.taken = true
	t := h.works[session.Call{Session: id, ID: m.Target}]
	if x.op == protocol.CallAbort && !x.lie && t != nil && !t.answered && !t.aborted {
		h.a.w.Fail(checkCalls.Property(), "an engine of node %d aborts call %d, and it goes on", h.n.It(), m.Target)
	}
	if x.op == protocol.CallDetach && h.sessions[id] != nil && !x.lie {
		h.sessions[id].leaves = true
		h.unwanted(func(call session.Call) bool { return call.Session == id })
	}
}

// says notes a call that an engine is about to send. A number under which the machine has taken a call is that call's,
// whatever a liar sends under it later.
func (h *host) says(at session.Call, x *said) {
	if was := h.said[at]; was == nil || !was.taken {
		h.said[at] = x
	}
}

// attach takes the first message of a connection.
func (h *host) attach(s *stream, body []byte) {
	e := h.a.engines[s.engine]
	var told protocol.AttachResponse
	h.step(func(out *session.Out) {
		h.machine.Attach(s.id, e.process(), body, out)
		if len(out.Sends) == 0 || told.Decode(out.Sends[0].Body, &limits) != nil {
			told = protocol.AttachResponse{}
		}
	})
	id := h.machine.Of(s.id).ID
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

// answers notes the answer that an engine is sent.
func answers(h *host, x session.Send) {
	var a protocol.EngineAnswer
	if protocol.MayBe(x.Body, protocol.TagEngineAnswer, &limits) && a.Decode(x.Body, &limits) == nil {
		if m := h.said[session.Call{Session: h.machine.Of(x.Conn).ID, ID: a.ID}]; m != nil {
			m.ended, m.told = true, x.Conn
		}
	}
}

// has says whether a session has calls that go on, or holds anything.
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

// exited tells the machine that a process is gone, and looks that none of its calls goes on for nobody.
func (h *host) exited(e *engineProcess) {
	h.step(func(out *session.Out) { h.machine.Exited(e.process(), out) })
	h.unwanted(func(call session.Call) bool {
		x := h.sessions[call.Session]
		return x != nil && x.engine == e.place
	})
}
