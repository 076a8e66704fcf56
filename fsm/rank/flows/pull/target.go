package pull

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/notice"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

var _ flow.Target = (*Target)(nil)

// A Target serves senders that offer: it reads offers on arrival, or when the engine fetches the chunks, and
// notifies the senders when the offers have ended.
type Target struct {
	cfg        TargetConfig `snap:"share"`
	reads      []reading    // the reads in progress, by the slot of the grant
	renewers   lease.Renewers
	notices    notice.Notices
	tombstones replies.Words // the last replies to offers that have ended, for retries

	offer   protocol.PullReadyNotif   `snap:"scratch"`
	ack     protocol.PullReadyDoneAck `snap:"scratch"`
	done    protocol.PullDoneSignal   `snap:"scratch"`
	word    []byte                    `snap:"scratch"`
	pairs   []effects.Pair            `snap:"scratch"`
	already []int64                   `snap:"scratch"`
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

// Emptied returns a Target that reads nothing. The memory of t is reused, so t must not be used afterwards. seed
// is a secret of the rank.
func (t *Target) Emptied(cfg TargetConfig, all *flow.Config, classes int, seed uint64) Target {
	words := int(cfg.GrantsMax + cfg.OffersMax)
	return Target{
		cfg: cfg,
		renewers: t.renewers.Emptied(lease.RenewersConfig{
			ReplyTimeout: all.ReplyTimeout, BackoffMin: all.BackoffMin, BackoffMax: all.BackoffMax,
			AddressesOnly: cfg.AddressesOnly, Most: int(cfg.RenewsMax), Wire: all.Wire,
		}, classes),
		notices: t.notices.Emptied(notice.Config{
			Seed: seed, BackoffMin: all.BackoffMin, BackoffMax: all.BackoffMax, Peers: int(all.PeersMax), Words: words,
			TriesMax: cfg.NotifyMax,
		}, classes),
		tombstones: t.tombstones.Emptied(words, classes),
		offer:      t.offer, ack: t.ack, done: t.done, word: t.word, pairs: t.pairs, already: t.already,
	}
}

// onOffer handles a PullReadyNotif. An offer waits for the link to the sender's pages, then for pages of this
// rank as an AllocRequest does, and is answered when it has been read. With Delay the offer is kept and
// acknowledged at once.
func (t *Target) onOffer(e *flow.Env, ev *effects.Received) {
	m := &t.offer
	who := flow.Asker{To: ev.Request, Conn: ev.Conn}
	if err := m.Decode(ev.Body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(flow.Marks.AllocMalformed)
		e.Malformed(who, effects.StageOffer, err, ev.Body)
		m.HasExt = false
		t.refuseOffer(e, who, effects.Malformed, nil)
		return
	}
	if !m.HasExt {
		// No information ties the pages of a sender without our extensions to one incarnation of that sender, so
		// nothing would show what was read (M5).
		e.Out.Mark(flow.Marks.VanillaOffer)
		t.refuseOffer(e, who, effects.Unsupported, flow.PlainPeer())
		return
	}
	peer, to := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	class, known := e.Links.Inbound(&e.Env, peer, to)
	if !known {
		e.Out.Mark(flow.Marks.StrangerRefused)
		t.refuseOffer(e, who, effects.Stale, flow.UnknownLife())
		return
	}
	who.Class = class
	if len(m.Keys) == 0 && len(m.Ext.Withdraw) > 0 {
		// Example: an offer expires because the clocks were compared badly, during a slow handshake. The
		// withdrawal follows our reply at once, so it compares the clocks well, and the next offer, after a pause
		// of any length, does not expire for the same reason.
		e.Links.CompareClocks(&e.Env, class, m.Ext.Stamps)
		t.onWithdrawal(e, who, peer)
		return
	}
	operation := m.Ext.Operation
	request := e.Store.RequestHash(m.Ext.Request)
	if t.offeredAgain(e, ev, who, peer, operation, request) || t.wasEnded(e, ev.Request, class) {
		return // The first attempt's effect stands, whatever this rank has become since (M6).
	}
	pages := len(m.Keys)
	if t.cfg.Delay {
		pages = 1 // A kept offer needs no page, and a fetch needs a staging page or more.
	}
	code, why := e.Check(m.Keys, m.Layout(), m.LastChunkTokens, pages)
	if code == effects.OK {
		code, why = t.checkOffer(e, class)
	}
	if code == effects.Invalid && !e.Links.OfClass(class).Listed() {
		// By this code the sender shakes hands again.
		code, why = effects.Stale, &effects.Why{Field: "buffers", Theirs: "not listed"}
	}
	if code == effects.OK && e.Links.OfClass(class).Gone() {
		code, why = effects.Stale, flow.Cut()
	}
	if code != effects.OK {
		e.Out.Mark(flow.Marks.AllocRefused)
		t.refuseOffer(e, who, code, why)
		return
	}
	e.Ended.Began(&e.Env, class, request, operation, m.Keys[0])
	if e.Abandons.Has(e.Now, request) {
		e.Out.Mark(allocqueue.Marks.RequestAbandoned)
		t.refuseOffer(e, who, effects.Cancelled, flow.WhyEnded(effects.Cancelled))
		return
	}
	if t.cfg.Delay {
		t.postpone(e, ev, class)
		return
	}
	reached := e.Links.Reach(&e.Env, class)
	if reached != 0 && e.Pending.MayPass(&e.Env, class) {
		if _, done := t.read(e, reached, who); done {
			e.Pending.Passed(&e.Env, class)
			return
		}
	}
	patience := effects.Duration(min(m.Ext.PatienceNS, uint64(e.Cfg.AllocTimeout)))
	what := allocqueue.Row{
		Owner: kernel.OwnerPullTarget, What: e.Named(m.Keys, m.LastChunkTokens), Pull: m.PullID, Class: class,
		Who: request, Peer: peer,
		Operation: operation, Attempt: m.Ext.Attempt,
		Linking: reached == 0 && e.Pending.LinksFirst(class),
	}
	if crowded := e.Pending.Wait(&e.Env, what, ev, e.Hashes, patience); crowded != nil {
		t.refuseOffer(e, who, effects.TooMany, crowded)
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
		buffer, ok := e.Links.OfClass(class).Buffer(effects.BufferID(m.SenderUUIDs[i]))
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return effects.Invalid, &effects.Why{
				Field: flow.At("sender_mem_indexes", i), Ours: "a page of a buffer that it listed",
				Theirs: strconv.FormatInt(index, 10),
			}
		}
	}
	if t.notices.Knows(m.SenderDoneURL) {
		return effects.OK, nil
	}
	// LMCache announces the address to which it is bound, and that may be the unspecified address.
	done, err := protocol.ParseEndpoint(string(m.SenderDoneURL))
	switch {
	case err != nil || done.Unspecified():
		return effects.Invalid, &effects.Why{
			Field: "sender_done_url", Ours: "host:port of the sender's own", Theirs: effects.Words(m.SenderDoneURL),
			Remedy: "give the sender's own address as its pd_peer_host",
		}
	case t.cfg.AddressesOnly && !done.Numeric():
		return effects.Refused, &effects.Why{
			Field: "sender_done_url", Ours: "an address, because link.peer_names is false",
			Theirs: effects.Words(m.SenderDoneURL),
			Remedy: "give pd_peer_host of the sender as an address, or set link.peer_names: true at the receiver",
		}
	}
	return effects.OK, nil
}

