package agent

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An engineProcess is an engine with a client as in docs/protocol-agent.md. A lying engine sends false messages as
// well.
type engineProcess struct {
	state       *state `snap:"skip"`
	index       int    // index in all.engines
	node        int32
	isLiar      bool
	exited      bool
	frozenUntil int64 `snap:"instant"` // the process is frozen until this time
	wakeAt      int64 `snap:"skip"`    // the time of the next scheduled wake-up; 0 if none is scheduled

	sessionID   uint64
	incarnation uint32
	stream      *stream
	spares      []*stream // connections of further clients of the process
	attached    bool
	detaching   bool // the engine has called detach and has no answer yet
	lastCall    uint64
	calls       map[uint64]*clientCall // calls that the agent has not been told are done
	holdings    map[uint64]bool        // holdings by call number; false while being given back
	inbox       []byte
	tasks       []*task
}

// clientCall is a call from the point of view of the engine.
type clientCall struct {
	id             uint64
	body           []byte
	op             protocol.CallOp
	answered       bool
	memoryInUse    bool
	memoryReturned bool
	aborted        bool
	code           effects.Code
	pageCount      int
	hits           uint32
	chunksRead     uint32 // chunks that were shown to the engine and read
	unreadShow     *protocol.EngineShow
	readAt         int64                `snap:"instant"` // the time at which the engine has read the shown chunks
	lateShow       *protocol.EngineShow // chunks that a thread of the engine was reading when the connection was cut
	lateAt         int64                `snap:"instant"` // the time at which that thread replies
}

// isOver reports whether the call has an answer and holds no memory.
func (x *clientCall) isOver() bool { return x.answered && (!x.memoryInUse || x.memoryReturned) }

// processID returns the identity of the process for the session machine.
func (e *engineProcess) processID() session.Process { return session.Process(e.index + 1) }

// engineFor returns the engine process of a node that works on a job. A process is started if there is none.
func (a *state) engineFor(n *world.Node, j *pd.Job) *engineProcess {
	at := [2]int32{n.ID, int32(j.Index % 2)}
	if i, ok := a.engineAt[at]; ok && !a.engines[i].exited {
		return a.engines[i]
	}
	e := &engineProcess{state: a, index: len(a.engines), node: n.ID, calls: map[uint64]*clientCall{}, holdings: map[uint64]bool{}}
	e.isLiar = a.nextDraw().ChanceIfRandom(80) && !a.w.Healed
	a.engines = append(a.engines, e)
	a.engineAt[at] = e.index
	if end := int64(a.w.Conditions.FaultsEnd) - a.w.Now; e.isLiar && end >= 0 { // A lying engine ends with the faults.
		a.w.QueueAfter(effects.Duration(end)+effects.Millisecond,
			world.Delivery{Kind: world.KindAttached, Node: -1, A: deliveryEnd, B: uint64(e.index)})
	}
	return e
}

// scheduleTurn schedules the next turn of the engine after the given time, unless an earlier turn is scheduled.
func (e *engineProcess) scheduleTurn(in effects.Duration) {
	at := max(e.state.w.Now+int64(in), 1)
	if e.exited || e.wakeAt != 0 && (e.wakeAt <= at || e.state.isSmallWorld()) {
		return
	}
	e.wakeAt = at
	e.state.w.QueueAfter(in, world.Delivery{Kind: world.KindAttached, Node: -1, A: deliveryTurn, B: uint64(e.index)})
}

// addTask adds a task to the engine.
func (e *engineProcess) addTask(t *task) {
	e.tasks = append(e.tasks, t)
	e.state.w.UnfinishedCount++
	e.scheduleTurn(e.state.drawDelay(effects.Millisecond))
}

// removeTask removes a task from the engine.
func (e *engineProcess) removeTask(t *task) {
	e.tasks = slices.DeleteFunc(e.tasks, func(x *task) bool { return x == t })
	e.state.w.UnfinishedCount--
}

// sortCalls returns the values of a map in the order of their calls.
func sortCalls(all map[session.CallRef]*hostCall) []*hostCall {
	return slices.SortedFunc(maps.Values(all), func(a, b *hostCall) int {
		return cmp.Or(cmp.Compare(a.ref.Session, b.ref.Session), cmp.Compare(a.ref.ID, b.ref.ID))
	})
}

// sortedCallIDs returns the numbers of the calls that have ended, or that have not, in order.
func (e *engineProcess) sortedCallIDs(ended bool) (ids []uint64) {
	for _, id := range slices.Sorted(maps.Keys(e.calls)) {
		if e.calls[id].isOver() == ended {
			ids = append(ids, id)
		}
	}
	return ids
}

