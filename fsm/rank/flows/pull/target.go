package pull

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/notice"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

var _ flow.Target = (*Target)(nil)

// A Target serves senders that offer: it reads offers on arrival, or when the engine fetches the chunks, and
// notifies the senders when the offers have ended.
type Target struct {
	cfg        TargetConfig `snap:"share"`
	reads      []readRow    // the reads in progress, by the slot of the grant
	renewers   lease.Renewers
	notices    notice.Notices
	tombstones replies.Records // the last replies to offers that have ended, for retries

	offer          protocol.PullReadyNotif   `snap:"scratch"`
	ack            protocol.PullReadyDoneAck `snap:"scratch"`
	doneMessage    protocol.PullDoneSignal   `snap:"scratch"`
	doneBytes      []byte                    `snap:"scratch"`
	pairs          []effects.Pair            `snap:"scratch"`
	presentIndexes []int64                   `snap:"scratch"`
	arrivedAt      effects.Time              `snap:"scratch"` // when the offer arrived first
}

// TargetConfig is the configuration of a Target.
type TargetConfig struct {
	ReadSettings
	LeadMin   effects.Duration // the time that an offer's lease must still last for the offer to be kept
	OffersMax uint32           // the limit of offers that are kept
	GrantsMax uint32           // the limit of the rank's grants
	RenewsMax uint32           // the limit of leases in one renewal
	NotifyMax uint32           // the limit of tries to send one done message
}

// Recycle returns a Target that reads nothing. The memory of t is reused, so t must not be used afterwards. seed
// is a secret of the rank.
func (t *Target) Recycle(cfg TargetConfig, all *flow.Config, classes int, seed uint64) Target {
	words := int(cfg.GrantsMax + cfg.OffersMax)
	return Target{
		cfg: cfg,
		renewers: t.renewers.Recycle(lease.RenewersConfig{
			ReplyTimeout: all.ReplyTimeout, BackoffMin: all.BackoffMin, BackoffMax: all.BackoffMax,
			AddressesOnly: cfg.AddressesOnly, LeasesMax: int(cfg.RenewsMax), Wire: all.Wire,
		}, classes),
		notices: t.notices.Recycle(notice.Config{
			Seed: seed, BackoffMin: all.BackoffMin, BackoffMax: all.BackoffMax, Peers: int(all.PeersMax), NoticesMax: words,
			TriesMax: cfg.NotifyMax,
		}, classes),
		tombstones: t.tombstones.Recycle(words, classes),
		offer:      t.offer, ack: t.ack, doneMessage: t.doneMessage, doneBytes: t.doneBytes, pairs: t.pairs, presentIndexes: t.presentIndexes,
	}
}

