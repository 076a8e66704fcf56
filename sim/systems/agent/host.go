package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// all is what a world has of engines in processes of their own.
type all struct {
	w        *pd.Cluster
	hosts    []*host
	engines  []*engineProcess
	present  map[[2]int32]int // the engine of a node in a place
	streams  []*stream
	drawn    uint64
	healedAt int64
}

func of(w *pd.Cluster) *all {
	if w.Attached == nil {
		w.Attached = &all{w: w, hosts: make([]*host, len(w.Nodes)), present: map[[2]int32]int{}}
	}
	return w.Attached.(*all)
}

// draw is what comes next of what goes wrong here.
func (a *all) draw() draw.Of {
	a.drawn++
	return draw.Hash(a.w.Seed, draw.Engine, 1<<40, a.drawn)
}

// A host is the agent of one life of a node: what runtime/attach is.
type host struct {
	a        *all
	n        *world.Node
	life     uint32
	machine  *session.Machine
	out      session.Out
	draining bool
	jobs     map[session.Call]int            // of what is called for
	begun    map[session.Call]bool           // calls
	aborted  map[session.Call]bool           // likewise
	whose    map[uint64]int                  // engines of sessions
	works    map[session.Call]effects.Ticket // calls that are carried out, or whose memory is not back
	holds    map[session.Call]effects.Ticket // what they brought: commands of the rank's
	tickets  map[effects.Ticket]errand       // commands under way
	gone     map[effects.Ticket]bool         // given back to the rank
	ends     []end                           // of calls that no rank hears of
}

// An errand is what a command is for: a call, or a Free.
type errand struct {
	call  session.Call
	op    protocol.CallOp
	holds uint64 // what it gives back
	free  bool
}

type end struct {
	of   session.Call
	code effects.Code
}

const (
	windowMax   = 6
	holdingsMax = 12
	sessionsMax = 4
)

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
		h = &host{a: a, n: n, life: n.Life, jobs: map[session.Call]int{}, begun: map[session.Call]bool{},
			aborted: map[session.Call]bool{}, whose: map[uint64]int{},
			works: map[session.Call]effects.Ticket{}, holds: map[session.Call]effects.Ticket{},
			tickets: map[effects.Ticket]errand{}, gone: map[effects.Ticket]bool{}}
		layout := pd.Its(n).Cfg.Layout
		h.machine = session.New(session.Config{
			Told: protocol.AttachResponse{
				Version: protocol.AttachVersion, Life: lifeOf(n, n.Life), Window: windowMax, Format: layout.Format,
				Shape: layout.Shape, Dtype: layout.Dtype,
			},
			SessionsMax: sessionsMax, HoldingsMax: holdingsMax, Wire: limits,
		})
		a.hosts[n.ID] = h
	}
	if n.Draining && !h.draining {
		h.draining = true
		h.step(func(out *session.Out) { h.machine.Drain(out) })
	}
	return h
}

// step lets the machine do something, and carries out what it wants.
func (h *host) step(f func(out *session.Out)) {
	w, out := h.a.w, &h.out
	out.Reset()
	f(out)
	for _, x := range out.Sends {
		if s := h.a.streams[x.Conn-1]; !s.shutAgent {
			s.down = append(s.down, framed(x.Body)...)
			h.a.engines[s.engine].wake(h.a.draw().Heavy(effects.Millisecond))
		}
	}
	for _, x := range out.Begins {
		h.begin(x)
	}
	for _, x := range out.Aborts {
		h.aborted[x] = true
		t, ok := h.works[x]
		if c := (*pd.Command)(nil); ok && t != 0 {
			if c = &w.Commands[t-1]; !c.Over || c.Held {
				w.GiveAbort(h.n, t)
			}
		}
	}
	for _, x := range out.Frees {
		h.giveBack(errand{call: session.Call{Session: x.Session, ID: x.Holding}, holds: x.Holding, free: true})
	}
	for _, x := range out.Closes {
		s := h.a.streams[x.Conn-1]
		s.shutAgent = true
		if e := h.a.engines[s.engine]; e.s == s && s.attached && x.Why != "" && !e.lies {
			w.Fail(checkCalls.Property(), "node %d cuts an engine off that does nothing wrong: %s", h.n.It(), x.Why)
		}
		h.a.engines[s.engine].wake(h.a.draw().Heavy(effects.Millisecond))
	}
	for len(h.ends) > 0 {
		x := h.ends[0]
		h.ends = h.ends[1:]
		delete(h.works, x.of)
		h.step(func(out *session.Out) {
			h.machine.Ended(x.of, &protocol.EngineAnswer{ID: x.of.ID, Code: uint32(x.code)}, false, x.code != effects.OK, out)
		})
	}
}

