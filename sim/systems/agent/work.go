package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What an engine does with a job: it reserves, fills, puts, and releases; or it gets, reads, and releases. Between it
// takes its time.

// Phases of a task; each but the first waits for the call that it has made.
const (
	begins = iota
	comes  // pages that it asked for
	fills  // half of them is filled, or it reads
	puts
	leaves
)

// result takes the end of a task's call.
func (t *task) result(e *engineProcess) (x *asked, ok bool) {
	if t.call == nil || !t.call.ended() {
		return nil, false
	}
	x, t.call = t.call, nil
	return x, true
}

func (e *engineProcess) work(t *task) {
	w := e.a.w
	j := &w.Jobs[t.job]
	switch t.phase {
	case begins:
		m, op := protocol.EngineCall{Count: uint32(len(j.Keys))}, protocol.CallReserve
		if !t.sends {
			wait := e.a.draw().Span(effects.Millisecond, pd.Its(w.Nodes[e.node]).Cfg.GetWaitMax)
			m, op = protocol.EngineCall{PatienceNS: uint64(wait)}, protocol.CallGet
		}
		if t.call = e.ask(t, m, op); t.call != nil {
			t.phase, t.holds = comes, e.last
		}
	case comes:
		x, ok := t.result(e)
		switch {
		case !ok:
		case x.pages > 0:
			t.phase = fills
			if t.sends {
				e.fill(t, 0)
			}
			t.at = w.Now + int64(e.a.draw().Heavy(5*effects.Millisecond))
			e.wake(effects.Duration(t.at - w.Now))
		case t.tries < 2 && t.sends:
			t.tries++
			t.phase, t.at = begins, w.Now+int64(e.a.draw().Heavy(20*effects.Millisecond))
		default:
			e.over(t)
		}
	case fills:
		if t.sends {
			if t.call == nil {
				e.fill(t, 1)
			}
			if t.call = e.ask(t, protocol.EngineCall{Target: t.holds}, protocol.CallPut); t.call != nil {
				t.phase = puts
			}
			return
		}
		e.reads(t)
		e.leave(t)
	case puts:
		if _, ok := t.result(e); ok {
			e.fill(t, 2)
			e.leave(t)
		} else if t.call != nil && !t.call.answered && e.a.draw().Permille(20) && !w.Healed {
			// It does not wait: pages go back once the put is over.
			e.leave(t)
		}
	case leaves:
		if t.call == nil {
			e.leave(t)
		} else if _, ok := t.result(e); ok {
			e.over(t)
		}
	}
}

// leave gives back what a task has.
func (e *engineProcess) leave(t *task) {
	if x := e.ask(t, protocol.EngineCall{Target: t.holds}, protocol.CallRelease); x != nil {
		t.call, t.phase, e.held[t.holds] = x, leaves, false
		return
	}
	t.call, t.phase = nil, leaves
}

// command is the rank's command that gave a task its pages; nil: nothing that is of this agent's life.
func (e *engineProcess) command(t *task) (*host, *pd.Command, effects.Ticket) {
	h := e.a.host(e.a.w.Nodes[e.node])
	if h == nil || h.life != e.life {
		return nil, nil, 0
	}
	at := h.holds[session.Call{Session: e.session, ID: t.holds}]
	if at == 0 {
		if !e.lies {
			e.a.w.Fail(checkHeld.Property(), "what call %d brought an engine of node %d is not held any more", t.holds, h.n.It())
		}
		return nil, nil, 0
	}
	return h, &e.a.w.Commands[at-1], at
}

// fill writes a half of a task's chunks, or what they have nothing to do with.
func (e *engineProcess) fill(t *task, half int) {
	h, c, at := e.command(t)
	if h == nil || e.lies && (c.Job != t.job || h.lost(at)) || !e.lies && !h.holdsStill(at, "fills") {
		return
	}
	w := e.a.w
	j := &w.Jobs[t.job]
	if half == 0 {
		c.Count = w.NewFill()
		for i := range c.Pages {
			c.Pages[i].Length = uint32(uint64(h.n.Pool.PageBytes) * uint64(j.TokensOf(i)) / world.Parts)
		}
	}
	for i, p := range c.Pages {
		pg := &h.n.Engine().Pages[p.Index]
		if half == 2 {
			pg.Stamps = [world.Parts]world.Stamp{}
			h.n.Engine().Touch(p.Index)
			continue
		}
		for part := half * world.Parts / 2; part < (half+1)*world.Parts/2; part++ {
			pg.Stamps[part] = world.MakeStamp(j.Ids[i], c.Count<<5|uint32(i), part)
		}
	}
}

// reads has an engine read once more what it got.
func (e *engineProcess) reads(t *task) {
	if h, c, at := e.command(t); h != nil && (e.lies || h.holdsStill(at, "reads")) && c.Job == t.job && !e.lies {
		e.a.w.Jury.OnRead(h.n, &e.a.w.Jobs[t.job], c.Pages)
	}
}
