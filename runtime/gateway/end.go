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

// An end is an agent of ours, with the goroutine that asks it. The agent is that goroutine's alone.
type end struct {
	g      *Gateway
	number machine.Agent
	orders epochs.Inbox
	side   *side        // nil: nobody asks about it
	leaves bool         // the machine's goroutine's: it was told to go
	notes  atomic.Int64 // bytes of those that wait for the machine

	agent   *libnixl.Agent
	memory  *libnixl.Memory
	flights []*job // that are being written, in order; the first ones have a batch under way
	strays  []*libnixl.Transfer
	failed  bool // nothing is written by it any more
	over    bool
}

// begin makes an agent aside, as that takes tens of milliseconds, and tells the machine.
func (g *Gateway) begin(a machine.Agent, regions []plane.Region, isWritten bool) {
	if g.over { // All agents are waited for already.
		g.count(func(s *Stats) { s.Made.add(false) })
		g.inbox.Push(func(now effects.Time) { g.m.Made(now, a, 0, effects.Closed, &g.out) })
		return
	}
	g.wg.Go(func() {
		port := uint16(0)
		e, err := g.newEnd(a, regions)
		if err == nil && isWritten {
			port, err = e.serve(0)
		}
		if err == nil {
			g.wg.Add(1) // Before the machine's goroutine could wait for all.
			go e.run()
		}
		var stays error
		if err != nil && e != nil {
			stays = e.close()
		}
		g.inbox.Push(func(now effects.Time) {
			g.count(func(s *Stats) { s.Made.add(err == nil) })
			code := effects.OK
			if stays != nil {
				g.stays(a, stays)
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
			g.m.Made(now, a, port, code, &g.out)
		})
	})
}

// makeEnd makes one that is there at once.
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
		s.Made.add(true)
		s.Agents++
	})
	g.wg.Add(1)
	go e.run()
	return e, nil
}

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

// serve opens the side channel that says how the agent is reached.
func (e *end) serve(port uint16) (uint16, error) {
	metadata, err := e.agent.Metadata()
	if err != nil {
		return 0, err
	}
	e.side, port, err = e.g.openSide(e.number, metadata, port)
	return port, err
}

// close destroys the agent; nil says that it has no part in anything any more.
func (e *end) close() error {
	if e.side != nil {
		e.side.close()
	}
	var err error
	for _, j := range e.flights {
		for _, f := range j.flying {
			err = errors.Join(err, f.Close())
		}
		j.flying = nil
	}
	for _, t := range e.strays {
		err = errors.Join(err, t.Close())
	}
	if e.memory != nil {
		err = errors.Join(err, e.memory.Close())
	}
	if err != nil {
		return err // The agent would not be let go.
	}
	return e.agent.Close()
}

// Pauses between two looks at an agent: short while something goes on, then longer. Nobody says when a note will come.
const (
	shortPause = 50 * time.Microsecond
	longPause  = 2 * time.Millisecond
)

// run asks the agent until it is to go.
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
		for _, f := range e.orders.Take() {
			f(plane.Now())
		}
		if e.over {
			break
		}
		if e.look() {
			pause = shortPause
		} else {
			pause = min(2*pause, longPause)
		}
		timer.Reset(pause)
	}
}

// look carries on what the agent has under way, and says whether anything came of it.
func (e *end) look() bool {
	if e.failed {
		return false
	}
	notices, err := e.agent.Notices()
	if err != nil {
		e.fail(err)
		return true
	}
	for _, n := range notices {
		e.heard(n)
	}
	return e.write() || len(notices) > 0
}

// Notes to one agent wait for the machine, up to so many bytes and one note more; each counts as if it had some more.
// Anybody sends them, and the library bounds nothing.
const (
	notesBytes = 64 << 20
	noteBytes  = 512
)

// heard gives the machine a note, if that can be one and not too many wait.
func (e *end) heard(n libnixl.Notice) {
	g, bytes := e.g, int64(len(n.Peer)+len(n.Bytes)+noteBytes)
	fits := len(n.Bytes) <= g.cfg.Wire.MessageBytes && e.notes.Load() < notesBytes
	g.count(func(s *Stats) { s.Heard.add(fits) })
	if !fits {
		g.seldom.Warn("a note is dropped: it is too long, or too many wait", n.Peer, "bytes", len(n.Bytes))
		return
	}
	e.notes.Add(bytes)
	g.inbox.Push(func(now effects.Time) {
		e.notes.Add(-bytes)
		g.m.Noted(now, e.number, n.Peer, n.Bytes, &g.out)
	})
}

// load has the agent know another one.
func (g *Gateway) load(l machine.Load) {
	e := g.ends[l.Agent]
	if e == nil {
		g.count(func(s *Stats) { s.Loaded.add(false) })
		g.inbox.Push(func(now effects.Time) { g.m.Loaded(now, l.Question, "", effects.Closed, &g.out) })
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
		g.count(func(s *Stats) { s.Loaded.add(err == nil) })
		g.inbox.Push(func(now effects.Time) { g.m.Loaded(now, l.Question, name, code, &g.out) })
	})
}

// say sends a note.
func (g *Gateway) say(s machine.Say) {
	e := g.ends[s.Agent]
	unsaid := func(now effects.Time) { g.m.Unsaid(now, s.Agent, s.Tag, &g.out) }
	if e == nil {
		g.count(func(n *Stats) { n.Said.add(false) })
		g.log.Warn("a note cannot be sent: our agent is gone", "to", s.To, "bytes", len(s.Body))
		g.inbox.Push(unsaid)
		return
	}
	e.orders.Push(func(effects.Time) {
		err := e.agent.Notify(s.To, s.Body)
		g.count(func(n *Stats) { n.Said.add(err == nil) })
		if err != nil {
			g.seldom.Warn("a note cannot be sent", s.To, "bytes", len(s.Body), "err", err)
			g.inbox.Push(unsaid)
		}
	})
}

// destroy has an agent go.
func (g *Gateway) destroy(a machine.Agent) {
	if e := g.ends[a]; e != nil {
		g.dismiss(e)
		return
	}
	g.inbox.Push(func(now effects.Time) { g.m.Destroyed(now, a, effects.OK, &g.out) })
}

// dismiss ends an agent, once.
func (g *Gateway) dismiss(e *end) {
	if e.leaves {
		return
	}
	e.leaves = true
	e.orders.Push(func(effects.Time) {
		e.over = true
		open := e.flights
		err := e.close()
		g.inbox.Push(func(now effects.Time) { g.parted(now, e, open, err) })
	})
}

// stays notes that an agent could not be destroyed. It may have the pool registered for ever.
func (g *Gateway) stays(a machine.Agent, err error) {
	g.log.Error("an agent could not be destroyed: what it may reach stays as it is", "err", err)
	g.left = errors.Join(g.left,
		fmt.Errorf("agent %d could not be destroyed: memory stays until this process ends: %w", a, err))
}

// parted takes an agent's end, or that it has none.
func (g *Gateway) parted(now effects.Time, e *end, open []*job, err error) {
	code := effects.OK
	if err != nil {
		code = effects.Faulted
		g.stays(e.number, err)
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
	g.m.Destroyed(now, e.number, code, &g.out)
}