// sendFrame sends a message to the agent.
func (e *engineProcess) sendFrame(body []byte) {
	if e.stream != nil && !e.stream.closedByEngine {
		e.stream.toAgent = protocol.AppendFrame(e.stream.toAgent, body)
		e.stream.scheduleRead(e.state.drawDelay(effects.Millisecond / 2))
	}
}

// connect opens a new connection and sends the attach request. An earlier connection is closed.
func (e *engineProcess) connect() {
	if e.stream != nil {
		e.stream.closedByEngine = true
		e.stream.scheduleRead(e.state.drawDelay(20 * effects.Millisecond))
	}
	e.stream, e.attached, e.inbox = nil, false, nil
	n := e.state.w.Nodes[e.node]
	if e.state.hostOf(n) == nil {
		return
	}
	e.stream = e.state.openStream(e, n)
	if d := e.state.nextDraw(); d.ChanceIfRandom(150) && !e.state.w.Healed { // The agent is slow to serve the connection.
		e.stream.readableAt = e.state.w.Now + int64(d.Rehash().HeavyTail(20*effects.Millisecond))
	}
	m := protocol.AttachRequest{Version: protocol.AttachVersion}
	if e.sessionID != 0 {
		e.forgetCalls()
		m.Session, m.Incarnation, m.Open = e.sessionID, incarnationOf(n, e.incarnation), e.sortedCallIDs(false)
	}
	e.sendFrame(m.Append(nil))
}

// dropSession drops the state of a session that no longer exists.
func (e *engineProcess) dropSession() {
	clear(e.calls)
	clear(e.holdings)
	e.sessionID, e.lastCall, e.attached, e.detaching = 0, 0, false, false
	for _, t := range slices.Clone(e.tasks) {
		if t.phase > phaseBegin {
			e.removeTask(t)
		}
	}
}

// sendCall makes a call. The result is nil if the window has no room or the engine is not attached.
func (e *engineProcess) sendCall(m protocol.EngineCall, op protocol.CallOp, job, at int) *clientCall {
	done := e.sortedCallIDs(true)
	if !e.attached || len(e.calls)-len(done)+1 > e.state.callWindow {
		return nil
	}
	for _, id := range done {
		delete(e.calls, id)
	}
	e.lastCall++
	m.ID, m.Op, m.Done = e.lastCall, []byte(op.String()), done
	x := &clientCall{id: e.lastCall, op: op, body: m.Append(nil)}
	e.calls[m.ID] = x
	if h := e.findHost(); h != nil {
		h.recordCall(session.CallRef{Session: e.sessionID, ID: m.ID}, &sentCall{job: job, scriptPos: at, isFalse: e.isLiar})
	}
	e.sendFrame(x.body)
	return x
}

// findHost returns the agent to which the engine is or was attached, or nil if that incarnation of the agent has ended.
func (e *engineProcess) findHost() *host {
	if h := e.state.hostOf(e.state.w.Nodes[e.node]); h != nil && h.incarnation == e.incarnation {
		return h
	}
	return nil
}

// runTurn runs a turn of an engine: first faults, then work.
func (e *engineProcess) runTurn() {
	w := e.state.w
	if e.exited || w.Failure != nil {
		return
	}
	e.touchHoldings()
	if w.Healed && e.state.healedAt == 0 {
		e.state.healedAt = w.Now
	}
	if e.frozenUntil > w.Now && !w.Healed {
		e.scheduleTurn(min(effects.Duration(e.frozenUntil-w.Now), 100*effects.Millisecond))
		return
	}
	if !w.Healed && !e.state.isSmallWorld() && e.drawFault() {
		return
	}
	if e.stream != nil && e.stream.hostEnded() {
		e.stream.closedByAgent = true
	}
	e.readStream()
	if e.stream == nil && (len(e.tasks) > 0 || len(e.calls) > 0 || e.detaching) {
		e.connect()
	}
	e.readShown()
	for _, t := range slices.Clone(e.tasks) {
		if slices.Contains(e.tasks, t) && e.attached && !e.detaching && t.resumeAt <= w.Now && w.Failure == nil {
			e.continueTask(t)
		}
	}
	e.maybeDetach()
	if (len(e.tasks) > 0 || e.detaching) && w.Failure == nil {
		w.CountJudged(checkCalls)
		if e.state.healedAt != 0 && w.Now-e.state.healedAt > int64(settleTimeout) &&
			(e.detaching || !w.Jobs[e.tasks[0].job].IsProbe()) {
			w.Fail(checkCalls.Property(), "an engine of node %d never gets the outcome of call %d", oracle.Node(e.node), e.lastCall)
			return
		}
		if !e.state.isSmallWorld() {
			e.scheduleTurn(30 * effects.Millisecond)
		}
	}
}

