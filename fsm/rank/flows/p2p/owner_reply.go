package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/protocol"
)

// handleMessage answers a message. Done messages are accepted on both sockets, all other messages on the lookup socket
// only.
func (o *Owner) handleMessage(e *flow.Env, ev *effects.Received) {
	if ev.Request == 0 {
		return
	}
	wire := &e.Cfg.Wire
	tag, err := protocol.PeekTag(ev.Body, wire)
	if err != nil {
		o.refuseMalformed(e, ev, err)
		return
	}
	onLookupChannel := ev.Channel == effects.ChannelLookup
	//exhaustive:ignore
	switch tag {
	case protocol.TagAscendBatchedLookupAndGetDoneMsg:
		if err = o.doneMessage.Decode(ev.Body, wire); err == nil {
			o.handleDone(e, ev)
			return
		}
	case protocol.TagAscendBatchedLookupAndGetMsg:
		if !onLookupChannel {
			break
		}
		if err = o.getMessage.Decode(ev.Body, wire); err == nil {
			o.handleGet(e, ev)
			return
		}
	case protocol.TagAscendQueryDonePortMsg:
		if m := (protocol.AscendQueryDonePortMsg{}); !onLookupChannel {
			break
		} else if err = m.Decode(ev.Body, wire); err == nil {
			if why := link.CheckRole(&e.Env, ev); why != nil {
				e.ReportForbidden(ev, effects.StageAsk, why)
				o.sendError(e, ev, protocol.P2PServerError)
				return
			}
			portReply := protocol.AscendQueryDonePortRetMsg{DoneURL: o.cfg.DoneURL}
			o.sendReply(e, ev, portReply.Append(e.Out.Arena()))
			return
		}
	default:
	}
	if err != nil {
		o.refuseMalformed(e, ev, err)
		return
	}
	e.Out.Mark(Marks.NotServed)
	o.sendError(e, ev, unservedCode(tag))
}

// unservedCode returns LMCache-Ascend's error code for a message that is not served. LMCache-Ascend distinguishes its
// own reply messages from messages that it cannot decode.
func unservedCode(tag protocol.Tag) protocol.P2PErrorCode {
	//exhaustive:ignore
	switch tag {
	case protocol.TagAscendBatchedLookupAndPutMsg:
		// LMCache-Ascend decodes this message, and has no handler for it.
		return protocol.P2PServerError
	case protocol.TagAscendBatchedLookupAndGetMsg, protocol.TagAscendBatchedLookupAndGetRetMsg,
		protocol.TagAscendBatchedLookupAndGetDoneRetMsg, protocol.TagAscendQueryDonePortMsg,
		protocol.TagAscendQueryDonePortRetMsg, protocol.TagBatchedLookupAndPutRetMsg, protocol.TagP2PErrorMsg:
		return protocol.P2PUnknownMessage
	}
	return protocol.P2PServerError
}

func (o *Owner) refuseMalformed(e *flow.Env, ev *effects.Received, err error) {
	e.Out.Mark(Marks.LookupMalformed)
	why := link.DecodeReason(err)
	why.Stage = effects.StageAsk
	e.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn), Why: &why})
	o.sendError(e, ev, protocol.P2PServerError)
}

// handleDone handles a done message. It ends the named loan if that belongs to the sender. A done message for an
// unknown loan, or from an unknown peer, changes nothing and has the same reply.
func (o *Owner) handleDone(e *flow.Env, ev *effects.Received) {
	switch m, why := &o.doneMessage, link.CheckRole(&e.Env, ev); {
	case why != nil:
		e.ReportForbidden(ev, effects.StageAsk, why)
	case !m.HasExt:
		e.Out.Mark(Marks.VanillaDone) // Nothing is lent to a peer without an incarnation.
	case m.Ext.Grant != 0:
		o.loans.HandleDone(&e.Env, &e.Store, ev.Principal, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To), m.Ext.Grant)
	}
	doneReply := protocol.AscendBatchedLookupAndGetDoneRetMsg{}
	o.sendReply(e, ev, doneReply.Append(e.Out.Arena()))
}

