package end

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
	"github.com/kvferry/kvferry/protocol"
)

// A Target handles senders' end-of-request messages. It has no state of its own: request outcomes are in the
// shared table of requests.
type Target struct {
	flow.Passive
	request protocol.EndRequest  `snap:"scratch"`
	reply   protocol.EndResponse `snap:"scratch"`
}

// Step panics: a Target requests no effects.
func (t *Target) Step(*flow.Env, kernel.Ref, effects.Event) {
	kernel.PanicUnexpected("the target of ended requests")
}

// ServedTag reports that the Target takes EndRequests.
func (t *Target) ServedTag(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagEndRequest, c == effects.ChannelAlloc
}

// HandleMessage handles an EndRequest. Every request is confirmed, even if it is not believed, because repeating it
// would change nothing. Only a request of an identity that may not send it is refused.
func (t *Target) HandleMessage(e *flow.Env, ev *effects.Received) {
	m := &t.request
	from := flow.Sender{Request: ev.Request, Conn: ev.Conn}
	if err := m.Decode(ev.Body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.Malformed)
		e.ReportMalformed(from, effects.StageEnd, err, ev.Body)
		flow.SendEmptyReply(&e.Env, ev.Request)
		return
	}
	why := link.CheckRole(&e.Env, ev)
	if why == nil {
		why = e.CheckTenant(ev, effects.Tenant(m.Tenant))
	}
	if why != nil {
		t.forbid(e, ev, why)
		return
	}
	stated := e.Links.StatedClass(ev, effects.Incarnation(m.Incarnation))
	class, identified := e.Links.IdentifyPeer(&e.Env, ev, effects.Incarnation(m.Incarnation), effects.Incarnation(m.To))
	if identified == effects.Forbidden {
		t.forbid(e, ev, link.OtherIdentityReason())
		return
	}
	known := identified == effects.OK
	if !known {
		e.Out.Mark(Marks.Stranger)
		class = 0
	}
	t.reply = protocol.EndResponse{Version: link.VersionMax}
	request := outcomes.NewID(e.Store.HashRequest(m.Request), effects.Tenant(m.Tenant))
	code := effects.CodeFromWire(m.Code)
	if len(m.Request) > 0 && e.Outcomes.RecordEnd(&e.Env, class, stated, request, m.Operation, code, effects.SanitizeText(m.Reason)) {
		t.noteAwaited(e, class, request, code)
	}
	if why := e.Outcomes.TakeNote(class); why != nil && known {
		t.reply.Code, t.reply.Reason = uint32(effects.NotSent), why.Reason()
	}
	e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(t.reply.Append(e.Out.Arena()))})
}

// forbid refuses an EndRequest because of the identity of its sender.
func (t *Target) forbid(e *flow.Env, ev *effects.Received, why *effects.Why) {
	e.ReportForbidden(ev, effects.StageEnd, why)
	t.reply = protocol.EndResponse{Version: link.VersionMax, Code: uint32(effects.Forbidden), Reason: why.Reason()}
	e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(t.reply.Append(e.Out.Arena()))})
}

// noteAwaited records, for the confirmation, that a Get here waits for chunks of a request that its sender has ended
// with OK.
func (t *Target) noteAwaited(e *flow.Env, class int, request outcomes.ID, code effects.Code) {
	awaited := e.Gets.AwaitedKey(request)
	if awaited == nil || code != effects.OK {
		return
	}
	end, _ := e.Outcomes.OutcomeOf(e.Now, request)
	e.Outcomes.SetNote(class, engine.NotSentNote(&e.Env, class, awaited, end.Key))
}
