package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/protocol"
)

// onReceived answers a message. Done messages are accepted on both sockets, all other messages on the lookup socket
// only.
func (o *Owner) onReceived(e *flow.Env, ev *effects.Received) {
	if ev.Request == 0 {
		return
	}
	wire := &e.Cfg.Wire
	tag, err := protocol.PeekTag(ev.Body, wire)
	if err != nil {
		o.malformed(e, ev, err)
		return
	}
	asked := ev.Channel == effects.ChannelLookup
	//exhaustive:ignore
	switch tag {
	case protocol.TagAscendBatchedLookupAndGetDoneMsg:
		if err = o.done.Decode(ev.Body, wire); err == nil {
			o.onDone(e, ev)
			return
		}
	case protocol.TagAscendBatchedLookupAndGetMsg:
		if !asked {
			break
		}
		if err = o.get.Decode(ev.Body, wire); err == nil {
			o.onGet(e, ev)
			return
		}
	case protocol.TagAscendQueryDonePortMsg:
		if m := (protocol.AscendQueryDonePortMsg{}); !asked {
			break
		} else if err = m.Decode(ev.Body, wire); err == nil {
			where := protocol.AscendQueryDonePortRetMsg{DoneURL: o.cfg.DoneURL}
			o.say(e, ev, where.Append(e.Out.Arena()))
			return
		}
	default:
	}
	if err != nil {
		o.malformed(e, ev, err)
		return
	}
	e.Out.Mark(Marks.NotServed)
	o.fail(e, ev, unserved(tag))
}

// unserved returns LMCache-Ascend's error code for a message that is not served. LMCache-Ascend distinguishes its own
// reply messages from messages that it cannot decode.
func unserved(tag protocol.Tag) protocol.P2PErrorCode {
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

func (o *Owner) malformed(e *flow.Env, ev *effects.Received, err error) {
	e.Out.Mark(Marks.LookupMalformed)
	why := link.Undecodable(err)
	why.Stage = effects.StageAsk
	e.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn), Why: &why})
	o.fail(e, ev, protocol.P2PServerError)
}

// onDone handles a done message. It ends the named loan if that belongs to the sender. A done message for an unknown
// loan, or from an unknown peer, changes nothing and has the same reply.
func (o *Owner) onDone(e *flow.Env, ev *effects.Received) {
	switch m := &o.done; {
	case !m.HasExt:
		e.Out.Mark(Marks.VanillaDone) // Nothing is lent to a peer without an incarnation.
	case m.Ext.Grant != 0:
		o.loans.Done(&e.Env, &e.Store, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To), m.Ext.Grant)
	}
	ok := protocol.AscendBatchedLookupAndGetDoneRetMsg{}
	o.say(e, ev, ok.Append(e.Out.Arena()))
}

// onGet answers a request for chunks. The reply waits only for this node's own copies and writes.
func (o *Owner) onGet(e *flow.Env, ev *effects.Received) {
	m := &o.get
	who, us := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	class, known := 0, false
	// A peer without an incarnation cannot reach any page, because it completed no handshake.
	if m.HasExt {
		class, known = e.Links.Inbound(&e.Env, who, us)
	}
	if !known || e.Links.OfClass(class).Gone() {
		e.Out.Mark(Marks.NotIntroduced)
		o.fail(e, ev, protocol.P2PNotIntroduced)
		return
	}
	what := loan.Named(&e.Store, m.Keys)*31 + e.Store.Hash(m.LookupID)
	if !m.PullMode {
		what = what*31 + m.Ext.Grant | 1
	}
	if x := o.loans.Find(&e.Store, who, m.Ext.Operation); x != nil {
		o.again(e, ev, x, what)
		return
	}
	if !m.PullMode && m.Ext.Operation != 0 && o.buried(e, ev, who) {
		return
	}
	o.lookUp(e, ev, loan.For{
		To:    lease.Reader{Who: who, Us: us, Keeps: e.Links.OfClass(class).Leases()},
		Class: class, Operation: m.Ext.Operation, What: what,
	})
}

// lookUp lends the longest prefix that is present and that the peer's share permits.
func (o *Owner) lookUp(e *flow.Env, ev *effects.Received, to loan.For) {
	m := &o.get
	switch {
	case e.Draining:
		o.refuse(e, ev, effects.Draining, effects.Why{})
		return
	case m.Ext.Operation == 0:
		o.refuse(e, ev, effects.Invalid, effects.Why{Field: "kvf_op", Ours: "a number above 0", Theirs: "none"})
		return
	case len(m.Keys) > int(e.Cfg.BatchMax):
		o.refuse(e, ev, effects.TooLarge, effects.Why{
			Field: "limits.keys_per_batch", Ours: flow.Number(e.Cfg.BatchMax), Theirs: flow.Number(len(m.Keys)),
			Remedy: "ask for fewer at a time, or raise it here",
		})
		return
	}
	if !m.PullMode {
		o.onPush(e, ev, to)
		return
	}
	o.empty(e)
	found := o.loans.Prefix(&e.Env, &e.Store, to.Class, m.Keys)
	if o.loans.Cut() {
		o.sayCut()
	}
	if found > 0 && e.Arena != nil {
		o.beginCopy(e, ev, to)
		return
	}
	if found > 0 {
		if !o.loans.May(&e.Env, to.Class) {
			e.Out.Mark(Marks.LoansFull)
			o.refuse(e, ev, effects.TooMany, effects.Why{
				Field: "tables.shared", Ours: "as many loans as this peer may have are out",
			})
			return
		}
		x := o.loans.Lend(&e.Env, &e.Store, to)
		o.tell(e, x)
		e.Out.Observe(effects.Observe{
			Fact: effects.FactShared, Count: uint32(len(x.Pages())), ID: x.Grant(), Peer: to.To.Who,
		})
	}
	o.say(e, ev, o.reply.Append(e.Out.Arena()))
}

