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
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/epochs"
)

// An ownAgent is an agent of this gateway with a goroutine. No other goroutine uses the agent.
type ownAgent struct {
	g                *Gateway
	id               machine.Agent
	inbox            epochs.Inbox
	sideServer       *sideServer  // nil: no side channel: no engine asks about this agent
	closeRequested   bool         // requestClose was called; belongs to the machine's goroutine
	pendingNoteBytes atomic.Int64 // bytes of notes that are queued for the machine

	agent             nixlproc.Agent
	memory            nixlproc.Memory
	jobs              []*writeJob // in order; the first ones have batches in flight
	unclosedTransfers []nixlproc.Transfer
	failed            bool // nothing more is written by this agent
	ended             bool
	generation        int          // of the front's agent: how often it was made anew
	nextRenewal       effects.Time // when the front's agent, which failed, is made anew
}

// startAgent makes an agent in another goroutine, because libnixl needs tens of milliseconds, and reports the result to
// the machine.
func (g *Gateway) startAgent(a machine.Agent, regions []plane.Region, isWritten bool) {
	if g.closing { // leave already waits for all agents
		g.updateStats(func(s *Stats) { s.AgentsMade.countOutcome(false) })
		g.inbox.Push(func(now effects.Time) { g.m.OnAgentMade(now, a, 0, effects.Closed, &g.out) })
		return
	}
	g.wg.Go(func() {
		port := uint16(0)
		e, err := g.newAgent(a, regions)
		if err == nil && isWritten {
			port, err = e.openSideChannel(0)
		}
		if err == nil {
			g.wg.Add(1) // before the machine's goroutine can wait for all agents
			go e.runLoop()
		}
		var closeErr error
		if err != nil && e != nil {
			closeErr = e.closeAgent()
		}
		g.inbox.Push(func(now effects.Time) {
			g.updateStats(func(s *Stats) { s.AgentsMade.countOutcome(err == nil) })
			code := effects.OK
			if closeErr != nil {
				g.keepMemory(a, closeErr)
			}
			if err != nil {
				g.log.Warn("an agent cannot be made", "err", err)
				code = effects.Faulted
			} else {
				g.agents[a] = e
				if g.closing {
					g.requestClose(e)
				}
			}
			g.m.OnAgentMade(now, a, port, code, &g.out)
		})
	})
}

// makeAgent makes an agent at once.
func (g *Gateway) makeAgent(a machine.Agent, regions []plane.Region, port uint16) (*ownAgent, error) {
	e, err := g.newAgent(a, regions)
	if err != nil {
		return nil, err
	}
	if _, err := e.openSideChannel(port); err != nil {
		return nil, errors.Join(err, e.closeAgent())
	}
	g.agents[a] = e
	g.updateStats(func(s *Stats) {
		s.AgentsMade.countOutcome(true)
		s.Agents++
	})
	g.wg.Add(1)
	go e.runLoop()
	return e, nil
}

// newAgent makes an agent and registers the regions.
func (g *Gateway) newAgent(a machine.Agent, regions []plane.Region) (*ownAgent, error) {
	e := &ownAgent{g: g, id: a, inbox: epochs.NewInbox()}
	if err := e.makeAgent(fmt.Sprintf("kvf-%x-%d", g.env.Incarnation, a), regions); err != nil {
		return nil, err
	}
	return e, nil
}

// makeAgent makes the agent of libnixl and registers the regions. After an error no agent remains.
func (e *ownAgent) makeAgent(name string, regions []plane.Region) (err error) {
	e.agent, err = e.g.host.NewAgent(libnixl.AgentOptions{Name: name, Params: e.g.cfg.backendParams()}, nil)
	if err != nil {
		return err
	}
	var ranges []libnixl.Range
	for _, r := range regions {
		ranges = append(ranges, libnixl.Range{Address: uint64(r.Base), Bytes: r.Bytes})
	}
	if len(ranges) > 0 {
		if e.memory, err = e.agent.RegisterMemory(ranges...); err != nil {
			return errors.Join(err, e.agent.Close())
		}
	}
	return nil
}