// touchHoldings checks that the engine may still use everything that it holds. An engine may read and write its pages
// at any time, attached or not.
func (e *engineProcess) touchHoldings() {
	h := e.findHost()
	if h == nil || e.isLiar || e.detaching {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(e.holdings)) {
		if x := h.holdings[session.CallRef{Session: e.sessionID, ID: id}]; e.holdings[id] && (x == nil || !h.checkStillHeld(x, "uses")) {
			if x == nil {
				e.state.w.Fail(checkHeld.Property(), "the result of call %d of an engine of node %d does not exist any more", id, h.node.AsSubject())
			}
			return
		}
	}
}

// readStream receives the messages of the agent. A closed stream is dropped.
func (e *engineProcess) readStream() {
	s := e.stream
	if s == nil {
		return
	}
	e.inbox, s.toEngine = append(e.inbox, s.toEngine...), nil
	for e.stream == s && e.state.w.Failure == nil {
		body, rest, ok := protocol.CutFrame(e.inbox)
		if !ok {
			break
		}
		e.inbox = rest
		e.handleFrame(body)
	}
	if e.stream == s && s.closedByAgent {
		s.closedByEngine = true
		s.scheduleRead(0)
		e.stream, e.attached = nil, false
		e.scheduleTurn(e.state.drawDelay(10 * effects.Millisecond))
	}
}

// handleFrame handles a message from the agent.
func (e *engineProcess) handleFrame(body []byte) {
	w := e.state.w
	var at protocol.AttachResponse
	var a protocol.EngineAnswer
	var r protocol.EngineReturned
	var show protocol.EngineShow
	hasTag := func(tag protocol.Tag) bool { return protocol.MayHaveTag(body, tag, &wireLimits) }
	switch {
	case hasTag(protocol.TagAttachResponse) && at.Decode(body, &wireLimits) == nil:
		e.handleAttachResponse(&at)
	case hasTag(protocol.TagEngineAnswer) && a.Decode(body, &wireLimits) == nil:
		if x := e.calls[a.ID]; x != nil && !x.answered {
			e.handleAnswer(x, &a)
		}
	case hasTag(protocol.TagEngineShow) && show.Decode(body, &wireLimits) == nil:
		if x := e.calls[show.ID]; x != nil && !x.answered {
			x.unreadShow, x.readAt = &show, w.Now+int64(e.state.drawDelay(5*effects.Millisecond))
			e.scheduleTurn(effects.Duration(x.readAt - w.Now))
		}
	case hasTag(protocol.TagEngineReturned) && r.Decode(body, &wireLimits) == nil:
		x := e.calls[r.ID]
		if x == nil {
			return
		}
		if !e.isLiar && (!x.answered || !x.memoryInUse) {
			w.Fail(checkCalls.Property(), "an engine of node %d is told that the memory of call %d was returned, and no memory was held",
				oracle.Node(e.node), r.ID)
		}
		if h := e.findHost(); h != nil && h.calls[session.CallRef{Session: e.sessionID, ID: r.ID}] != nil {
			w.Fail(checkCalls.Property(), "an engine of node %d is told that the memory of call %d was returned, and it is still in use",
				oracle.Node(e.node), r.ID)
		}
		x.memoryReturned = true
	}
}

// handleAnswer handles the answer to a call.
func (e *engineProcess) handleAnswer(x *clientCall, a *protocol.EngineAnswer) {
	w := e.state.w
	x.answered, x.memoryInUse, x.code, x.pageCount, x.hits = true, a.Held, effects.Code(a.Code), len(a.Pages), a.Hits
	creates := opRules[x.op].creates
	if creates != session.NoHolding && (x.pageCount > 0 || x.code == effects.OK && creates != session.Pages) {
		e.holdings[a.ID] = true
	}
	x.unreadShow = nil // The read lease has ended.
	fetched := x.op == protocol.CallFetch || x.op == protocol.CallSharedFetch
	if fetched && x.code == effects.OK && !e.isLiar && x.chunksRead != x.hits {
		w.Fail(checkShown.Property(), "a fetch of an engine of node %d succeeds with %d chunks, and the engine was shown %d",
			oracle.Node(e.node), x.hits, x.chunksRead)
	}
	if x.op != protocol.CallDetach {
		return
	}
	if h := e.findHost(); h != nil && !e.isLiar {
		for _, record := range h.holdings {
			if record.call.Session == e.sessionID {
				w.Fail(checkLeftovers.Property(), "the agent of node %d reports that an engine has detached, and still keeps the result of call %d",
					h.node.AsSubject(), record.call.ID)
			}
		}
	}
	e.dropSession()
	e.stream.closedByEngine = true
	e.stream.scheduleRead(0)
	e.stream = nil
	e.scheduleTurn(e.state.drawDelay(10 * effects.Millisecond))
}