func (h *host) heard(s *stream, body []byte) {
	switch e := h.a.engines[s.engine]; {
	case s.shutAgent:
	case s.first:
		h.step(func(out *session.Out) { h.machine.Heard(s.id, body, out) })
	case e.gone:
		s.shutAgent = true // The kernel knows.
	default:
		s.first = true
		h.step(func(out *session.Out) { h.machine.Attach(s.id, e.process(), body, out) })
		if x := h.machine.Of(s.id); x.ID != 0 {
			s.attached = true
			if was, ok := h.whose[x.ID]; ok && was != s.engine {
				h.a.w.Fail(checkHeld.Property(), "an engine of node %d goes on with session %d of another process", h.n.It(), x.ID)
			}
			h.whose[x.ID] = s.engine
		}
	}
}

// exited tells the machine that a process is gone, and looks that none of its calls goes on for nobody.
func (h *host) exited(e *engineProcess) {
	h.step(func(out *session.Out) { h.machine.Exited(e.process(), out) })
	pd.Judged(h.a.w, checkUnwanted)
	for call := range h.works {
		if i, ok := h.whose[call.Session]; ok && i == e.place && !h.aborted[call] {
			h.a.w.Fail(checkUnwanted.Property(), "a process of node %d is gone, and a call of its is not aborted", h.n.It())
			return
		}
	}
}

// begin has the rank carry a call out.
func (h *host) begin(b session.Begin) {
	w, n := h.a.w, h.n
	pd.Judged(w, checkOnce)
	if h.begun[b.Call] {
		w.Fail(checkOnce.Property(), "node %d begins call %d of session %d a second time", n.It(), b.ID, b.Session)
		return
	}
	h.begun[b.Call] = true
	h.works[b.Call] = 0
	x := errand{call: b.Call, op: b.Op, holds: b.Body.Target}
	job, known := h.jobs[b.Call]
	if !known && b.Op != protocol.CallRelease { // Of a lie.
		h.ends = append(h.ends, end{b.Call, effects.Invalid})
		return
	}
	if do := carried[b.Op]; do == nil || !do(h, x, b.Body, job) {
		h.ends = append(h.ends, end{b.Call, effects.Invalid})
	}
}

// carried are the calls that engines here make, when they do not lie: each gives the rank a command, or is refused.
//
//kvferry:table
var carried = map[protocol.CallOp]func(h *host, x errand, b *protocol.EngineCall, job int) bool{
	protocol.CallReserve: (*host).reserve, protocol.CallGet: (*host).get, protocol.CallContains: (*host).contains,
	protocol.CallPut: (*host).put, protocol.CallRelease: (*host).release,
}

func (h *host) reserve(x errand, b *protocol.EngineCall, job int) bool {
	if !h.n.Sends() || b.Count == 0 {
		return false
	}
	h.a.w.Jobs[job].Life = h.life
	t := h.give(x, pd.Command{Want: plan.WantReserve, Job: job, Count: b.Count, Body: &engine.Reserve{Count: b.Count}},
		pd.Its(h.n).Cfg.ReserveTimeout)
	h.a.w.MaybeAbort(h.n, t)
	return true
}

func (h *host) get(x errand, b *protocol.EngineCall, job int) bool {
	if !h.n.Receives() {
		return false
	}
	j := &h.a.w.Jobs[job]
	wait := min(effects.Duration(b.PatienceNS), pd.Its(h.n).Cfg.GetWaitMax)
	t := h.give(x, pd.Command{Want: plan.WantGet, Job: job, Body: &engine.Get{Request: j.Name, Keys: j.Keys, Wait: wait}},
		wait)
	h.a.w.MaybeAbort(h.n, t)
	return true
}

func (h *host) contains(x errand, _ *protocol.EngineCall, job int) bool {
	if !h.n.Receives() {
		return false
	}
	h.give(x, pd.Command{Want: plan.WantContains, Job: job, Body: &engine.Contains{Keys: h.a.w.Jobs[job].Keys}}, 0)
	return true
}