// handleOffer handles a PullReadyNotif. An offer waits for the link to the sender's pages, then for pages of this
// rank as an AllocRequest does, and is answered when it has been read. With Delay the offer is kept and
// acknowledged at once.
func (t *Target) handleOffer(e *flow.Env, ev *effects.Received) {
	m := &t.offer
	t.arrivedAt = e.Now
	from := flow.Sender{Request: ev.Request, Conn: ev.Conn}
	if err := m.Decode(ev.Body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(flow.Marks.AllocMalformed)
		e.ReportMalformed(from, effects.StageOffer, err, ev.Body)
		m.HasExt = false
		t.refuseOffer(e, from, effects.Malformed, nil)
		return
	}
	if why := link.CheckRole(&e.Env, ev); why != nil {
		t.forbidOffer(e, from, why)
		return
	}
	if why := e.CheckTenants(ev, m.Keys); why != nil {
		t.forbidOffer(e, from, why)
		return
	}
	if !m.HasExt {
		// No information ties the pages of a sender without our extensions to one incarnation of that sender, so
		// nothing would show what was read (M5).
		e.Out.Mark(flow.Marks.VanillaOffer)
		t.refuseOffer(e, from, effects.Unsupported, flow.VanillaPeerReason())
		return
	}
	peerID, selfID := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	class, identified := e.Links.IdentifyPeer(&e.Env, ev, peerID, selfID)
	if identified == effects.Forbidden {
		t.forbidOffer(e, from, link.OtherIdentityReason())
		return
	}
	if identified != effects.OK {
		e.Out.Mark(flow.Marks.StrangerRefused)
		t.refuseOffer(e, from, effects.Stale, flow.UnknownIncarnationReason())
		return
	}
	from.Class = class
	if len(m.Keys) == 0 && len(m.Ext.Withdraw) > 0 {
		// Example: an offer expires because the clocks were compared badly, during a slow handshake. The
		// withdrawal follows our reply at once, so it compares the clocks well, and the next offer, after a pause
		// of any length, does not expire for the same reason.
		e.Links.CompareClocks(&e.Env, class, m.Ext.Stamps)
		t.handleWithdrawal(e, from, peerID)
		return
	}
	operation := m.Ext.Operation
	request := e.Store.HashRequest(m.Ext.Request)
	if t.handleRepeat(e, ev, from, peerID, operation, request) || t.replyIfEnded(e, ev.Request, class) {
		return // The first attempt's effect stands, whatever this rank has become since (M6).
	}
	pages := len(m.Keys)
	if t.cfg.Delay {
		pages = 1 // A kept offer needs no page, and a fetch needs a staging page or more.
	}
	code, why := e.CheckServable(m.Keys, m.Layout(), m.LastChunkTokens, pages)
	if code == effects.OK {
		code, why = t.checkOffer(e, class)
	}
	if code == effects.Invalid && !e.Links.IncarnationByClass(class).HasBuffers() {
		// By this code the sender shakes hands again.
		code, why = effects.Stale, &effects.Why{Field: "buffers", Theirs: "not listed"}
	}
	if code == effects.OK && e.Links.IncarnationByClass(class).HasLostLink() {
		code, why = effects.Stale, flow.LinkLostReason()
	}
	if code != effects.OK {
		e.Out.Mark(flow.Marks.AllocRefused)
		t.refuseOffer(e, from, code, why)
		return
	}
	t.recordBatch(e, class, request)
	if e.Abandons.IsAbandoned(e.Now, request) {
		e.Out.Mark(allocqueue.Marks.RequestAbandoned)
		t.refuseOffer(e, from, effects.Cancelled, flow.EndReason(effects.Cancelled))
		return
	}
	if t.cfg.Delay {
		t.keepOffer(e, ev, class)
		return
	}
	reached, tenant := e.Links.ReachPeer(&e.Env, class), effects.Tenant(protocol.TenantOf(m.Keys[0]))
	if reached != 0 && e.Pending.CanServeNow(&e.Env, class, tenant) {
		if _, done := t.startRead(e, reached, from); done {
			e.Pending.CountPass(&e.Env, class)
			return
		}
	}
	timeout := effects.Duration(min(m.Ext.PatienceNS, uint64(e.Cfg.AllocTimeout)))
	row := allocqueue.Row{
		Owner: kernel.OwnerPullTarget, ContentHash: e.HashBatch(class, m.Keys, m.LastChunkTokens), OfferID: m.PullID,
		Class: class, Tenant: tenant, RequestHash: request, Peer: peerID,
		Operation: operation, Attempt: m.Ext.Attempt,
		AwaitsLink: reached == 0 && e.Pending.WaitsForLink(class),
	}
	if refusal := e.Pending.Enqueue(&e.Env, row, ev, e.Hashes, timeout); refusal != nil {
		t.refuseOffer(e, from, effects.TooMany, refusal)
	}
}

// recordBatch records that the request goes on, unless the sender has to shake hands first. A retry counts like a new
// offer: if the sender's link was lost, other peers could end the request, until the sender repeats an offer.
func (t *Target) recordBatch(e *flow.Env, class int, request uint64) {
	if !e.Links.IncarnationByClass(class).HasLostLink() {
		key := t.offer.Keys[0]
		e.Outcomes.RecordBatch(&e.Env, class, outcomes.IDByKey(request, key), t.offer.Ext.Operation, key)
	}
}

// checkOffer returns OK if what the offer says about its pages is valid.
func (t *Target) checkOffer(e *flow.Env, class int) (effects.Code, *effects.Why) {
	m := &t.offer
	if m.PullID == (protocol.PullID{}) || m.Ext.Operation == 0 || m.Ext.Grant == 0 ||
		len(m.Ext.Generations) != len(m.Keys) {
		return effects.Malformed, &effects.Why{
			Field: "PullReadyNotif", Ours: "pull_id, kvf_op, kvf_grant and a generation for each key",
			Theirs: "one of them is missing",
		}
	}
	for i, index := range m.SenderIndexes {
		buffer, ok := e.Links.IncarnationByClass(class).FindBuffer(effects.BufferID(m.SenderUUIDs[i]))
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return effects.Invalid, &effects.Why{
				Field: flow.EntryName("sender_mem_indexes", i), Ours: "a page of a buffer that it listed",
				Theirs: strconv.FormatInt(index, 10),
			}
		}
	}
	if t.notices.HasAddress(m.SenderDoneURL) {
		return effects.OK, nil
	}
	// LMCache announces the address to which it is bound, and that may be the unspecified address.
	done, err := protocol.ParseEndpoint(string(m.SenderDoneURL))
	switch {
	case err != nil || done.IsUnspecified():
		return effects.Invalid, &effects.Why{
			Field: "sender_done_url", Ours: "host:port of the sender's own", Theirs: effects.SanitizeText(m.SenderDoneURL),
			Remedy: "give the sender's own address as its pd_peer_host",
		}
	case t.cfg.AddressesOnly && !done.IsNumeric():
		return effects.Refused, &effects.Why{
			Field: "sender_done_url", Ours: "an address, because link.peer_names is false",
			Theirs: effects.SanitizeText(m.SenderDoneURL),
			Remedy: "give pd_peer_host of the sender as an address, or set link.peer_names: true at the receiver",
		}
	}
	return effects.OK, nil
}