// offeredAgain serves a retry of an offer, and returns false if the offer is new. The reply, when there is one,
// is sent to the retry. Invariant: no refusal ends what the first attempt began, because the sender would reuse
// the pages while they are read (M6).
func (t *Target) offeredAgain(
	e *flow.Env, ev *effects.Received, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	x := e.Landings.Again(&e.Env, peer, operation)
	switch {
	case x == nil:
		return t.postponed(e, who, peer, operation, request) ||
			t.stillWaits(e, ev, who, peer, operation, request)
	case !x.Reads(): // The operation id belongs to a push of this sender.
		t.refuseOffer(e, who, effects.Withdrawn, &effects.Why{Field: "kvf_op", Ours: "of a push"})
	case x.Request != request || x.What != e.Named(t.offer.Keys, t.offer.LastChunkTokens):
		t.refuseOther(e, who)
	case x.Revoking:
		e.Out.Mark(flow.Marks.OfferedAgain)
		stop := t.readingOf(x).stop
		t.fail(e, ev.Request, true, t.heard(), stop, flow.WhyEnded(stop), true)
	default:
		e.Out.Mark(flow.Marks.OfferedAgain)
		y := t.readingOf(x)
		y.to, y.heard = ev.Request, t.heard()
	}
	return true
}

// stillWaits gives the retry of a waiting offer the queue place of the first attempt, and returns false if no
// such offer waits.
func (t *Target) stillWaits(
	e *flow.Env, ev *effects.Received, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	h, q := e.Pending.Find(peer, operation)
	switch {
	case q == nil:
		return false
	case q.Owner != kernel.OwnerPullTarget || q.Who != request || q.What != e.Named(t.offer.Keys, t.offer.LastChunkTokens):
		t.refuseOther(e, who)
	default:
		e.Out.Mark(flow.Marks.AskedAgain)
		e.Pending.Again(h, ev, t.offer.Ext.Attempt)
	}
	return true
}

