//go:build cgo && linux

package gateway

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
	"github.com/kvferry/kvferry/runtime/libnixl"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
)

// An end is an agent of this gateway with a goroutine. No other goroutine uses the agent.
type end struct {
	g         *Gateway
	number    machine.Agent
	orders    epochs.Inbox
	side      *side        // nil: no side channel: no engine asks about this agent
	dismissed bool         // requestClose was called; belongs to the machine's goroutine
	notes     atomic.Int64 // bytes of notes that are queued for the machine

	agent    *libnixl.Agent
	memory   *libnixl.Memory
	jobs     []*job // in order; the first ones have batches in flight
	unclosed []*libnixl.Transfer
	failed   bool // nothing more is written by this agent
	over     bool
}

// begin makes an agent in another goroutine, because libnixl needs tens of milliseconds, and reports the result to the
// machine.
func (g *Gateway) begin(a machine.Agent, regions []plane.Region, isWritten bool) {
	if g.over { // leave already waits for all agents
		g.count(func(s *Stats) { s.AgentsMade.add(false) })
		g.inbox.Push(func(now effects.Time) { g.m.OnAgentMade(now, a, 0, effects.Closed, &g.out) })
		return
	}
	g.wg.Go(func() {
		port := uint16(0)
		e, err := g.newEnd(a, regions)
		if err == nil && isWritten {
			port, err = e.serve(0)
		}
		if err == nil {
			g.wg.Add(1) // before the machine's goroutine can wait for all agents
			go e.run()
		}
		var stays error
		if err != nil && e != nil {
			stays = e.close()
		}
		g.inbox.Push(func(now effects.Time) {
			g.count(func(s *Stats) { s.AgentsMade.add(err == nil) })
			code := effects.OK
			if stays != nil {
				g.keepMemory(a, stays)
			}
			if err != nil {
				g.log.Warn("an agent cannot be made", "err", err)
				code = effects.Faulted
			} else {
				g.ends[a] = e
				if g.over {
					g.dismiss(e)
				}
			}
			g.m.OnAgentMade(now, a, port, code, &g.out)
		})
	})
}

// makeEnd makes an agent at once.
func (g *Gateway) makeEnd(a machine.Agent, regions []plane.Region, port uint16) (*end, error) {
	e, err := g.newEnd(a, regions)
	if err != nil {
		return nil, err
	}
	if _, err := e.serve(port); err != nil {
		return nil, errors.Join(err, e.close())
	}
	g.ends[a] = e
	g.count(func(s *Stats) {
		s.AgentsMade.add(true)
		s.Agents++
	})
	g.wg.Add(1)
	go e.run()
	return e, nil
}

// newEnd makes an agent and registers the regions.
func (g *Gateway) newEnd(a machine.Agent, regions []plane.Region) (*end, error) {
	name := fmt.Sprintf("kvf-%x-%d", g.env.Incarnation, a)
	agent, err := g.cfg.Library.NewAgent(libnixl.AgentOptions{Name: name, Params: g.cfg.params()})
	if err != nil {
		return nil, err
	}
	e := &end{g: g, number: a, orders: epochs.NewInbox(), agent: agent}
	var ranges []libnixl.Range
	for _, r := range regions {
		ranges = append(ranges, libnixl.Range{Address: uint64(r.Base), Bytes: r.Bytes})
	}
	if len(ranges) > 0 {
		if e.memory, err = agent.Register(libnixl.Host, ranges...); err != nil {
			return nil, errors.Join(err, e.close())
		}
	}
	return e, nil
}

// serve opens the side channel that tells engines how to reach the agent.
func (e *end) serve(port uint16) (uint16, error) {
	metadata, err := e.agent.Metadata()
	if err != nil {
		return 0, err
	}
	e.side, port, err = e.g.openSide(e.number, metadata, port)
	return port, err
}

// close destroys the agent. A nil error is the proof that nothing can reach memory through the agent any more (M4).
func (e *end) close() error {
	if e.side != nil {
		e.side.close()
	}
	var err error
	for _, j := range e.jobs {
		for _, f := range j.inFlight {
			err = errors.Join(err, f.Close())
		}
		j.inFlight = nil
	}
	for _, t := range e.unclosed {
		err = errors.Join(err, t.Close())
	}
	if e.memory != nil {
		err = errors.Join(err, e.memory.Close())
	}
	if err != nil {
		return err // the agent stays, because its transfers or memory could not be closed
	}
	return e.agent.Close()
}

// Pauses between two polls of an agent: short while something happens, then longer. libnixl signals no arrival of
// notes.
const (
	shortPause = 50 * time.Microsecond
	longPause  = 2 * time.Millisecond
)

// run polls the agent until the agent is closed.
func (e *end) run() {
	defer e.g.wg.Done()
	pause := shortPause
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !e.over {
		select {
		case <-e.orders.Wake():
			pause = shortPause
		case <-timer.C:
		}
		for _, f := range e.orders.TakeAll() {
			f(plane.Now())
		}
		if e.over {
			break
		}
		if e.poll() {
			pause = shortPause
		} else {
			pause = min(2*pause, longPause)
		}
		timer.Reset(pause)
	}
}

