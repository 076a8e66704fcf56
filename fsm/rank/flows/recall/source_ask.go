package recall

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// becomeAsking sends the query. The lease counts from this step: the instant provably precedes the reply (M4).
func (f *Source) becomeAsking(e *flow.Env, h table.Handle) {
	r := f.rows.Get(h)
	of := e.Links.Of(r.peer)
	_, r.who = of.Link()
	r.us = of.Us()
	if !of.Recalls() {
		r.Blame(effects.Unsupported, notServed())
		f.deliver(e, r, effects.Unsupported, false)
		f.end(e, h, r)
		return
	}
	r.phase, r.asked = asking, e.Now
	if r.attempt++; r.attempt == 1 {
		r.since = e.Now
	}
	m := &f.ask
	m.Keys = m.Keys[:0]
	for i := range r.size() {
		m.Keys = append(m.Keys, r.key(i))
	}
	f.send(e, h, r, kindAsk)
}

// becomeTelling sends the done message to the incarnation of the peer that gave the lease (M2).
func (f *Source) becomeTelling(e *flow.Env, h table.Handle) {
	r := f.rows.Get(h)
	r.phase = telling
	r.attempt++
	f.ask.Keys = f.ask.Keys[:0]
	f.send(e, h, r, kindDone)
}

// send sends f.ask on the recall's way, which must be free.
func (f *Source) send(e *flow.Env, h table.Handle, r *row, kind uint8) {
	m, w := &f.ask, f.ways.Get(r.way)
	m.HasExt = true
	m.Ext = protocol.CacheQueryExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(r.us), To: protocol.UUID(r.who), Operation: r.operation,
		Attempt: r.attempt, Done: m.Ext.Done[:0],
	}
	if kind == kindAsk {
		m.Ext.PatienceNS, m.Ext.Request = uint64(max(0, r.Deadline.Sub(e.Now))), r.request
	} else {
		m.Ext.Done = append(m.Ext.Done, uint64(r.grant))
	}
	r.conn = w.conn.ID()
	w.conn.Send(&e.Env, e.Corrs.Open(sourceRef(kind, h)), e.Out.Cut(m.Append(e.Out.Arena())))
	e.Timers.Set(&r.answer, e.Now.Add(e.Cfg.ReplyTimeout), sourceRef(timerAnswer, h))
}

// unanswered handles the end of a query or a done message to which no reply came.
func (f *Source) unanswered(e *flow.Env, ref kernel.Ref, code effects.Code) {
	h := ref.Subject
	r := f.rows.Get(h)
	way := r.way
	e.Timers.Stop(&r.answer)
	f.hangUp(e, r)
	switch {
	case ref.Kind == kindAsk:
		f.again(e, h, r, noAnswer(code), link.HungUp(code, e.Cfg.ReplyTimeout))
	case r.attempt < e.Cfg.AttemptsMax:
		e.Out.Mark(Marks.DoneAgain)
		r.phase = leaving
		f.rows.PushFront(&f.ways.Get(r.way).words, h)
	default: // The end of the lease's time has the same effect.
		e.Out.Mark(Marks.DoneGivenUp)
		f.end(e, h, r)
	}
	f.pump(e, way)
}

// again sends the query again, or ends the recall with a reason when its attempts are used up. A lease that the
// lost reply may have named ends with its time.
func (f *Source) again(e *flow.Env, h table.Handle, r *row, code effects.Code, why effects.Why) {
	switch {
	case r.Delivered():
		f.end(e, h, r)
	case r.attempt < e.Cfg.AttemptsMax:
		f.becomeWaiting(e, h, r)
	default:
		r.Blame(code, why)
		f.deliver(e, r, code, false)
		f.end(e, h, r)
	}
}

// noAnswer returns the code for the engine: if this rank closed the connection, that was because the time for a
// reply was over.
func noAnswer(code effects.Code) effects.Code {
	if code == effects.Closed {
		return effects.Expired
	}
	return code
}

// replied handles a reply, after which the way is free for the next message.
func (f *Source) replied(e *flow.Env, ref kernel.Ref, body []byte) {
	h := ref.Subject
	r := f.rows.Get(h)
	way := r.way
	e.Timers.Stop(&r.answer)
	// Otherwise the reply was in the mailbox when the connection was closed.
	if w := f.ways.Get(way); r.conn != 0 && w.conn.ID() == r.conn {
		w.conn.Answered(e.Now)
	}
	if ref.Kind == kindDone { // The reply's content has no effect: nothing here reads under the lease.
		f.end(e, h, r)
	} else {
		f.answered(e, h, r, body)
	}
	f.pump(e, way)
}

