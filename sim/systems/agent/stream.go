package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// A stream is a connection from an engine to the agent of the node.
type stream struct {
	state             *state `snap:"skip"`
	id                session.Conn
	node              int32
	incarnation       uint32 // incarnation of the agent
	engine            int    // index of the engine
	toAgent, toEngine []byte // bytes in flight to the agent and to the engine
	readableAt        int64  `snap:"instant"` // the agent does not read before this time
	openedAt          int64  `snap:"skip"`
	readScheduled     bool   `snap:"skip"` // in a small world: a read by the agent is scheduled
	firstReceived     bool   // the agent has received the first message
	attached          bool   // the agent has accepted the first message
	closedByAgent     bool   // closed by the agent, or cut
	closedByEngine    bool   // closed by the engine, or cut
	ended             bool   // the agent has read the whole stream
}

// scheduleRead schedules a read by the agent after the given time.
func (s *stream) scheduleRead(in effects.Duration) {
	if s.readScheduled {
		return
	}
	s.readScheduled = s.state.isSmallWorld()
	s.state.w.QueueAfter(in, world.Delivery{Kind: world.KindAttached, Node: -1, A: deliveryRead, B: uint64(s.id)})
}

// readFrames makes the agent read. At times only a part of the bytes is read, so that a frame may be incomplete.
func (s *stream) readFrames() {
	s.readScheduled = false
	w := s.state.w
	n := w.Nodes[s.node]
	h := s.state.hostOf(n)
	if h == nil || h.incarnation != s.incarnation || s.ended {
		return
	}
	if n.ResumeAt > w.Now {
		s.scheduleRead(effects.Duration(n.ResumeAt-w.Now) + effects.Millisecond)
		return
	}
	if s.readableAt > w.Now {
		s.scheduleRead(effects.Duration(s.readableAt - w.Now))
		return
	}
	count := len(s.toAgent)
	if d := s.state.nextDraw(); d.ChanceIfRandom(300) && count > 0 {
		count = int(d.Rehash().Below(uint64(count + 1)))
		s.scheduleRead(d.Rehash().Rehash().HeavyTail(effects.Millisecond))
	}
	part, rest := s.toAgent[:count:count], s.toAgent[count:]
	for {
		body, after, ok := protocol.CutFrame(part)
		if !ok {
			break
		}
		part = after
		h.handleFrame(s, body)
	}
	s.toAgent = append(part, rest...)
	if s.closedByEngine && len(rest) == 0 && !s.ended {
		s.ended, s.closedByAgent = true, true
		h.stepMachine(func(out *session.Effects) { h.machine.OnConnLost(s.id, out) })
	}
}

// cut closes the stream on both ends and loses a random part of the bytes in flight.
func (s *stream) cut() {
	s.toAgent = s.toAgent[:s.state.nextDraw().Below(uint64(len(s.toAgent)+1))]
	s.toEngine = s.toEngine[:s.state.nextDraw().Below(uint64(len(s.toEngine)+1))]
	s.closedByAgent, s.closedByEngine = true, true
	s.scheduleRead(s.state.drawDelay(5 * effects.Millisecond))
}

// hostEnded reports whether the incarnation of the agent at the other end has ended.
func (s *stream) hostEnded() bool {
	n := s.state.w.Nodes[s.node]
	return !n.Up || n.Incarnation != s.incarnation
}