// poll continues what the agent has in flight, and reports whether anything happened.
func (e *end) poll() bool {
	if e.failed {
		return false
	}
	notices, err := e.agent.Notices()
	if err != nil {
		e.fail(err)
		return true
	}
	for _, n := range notices {
		e.takeNote(n)
	}
	return e.write() || len(notices) > 0
}

// notesBytes bounds the queued notes of an agent: no note is added once they reach this number of bytes. Each note
// counts as noteBytes more than its length. Any process may send notes, and the library has no bound.
const (
	notesBytes = 64 << 20
	noteBytes  = 512
)

// takeNote passes a note to the machine, unless the note is too long or too many notes are queued.
func (e *end) takeNote(n libnixl.Notice) {
	g, bytes := e.g, int64(len(n.Peer)+len(n.Bytes)+noteBytes)
	fits := len(n.Bytes) <= g.cfg.Wire.MessageBytes && e.notes.Load() < notesBytes
	g.count(func(s *Stats) { s.NotesReceived.add(fits) })
	if !fits {
		g.seldom.Warn("a note is dropped: it is too long, or too many wait", n.Peer, "bytes", len(n.Bytes))
		return
	}
	e.notes.Add(bytes)
	g.inbox.Push(func(now effects.Time) {
		e.notes.Add(-bytes)
		g.m.OnNotification(now, e.number, n.Peer, n.Bytes, &g.out)
	})
}

// load makes an agent of this gateway load the metadata of an engine's agent and connect to the engine.
func (g *Gateway) load(l machine.Load) {
	e := g.ends[l.Agent]
	if e == nil {
		g.count(func(s *Stats) { s.AgentsLoaded.add(false) })
		g.inbox.Push(func(now effects.Time) { g.m.OnAgentLoaded(now, l.LoadID, "", effects.Closed, &g.out) })
		return
	}
	e.orders.Push(func(effects.Time) {
		code := effects.OK
		name, err := e.agent.Load(l.Metadata)
		if err == nil {
			err = e.agent.Connect(name)
		}
		if err != nil {
			g.seldom.Warn("an agent's metadata cannot be loaded", "", "err", err)
			code = effects.Faulted
		}
		g.count(func(s *Stats) { s.AgentsLoaded.add(err == nil) })
		g.inbox.Push(func(now effects.Time) { g.m.OnAgentLoaded(now, l.LoadID, name, code, &g.out) })
	})
}

// say sends a note.
func (g *Gateway) say(s machine.Notification) {
	e := g.ends[s.Agent]
	unsaid := func(now effects.Time) { g.m.OnNotificationFailed(now, s.Agent, s.Tag, &g.out) }
	if e == nil {
		g.count(func(n *Stats) { n.NotesSent.add(false) })
		g.log.Warn("a note cannot be sent: our agent is gone", "to", s.To, "bytes", len(s.Body))
		g.inbox.Push(unsaid)
		return
	}
	e.orders.Push(func(effects.Time) {
		err := e.agent.Notify(s.To, s.Body)
		g.count(func(n *Stats) { n.NotesSent.add(err == nil) })
		if err != nil {
			g.seldom.Warn("a note cannot be sent", s.To, "bytes", len(s.Body), "err", err)
			g.inbox.Push(unsaid)
		}
	})
}

// destroy makes an agent end.
func (g *Gateway) destroy(a machine.Agent) {
	if e := g.ends[a]; e != nil {
		g.dismiss(e)
		return
	}
	g.inbox.Push(func(now effects.Time) { g.m.OnAgentDestroyed(now, a, effects.OK, &g.out) })
}

// dismiss ends an agent, once.
func (g *Gateway) dismiss(e *end) {
	if e.dismissed {
		return
	}
	e.dismissed = true
	e.orders.Push(func(effects.Time) {
		e.over = true
		open := e.jobs
		err := e.close()
		g.inbox.Push(func(now effects.Time) { g.onClosed(now, e, open, err) })
	})
}

// keepMemory records that an agent could not be destroyed. The agent may have the pool registered until the process
// ends, so the memory must stay (rule M4 in docs/safety.md).
func (g *Gateway) keepMemory(a machine.Agent, err error) {
	g.log.Error("an agent could not be destroyed: what it may reach stays as it is", "err", err)
	g.left = errors.Join(g.left,
		fmt.Errorf("agent %d could not be destroyed: memory stays until this process ends: %w", a, err))
}

// onClosed handles the outcome of closing an agent: the agent is gone, or could not be destroyed.
func (g *Gateway) onClosed(now effects.Time, e *end, open []*job, err error) {
	code := effects.OK
	if err != nil {
		code = effects.Faulted
		g.keepMemory(e.number, err)
	} else {
		delete(g.ends, e.number)
	}
	for _, j := range open {
		g.settle(j, effects.PeerLost, err == nil)
	}
	for id, l := range g.links {
		if l.end == e && !l.lost {
			l.lost = true
			g.out.Events = append(g.out.Events, &effects.LinkLost{Link: id, Peer: l.peer})
		}
	}
	g.m.OnAgentDestroyed(now, e.number, code, &g.out)
}
