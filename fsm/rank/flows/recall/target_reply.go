package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/protocol"
)

// handleQuery answers a query with the chunks that are here, under a lease. The reply is sent in the same step.
func (f *Target) handleQuery(e *flow.Env, ev *effects.Received) {
	m := &f.query
	if err := m.Decode(ev.Body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.QueryMalformed)
		why := link.DecodeReason(err)
		why.Stage = effects.StageAsk
		e.Out.Observe(effects.Observe{
			Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn), Why: &why,
		})
		m.HasExt = false
		f.sendReply(e, ev)
		return
	}
	if why := link.CheckRole(&e.Env, ev); why != nil {
		f.forbidQuery(e, ev, why)
		return
	}
	if why := e.CheckTenants(ev, m.Keys); why != nil {
		f.forbidQuery(e, ev, why)
		return
	}
	if !m.HasExt {
		// A lease could not be revoked from a peer without our extensions, so the reply to such a peer names no
		// chunk (M5).
		e.Out.Mark(Marks.QueryVanilla)
		f.sendReply(e, ev)
		return
	}
	peerID, selfID := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	class, code := e.Links.IdentifyPeer(&e.Env, ev, peerID, selfID)
	if code == effects.Forbidden {
		f.forbidQuery(e, ev, link.OtherIdentityReason())
		return
	}
	if code != effects.OK {
		e.Out.Mark(Marks.QueryStranger)
		f.refuseQuery(e, ev, effects.Stale, effects.Why{Field: "incarnation", Theirs: "unknown"})
		return
	}
	for i, grant := range m.Ext.Done {
		// The peer repeats what the reply does not confirm. Our own peers name one lease in a message.
		if i > 0 && !e.Work.HasBudget() {
			e.Out.Mark(flow.Marks.WordsCut)
			m.Ext.Done = m.Ext.Done[:i]
			break
		}
		e.Work.SpendLook()
		f.loans.HandleDone(&e.Env, &e.Store, ev.Principal, peerID, selfID, grant)
	}
	if len(m.Keys) == 0 {
		f.startReply()
		f.sendReply(e, ev)
		return
	}
	keysHash := loan.HashKeys(&e.Store, m.Keys)
	if x := f.loans.FindLoan(&e.Store, peerID, m.Ext.Operation); x != nil {
		f.handleRepeat(e, ev, x, keysHash)
		return
	}
	f.lendPrefix(e, ev, loan.Request{
		Reader: loan.ReaderOf(e.Links.IncarnationByClass(class)), Class: class, Operation: m.Ext.Operation, KeysHash: keysHash,
	})
}

// lendPrefix leases the longest prefix that is here and that the peer may have, and replies.
func (f *Target) lendPrefix(e *flow.Env, ev *effects.Received, request loan.Request) {
	m := &f.query
	switch {
	case e.Draining:
		f.refuseQuery(e, ev, effects.Draining, effects.Why{})
		return
	case e.Links.IncarnationByClass(request.Class).HasLostLink():
		f.refuseQuery(e, ev, effects.Stale, *flow.LinkLostReason())
		return
	case m.Ext.Operation == 0 || len(m.Keys) > int(e.Cfg.BatchMax):
		f.refuseQuery(e, ev, effects.Invalid, effects.Why{
			Field: "CacheQueryRequest", Ours: "kvf_op, and at most " + formatCount(e.Cfg.BatchMax) + " keys",
			Theirs: formatCount(len(m.Keys)) + " keys, of operation " + formatCount(m.Ext.Operation),
		})
		return
	}
	f.startReply()
	if f.loans.FindPrefix(&e.Env, &e.Store, request.Class, m.Keys) > 0 {
		if !f.loans.CanLend(&e.Env, request.Class) {
			f.refuseQuery(e, ev, effects.TooMany, leasesFullReason())
			return
		}
		x := f.loans.LendPrefix(&e.Env, &e.Store, request)
		f.addLoanToReply(e, x)
		e.Out.Observe(effects.Observe{
			Fact: effects.FactRecalled, Count: uint32(len(x.Pages())), ID: f.reply.Ext.Grant, Peer: request.Reader.PeerID,
			Report: f.report(e),
		})
	}
	f.sendReply(e, ev)
}