// handleRepeat serves a retry of an offer, and returns false if the offer is new. The reply, when there is one,
// is sent to the retry. Invariant: no refusal ends what the first attempt began, because the sender would reuse
// the pages while they are read (M6).
func (t *Target) handleRepeat(
	e *flow.Env, ev *effects.Received, from flow.Sender, peerID effects.Incarnation, operation, request uint64,
) bool {
	x := e.Landings.FindOperation(&e.Env, peerID, operation)
	switch {
	case x == nil:
		return t.handleKeptRepeat(e, from, peerID, operation, request) ||
			t.rejoinQueue(e, ev, from, peerID, operation, request)
	case !x.IsOwnRead(): // The operation id belongs to a push of this sender.
		t.refuseOffer(e, from, effects.Withdrawn, &effects.Why{Field: "kvf_op", Ours: "of a push"})
	case x.Request != request || x.ContentHash != e.HashBatch(from.Class, t.offer.Keys, t.offer.LastChunkTokens):
		t.refuseReusedOperation(e, from)
	case x.Revoking:
		e.Out.Mark(flow.Marks.OfferedAgain)
		stop := t.readOf(x).stopCode
		t.sendRefusal(e, ev.Request, true, t.offerEcho(), stop, flow.EndReason(stop), true)
	default:
		e.Out.Mark(flow.Marks.OfferedAgain)
		t.recordBatch(e, from.Class, request)
		y := t.readOf(x)
		y.request, y.echo = ev.Request, t.offerEcho()
	}
	return true
}

// rejoinQueue gives the retry of a waiting offer the queue place of the first attempt, and returns false if no
// such offer waits.
func (t *Target) rejoinQueue(
	e *flow.Env, ev *effects.Received, from flow.Sender, peerID effects.Incarnation, operation, request uint64,
) bool {
	h, q := e.Pending.FindOperation(peerID, operation)
	switch {
	case q == nil:
		return false
	case q.Owner != kernel.OwnerPullTarget || q.RequestHash != request ||
		q.ContentHash != e.HashBatch(from.Class, t.offer.Keys, t.offer.LastChunkTokens):
		t.refuseReusedOperation(e, from)
	default:
		e.Out.Mark(flow.Marks.AskedAgain)
		t.recordBatch(e, from.Class, request)
		e.Pending.AcceptRetry(h, ev, t.offer.Ext.Attempt)
	}
	return true
}

// refuseReusedOperation refuses an offer with an operation id that belongs to another batch. Another message used this
// sender's operation id before, and what the offer names is not what was accepted. The refusal leaves the lease
// in force, because an offer of the same pages may be read at the time.
func (t *Target) refuseReusedOperation(e *flow.Env, from flow.Sender) {
	e.Out.Mark(flow.Marks.AllocRefused)
	why := flow.OtherBatchReason()
	why.Stage = effects.StageOffer
	t.reportRefusal(e, from, effects.Mismatch, why)
	t.sendRefusal(e, from.Request, true, t.offerEcho(), effects.Mismatch, why, true)
}

// refuseWaiting refuses a waiting offer that can no longer be served, and removes the offer from the queue.
func (t *Target) refuseWaiting(
	e *flow.Env, h table.Handle, code effects.Code, why *effects.Why,
) {
	q := e.Pending.Get(h)
	t.decodeWaiting(e, q)
	e.HashBatch(q.Class, t.offer.Keys, 0)
	e.LoseChunks(e.Hashes, code)
	t.arrivedAt = q.ArrivedAt
	t.refuseOffer(e, flow.Sender{Request: q.Request, Conn: q.Conn, Class: q.Class}, code, why)
	e.Pending.Remove(&e.Env, h)
}

// TryServe serves a waiting offer when its turn has come, if there is a link to its pages and the chunks fit now.
func (t *Target) TryServe(e *flow.Env, q *allocqueue.Row) (allocqueue.TryResult, allocqueue.Shortfall) {
	peerLink := e.Links.ReachPeer(&e.Env, q.Class)
	if peerLink == 0 {
		return allocqueue.Unlinked, q.Shortfall
	}
	if !e.MayFit(q) {
		return allocqueue.Short, q.Shortfall
	}
	t.decodeWaiting(e, q)
	t.arrivedAt = q.ArrivedAt
	return allocqueue.ResultOf(t.startRead(e, peerLink, flow.Sender{Request: q.Request, Conn: q.Conn, Class: q.Class}))
}

// decodeWaiting decodes the message of a waiting offer again into t.offer, with the number of the latest attempt.
func (t *Target) decodeWaiting(e *flow.Env, q *allocqueue.Row) {
	if t.offer.Decode(q.Body, &e.Cfg.Wire) != nil {
		panic("BUG: a waiting offer does not decode any more")
	}
	t.offer.Ext.Attempt = q.Attempt
}