// handleGet answers a request for chunks. The reply waits only for this node's own copies and writes.
func (o *Owner) handleGet(e *flow.Env, ev *effects.Received) {
	m := &o.getMessage
	if why := link.CheckRole(&e.Env, ev); why != nil {
		o.forbidGet(e, ev, why)
		return
	}
	if why := e.CheckTenants(ev, m.Keys); why != nil {
		o.forbidGet(e, ev, why)
		return
	}
	peerID, selfID := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	class, code := 0, effects.Stale
	// A peer without an incarnation cannot reach any page, because it completed no handshake.
	if m.HasExt {
		class, code = e.Links.IdentifyPeer(&e.Env, ev, peerID, selfID)
	}
	if code == effects.Forbidden {
		o.forbidGet(e, ev, link.OtherIdentityReason())
		return
	}
	if code != effects.OK || e.Links.IncarnationByClass(class).HasLostLink() {
		e.Out.Mark(Marks.NotIntroduced)
		o.sendError(e, ev, protocol.P2PNotIntroduced)
		return
	}
	operationHash := loan.HashKeys(&e.Store, m.Keys)*31 + e.Store.HashKey(m.LookupID)
	if !m.PullMode {
		operationHash = operationHash*31 + m.Ext.Grant | 1
	}
	if x := o.loans.FindLoan(&e.Store, peerID, m.Ext.Operation); x != nil {
		o.handleRepeat(e, ev, x, operationHash)
		return
	}
	if !m.PullMode && m.Ext.Operation != 0 && o.refuseReplayed(e, ev, peerID) {
		return
	}
	o.lendPrefix(e, ev, loan.Request{
		Reader: loan.ReaderOf(e.Links.IncarnationByClass(class)), Class: class, Operation: m.Ext.Operation, KeysHash: operationHash,
	})
}

// lendPrefix lends the longest prefix that is present and that the peer's share permits.
func (o *Owner) lendPrefix(e *flow.Env, ev *effects.Received, request loan.Request) {
	m := &o.getMessage
	switch {
	case e.Draining:
		o.refuseGet(e, ev, effects.Draining, effects.Why{})
		return
	case m.Ext.Operation == 0:
		o.refuseGet(e, ev, effects.Invalid, effects.Why{Field: "kvf_op", Ours: "a number above 0", Theirs: "none"})
		return
	case len(m.Keys) > int(e.Cfg.BatchMax):
		o.refuseGet(e, ev, effects.TooLarge, effects.Why{
			Field: "limits.keys_per_batch", Ours: flow.FormatCount(e.Cfg.BatchMax), Theirs: flow.FormatCount(len(m.Keys)),
			Remedy: "request fewer at a time, or raise the limit here",
		})
		return
	}
	if !m.PullMode {
		o.startPush(e, ev, request)
		return
	}
	o.startReply(e)
	prefixLen := o.loans.FindPrefix(&e.Env, &e.Store, request.Class, m.Keys)
	if o.loans.IsPrefixCut() {
		o.addShareUsedUp()
	}
	if prefixLen > 0 && e.Arena != nil {
		o.startCopy(e, ev, request)
		return
	}
	if prefixLen > 0 {
		if !o.loans.CanLend(&e.Env, request.Class) {
			e.Out.Mark(Marks.LoansFull)
			o.refuseGet(e, ev, effects.TooMany, effects.Why{
				Field: "tables.shared", Ours: "exhausted: this peer has its whole share of the read leases",
			})
			return
		}
		x := o.loans.LendPrefix(&e.Env, &e.Store, request)
		o.addLoanToReply(e, x)
		e.Out.Observe(effects.Observe{
			Fact: effects.FactShared, Count: uint32(len(x.Pages())), ID: x.GrantID(), Peer: request.Reader.PeerID,
			Report: o.traceOfRequest(e).report(e),
		})
	}
	o.sendReply(e, ev, o.reply.Append(e.Out.Arena()))
}

// A requestTrace is the span of a peer that a request for chunks names, if it is traced, and when the request arrived.
type requestTrace struct {
	trace     effects.TraceContext `snap:"skip"`
	arrivedAt effects.Time         `snap:"skip"`
}

// traceOfRequest returns the trace of the request in o.getMessage, which has just arrived.
func (o *Owner) traceOfRequest(e *flow.Env) (t requestTrace) {
	if t.arrivedAt = e.Now; o.getMessage.HasExt {
		t.trace = effects.TraceFromWire(o.getMessage.Ext.Trace)
	}
	return t
}

// report returns the report of a request that is answered now, or nil if the request is not traced.
func (t requestTrace) report(e *flow.Env) *effects.Report { return e.TraceReport(t.trace, t.arrivedAt) }

// handleRepeat answers a repeated operation that has a loan, with the same pages and the remaining time (M6).
func (o *Owner) handleRepeat(e *flow.Env, ev *effects.Received, x *loan.Loan, operationHash uint64) {
	switch {
	case x.KeysHash != operationHash:
		e.Out.Mark(Marks.GetOther)
		o.refuseGet(e, ev, effects.Refused, effects.Why{Field: "kvf_op", Ours: "of another lookup"})
	case x.Row != 0 && o.getMessage.PullMode:
		o.redirectCopyReply(e, ev, x.Row)
	case x.Row != 0:
		o.redirectPushReply(e, ev, x.Row)
	case !o.loans.IsInForce(&e.Env, x):
		e.Out.Mark(Marks.GetOver)
		o.refuseGet(e, ev, effects.Expired, effects.Why{Field: "kvf_op", Ours: "an expired read lease"})
	default:
		e.Out.Mark(Marks.GetAgain)
		x.CountReply()
		o.startReply(e)
		o.addLoanToReply(e, x)
		o.sendReply(e, ev, o.reply.Append(e.Out.Arena()))
	}
}