// handleRepeat answers the retry of a query that has a lease, with the same pages and the remaining time (M6). A
// second lease would be wrong, because the reader might use either of the two.
func (f *Target) handleRepeat(e *flow.Env, ev *effects.Received, x *loan.Loan, keysHash uint64) {
	switch {
	case x.KeysHash != keysHash:
		e.Out.Mark(Marks.QueryOther)
		f.refuseQuery(e, ev, effects.Refused, effects.Why{Field: "kvf_op", Ours: "of other keys"})
	case !f.loans.IsInForce(&e.Env, x):
		e.Out.Mark(Marks.QueryOver)
		f.refuseQuery(e, ev, effects.Expired, effects.Why{Field: "kvf_op", Ours: "an expired lease"})
	default:
		e.Out.Mark(Marks.QueryAgain)
		x.CountReply()
		f.startReply()
		f.addLoanToReply(e, x)
		f.sendReply(e, ev)
	}
}

// startReply resets f.reply to a reply without chunks.
func (f *Target) startReply() {
	m := &f.reply
	*m = protocol.CacheQueryResponse{
		CachedKeys: m.CachedKeys[:0], CachedIndexes: m.CachedIndexes[:0], HasExt: true,
		Ext: protocol.CacheReplyExt{
			Version: link.VersionMax, Incarnation: f.query.Ext.To, Generations: m.Ext.Generations[:0], Sums: m.Ext.Sums[:0],
			Lengths: m.Ext.Lengths[:0], Done: append(m.Ext.Done[:0], f.query.Ext.Done...),
		},
	}
}

// addLoanToReply adds the chunks of a loan and its remaining time to the reply.
func (f *Target) addLoanToReply(e *flow.Env, x *loan.Loan) {
	m, short := &f.reply, false
	for i, page := range x.Pages() {
		m.CachedKeys, m.CachedIndexes = append(m.CachedKeys, f.query.Keys[i]), append(m.CachedIndexes, int64(page.Index))
		m.Ext.Generations = append(m.Ext.Generations, uint64(page.Generation))
		m.Ext.Lengths, m.Ext.Sums = append(m.Ext.Lengths, uint64(page.Length)), effects.AppendSum(m.Ext.Sums, i, page.Sum)
		short = short || uint64(page.Length) != e.Cfg.PageBytes
	}
	if !short {
		m.Ext.Lengths = m.Ext.Lengths[:0]
	}
	m.Ext.Grant, m.Ext.LeaseNS = x.GrantID(), uint64(x.TimeLeft(e.Now))
}

// refuseQuery replies with the code and the reason for which the query is refused.
func (f *Target) refuseQuery(e *flow.Env, ev *effects.Received, code effects.Code, why effects.Why) {
	e.Out.Mark(Marks.QueryRefused)
	f.startReply()
	f.reply.Ext.Code, f.reply.Ext.Reason = uint32(code), why.Reason()
	why.Stage = effects.StageAsk
	e.Out.Observe(effects.Observe{
		Fact: effects.FactRecalled, Code: code, Count: uint32(len(f.query.Keys)), ID: uint64(ev.Conn),
		Peer: effects.Incarnation(f.query.Ext.Incarnation), Why: &why, Report: f.report(e),
	})
	f.sendReply(e, ev)
}

// report returns the report of a query that has been answered, or nil if it is not traced. A query is answered at once.
func (f *Target) report(e *flow.Env) *effects.Report {
	if !f.query.HasExt {
		return nil
	}
	return e.TraceReport(effects.TraceFromWire(f.query.Ext.Trace), e.Now)
}

// forbidQuery refuses a query because of the identity of its sender. A sender without our extensions is told of no
// chunk, as always.
func (f *Target) forbidQuery(e *flow.Env, ev *effects.Received, why *effects.Why) {
	if f.query.HasExt {
		f.refuseQuery(e, ev, effects.Forbidden, *why)
		return
	}
	e.ReportForbidden(ev, effects.StageAsk, why)
	f.sendReply(e, ev)
}

// sendReply sends the reply. To a peer without our extensions, the reply is that of an LMCache decode node without
// chunks.
func (f *Target) sendReply(e *flow.Env, ev *effects.Received) {
	if ev.Request == 0 {
		return
	}
	if !f.query.HasExt {
		f.reply = protocol.CacheQueryResponse{
			CachedKeys: f.reply.CachedKeys[:0], CachedIndexes: f.reply.CachedIndexes[:0], Ext: f.reply.Ext,
		}
	}
	e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(f.reply.Append(e.Out.Arena()))})
}

func leasesFullReason() effects.Why {
	return effects.Why{Field: "tables.recalls", Ours: "exhausted: this peer has its whole share of the leases"}
}
