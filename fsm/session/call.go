package session

import (
	"errors"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A call is kept until it is over and its engine has received everything about it. Its states are:
//
//   - waiting: it is to end a holding that other calls still use; not begun
//   - begun: the driver carries it out
//   - answered: it has an answer; if held, its memory is still in use, and Returned follows
//   - over: answered, and its memory is back
type call struct {
	id       uint64
	op       protocol.CallOp
	uses     [2]uint64 // the holdings that the call uses
	ends     uint64    // the holding that the call is to end
	rest     uint64    // deadline budget of a waiting call, in nanoseconds
	cost     int       // see Cost, in bytes
	begun    bool
	answer   []byte
	held     bool
	returned bool
	let      bool   // the engine does not wait for the call any more
	show     []byte // the chunks that were shown to the engine and that it has not read yet, as a message
	first    uint32 // the first chunk in show
}

// keyCost is what a key occupies beside its own bytes while its call is carried out: in the decoded message, in the
// node's tables and in the answer.
const keyCost = 1 << 9

// Cost returns the approximate memory that a call occupies at the agent while it is carried out, in bytes. The cost
// counts the lists, because the engine chooses their length. A call without lists costs nothing, because the window
// bounds the number of calls.
func Cost(b *protocol.EngineCall) (n int) {
	for _, keys := range [][][]byte{b.Keys, b.Producers} {
		for _, k := range keys {
			n += keyCost + len(k)
		}
	}
	for _, blocks := range b.Blocks {
		n += keyCost + 8*len(blocks)
	}
	return n
}

// over reports whether the call has an answer and its memory is back.
func (c *call) over() bool { return c.answer != nil && (!c.held || c.returned) }

// call returns the session's call with the number, or nil.
func (s *session) call(id uint64) *call {
	i, ok := slices.BinarySearchFunc(s.calls, id, func(c *call, id uint64) int { return compare(c.id, id) })
	if !ok {
		return nil
	}
	return s.calls[i]
}

// Heard handles a message of an engine that is attached.
func (m *Machine) Heard(from Conn, body []byte, out *Out) {
	s := m.of(from)
	if s == nil {
		return // The message arrived before its connection was closed.
	}
	if protocol.MayBe(body, protocol.TagEngineShown, &m.cfg.Wire) {
		m.heardShown(s, body, out)
		return
	}
	b := &m.call
	if err := b.Decode(body, &m.cfg.Wire); err != nil {
		m.misread(s, b.ID, err, out)
		return
	}
	for _, id := range b.Done {
		if c := s.call(id); c != nil {
			m.forget(s, c, out)
		}
	}
	if b.ID <= s.last {
		m.heardAgain(s, b.ID, out)
		return
	}
	if uint64(len(s.calls)) >= uint64(m.cfg.Told.Window) {
		m.hangUp(s, "call "+decimal(b.ID)+" is beyond the window of "+decimal(uint64(m.cfg.Told.Window))+
			"; say which calls are done before", out)
		return
	}
	s.last = b.ID
	m.take(s, b, out)
}

// misread handles a call that could not be decoded. Where its number could be read, the call is answered with the
// reason, so that an engine that sent a message too long for the agent can go on without that call. Otherwise the
// connection is closed.
func (m *Machine) misread(s *session, id uint64, err error, out *Out) {
	var why *protocol.DecodeError
	if id <= s.last || uint64(len(s.calls)) >= uint64(m.cfg.Told.Window) || !errors.As(err, &why) {
		m.hangUp(s, err.Error(), out)
		return
	}
	s.last = id
	m.refuse(s, id, effects.Malformed, why.Field, why.Found, why.Want, "send what the agent takes", out)
}

// heardAgain handles a call that the engine sent again after its connection was cut. The answer, if there is one, is
// sent again.
func (m *Machine) heardAgain(s *session, id uint64, out *Out) {
	switch c := s.call(id); {
	case c == nil:
		m.hangUp(s, "call "+decimal(id)+" came before, or is below one that did: numbers ascend", out)
	case c.answer != nil:
		m.send(s, c.answer, out)
	}
}

// take begins a new call, or refuses it.
func (m *Machine) take(s *session, b *protocol.EngineCall, out *Out) {
	op := protocol.CallOpOf(b.Op)
	if op == protocol.CallUnknown {
		m.refuse(s, b.ID, effects.Unsupported, "op", string(b.Op), "one that this agent knows",
			"use the package of the agent's version", out)
		return
	}
	if field := b.Unfit(); field != "" {
		m.refuse(s, b.ID, effects.Invalid, field, "given", "not with "+op.String(), "leave it out", out)
		return
	}
	switch {
	case onBlocks(op) && !s.adopts && m.adopted(s):
		m.refuse(s, b.ID, effects.Refused, "op", op.String(), "none on blocks that another engine has as its own memory",
			"attach to an agent of this engine's own", out)
	case s.leaving:
		m.refuse(s, b.ID, effects.Closed, "op", op.String(), "none after detach", "attach again", out)
	case op == protocol.CallDetach:
		s.bye = b.ID
		s.calls = append(s.calls, &call{id: b.ID, op: op, begun: true})
		m.leave(s, out)
	case op == protocol.CallAbort:
		m.abort(s, b, out)
	default:
		m.carry(s, op, b, out)
	}
}

// carry has the driver carry a call out, if the engine holds what the call names and the bounds allow it. A call that
// ends a holding in use waits.
func (m *Machine) carry(s *session, op protocol.CallOp, b *protocol.EngineCall, out *Out) {
	p := parts[op]
	c := &call{id: b.ID, op: op, rest: b.PatienceNS, cost: Cost(b)}
	if p.target != Nothing && (!p.may || b.Target != 0) {
		if !m.uses(s, c, 0, "target", b.Target, p.target, out) {
			return
		}
	}
	if p.prefill && !m.uses(s, c, 1, "prefill", b.Prefill, Prefill, out) {
		return
	}
	if p.gives != Nothing && s.brings() >= m.cfg.HoldingsMax {
		m.refuse(s, b.ID, effects.TooMany, "holdings", decimal(uint64(s.brings())),
			"at most "+decimal(uint64(m.cfg.HoldingsMax)), "give something back, or raise --holdings", out)
		return
	}
	if others := s.costs(); c.cost > 0 && others > 0 && others+c.cost > m.cfg.CallBytesMax {
		m.refuse(s, b.ID, effects.TooMany, "bytes of open calls", decimal(uint64(others+c.cost))+" with this one",
			"at most "+decimal(uint64(m.cfg.CallBytesMax)), "wait for calls that are open, name fewer keys in one, or raise "+
				"--call-bytes", out)
		return
	}
	s.calls = append(s.calls, c)
	if p.ends {
		c.ends, c.uses = max(c.uses[0], c.uses[1]), [2]uint64{}
		h := s.holding(c.ends)
		h.ender = c.id
		if h.uses > 0 {
			return
		}
	}
	for _, id := range c.uses {
		if id != 0 {
			s.holding(id).uses++
		}
	}
	c.begun = true
	out.Begins = append(out.Begins, Begin{Call{s.id, c.id}, op, b})
}

// uses records that the call uses a holding of its engine. If the engine does not hold that number, or another call is
// about to end the holding, uses refuses the call and returns false.
func (m *Machine) uses(s *session, c *call, at int, field string, id uint64, kind Kind, out *Out) bool {
	h := s.holding(id)
	if h != nil && h.kind == kind && h.ender != 0 && !h.freed {
		m.refuse(s, c.id, effects.TooMany, field, decimal(id), "not being ended already",
			"wait for the call that ends it, or abort that", out)
		return false
	}
	if h == nil || h.kind != kind || h.freed {
		m.refuse(s, c.id, effects.NotFound, field, decimal(id), "the number of "+kind.String()+" that this engine holds",
			"what was held in another session, or was given back, is not held any more", out)
		return false
	}
	c.uses[at] = id
	return true
}

// brings returns the number of the session's holdings, including those that open calls may bring.
func (s *session) brings() int {
	n := len(s.holds)
	for _, c := range s.calls {
		if c.answer == nil && c.op < protocol.CallOp(len(parts)) && parts[c.op].gives != Nothing {
			n++
		}
	}
	return n
}

// costs returns the total cost of the session's calls that have no answer yet.
func (s *session) costs() (n int) {
	for _, c := range s.calls {
		if c.answer == nil {
			n += c.cost
		}
	}
	return n
}

// begin has the driver carry out a call that waited for its holding.
func (m *Machine) begin(s *session, c *call, out *Out) {
	c.begun = true
	b := &protocol.EngineCall{ID: c.id, Target: c.ends, PatienceNS: c.rest} // Not m.call: one step may begin two calls.
	if parts[c.op].prefill {
		b.Target, b.Prefill = 0, c.ends
	}
	out.Begins = append(out.Begins, Begin{Call{s.id, c.id}, c.op, b})
}

// refuse answers a call that is not begun. The answer is kept like any other, except in a leaving session: no engine
// can resume such a session, and the session must not wait for the engine's confirmation.
func (m *Machine) refuse(s *session, id uint64, code effects.Code, field, theirs, ours, remedy string, out *Out) {
	m.answer = protocol.EngineAnswer{ID: id, Code: uint32(code), Field: []byte(field), Theirs: []byte(theirs),
		Ours: []byte(ours), Remedy: []byte(remedy)}
	c := &call{id: id, begun: true, answer: m.answer.Append(nil)}
	if !s.leaving {
		s.calls = append(s.calls, c)
	}
	m.send(s, c.answer, out)
}

// abort ends another call of the same engine early. The result of the aborted call is reported in that call's own
// answer.
func (m *Machine) abort(s *session, b *protocol.EngineCall, out *Out) {
	c := s.call(b.Target)
	if c == nil || c.answer != nil {
		m.refuse(s, b.ID, effects.NotFound, "target", decimal(b.Target), "a call without an answer",
			"nothing is to be done: it has ended", out)
		return
	}
	if c.begun {
		if c.op != protocol.CallDetach {
			out.Aborts = append(out.Aborts, Call{s.id, c.id})
		}
	} else {
		m.unwait(s, c, out)
		m.answer = protocol.EngineAnswer{ID: c.id, Code: uint32(effects.Cancelled)}
		c.begun, c.answer = true, m.answer.Append(nil)
		m.send(s, c.answer, out)
	}
	m.refuse(s, b.ID, effects.OK, "", "", "", "", out)
}

// unwait takes back a call that waits to end its holding.
func (m *Machine) unwait(s *session, c *call, out *Out) {
	h := s.holding(c.ends)
	h.ender, c.ends = 0, 0
	m.settle(s, h, out)
}

// Ended completes a Begin. brought says that the call brought something to hold; stands says that the holding that the
// call was to end is still held. The machine copies the answer before Ended returns.
func (m *Machine) Ended(of Call, a *protocol.EngineAnswer, brought, stands bool, out *Out) {
	s := m.session(of.Session)
	c := s.call(of.ID)
	c.answer, c.held, c.show = a.Append(nil), a.Held, nil
	if brought {
		h := &holding{id: c.id, kind: parts[c.op].gives, lost: c.let}
		if h.kind == Share {
			h.of = c.uses[0]
			s.holding(h.of).uses++
		}
		s.hold(h)
	}
	if c.ends != 0 {
		if h := s.holding(c.ends); stands {
			h.ender = 0
		} else {
			m.drop(s, h, out)
		}
	}
	if !c.let {
		m.send(s, c.answer, out)
	} else if c.held {
		out.Aborts = append(out.Aborts, of) // The earlier abort came before there was anything to take back.
	}
	m.maybeOver(s, c, out)
	if h := s.holding(c.id); h != nil {
		m.settle(s, h, out)
	}
	if h := s.holding(c.ends); h != nil {
		m.settle(s, h, out)
	}
	m.left(s, out)
}

// Returned reports that nothing touches the memory of a call with a held answer any more.
func (m *Machine) Returned(of Call, out *Out) {
	s := m.session(of.Session)
	c := s.call(of.ID)
	c.returned = true
	if !c.let {
		m.sendReturned(s, c, out)
	}
	m.maybeOver(s, c, out)
	m.left(s, out)
}

// maybeOver releases the holdings that a call uses once the call is over. A call for which the engine does not wait is
// removed.
func (m *Machine) maybeOver(s *session, c *call, out *Out) {
	if !c.over() {
		return
	}
	for i, id := range c.uses {
		c.uses[i] = 0
		m.unuse(s, id, out)
	}
	if c.let {
		m.remove(s, c, out)
	}
}

// forget records that the engine does not wait for a call any more. A call that is over or not begun is removed. A call
// without an answer is aborted; in a leaving session a call with a held answer is aborted too.
func (m *Machine) forget(s *session, c *call, out *Out) {
	c.let = true
	switch {
	case c.over():
		m.remove(s, c, out)
	case !c.begun:
		m.remove(s, c, out)
		m.unwait(s, c, out)
	case (c.answer == nil || s.leaving) && c.op != protocol.CallDetach:
		out.Aborts = append(out.Aborts, Call{s.id, c.id})
	}
}

// remove removes the record of a call.
func (m *Machine) remove(s *session, c *call, out *Out) {
	out.Drops = append(out.Drops, Drop{Call{s.id, c.id}, s.leaving})
	s.calls = slices.DeleteFunc(s.calls, func(x *call) bool { return x == c })
}

// Show lends chunks of a fetch to the engine of the call: one page for each chunk, with the number of valid bytes of
// each in lengths. A Shown completes the Show, unless the call ends first.
func (m *Machine) Show(of Call, first int, pages, lengths []uint64, out *Out) {
	s := m.session(of.Session)
	c := s.call(of.ID)
	if c.let {
		out.Showns = append(out.Showns, Shown{of, effects.Cancelled})
		return
	}
	c.first = uint32(first)
	c.show = (&protocol.EngineShow{ID: c.id, First: c.first, Pages: pages, Lengths: lengths}).Append(nil)
	m.send(s, c.show, out)
}

// heardShown handles the engine's reply to a Show.
func (m *Machine) heardShown(s *session, body []byte, out *Out) {
	x := &m.shown
	if err := x.Decode(body, &m.cfg.Wire); err != nil {
		m.hangUp(s, err.Error(), out)
		return
	}
	c := s.call(x.ID)
	if c == nil || c.show == nil || c.first != x.First {
		return // The chunks were shown again after a cut and read twice; or the call has ended.
	}
	c.show = nil
	code := effects.OK
	if x.Code != 0 {
		code = effects.Faulted
	}
	out.Showns = append(out.Showns, Shown{Call{s.id, c.id}, code})
}