// startReply begins a reply without hits.
func (o *Owner) startReply(e *flow.Env) {
	o.startReplyTo(e, effects.Incarnation(o.getMessage.Ext.To), o.getMessage.Ext.Stamps.ClockNS)
}

// startReplyTo begins a reply to a peer that knows this node as incarnation selfID and stated the clock reading echo.
func (o *Owner) startReplyTo(e *flow.Env, selfID effects.Incarnation, echo int64) {
	m := &o.reply
	*m = protocol.AscendBatchedLookupAndGetRetMsg{
		RemoteUUIDs: m.RemoteUUIDs[:0], RemoteIndexes: m.RemoteIndexes[:0], HasExt: true,
		Ext: protocol.P2PGetReplyExt{
			Version: link.VersionMax, Incarnation: protocol.UUID(selfID), Generations: m.Ext.Generations[:0], Sums: m.Ext.Sums[:0],
			Stamps: protocol.Stamps{ClockNS: int64(e.Now), EchoNS: echo},
		},
	}
}

// addLoanToReply adds the pages of a loan and its remaining time to the reply.
func (o *Owner) addLoanToReply(e *flow.Env, x *loan.Loan) {
	m := &o.reply
	for i, page := range x.Pages() {
		buffer, index := e.Cfg.PageName(page)
		m.RemoteUUIDs, m.RemoteIndexes = append(m.RemoteUUIDs, buffer), append(m.RemoteIndexes, index)
		m.Ext.Generations, m.Ext.Sums = append(m.Ext.Generations, uint64(page.Generation)), effects.AppendSum(m.Ext.Sums, i, page.Sum)
	}
	if x.IsCut() {
		o.addShareUsedUp()
	}
	m.HitChunks, m.Ext.Grant = uint32(len(x.Pages())), x.GrantID()
	m.SetLeaseNS(int64(x.TimeLeft(e.Now)))
}

// addShareUsedUp adds to the reply that more chunks are present than the hits, because the peer's share is used up.
// Without this remark the peer would take the remaining chunks for missing.
func (o *Owner) addShareUsedUp() {
	why := effects.Why{
		Field: "the part of share.lent_pct that one peer may have at a time", Ours: "used up",
		Remedy: "ask for the other chunks when these were read, or raise share.lent_pct there, or os_staging_bytes",
	}
	o.reply.Ext.Reason = why.Reason()
}

// refuseGet replies that nothing is lent, with the reason.
func (o *Owner) refuseGet(e *flow.Env, ev *effects.Received, code effects.Code, why effects.Why) {
	e.Out.Mark(Marks.GetRefused)
	o.startReply(e)
	o.reply.Ext.Code, o.reply.Ext.Reason = uint32(code), why.Reason()
	why.Stage = effects.StageAsk
	e.Out.Observe(effects.Observe{
		Fact: effects.FactShared, Code: code, Count: uint32(len(o.getMessage.Keys)), ID: uint64(ev.Conn),
		Peer: effects.Incarnation(o.getMessage.Ext.Incarnation), Why: &why, Report: o.traceOfRequest(e).report(e),
	})
	o.sendReply(e, ev, o.reply.Append(e.Out.Arena()))
}

// forbidGet refuses a request for chunks because of the identity of its sender. What an earlier request in the same name
// was given is not affected.
func (o *Owner) forbidGet(e *flow.Env, ev *effects.Received, why *effects.Why) {
	if o.getMessage.HasExt {
		o.refuseGet(e, ev, effects.Forbidden, *why)
		return
	}
	e.ReportForbidden(ev, effects.StageAsk, why)
	o.sendError(e, ev, protocol.P2PServerError)
}

// sendError replies with an error message, to messages without another kind of reply.
func (o *Owner) sendError(e *flow.Env, ev *effects.Received, code protocol.P2PErrorCode) {
	m := protocol.P2PErrorMsg{Code: code}
	o.sendReply(e, ev, m.Append(e.Out.Arena()))
}

// sendReply replies with a message that was just appended to the step's arena.
func (o *Owner) sendReply(e *flow.Env, ev *effects.Received, arena []byte) {
	e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(arena)})
}