func (h *host) put(x errand, b *protocol.EngineCall, job int) bool {
	w, cfg := h.a.w, &pd.Its(h.n).Cfg
	j := &w.Jobs[job]
	held := h.holds[session.Call{Session: x.call.Session, ID: b.Target}]
	if held == 0 || w.Commands[held-1].Want != plan.WantReserve || w.Commands[held-1].Job != job || j.Batches[0].Put != 0 {
		return false
	}
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	pages := w.Commands[held-1].Pages
	j.Puts++
	j.Batches[0].Life, j.Batches[0].Reserve = r.Life, held
	t := h.give(x, pd.Command{Want: plan.WantPut, Job: job, Pages: pages, Body: &engine.Put{
		Peer:    engine.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port},
		Request: j.Name, Keys: j.Keys, Pages: pages, Layout: cfg.Layout, LastChunkTokens: j.TokensOf(len(j.Keys) - 1),
		Last: true,
	}}, cfg.PutTimeout)
	w.Jobs[job].Batches[0].Put = t
	w.MaybeAbort(h.n, t)
	return true
}

func (h *host) release(x errand, b *protocol.EngineCall, _ int) bool {
	if h.holds[session.Call{Session: x.call.Session, ID: b.Target}] == 0 {
		return false
	}
	h.giveBack(x)
	return true
}

// give gives a command for a call, or for what is given back.
func (h *host) give(x errand, c pd.Command, patience effects.Duration) effects.Ticket {
	c.Attached = true
	t := h.a.w.Give(h.n, c, patience)
	h.tickets[t] = x
	if !x.free {
		h.works[x.call] = t
	}
	return t
}

// giveBack gives back to the rank what a call brought.
func (h *host) giveBack(x errand) {
	w := h.a.w
	t := h.holds[session.Call{Session: x.call.Session, ID: x.holds}]
	c := pd.Command{Want: plan.WantRelease, Target: t, Body: &engine.Release{Reserved: t}}
	if w.Commands[t-1].Want == plan.WantGet {
		c.Want, c.Body = plan.WantUnpin, &engine.Unpin{Got: t}
	}
	h.gone[t] = true
	w.Jury.OnRelease(h.n, t)
	h.give(x, c, 0)
}

// ended takes the outcome of a command.
func ended(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !c.Attached || w.Failure != nil {
		return
	}
	h := of(w).host(n)
	x := h.tickets[e.Ticket]
	if !e.Held {
		delete(h.tickets, e.Ticket)
		delete(h.works, x.call)
	}
	at := session.Call{Session: x.call.Session, ID: x.holds}
	if x.free {
		delete(h.holds, at)
		h.step(func(out *session.Out) { h.machine.Freed(x.call.Session, x.holds, out) })
		return
	}
	a := protocol.EngineAnswer{ID: x.call.ID, Code: uint32(e.Code), Held: e.Held, Hits: e.Hits}
	brought := len(e.Pages) > 0 && (x.op == protocol.CallReserve || x.op == protocol.CallGet)
	if brought {
		h.holds[x.call] = e.Ticket
		for _, p := range e.Pages {
			a.Pages, a.Lengths = append(a.Pages, uint64(p.Index)), append(a.Lengths, uint64(p.Length))
		}
	}
	release := x.op == protocol.CallRelease
	stands := release && e.Code != effects.OK
	if release && !stands {
		delete(h.holds, at)
	}
	h.step(func(out *session.Out) { h.machine.Ended(x.call, &a, brought, stands, out) })
}

// returned takes the memory of a put that was held.
func returned(w *pd.Cluster, n *world.Node, c *pd.Command) {
	if !c.Attached || w.Failure != nil {
		return
	}
	h := of(w).host(n)
	for call, t := range h.works {
		if t != 0 && &w.Commands[t-1] == c {
			delete(h.tickets, t)
			delete(h.works, call)
			h.step(func(out *session.Out) { h.machine.Returned(call, out) })
			return
		}
	}
}

// holdsStill checks that what an engine holds by a command of its rank's was not given back.
func (h *host) holdsStill(t effects.Ticket, how string) bool {
	w := h.a.w
	pd.Judged(w, checkHeld)
	if h.lost(t) {
		w.Fail(checkHeld.Property(), "an engine %s what it has by ticket %d, and node %d has given that back", how,
			oracle.Ticket(t), h.n.It())
		return false
	}
	return true
}

// lost says whether what a command of the rank's gave was given back.
func (h *host) lost(t effects.Ticket) bool {
	c := &h.a.w.Commands[t-1]
	lost := h.gone[t] || c.Released
	for _, p := range c.Pages {
		lost = lost || c.Want == plan.WantReserve && h.n.Engine().Pages[p.Index].Reserved != t
	}
	return lost
}
