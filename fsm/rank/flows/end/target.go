package end

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// A Target handles senders' end-of-request messages. It has no state of its own: request outcomes are in the
// shared table of requests.
type Target struct {
	flow.Passive
	ask   protocol.EndRequest  `snap:"scratch"`
	reply protocol.EndResponse `snap:"scratch"`
}

// Step panics: a Target requests no effects.
func (t *Target) Step(*flow.Env, kernel.Ref, effects.Event) {
	kernel.Foreign("the target of ended requests")
}

// Serves reports that the Target takes EndRequests.
func (t *Target) Serves(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagEndRequest, c == effects.ChannelAlloc
}

// Receive handles an EndRequest. Every request is confirmed, even if it is not believed, because repeating it
// would change nothing.
func (t *Target) Receive(e *flow.Env, ev *effects.Received) {
	m := &t.ask
	who := flow.Asker{To: ev.Request, Conn: ev.Conn}
	if err := m.Decode(ev.Body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.Malformed)
		e.Malformed(who, effects.StageEnd, err, ev.Body)
		flow.RefuseForGood(&e.Env, ev.Request)
		return
	}
	name := e.Links.Named(effects.Incarnation(m.Incarnation))
	class, known := e.Links.Inbound(&e.Env, effects.Incarnation(m.Incarnation), effects.Incarnation(m.To))
	if !known {
		e.Out.Mark(Marks.Stranger)
		class = 0
	}
	t.reply = protocol.EndResponse{Version: link.VersionMax}
	request, code := e.Store.RequestHash(m.Request), effects.CodeFromWire(m.Code)
	if len(m.Request) > 0 && e.Ended.End(&e.Env, class, name, request, m.Operation, code, effects.Words(m.Reason)) {
		t.heard(e, class, request, code)
	}
	if why := e.Ended.Noted(class); why != nil && known {
		t.reply.Code, t.reply.Reason = uint32(effects.NotSent), why.Reason()
	}
	e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(t.reply.Append(e.Out.Arena()))})
}

// heard records, for the confirmation, that a Get here waits for chunks of a request that its sender has ended
// with OK.
func (t *Target) heard(e *flow.Env, class int, request uint64, code effects.Code) {
	awaited := e.Gets.Awaits(request)
	if awaited == nil || code != effects.OK {
		return
	}
	end, _ := e.Ended.Of(e.Now, request)
	e.Ended.Note(class, engine.NotSent(awaited, end.Key))
}
