package pull

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// This file holds the replay records of offers that have ended or were refused, and answers such offers if they
// arrive again.

// replyIfEnded answers t.offer if a done message or a refusal ended it, or may have ended it, and returns false
// otherwise.
func (t *Target) replyIfEnded(e *flow.Env, to effects.Request, class int) bool {
	m := &t.offer
	if x := t.tombstones.Find(effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, m.Ext.Attempt); x != nil {
		e.Out.Mark(flow.Marks.OfferRemembered)
		if x.Code == effects.OK {
			t.sendAck(e, to, t.offerEcho(), nil, false)
		} else {
			t.sendRefusal(e, to, true, t.offerEcho(), x.Code, flow.EndReason(x.Code), false)
		}
		return true
	}
	watermark := t.tombstones.Watermark(class)
	if !e.Cfg.Leased || watermark == replies.MinTime {
		return false
	}
	if began, known := e.Links.ConvertInstant(&e.Env, class, m.Ext.Stamps, m.Ext.GrantedNS); known && began > watermark {
		return false
	}
	e.Out.Mark(flow.Marks.OfferRemembered)
	// This refusal returns the pages to the sender. A copy of the offer that arrives later may be compared with
	// this rank's clock by a better anchor, which places its beginning after the watermark; so the refusal is
	// recorded (M2).
	t.addRefusalRecord(e, class, effects.Expired)
	t.sendRefusal(e, to, true, t.offerEcho(), effects.Expired, flow.TooLateReason(), false)
	return true
}

// addRefusalRecord records that t.offer was refused.
func (t *Target) addRefusalRecord(e *flow.Env, class int, code effects.Code) {
	m := &t.offer
	if class == 0 || !m.HasExt || m.Ext.Operation == 0 || code == effects.Stale {
		return // The sender is unknown, or addressed another incarnation: such a refusal ends no lease.
	}
	t.tombstones.Add(replies.Record{
		Class: class, Peer: effects.Incarnation(m.Ext.Incarnation), Operation: m.Ext.Operation, Attempt: m.Ext.Attempt,
		Code: code, SentAt: e.Now, Expires: t.offerReplayEnd(e),
	})
}

// addDoneRecord records that the end of an offer was reported to its sender, or will be.
func (t *Target) addDoneRecord(
	e *flow.Env, class int, peerID effects.Incarnation, operation uint64, code effects.Code, replayEnd effects.Time,
) {
	t.tombstones.Add(replies.Record{
		Class: class, Peer: peerID, Operation: operation, AllAttempts: true, Code: code, SentAt: e.Now, Expires: replayEnd,
	})
}

// queueDone queues the done message of an offer to its sender. From then on the sender may reuse the pages, so
// nothing may read the pages any more.
func (t *Target) queueDone(e *flow.Env, address table.Handle, class int, d deferred.DoneReport) {
	m := &t.doneMessage
	*m = protocol.PullDoneSignal{PullID: d.Pull, HasExt: true, Ext: protocol.PullDoneExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(d.SelfID), To: protocol.UUID(d.PeerID),
		Grant: d.Grant, Code: uint32(d.Code), Missing: d.Missing,
	}}
	if d.Code != effects.OK {
		m.Ext.Reason = flow.EndReason(d.Code).Reason()
	}
	t.doneBytes = m.Append(t.doneBytes[:0])
	t.notices.QueueNotice(&e.Env, address, class, t.doneBytes)
}

// queueEndedDones notifies the senders of the deferred offers that have ended. It follows each call that may end one.
func (t *Target) queueEndedDones(e *flow.Env) {
	for _, x := range e.Deferred.EndedOffers() {
		t.addDoneRecord(e, x.Class, x.PeerID, x.Operation, x.Code, x.ExpiresAt)
		t.queueDone(e, x.Address, x.Class, x.DoneReport)
	}
	e.Deferred.ClearEndedOffers()
}

// dropOfferChunks removes all remaining chunks of an offer.
func (t *Target) dropOfferChunks(e *flow.Env, h table.Handle, code effects.Code) {
	e.Work.SpendRows(1 + e.Deferred.CountChunks(h))
	e.Deferred.DropOffer(&e.Env, &e.Store, h, code)
	t.queueEndedDones(e)
}

// dropOffer drops an offer and ends the fetches that read from the offer. If request is not 0, the engine has
// abandoned that request, and only the request's own fetches end; fetches of other requests go on, because the
// lease stands until the done message. If request is 0, all of them end. dropOffer returns false if some fetches
// are left, because any number of fetches may read one offer; then it is called again in the next step.
func (t *Target) dropOffer(e *flow.Env, h table.Handle, code effects.Code, request uint64) (done bool) {
	reportedCode := code
	if code == effects.Cancelled && request == 0 {
		reportedCode = effects.Withdrawn // The sender took the offer back: the code is that of a read that is withdrawn.
	}
	done = e.Fetches.FailFetchesOf(&e.Env, &e.Store, &e.Deferred, h, reportedCode, request)
	t.queueEndedDones(e)
	if done {
		e.Out.Mark(flow.Marks.OfferDropped)
		t.dropOfferChunks(e, h, code)
	}
	return done
}

// EndCondemned continues, as far as the step has work, to end the fetches that have lost their link, and the offers
// that are condemned.
func (t *Target) EndCondemned(e *flow.Env) {
	e.Fetches.ContinueLossSweep(&e.Env, &e.Store, &e.Deferred)
	t.queueEndedDones(e)
	for h, code := e.Deferred.FirstCondemned(); h != 0 && e.Work.HasBudget(); h, code = e.Deferred.FirstCondemned() {
		if t.dropOffer(e, h, code, 0) {
			e.Deferred.FinishCondemned(h)
		}
	}
}