// answered handles the reply to a query.
func (f *Source) answered(e *flow.Env, h table.Handle, r *row, body []byte) {
	m := &f.reply
	if err := m.Decode(body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.AnswerMalformed)
		f.senseless(e, h, r, link.Undecodable(err))
		return
	}
	if m.HasExt {
		r.grant = effects.GrantID(m.Ext.Grant)
	}
	switch {
	case m.HasExt && m.Ext.Code != 0:
		f.refused(e, h, r)
	case r.Delivered():
		e.Out.Mark(Marks.AnswerAfterOutcome)
		f.giveBack(e, h, r)
	case !f.met(e, r):
		// The link was lost while the reply was in the mailbox, so no read can use it. The next attempt finds the
		// same lease, if the peer's incarnation is the same.
		e.Out.Mark(Marks.AnswerAfterLink)
		r.grant = 0
		f.again(e, h, r, effects.Stale, effects.Why{Field: "life", Theirs: "another one than that which was asked"})
	case !f.plan(e, r):
		e.Out.Mark(Marks.AnswerSenseless)
		f.senseless(e, h, r, effects.Why{
			Field: "CacheQueryResponse", Ours: "a prefix of " + number(r.size()) + " keys, under a grant",
			Theirs: number(len(m.CachedKeys)) + " keys that are none, or without a page, generation or length for each",
		})
	case r.hits == 0:
		e.Out.Mark(Marks.NothingThere)
		f.deliver(e, r, effects.OK, false)
		f.giveBack(e, h, r)
	default:
		f.becomeReading(e, h, r, effects.Duration(min(m.Ext.LeaseNS, uint64(e.Cfg.ReadLeaseMax))))
	}
}

// met reports whether the link is up to the incarnation that was asked.
func (f *Source) met(e *flow.Env, r *row) bool {
	g, _ := e.Links.Outbound(r.peer).Gate()
	_, who := e.Links.Of(r.peer).Link()
	return g == link.GateOpen && who == r.who
}

// plan pairs each chunk that the reply names with its page and sets the page's length. It returns false if the
// reply does not fit the query.
func (f *Source) plan(e *flow.Env, r *row) bool {
	m, of := &f.reply, e.Links.Of(r.peer)
	n := len(m.CachedKeys)
	if f.pairs = f.pairs[:0]; n > r.size() || !m.HasExt || n > 0 && (m.Ext.Grant == 0 || len(m.Ext.Generations) != n) {
		return false
	}
	buffer, _ := of.Buffer(of.FirstBuffer())
	for i, key := range m.CachedKeys {
		length, index := e.Cfg.PageBytes, m.CachedIndexes[i]
		if len(m.Ext.Lengths) > 0 {
			length = m.Ext.Lengths[i]
		}
		if !bytes.Equal(key, r.key(i)) || index < 0 || index >= int64(buffer.Pages) ||
			length == 0 || length > e.Cfg.PageBytes {
			return false
		}
		r.Pages[i].Length = uint32(length)
		f.pairs = append(f.pairs, effects.Pair{Local: r.Pages[i], Remote: effects.RemotePage{
			Buffer: buffer.ID, Index: uint32(index), Generation: effects.Generation(m.Ext.Generations[i]),
		}})
	}
	r.hits = uint32(n)
	return true
}

// refused handles a reply that refuses the query.
func (f *Source) refused(e *flow.Env, h table.Handle, r *row) {
	code, why := effects.CodeFromWire(f.reply.Ext.Code), said(f.reply.Ext.Reason)
	if code == effects.Stale { // The peer has restarted, or has no record of this rank: a new handshake follows.
		e.Out.Mark(Marks.AskedStale)
		e.Links.Fail(&e.Env, r.peer, effects.Stale, why)
		r.grant = 0
		f.again(e, h, r, code, why)
		return
	}
	e.Out.Mark(Marks.AskRefused)
	if r.Blame(code, why); !r.Delivered() {
		f.deliver(e, r, code, false)
	}
	f.giveBack(e, h, r)
}

// senseless ends a recall after a reply that does not fit the query.
func (f *Source) senseless(e *flow.Env, h table.Handle, r *row, why effects.Why) {
	r.Blame(effects.Malformed, why)
	why.Addr, why.Peer, why.Stage = r.where.Addr(), r.who, effects.StageAsk
	e.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(r.conn), Peer: r.who, Why: &why,
	})
	if !r.Delivered() {
		f.deliver(e, r, effects.Malformed, false)
	}
	f.giveBack(e, h, r)
}
