package receiver

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/last"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/notice"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A pullTarget answers who offers: it reads offers as they come, or when the engine fetches them, and tells their
// senders when they end.
type pullTarget struct {
	reads      []reading // by the grant's slot
	renewers   lease.Renewers
	notices    notice.Notices
	tombstones last.Words // of offers

	offer     protocol.PullReadyNotif   `snap:"scratch"`
	ack       protocol.PullReadyDoneAck `snap:"scratch"`
	done      protocol.PullDoneSignal   `snap:"scratch"`
	word      []byte                    `snap:"scratch"`
	pairs     []effects.Pair            `snap:"scratch"`
	already   []int64                   `snap:"scratch"`
	withdrawn []protocol.PullID         `snap:"scratch"`
}

func newPullTarget(cfg Config, classes int, seed uint64) pullTarget {
	return pullTarget{
		renewers: lease.NewRenewers(lease.RenewersConfig{
			ReplyTimeout: cfg.ReplyTimeout, BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax,
			AddressesOnly: cfg.AddressesOnly, Wire: cfg.Wire,
		}, classes),
		notices: notice.New(notice.Config{
			Seed: seed, BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax,
			Peers: int(cfg.PeersMax), Words: int(cfg.GrantsMax + cfg.OffersMax),
		}, classes),
		tombstones: last.New(int(cfg.GrantsMax+cfg.OffersMax), classes),
	}
}

// onOffer handles a PullReadyNotif. An offer waits for the link to its pages, then for pages of ours as an
// AllocRequest does, and is answered when it has been read.
func (t *pullTarget) onOffer(v *env.Env, r *rooms, l *link.Links, ev *effects.Received) {
	m := &t.offer
	who := asker{to: ev.Request, conn: ev.Conn}
	if err := m.Decode(ev.Body, &r.cfg.Wire); err != nil {
		v.Out.Mark(MarkAllocMalformed)
		r.malformed(v, who, effects.StageOffer, err, ev.Body)
		m.HasExt = false
		t.refuseOffer(v, r, who, effects.Malformed, nil)
		return
	}
	if !m.HasExt {
		// Nothing ties a plain sender's pages to a life of it, so nothing would tell what was read.
		v.Out.Mark(MarkPlainOffer)
		t.refuseOffer(v, r, who, effects.Unsupported, plainPeer())
		return
	}
	peer, to := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	class, known := l.Inbound(v, peer, to)
	if !known {
		v.Out.Mark(MarkStrangerRefused)
		t.refuseOffer(v, r, who, effects.Stale, unknownLife())
		return
	}
	who.class = class
	if len(m.Keys) == 0 && len(m.Ext.Withdraw) > 0 {
		t.onWithdrawal(v, r, who, peer)
		return
	}
	operation := m.Ext.Operation
	request := r.Store.RequestHash(m.Ext.Request)
	if t.offeredAgain(v, r, ev, who, peer, operation, request) || t.wasEnded(v, r, l, ev.Request, class) {
		return // What it began, or how that ended, is true whatever this rank has become since.
	}
	pages := len(m.Keys)
	if r.cfg.Delay {
		pages = 1 // What is kept needs none, and a fetch of it at least one of staging.
	}
	code, why := r.check(v, m.Keys, m.Layout(), m.LastChunkTokens, pages)
	if code == effects.OK {
		code, why = t.checkOffer(r, l, class)
	}
	if code == effects.Invalid && !l.OfClass(class).Listed() {
		code, why = effects.Stale, &effects.Why{Field: "buffers", Theirs: "not listed"} // Then it shakes hands again.
	}
	if code != effects.OK {
		v.Out.Mark(MarkAllocRefused)
		t.refuseOffer(v, r, who, code, why)
		return
	}
	if r.abandons.has(v.Now, request) {
		v.Out.Mark(pending.MarkAskAbandoned)
		t.refuseOffer(v, r, who, effects.Cancelled, ended(effects.Cancelled))
		return
	}
	if r.cfg.Delay {
		t.postpone(v, r, l, ev, class)
		return
	}
	reached := l.Reach(v, class)
	if reached != 0 && r.pending.MayPass(v, class) {
		if _, done := t.read(v, r, l, reached, who); done {
			r.pending.Passed(v, class)
			return
		}
	}
	patience := effects.Duration(min(m.Ext.PatienceNS, uint64(r.cfg.AllocTimeout)))
	what := pending.Row{
		Offer: true, What: r.named(m.Keys, m.LastChunkTokens), Pull: m.PullID, Class: class, Who: request, Peer: peer,
		Operation: operation, Attempt: m.Ext.Attempt, Keys: uint32(len(m.Keys)),
		Linking: reached == 0 && r.pending.LinksFirst(class),
	}
	if crowded := r.pending.Wait(v, what, ev, r.hashes, patience); crowded != nil {
		t.refuseOffer(v, r, who, effects.TooMany, crowded)
	}
}

