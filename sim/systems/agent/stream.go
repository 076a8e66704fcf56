package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// A stream is a connection from an engine to the agent of the node.
type stream struct {
	a          *all `snap:"skip"`
	id         session.Conn
	node       int32
	life       uint32 // incarnation of the agent
	engine     int    // index of the engine
	up, down   []byte // bytes in flight to the agent and to the engine
	servedAt   int64  `snap:"instant"` // the agent does not read before this time
	since      int64  `snap:"skip"`
	due        bool   `snap:"skip"` // in a small world: a read by the agent is scheduled
	first      bool   // the agent has received the first message
	attached   bool   // the agent has accepted the first message
	shutAgent  bool   // closed by the agent, or cut
	shutEngine bool   // closed by the engine, or cut
	over       bool   // the agent has read the whole stream
}

// soon schedules a read by the agent after the given time.
func (s *stream) soon(in effects.Duration) {
	if s.due {
		return
	}
	s.due = s.a.small()
	s.a.w.After(in, world.Delivery{Kind: world.KindAttached, Node: -1, A: reads, B: uint64(s.id)})
}

// arrives makes the agent read. At times only a part of the bytes is read, so that a frame may be incomplete.
func (s *stream) arrives() {
	s.due = false
	w := s.a.w
	n := w.Nodes[s.node]
	h := s.a.host(n)
	if h == nil || h.life != s.life || s.over {
		return
	}
	if n.Thaw > w.Now {
		s.soon(effects.Duration(n.Thaw-w.Now) + effects.Millisecond)
		return
	}
	if s.servedAt > w.Now {
		s.soon(effects.Duration(s.servedAt - w.Now))
		return
	}
	most := len(s.up)
	if d := s.a.draw(); d.Rarely(300) && most > 0 {
		most = int(d.Again().Below(uint64(most + 1)))
		s.soon(d.Again().Again().Heavy(effects.Millisecond))
	}
	part, rest := s.up[:most:most], s.up[most:]
	for {
		body, after, ok := protocol.CutFrame(part)
		if !ok {
			break
		}
		part = after
		h.heard(s, body)
	}
	s.up = append(part, rest...)
	if s.shutEngine && len(rest) == 0 && !s.over {
		s.over, s.shutAgent = true, true
		h.step(func(out *session.Effects) { h.machine.OnConnLost(s.id, out) })
	}
}

// cut closes the stream on both ends and loses a random part of the bytes in flight.
func (s *stream) cut() {
	s.up = s.up[:s.a.draw().Below(uint64(len(s.up)+1))]
	s.down = s.down[:s.a.draw().Below(uint64(len(s.down)+1))]
	s.shutAgent, s.shutEngine = true, true
	s.soon(s.a.while(5 * effects.Millisecond))
}

// dead reports whether the incarnation of the agent at the other end has ended.
func (s *stream) dead() bool {
	n := s.a.w.Nodes[s.node]
	return !n.Up || n.Life != s.life
}