// refuseOther refuses an offer with an operation id that belongs to another batch. Another message used this
// sender's operation id before, and what the offer names is not what was accepted. The refusal leaves the lease
// in force, because an offer of the same pages may be read at the time.
func (t *Target) refuseOther(e *flow.Env, who flow.Asker) {
	e.Out.Mark(flow.Marks.AllocRefused)
	why := flow.OtherBatch()
	why.Stage = effects.StageOffer
	e.Note(who, t.offer.Ext.Incarnation, effects.Mismatch, len(t.offer.Keys), why)
	t.fail(e, who.To, true, t.heard(), effects.Mismatch, why, true)
}

// refuseWaiting refuses a waiting offer that can no longer be served, and removes the offer from the queue.
func (t *Target) refuseWaiting(
	e *flow.Env, h table.Handle, code effects.Code, why *effects.Why,
) {
	q := e.Pending.Get(h)
	t.decode(e, q)
	e.Named(t.offer.Keys, 0)
	e.LoseAll(e.Hashes, code)
	t.refuseOffer(e, flow.Asker{To: q.Request, Conn: q.Conn, Class: q.Class}, code, why)
	e.Pending.Remove(&e.Env, h)
}

// Try serves a waiting offer when its turn has come, if there is a link to its pages and the chunks fit now.
func (t *Target) Try(e *flow.Env, q *allocqueue.Row) (allocqueue.Tried, allocqueue.Shortfall) {
	over := e.Links.Reach(&e.Env, q.Class)
	if over == 0 {
		return allocqueue.Unlinked, q.Lacks
	}
	if !e.MayFit(q) {
		return allocqueue.Short, q.Lacks
	}
	t.decode(e, q)
	return allocqueue.Outcome(t.read(e, over, flow.Asker{To: q.Request, Conn: q.Conn, Class: q.Class}))
}

// decode decodes the message of a waiting offer again into t.offer, with the number of the latest attempt.
func (t *Target) decode(e *flow.Env, q *allocqueue.Row) {
	if t.offer.Decode(q.Body, &e.Cfg.Wire) != nil {
		panic("BUG: a waiting offer does not decode any more")
	}
	t.offer.Ext.Attempt = q.Attempt
}