// openSideChannel opens the side channel that tells engines how to reach the agent.
func (e *ownAgent) openSideChannel(port uint16) (uint16, error) {
	metadata, err := e.agent.Metadata()
	if err != nil {
		return 0, err
	}
	e.sideServer, port, err = e.g.newSideServer(e.id, metadata, port)
	return port, err
}

// closeAgent destroys the agent. A nil error is the proof that nothing can reach memory through the agent any more
// (M4).
func (e *ownAgent) closeAgent() error {
	if e.sideServer != nil {
		e.sideServer.shutDown()
	}
	if e.failed && e.id == machine.Front && e.agent.Ended() != nil {
		return nil // Closed by failAgent, and not made anew.
	}
	return e.closeHandles()
}

// closeHandles destroys the agent of libnixl with all that it has.
func (e *ownAgent) closeHandles() error {
	var err error
	for _, j := range e.jobs {
		for _, f := range j.inFlight {
			err = errors.Join(err, f.Close())
		}
		j.inFlight = nil
	}
	for _, t := range e.unclosedTransfers {
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

// runLoop polls the agent until the agent is closed.
func (e *ownAgent) runLoop() {
	defer e.g.wg.Done()
	pause := shortPause
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !e.ended {
		select {
		case <-e.inbox.Wake():
			pause = shortPause
		case <-timer.C:
		}
		for _, f := range e.inbox.TakeAll() {
			f(plane.Now())
		}
		if e.ended {
			break
		}
		if e.pollAgent() {
			pause = shortPause
		} else {
			pause = min(2*pause, longPause)
		}
		timer.Reset(pause)
	}
}

// pollAgent continues what the agent has in flight, and reports whether anything happened.
func (e *ownAgent) pollAgent() bool {
	if e.failed && !e.renewFront() {
		return false
	}
	notices, err := e.agent.PollNotices()
	if err != nil {
		e.failAgent(err)
		return true
	}
	for _, n := range notices {
		e.receiveNote(n)
	}
	return e.continueWrites() || len(notices) > 0
}

// renewalPause is the time between two attempts to make the front's agent anew.
const renewalPause = effects.Duration(500 * time.Millisecond)

// renewFront makes the front's agent anew when its process has ended, and reports whether it has an agent again. The
// side channel stays, and tells engines of the new agent. Engines that know the old one ask again when their
// registration fails.
func (e *ownAgent) renewFront() bool {
	g, now := e.g, plane.Now()
	if e.id != machine.Front || e.agent.Ended() == nil || now < e.nextRenewal {
		return false
	}
	e.nextRenewal = now.Add(renewalPause)
	next := &ownAgent{g: g, id: e.id}
	e.generation++
	err := next.makeAgent(fmt.Sprintf("kvf-%x-%d-%d", g.env.Incarnation, e.id, e.generation), g.frontRegions())
	if err != nil {
		g.limitedLog.Warn("the agent that receives registrations cannot be made anew yet", "", "err", err)
		return false
	}
	metadata, err := next.agent.Metadata()
	if err != nil {
		g.limitedLog.Warn("the agent that receives registrations cannot be made anew yet", "", "err", errors.Join(err, next.agent.Close()))
		return false
	}
	e.agent, e.memory, e.failed = next.agent, next.memory, false
	e.sideServer.metadata.Store(&metadata)
	g.log.Info("the agent that receives registrations was made anew", "generation", e.generation)
	return true
}

// pendingNotesMax bounds the queued notes of an agent: no note is added once they reach this number of bytes. Each note
// counts as noteOverhead more than its length. Any process may send notes, and the library has no bound.
const (
	pendingNotesMax = 64 << 20
	noteOverhead    = 512
)

// receiveNote passes a note to the machine, unless the note is too long or too many notes are queued.
func (e *ownAgent) receiveNote(n libnixl.Notice) {
	g, bytes := e.g, int64(len(n.Peer)+len(n.Bytes)+noteOverhead)
	fits := len(n.Bytes) <= g.cfg.MessageLimits.MessageBytes && e.pendingNoteBytes.Load() < pendingNotesMax
	g.updateStats(func(s *Stats) { s.NotesReceived.countOutcome(fits) })
	if !fits {
		g.limitedLog.Warn("a note is dropped, because the note is too long or too many notes are queued", n.Peer, "bytes", len(n.Bytes))
		return
	}
	e.pendingNoteBytes.Add(bytes)
	g.inbox.Push(func(now effects.Time) {
		e.pendingNoteBytes.Add(-bytes)
		g.m.OnNotification(now, e.id, n.Peer, n.Bytes, &g.out)
	})
}

// loadMetadata makes an agent of this gateway load the metadata of an engine's agent and connect to the engine.
func (g *Gateway) loadMetadata(l machine.Load) {
	e := g.agents[l.Agent]
	if e == nil {
		g.updateStats(func(s *Stats) { s.AgentsLoaded.countOutcome(false) })
		g.inbox.Push(func(now effects.Time) { g.m.OnAgentLoaded(now, l.LoadID, "", effects.Closed, &g.out) })
		return
	}
	e.inbox.Push(func(effects.Time) {
		code := effects.OK
		name, err := e.agent.LoadMetadata(l.Metadata)
		if err == nil {
			err = e.agent.ConnectPeer(name)
		}
		if err != nil {
			g.limitedLog.Warn("an agent's metadata cannot be loaded", "", "err", err)
			code = effects.Faulted
		}
		g.updateStats(func(s *Stats) { s.AgentsLoaded.countOutcome(err == nil) })
		g.inbox.Push(func(now effects.Time) { g.m.OnAgentLoaded(now, l.LoadID, name, code, &g.out) })
	})
}

// sendNote sends a note.
func (g *Gateway) sendNote(s machine.Notification) {
	e := g.agents[s.Agent]
	reportFailure := func(now effects.Time) { g.m.OnNotificationFailed(now, s.Agent, s.Tag, &g.out) }
	if e == nil {
		g.updateStats(func(n *Stats) { n.NotesSent.countOutcome(false) })
		g.log.Warn("a note cannot be sent: our agent is gone", "to", s.To, "bytes", len(s.Body))
		g.inbox.Push(reportFailure)
		return
	}
	e.inbox.Push(func(effects.Time) {
		err := e.agent.SendNotice(s.To, s.Body)
		g.updateStats(func(n *Stats) { n.NotesSent.countOutcome(err == nil) })
		if err != nil {
			g.limitedLog.Warn("a note cannot be sent", s.To, "bytes", len(s.Body), "err", err)
			g.inbox.Push(reportFailure)
		}
	})
}

// destroyAgent makes an agent end.
func (g *Gateway) destroyAgent(a machine.Agent) {
	if e := g.agents[a]; e != nil {
		g.requestClose(e)
		return
	}
	g.inbox.Push(func(now effects.Time) { g.m.OnAgentDestroyed(now, a, effects.OK, &g.out) })
}

// requestClose ends an agent, once.
func (g *Gateway) requestClose(e *ownAgent) {
	if e.closeRequested {
		return
	}
	e.closeRequested = true
	e.inbox.Push(func(effects.Time) {
		e.ended = true
		open := e.jobs
		err := e.closeAgent()
		g.inbox.Push(func(now effects.Time) { g.onAgentClosed(now, e, open, err) })
	})
}

// keepMemory records that an agent could not be destroyed. The agent may have the pool registered until the process
// ends, so the memory must stay (rule M4 in docs/safety.md).
func (g *Gateway) keepMemory(a machine.Agent, err error) {
	g.log.Error("an agent could not be destroyed: the memory that the agent may reach stays mapped", "err", err)
	g.closeErr = errors.Join(g.closeErr,
		fmt.Errorf("agent %d could not be destroyed: memory stays until this process ends: %w", a, err))
}

// onAgentClosed handles the outcome of closing an agent: the agent is gone, or could not be destroyed.
func (g *Gateway) onAgentClosed(now effects.Time, e *ownAgent, open []*writeJob, err error) {
	code := effects.OK
	if err != nil {
		code = effects.Faulted
		g.keepMemory(e.id, err)
	} else {
		delete(g.agents, e.id)
	}
	for _, j := range open {
		g.settleJob(j, effects.PeerLost, err == nil)
	}
	for id, l := range g.links {
		if l.agent == e && !l.lost {
			l.lost = true
			g.out.Events = append(g.out.Events, &effects.LinkLost{Link: id, Peer: l.peer})
		}
	}
	g.m.OnAgentDestroyed(now, e.id, code, &g.out)
}
