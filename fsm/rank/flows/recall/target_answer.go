package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/protocol"
)

// onQuery answers a query with the chunks that are here, under a lease. The reply is sent in the same step.
func (f *Target) onQuery(e *flow.Env, ev *effects.Received) {
	m := &f.ask
	if err := m.Decode(ev.Body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.QueryMalformed)
		why := link.Undecodable(err)
		why.Stage = effects.StageAsk
		e.Out.Observe(effects.Observe{
			Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn), Why: &why,
		})
		m.HasExt = false
		f.say(e, ev)
		return
	}
	if !m.HasExt {
		// A lease could not be revoked from a peer without our extensions, so the reply to such a peer names no
		// chunk (M5).
		e.Out.Mark(Marks.QueryVanilla)
		f.say(e, ev)
		return
	}
	who, us := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	class, known := e.Links.Inbound(&e.Env, who, us)
	if !known {
		e.Out.Mark(Marks.QueryStranger)
		f.refuse(e, ev, effects.Stale, effects.Why{Field: "life", Theirs: "unknown"})
		return
	}
	for i, grant := range m.Ext.Done {
		// The peer repeats what the reply does not confirm. Our own peers name one lease in a message.
		if i > 0 && !e.Work.Left() {
			e.Out.Mark(flow.Marks.WordsCut)
			m.Ext.Done = m.Ext.Done[:i]
			break
		}
		e.Work.Look()
		f.loans.Done(&e.Env, &e.Store, who, us, grant)
	}
	if len(m.Keys) == 0 {
		f.empty()
		f.say(e, ev)
		return
	}
	what := loan.Named(&e.Store, m.Keys)
	if x := f.loans.Find(&e.Store, who, m.Ext.Operation); x != nil {
		f.answerAgain(e, ev, x, what)
		return
	}
	f.answer(e, ev, loan.For{
		To: lease.Reader{Who: who, Us: us, Keeps: e.Links.OfClass(class).Leases()}, Class: class, Operation: m.Ext.Operation,
		What: what,
	})
}

// answer leases the longest prefix that is here and that the peer may have, and replies.
func (f *Target) answer(e *flow.Env, ev *effects.Received, to loan.For) {
	m := &f.ask
	switch {
	case e.Draining:
		f.refuse(e, ev, effects.Draining, effects.Why{})
		return
	case e.Links.OfClass(to.Class).Gone():
		f.refuse(e, ev, effects.Stale, *flow.Cut())
		return
	case m.Ext.Operation == 0 || len(m.Keys) > int(e.Cfg.BatchMax):
		f.refuse(e, ev, effects.Invalid, effects.Why{
			Field: "CacheQueryRequest", Ours: "kvf_op, and at most " + number(e.Cfg.BatchMax) + " keys",
			Theirs: number(len(m.Keys)) + " keys, of operation " + number(m.Ext.Operation),
		})
		return
	}
	f.empty()
	if f.loans.Prefix(&e.Env, &e.Store, to.Class, m.Keys) > 0 {
		if !f.loans.May(&e.Env, to.Class) {
			f.refuse(e, ev, effects.TooMany, leasesFull())
			return
		}
		x := f.loans.Lend(&e.Env, &e.Store, to)
		f.tell(e, x)
		e.Out.Observe(effects.Observe{
			Fact: effects.FactRecalled, Count: uint32(len(x.Pages())), ID: f.reply.Ext.Grant, Peer: to.To.Who,
		})
	}
	f.say(e, ev)
}

// answerAgain answers the retry of a query that has a lease, with the same pages and the remaining time (M6). A
// second lease would be wrong, because the reader might use either of the two.
func (f *Target) answerAgain(e *flow.Env, ev *effects.Received, x *loan.Loan, what uint64) {
	switch {
	case x.What != what:
		e.Out.Mark(Marks.QueryOther)
		f.refuse(e, ev, effects.Refused, effects.Why{Field: "kvf_op", Ours: "of other keys"})
	case !f.loans.Stands(&e.Env, x):
		e.Out.Mark(Marks.QueryOver)
		f.refuse(e, ev, effects.Expired, effects.Why{Field: "kvf_op", Ours: "a lease whose time is over"})
	default:
		e.Out.Mark(Marks.QueryAgain)
		x.Again()
		f.empty()
		f.tell(e, x)
		f.say(e, ev)
	}
}

// empty resets f.reply to a reply without chunks.
func (f *Target) empty() {
	m := &f.reply
	*m = protocol.CacheQueryResponse{
		CachedKeys: m.CachedKeys[:0], CachedIndexes: m.CachedIndexes[:0], HasExt: true,
		Ext: protocol.CacheReplyExt{
			Version: link.VersionMax, Incarnation: f.ask.Ext.To, Generations: m.Ext.Generations[:0],
			Lengths: m.Ext.Lengths[:0], Done: append(m.Ext.Done[:0], f.ask.Ext.Done...),
		},
	}
}

// tell adds the chunks of a loan and its remaining time to the reply.
func (f *Target) tell(e *flow.Env, x *loan.Loan) {
	m, short := &f.reply, false
	for i, page := range x.Pages() {
		m.CachedKeys, m.CachedIndexes = append(m.CachedKeys, f.ask.Keys[i]), append(m.CachedIndexes, int64(page.Index))
		m.Ext.Generations = append(m.Ext.Generations, uint64(page.Generation))
		m.Ext.Lengths = append(m.Ext.Lengths, uint64(page.Length))
		short = short || uint64(page.Length) != e.Cfg.PageBytes
	}
	if !short {
		m.Ext.Lengths = m.Ext.Lengths[:0]
	}
	m.Ext.Grant, m.Ext.LeaseNS = x.Grant(), uint64(x.Left(e.Now))
}

// refuse replies with the code and the reason for which the query is refused.
func (f *Target) refuse(e *flow.Env, ev *effects.Received, code effects.Code, why effects.Why) {
	e.Out.Mark(Marks.QueryRefused)
	f.empty()
	f.reply.Ext.Code, f.reply.Ext.Reason = uint32(code), why.Reason()
	why.Stage = effects.StageAsk
	e.Out.Observe(effects.Observe{
		Fact: effects.FactRecalled, Code: code, Count: uint32(len(f.ask.Keys)), ID: uint64(ev.Conn),
		Peer: effects.Incarnation(f.ask.Ext.Incarnation), Why: &why,
	})
	f.say(e, ev)
}

// say sends the reply. To a peer without our extensions, the reply is that of an LMCache decode node without
// chunks.
func (f *Target) say(e *flow.Env, ev *effects.Received) {
	if ev.Request == 0 {
		return
	}
	if !f.ask.HasExt {
		f.reply = protocol.CacheQueryResponse{
			CachedKeys: f.reply.CachedKeys[:0], CachedIndexes: f.reply.CachedIndexes[:0], Ext: f.reply.Ext,
		}
	}
	e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(f.reply.Append(e.Out.Arena()))})
}

func leasesFull() effects.Why {
	return effects.Why{Field: "tables.recalls", Ours: "as many leases as this peer may have are out"}
}
