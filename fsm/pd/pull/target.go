package pull

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/last"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/notice"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Target answers who offers: it reads offers as they come, or when the engine fetches them, and tells their
// senders when they end.
type Target struct {
	reads      []reading // by the grant's slot
	Renewers   lease.Renewers
	Notices    notice.Notices
	Tombstones last.Words // of offers

	offer     protocol.PullReadyNotif   `snap:"scratch"`
	ack       protocol.PullReadyDoneAck `snap:"scratch"`
	done      protocol.PullDoneSignal   `snap:"scratch"`
	word      []byte                    `snap:"scratch"`
	pairs     []effects.Pair            `snap:"scratch"`
	already   []int64                   `snap:"scratch"`
	withdrawn []protocol.PullID         `snap:"scratch"`
}

// NewTarget returns one that reads nothing. seed is a secret of the rank.
func NewTarget(cfg flow.RoomsConfig, classes int, seed uint64) Target {
	return Target{
		Renewers: lease.NewRenewers(lease.RenewersConfig{
			ReplyTimeout: cfg.ReplyTimeout, BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax,
			AddressesOnly: cfg.AddressesOnly, Most: int(cfg.RenewsMax), Wire: cfg.Wire,
		}, classes),
		Notices: notice.New(notice.Config{
			Seed: seed, BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax,
			Peers: int(cfg.PeersMax), Words: int(cfg.GrantsMax + cfg.OffersMax), TriesMax: cfg.NotifyMax,
		}, classes),
		Tombstones: last.New(int(cfg.GrantsMax+cfg.OffersMax), classes),
	}
}

// OnOffer handles a PullReadyNotif. An offer waits for the link to its pages, then for pages of ours as an
// AllocRequest does, and is answered when it has been read.
func (t *Target) OnOffer(v *env.Env, r *flow.Rooms, l *link.Links, ev *effects.Received) {
	m := &t.offer
	who := flow.Asker{To: ev.Request, Conn: ev.Conn}
	if err := m.Decode(ev.Body, &r.Cfg.Wire); err != nil {
		v.Out.Mark(flow.MarkAllocMalformed)
		r.Malformed(v, who, effects.StageOffer, err, ev.Body)
		m.HasExt = false
		t.refuseOffer(v, r, who, effects.Malformed, nil)
		return
	}
	if !m.HasExt {
		// Nothing ties a plain sender's pages to a life of it, so nothing would tell what was read.
		v.Out.Mark(flow.MarkPlainOffer)
		t.refuseOffer(v, r, who, effects.Unsupported, flow.PlainPeer())
		return
	}
	peer, to := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	class, known := l.Inbound(v, peer, to)
	if !known {
		v.Out.Mark(flow.MarkStrangerRefused)
		t.refuseOffer(v, r, who, effects.Stale, flow.UnknownLife())
		return
	}
	who.Class = class
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
	if r.Cfg.Delay {
		pages = 1 // What is kept needs none, and a fetch of it at least one of staging.
	}
	code, why := r.Check(v, m.Keys, m.Layout(), m.LastChunkTokens, pages)
	if code == effects.OK {
		code, why = t.checkOffer(r, l, class)
	}
	if code == effects.Invalid && !l.OfClass(class).Listed() {
		code, why = effects.Stale, &effects.Why{Field: "buffers", Theirs: "not listed"} // Then it shakes hands again.
	}
	if code != effects.OK {
		v.Out.Mark(flow.MarkAllocRefused)
		t.refuseOffer(v, r, who, code, why)
		return
	}
	if r.Abandons.Has(v.Now, request) {
		v.Out.Mark(pending.MarkAskAbandoned)
		t.refuseOffer(v, r, who, effects.Cancelled, flow.WhyEnded(effects.Cancelled))
		return
	}
	if r.Cfg.Delay {
		t.postpone(v, r, l, ev, class)
		return
	}
	reached := l.Reach(v, class)
	if reached != 0 && r.Pending.MayPass(v, class) {
		if _, done := t.read(v, r, l, reached, who); done {
			r.Pending.Passed(v, class)
			return
		}
	}
	patience := effects.Duration(min(m.Ext.PatienceNS, uint64(r.Cfg.AllocTimeout)))
	what := pending.Row{
		Offer: true, What: r.Named(m.Keys, m.LastChunkTokens), Pull: m.PullID, Class: class, Who: request, Peer: peer,
		Operation: operation, Attempt: m.Ext.Attempt, Keys: uint32(len(m.Keys)),
		Linking: reached == 0 && r.Pending.LinksFirst(class),
	}
	if crowded := r.Pending.Wait(v, what, ev, r.Hashes, patience); crowded != nil {
		t.refuseOffer(v, r, who, effects.TooMany, crowded)
	}
}

