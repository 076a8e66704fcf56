package agent

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine process may have several clients, for example one in each of its worker threads. The spare clients of this
// file attach, make no calls and close their connections after a while. Each has a session of its own, which counts for
// the process, and which remains without a connection until an engine needs the place.

const sparesMax = 4 // spare clients that a process has at a time

// attachSpare makes another client of the process attach.
func (e *engineProcess) attachSpare() {
	n := e.state.w.Nodes[e.node]
	if e.state.hostOf(n) == nil || len(e.spares) >= sparesMax || e.state.w.Healed {
		return
	}
	s := e.state.openStream(e, n)
	e.spares = append(e.spares, s)
	s.toAgent = protocol.AppendFrame(nil, (&protocol.AttachRequest{Version: protocol.AttachVersion}).Append(nil))
	s.scheduleRead(e.state.drawDelay(effects.Millisecond))
	e.state.w.QueueAfter(e.state.drawDelay(200*effects.Millisecond),
		world.Delivery{Kind: world.KindAttached, Node: -1, A: deliverySpareEnd, B: uint64(s.id)})
}

// endSpare closes the connection of a spare client.
func (e *engineProcess) endSpare(s *stream) {
	e.spares = slices.DeleteFunc(e.spares, func(x *stream) bool { return x == s })
	s.closedByEngine = true
	s.scheduleRead(e.state.drawDelay(effects.Millisecond))
}

// openStream opens a connection from an engine process to the agent of a node.
func (a *state) openStream(e *engineProcess, n *world.Node) *stream {
	s := &stream{state: a, id: session.Conn(len(a.streams) + 1), node: n.ID, incarnation: n.Incarnation, engine: e.index, openedAt: a.w.Now}
	a.streams = append(a.streams, s)
	return s
}

// keysOf returns the keys of the chunks that a task gets.
func (a *state) keysOf(t *task) [][]byte {
	if j := &a.w.Jobs[t.job]; j.Layers == 0 {
		return j.Keys
	}
	return a.w.Jobs[t.job].ChunkKeys
}