// checkOffer says whether what an offer says of its pages makes sense.
func (t *pullTarget) checkOffer(r *rooms, l *link.Links, class int) (effects.Code, *effects.Why) {
	m := &t.offer
	if m.PullID == (protocol.PullID{}) || m.Ext.Operation == 0 || m.Ext.Grant == 0 || len(m.Ext.Generations) != len(m.Keys) {
		return effects.Malformed, &effects.Why{
			Field: "PullReadyNotif", Ours: "pull_id, kvf_op, kvf_grant and a generation for each key",
			Theirs: "one of them is missing",
		}
	}
	for i, index := range m.SenderIndexes {
		buffer, ok := l.OfClass(class).Buffer(effects.BufferID(m.SenderUUIDs[i]))
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return effects.Invalid, &effects.Why{
				Field: at("sender_mem_indexes", i), Ours: "a page of a buffer that it listed", Theirs: strconv.FormatInt(index, 10),
			}
		}
	}
	if t.notices.Knows(m.SenderDoneURL) {
		return effects.OK, nil
	}
	// LMCache announces what it binds to, which may be every interface of its own.
	done, err := protocol.ParseEndpoint(string(m.SenderDoneURL))
	switch {
	case err != nil || done.Unspecified():
		return effects.Invalid, &effects.Why{
			Field: "sender_done_url", Ours: "host:port of the sender's own", Theirs: effects.Words(m.SenderDoneURL),
			Remedy: "give the sender's own address as its pd_peer_host",
		}
	case r.cfg.AddressesOnly && !done.Numeric():
		return effects.Refused, &effects.Why{
			Field: "sender_done_url", Ours: "an address, because link.peer_names is false",
			Theirs: effects.Words(m.SenderDoneURL),
			Remedy: "give pd_peer_host of the sender as an address, or set link.peer_names: true at the receiver",
		}
	}
	return effects.OK, nil
}

// offeredAgain serves a retry: whoever asks now gets the answer, when there is one. No refusal may end what its first
// attempt began: its sender would take the pages for its own again, while they are read.
func (t *pullTarget) offeredAgain(
	v *env.Env, r *rooms, ev *effects.Received, who asker, peer effects.Incarnation, operation, request uint64,
) bool {
	x := r.landings.Again(peer, operation)
	switch {
	case x == nil:
		return t.postponed(v, r, who, peer, operation, request) ||
			t.stillWaits(v, r, ev, who, peer, operation, request)
	case !x.Reads(): // It names what it pushes.
		t.refuseOffer(v, r, who, effects.Withdrawn, &effects.Why{Field: "kvf_op", Ours: "of a push"})
	case x.Request != request || x.What != r.named(t.offer.Keys, t.offer.LastChunkTokens):
		t.refuseOther(v, r, who)
	case x.Revoking:
		v.Out.Mark(MarkOfferedAgain)
		stop := t.readingOf(x).stop
		t.fail(v, r, ev.Request, true, t.heard(), stop, ended(stop), true)
	default:
		v.Out.Mark(MarkOfferedAgain)
		y := t.readingOf(x)
		y.to, y.heard = ev.Request, t.heard()
	}
	return true
}

// stillWaits gives a retry of an offer that waits the place of its first attempt.
func (t *pullTarget) stillWaits(
	v *env.Env, r *rooms, ev *effects.Received, who asker, peer effects.Incarnation, operation, request uint64,
) bool {
	q := r.pending.Find(peer, operation)
	switch {
	case q == nil:
		return false
	case !q.Offer || q.Who != request || q.What != r.named(t.offer.Keys, t.offer.LastChunkTokens):
		t.refuseOther(v, r, who)
	default:
		v.Out.Mark(MarkAskedAgain)
		q.Again(ev, t.offer.Ext.Attempt)
	}
	return true
}

// refuseOther answers what has another's operation: somebody spoke in its name before it, and what it offers is not
// what was taken. Its lease stands, because somebody's offer of the same pages may be read.
func (t *pullTarget) refuseOther(v *env.Env, r *rooms, who asker) {
	v.Out.Mark(MarkAllocRefused)
	why := otherBatch()
	why.Stage = effects.StageOffer
	r.note(v, who, t.offer.Ext.Incarnation, effects.Mismatch, len(t.offer.Keys), why)
	t.fail(v, r, who.to, true, t.heard(), effects.Mismatch, why, true)
}

// refuseWaiting answers an offer that waits that it waits in vain.
func (t *pullTarget) refuseWaiting(
	v *env.Env, r *rooms, h table.Handle, code effects.Code, why *effects.Why,
) {
	q := r.pending.Get(h)
	t.decode(r, q)
	r.loseAll(t.offer.Keys, code)
	t.refuseOffer(v, r, asker{to: q.Request, conn: q.Conn, class: q.Class}, code, why)
	r.pending.Remove(v, h)
}

// try serves an offer whose turn it is, over the link to its pages, if it can be now.
func (t *pullTarget) try(
	v *env.Env, r *rooms, l *link.Links, over effects.Link, q *pending.Row,
) (pending.Shortfall, bool) {
	t.decode(r, q)
	return t.read(v, r, l, over, asker{to: q.Request, conn: q.Conn, class: q.Class})
}

// decode reads a waiting offer again. It speaks of the attempt that came last.
func (t *pullTarget) decode(r *rooms, q *pending.Row) {
	if t.offer.Decode(q.Body, &r.cfg.Wire) != nil {
		panic("BUG: a waiting offer does not decode any more")
	}
	t.offer.Ext.Attempt = q.Attempt
}