// readShown makes the engine read and confirm the chunks that the agent shows. At times the engine reports a failure.
func (e *engineProcess) readShown() {
	for _, id := range e.sortedCallIDs(false) {
		x := e.calls[id]
		e.replyLate(x)
		if x.unreadShow == nil || !e.attached {
			continue
		}
		if x.readAt > e.state.w.Now {
			e.scheduleTurn(effects.Duration(x.readAt - e.state.w.Now))
			continue
		}
		m := protocol.EngineShown{ID: id, First: x.unreadShow.First}
		if e.state.nextDraw().ChanceIfRandom(30) && !e.state.w.Healed {
			m.Code = uint32(effects.Faulted)
		} else {
			e.markRead(x, x.unreadShow)
		}
		x.unreadShow = nil
		e.sendFrame(m.Append(nil))
	}
}

// markRead records that an engine has read shown chunks.
func (e *engineProcess) markRead(x *clientCall, show *protocol.EngineShow) {
	x.chunksRead = max(x.chunksRead, show.First+uint32(len(show.Pages)))
	if h := e.findHost(); h != nil {
		h.sentCalls[session.CallRef{Session: e.sessionID, ID: x.id}].chunksRead = x.chunksRead
	}
}

// keepReading makes a thread of an engine go on reading shown chunks although the connection was cut. The agent shows
// the same chunks again, so that the engine replies twice.
func (e *engineProcess) keepReading(x *clientCall) {
	if x.unreadShow == nil || e.isLiar || !e.state.nextDraw().ChanceIfRandom(700) {
		return
	}
	x.lateShow, x.lateAt = x.unreadShow, e.state.w.Now+int64(e.state.drawDelay(20*effects.Millisecond))
	e.scheduleTurn(effects.Duration(x.lateAt - e.state.w.Now))
}

// replyLate sends the reply of the thread of keepReading. The agent may show further chunks by now.
func (e *engineProcess) replyLate(x *clientCall) {
	switch {
	case x.lateShow == nil || !e.attached:
	case x.lateAt > e.state.w.Now:
		e.scheduleTurn(effects.Duration(x.lateAt - e.state.w.Now))
	default:
		e.markRead(x, x.lateShow)
		e.sendFrame((&protocol.EngineShown{ID: x.id, First: x.lateShow.First}).Append(nil))
		x.lateShow = nil
	}
}

// handleAttachResponse handles the response to the attach request: a refusal, a resumed session or a new session.
func (e *engineProcess) handleAttachResponse(m *protocol.AttachResponse) {
	if m.Code != 0 {
		if effects.Code(m.Code) == effects.Refused && !e.isLiar && !e.detaching {
			e.state.w.Fail(checkCalls.Property(), "the agent of node %d refuses an engine: %s", oracle.Node(e.node), m.Reason)
		}
		if e.sessionID != 0 {
			e.dropSession()
		}
		if effects.Code(m.Code) == effects.Draining {
			for _, t := range slices.Clone(e.tasks) {
				e.removeTask(t) // The agent drains and accepts no new session.
			}
		}
		return
	}
	if m.Resumed && m.Session == e.sessionID {
		if e.stream.incarnation != e.incarnation && !e.isLiar {
			e.state.w.Fail(checkHeld.Property(), "an engine of node %d resumes a session of another incarnation of the agent", oracle.Node(e.node))
			return
		}
		e.attached = true
		for _, id := range e.sortedCallIDs(true) {
			delete(e.calls, id)
		}
		for _, id := range e.sortedCallIDs(false) {
			x := e.calls[id]
			e.keepReading(x)
			if x.unreadShow = nil; !x.answered { // The agent shows pending chunks again.
				e.sendFrame(x.body)
			}
		}
		return
	}
	if e.sessionID != 0 {
		e.dropSession()
	}
	e.sessionID, e.incarnation, e.attached = m.Session, e.stream.incarnation, true
}