// checkOffer says whether what an offer says of its pages makes sense.
func (t *Target) checkOffer(r *flow.Rooms, l *link.Links, class int) (effects.Code, *effects.Why) {
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
				Field: flow.At("sender_mem_indexes", i), Ours: "a page of a buffer that it listed",
				Theirs: strconv.FormatInt(index, 10),
			}
		}
	}
	if t.Notices.Knows(m.SenderDoneURL) {
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
	case r.Cfg.AddressesOnly && !done.Numeric():
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
func (t *Target) offeredAgain(
	v *env.Env, r *flow.Rooms, ev *effects.Received, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	x := r.Landings.Again(peer, operation)
	switch {
	case x == nil:
		return t.postponed(v, r, who, peer, operation, request) ||
			t.stillWaits(v, r, ev, who, peer, operation, request)
	case !x.Reads(): // It names what it pushes.
		t.refuseOffer(v, r, who, effects.Withdrawn, &effects.Why{Field: "kvf_op", Ours: "of a push"})
	case x.Request != request || x.What != r.Named(t.offer.Keys, t.offer.LastChunkTokens):
		t.refuseOther(v, r, who)
	case x.Revoking:
		v.Out.Mark(flow.MarkOfferedAgain)
		stop := t.ReadingOf(x).Stop
		t.fail(v, r, ev.Request, true, t.heard(), stop, flow.WhyEnded(stop), true)
	default:
		v.Out.Mark(flow.MarkOfferedAgain)
		y := t.ReadingOf(x)
		y.to, y.heard = ev.Request, t.heard()
	}
	return true
}

// stillWaits gives a retry of an offer that waits the place of its first attempt.
func (t *Target) stillWaits(
	v *env.Env, r *flow.Rooms, ev *effects.Received, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	q := r.Pending.Find(peer, operation)
	switch {
	case q == nil:
		return false
	case !q.Offer || q.Who != request || q.What != r.Named(t.offer.Keys, t.offer.LastChunkTokens):
		t.refuseOther(v, r, who)
	default:
		v.Out.Mark(flow.MarkAskedAgain)
		q.Again(ev, t.offer.Ext.Attempt)
	}
	return true
}

// refuseOther answers what has another's operation: somebody spoke in its name before it, and what it offers is not
// what was taken. Its lease stands, because somebody's offer of the same pages may be read.
func (t *Target) refuseOther(v *env.Env, r *flow.Rooms, who flow.Asker) {
	v.Out.Mark(flow.MarkAllocRefused)
	why := flow.OtherBatch()
	why.Stage = effects.StageOffer
	r.Note(v, who, t.offer.Ext.Incarnation, effects.Mismatch, len(t.offer.Keys), why)
	t.fail(v, r, who.To, true, t.heard(), effects.Mismatch, why, true)
}

// RefuseWaiting answers an offer that waits that it waits in vain.
func (t *Target) RefuseWaiting(
	v *env.Env, r *flow.Rooms, h table.Handle, code effects.Code, why *effects.Why,
) {
	q := r.Pending.Get(h)
	t.decode(r, q)
	r.LoseAll(t.offer.Keys, code)
	t.refuseOffer(v, r, flow.Asker{To: q.Request, Conn: q.Conn, Class: q.Class}, code, why)
	r.Pending.Remove(v, h)
}

// Try serves an offer whose turn it is, over the link to its pages, if it can be now.
func (t *Target) Try(
	v *env.Env, r *flow.Rooms, l *link.Links, over effects.Link, q *pending.Row,
) (pending.Shortfall, bool) {
	t.decode(r, q)
	return t.read(v, r, l, over, flow.Asker{To: q.Request, Conn: q.Conn, Class: q.Class})
}

// decode reads a waiting offer again. It speaks of the attempt that came last.
func (t *Target) decode(r *flow.Rooms, q *pending.Row) {
	if t.offer.Decode(q.Body, &r.Cfg.Wire) != nil {
		panic("BUG: a waiting offer does not decode any more")
	}
	t.offer.Ext.Attempt = q.Attempt
}