// again answers a repeated operation that has a loan, with the same pages and the remaining time (M6).
func (o *Owner) again(e *flow.Env, ev *effects.Received, x *loan.Loan, what uint64) {
	switch {
	case x.What != what:
		e.Out.Mark(Marks.GetOther)
		o.refuse(e, ev, effects.Refused, effects.Why{Field: "kvf_op", Ours: "of another lookup"})
	case x.Row != 0 && o.get.PullMode:
		o.copyAgain(e, ev, x.Row)
	case x.Row != 0:
		o.pushAgain(e, ev, x.Row)
	case !o.loans.Stands(&e.Env, x):
		e.Out.Mark(Marks.GetOver)
		o.refuse(e, ev, effects.Expired, effects.Why{Field: "kvf_op", Ours: "a loan whose time is over"})
	default:
		e.Out.Mark(Marks.GetAgain)
		x.Again()
		o.empty(e)
		o.tell(e, x)
		o.say(e, ev, o.reply.Append(e.Out.Arena()))
	}
}

// empty begins a reply without hits.
func (o *Owner) empty(e *flow.Env) {
	o.begin(e, effects.Incarnation(o.get.Ext.To), o.get.Ext.Stamps.ClockNS)
}

// begin begins a reply to a peer that knows this node as incarnation us and stated the clock reading echo.
func (o *Owner) begin(e *flow.Env, us effects.Incarnation, echo int64) {
	m := &o.reply
	*m = protocol.AscendBatchedLookupAndGetRetMsg{
		RemoteUUIDs: m.RemoteUUIDs[:0], RemoteIndexes: m.RemoteIndexes[:0], HasExt: true,
		Ext: protocol.P2PGetReplyExt{
			Version: link.VersionMax, Incarnation: protocol.UUID(us), Generations: m.Ext.Generations[:0],
			Stamps: protocol.Stamps{ClockNS: int64(e.Now), EchoNS: echo},
		},
	}
}

// tell adds the pages of a loan and its remaining time to the reply.
func (o *Owner) tell(e *flow.Env, x *loan.Loan) {
	m := &o.reply
	for _, page := range x.Pages() {
		buffer, index := e.Cfg.Named(page)
		m.RemoteUUIDs, m.RemoteIndexes = append(m.RemoteUUIDs, buffer), append(m.RemoteIndexes, index)
		m.Ext.Generations = append(m.Ext.Generations, uint64(page.Generation))
	}
	if x.Cut() {
		o.sayCut()
	}
	m.HitChunks, m.Ext.Grant = uint32(len(x.Pages())), x.Grant()
	m.SetLeaseNS(int64(x.Left(e.Now)))
}

// sayCut adds to the reply that more chunks are present than the hits, because the peer's share is used up. Without
// this remark the peer would take the remaining chunks for missing.
func (o *Owner) sayCut() {
	why := effects.Why{
		Field: "the part of share.lent_pct that one peer may have at a time", Ours: "used up",
		Remedy: "ask for the other chunks when these were read, or raise share.lent_pct there, or os_staging_bytes",
	}
	o.reply.Ext.Reason = why.Reason()
}

// refuse replies that nothing is lent, with the reason.
func (o *Owner) refuse(e *flow.Env, ev *effects.Received, code effects.Code, why effects.Why) {
	e.Out.Mark(Marks.GetRefused)
	o.empty(e)
	o.reply.Ext.Code, o.reply.Ext.Reason = uint32(code), why.Reason()
	why.Stage = effects.StageAsk
	e.Out.Observe(effects.Observe{
		Fact: effects.FactShared, Code: code, Count: uint32(len(o.get.Keys)), ID: uint64(ev.Conn),
		Peer: effects.Incarnation(o.get.Ext.Incarnation), Why: &why,
	})
	o.say(e, ev, o.reply.Append(e.Out.Arena()))
}

// fail replies with an error message, to messages without another kind of reply.
func (o *Owner) fail(e *flow.Env, ev *effects.Received, code protocol.P2PErrorCode) {
	m := protocol.P2PErrorMsg{Code: code}
	o.say(e, ev, m.Append(e.Out.Arena()))
}

// say replies with a message that was just appended to the step's arena.
func (o *Owner) say(e *flow.Env, ev *effects.Received, arena []byte) {
	e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(arena)})
}
