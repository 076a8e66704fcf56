package sender

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A put that is pulled lends its pages and says where they are, in one step: so a reader's word that it has
// read them can never come before there is something to take back, however early it comes. The answer
// gives the put its outcome, the end of the lease its memory; they come in either order.
//
// An answer that never comes ends the put in time. Its pages stay lent for as long as they may be read:
// on fenced planes until that is revoked, on leased ones until the reader's word or its lease's end.

// name gives a put the id by which its reader will speak of it.
func (s *Sender) name(p *put, h table.Handle) {
	// As protocol.NewPullID draws it, without the reader that escapes.
	binary.LittleEndian.PutUint64(p.pull[:8], s.ids.Next())
	binary.LittleEndian.PutUint64(p.pull[8:], s.ids.Next())
	p.pull[6], p.pull[8] = p.pull[6]&0x0F|0x40, p.pull[8]&0x3F|0x80
	s.byPull.Add(pullHash(p.pull), h)
}

func pullHash(id protocol.PullID) uint64 { return binary.LittleEndian.Uint64(id[:]) }

// becomeSent sends a put for which there is room on its peer's lane.
func (s *Sender) becomeSent(v *env.Env, l *link.Links, h table.Handle, conn effects.Conn) {
	if s.cfg.Pull {
		s.becomeOffering(v, l, h, conn)
		return
	}
	s.becomeAsking(v, l, h, conn)
}

// becomeOffering sends the PullReadyNotif, and grants the lease before it unless it stands already:
// a retry speaks of the same lease, which began with its first message whatever became of that.
func (s *Sender) becomeOffering(v *env.Env, l *link.Links, h table.Handle, conn effects.Conn) {
	p := s.puts.Get(h)
	p.phase, p.conn = offering, conn
	p.attempt++
	if p.lease.Out() {
		p.lease.Spoke()
	} else {
		_, p.who = l.Of(p.peer).Link()
		p.us = l.Of(p.peer).Us()
		p.commits = l.Of(p.peer).Withdrawals()
		to := Reader{Who: p.who, Us: p.us, Keeps: l.Of(p.peer).Leases()}
		p.lease.Grant(v, p.places(), to, s.cfg.PullTTL, timerRef(timerLease, h))
	}
	m := &s.offer
	m.PullID, m.SenderID, m.SenderDoneURL = p.pull, s.cfg.SenderID, s.cfg.DoneURL
	m.Keys, m.SenderUUIDs, m.SenderIndexes = m.Keys[:0], m.SenderUUIDs[:0], m.SenderIndexes[:0]
	m.Format, m.Shape, m.Dtype = s.cfg.Layout.Format, s.shape(p), s.cfg.Layout.Dtype
	m.LastChunkTokens = p.lastTokens
	m.HasExt = true
	m.Ext = protocol.PullReadyExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.us), To: protocol.UUID(p.who),
		Operation: p.operation, Attempt: p.attempt, Request: s.requests.name(p.request),
		PatienceNS: uint64(max(0, min(s.cfg.AllocTimeout, p.deadline.Sub(v.Now)))),
		Grant:      uint64(p.lease.grant), Generations: m.Ext.Generations[:0],
		GrantedNS: int64(p.lease.began), LeaseNS: uint64(s.cfg.PullTTL), Stamps: l.Of(p.peer).Stamps(v.Now),
		Withdraw: m.Ext.Withdraw[:0],
		Renew:    s.cfg.RenewURL,
	}
	for i, page := range p.places() {
		m.Keys = append(m.Keys, p.key(i))
		m.SenderUUIDs = append(m.SenderUUIDs, s.cfg.Buffer)
		m.SenderIndexes = append(m.SenderIndexes, int64(page.Index))
		m.Ext.Generations = append(m.Ext.Generations, uint64(page.Generation))
	}
	s.sendOffer(v, h, p, kindOffer)
}

// becomeWithdrawing says that the put's offer is taken back. (The reader of an eager offer learns it from its read.)
func (s *Sender) becomeWithdrawing(v *env.Env, l *link.Links, h table.Handle, conn effects.Conn) {
	p := s.puts.Get(h)
	p.phase, p.conn = confirming, conn
	m := &s.offer
	m.PullID, m.SenderID, m.SenderDoneURL = protocol.PullID{}, s.cfg.SenderID, s.cfg.DoneURL
	m.Keys, m.SenderUUIDs, m.SenderIndexes = m.Keys[:0], m.SenderUUIDs[:0], m.SenderIndexes[:0]
	m.Format, m.Shape, m.Dtype, m.LastChunkTokens = s.cfg.Layout.Format, s.cfg.Layout.Shape, s.cfg.Layout.Dtype, 0
	m.HasExt = true
	m.Ext = protocol.PullReadyExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.us), To: protocol.UUID(p.who), Operation: p.operation,
		Generations: m.Ext.Generations[:0], Stamps: l.Of(p.peer).Stamps(v.Now), Withdraw: append(m.Ext.Withdraw[:0], p.pull),
	}
	m.Ext.Code, m.Ext.Reason = p.reason()
	s.sendOffer(v, h, p, kindCommit)
}

func (s *Sender) sendOffer(v *env.Env, h table.Handle, p *put, kind uint8) {
	corr := v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerSender, Kind: kind, Subject: h})
	v.Out.Send(effects.Send{Corr: corr, Conn: p.conn, Body: v.Out.Cut(s.offer.Append(v.Out.Arena()))})
	v.Timers.Set(&p.answer, v.Now.Add(s.cfg.ReplyTimeout), timerRef(timerAnswer, h))
}

// onOfferUnanswered offers again, or gives up.
func (s *Sender) onOfferUnanswered(v *env.Env, l *link.Links, h table.Handle, p *put, code effects.Code) {
	switch {
	case p.delivered:
		s.answered(v, l, h, p)
	case p.read || !p.lease.Stands():
		p.blame(noAnswer(code), s.hungUp(code))
		s.outcome(v, l, h, p, noAnswer(code))
	case p.attempt < attemptsMax:
		v.Out.Mark(MarkOfferAgain)
		s.becomeWaiting(v, l, h, p)
	default:
		p.blame(noAnswer(code), s.hungUp(code))
		s.takeBack(v, l, h, p, noAnswer(code))
	}
}

// outcome ends an offer whose answer was lost, but whose reader's last word was not.
func (s *Sender) outcome(v *env.Env, l *link.Links, h table.Handle, p *put, code effects.Code) {
	if p.read {
		v.Out.Mark(MarkAckLost)
		code, p.sent = effects.OK, uint32(len(p.ends))
	}
	p.phase = offered
	s.deliverHeld(v, p, code, p.lease.Out())
	s.answered(v, l, h, p)
}

func (s *Sender) onAck(v *env.Env, l *link.Links, h table.Handle, p *put, body []byte) {
	m := &s.ack
	if err := m.Decode(body, &s.cfg.Wire); err != nil {
		v.Out.Mark(MarkReplyMalformed)
		s.malformed(v, p, link.Undecodable(err))
		s.takeBack(v, l, h, p, effects.Malformed)
		return
	}
	// A plain peer names no life; an extended one speaks for its own alone.
	its := m.HasExt && effects.Incarnation(m.Ext.Incarnation) == p.who || !m.HasExt && p.who == (effects.Incarnation{})
	if its && m.HasExt {
		if _, who := l.Of(p.peer).Link(); who == p.who {
			l.Of(p.peer).Seen(m.Ext.Stamps)
		}
	}
	code, why := effects.OK, effects.Why{}
	switch {
	case m.HasExt && m.Ext.Code != 0:
		code, why = effects.CodeFromWire(m.Ext.Code), refusalOf(effects.Words(m.Ext.Reason))
	case m.AllocFailed:
		code, why = effects.NoMemory, effects.Why{Field: "alloc_failed", Theirs: "true"}
	case !its:
		code, why = effects.Malformed, effects.Why{Field: "kvf_inc", Theirs: "not of the life that shook hands"}
	case !ascending(m.AlreadySent, len(p.ends)):
		v.Out.Mark(MarkReplySenseless)
		code, its = effects.Malformed, false // Who says nonsense has not said that nothing will be read.
		why = effects.Why{
			Field: "already_sent_indexes", Ours: "below " + number(len(p.ends)) + ", each beyond the one before,",
			Theirs: "others",
		}
	}
	if code != effects.OK {
		p.blame(code, why)
		s.onOfferRefused(v, l, h, p, code, its && !m.Ext.Delayed)
		return
	}
	p.phase = offered
	p.skipped = uint32(len(m.AlreadySent))
	p.sent = uint32(len(p.ends)) - p.skipped
	if p.sent == 0 {
		v.Out.Mark(MarkAllSkipped)
		s.endLease(v, p)
	}
	if p.delivered {
		v.Out.Mark(MarkReplyAfterOutcome)
		s.answered(v, l, h, p)
		return
	}
	s.deliverHeld(v, p, effects.OK, p.lease.Out())
	s.answered(v, l, h, p)
}

// onOfferRefused ends an offer of which nothing will come. Its lease ends, too, if its reader says that nothing
// reads: else with a done, or its time.
func (s *Sender) onOfferRefused(v *env.Env, l *link.Links, h table.Handle, p *put, code effects.Code, its bool) {
	v.Out.Mark(MarkAllocFailed)
	peer, why := p.peer, atStage(effects.StageOffer, said(s.ack.Ext.Reason))
	if code == effects.Stale {
		// Whoever it was offered to is gone. Nobody can offer these pages to its successor before they are back.
		v.Out.Mark(MarkAskedStale)
		s.failIts(v, l, p, effects.Stale, why)
		code, its = effects.PeerLost, false
		p.blame(code, effects.Why{Field: "life", Theirs: "new (it has restarted since the offer)", Said: why.Said})
	}
	if its && code == effects.Expired && !p.delivered && p.lease.Stands() && p.attempt < attemptsMax {
		// What tied its clock to ours was too old, after an hour without a word. Now it has our newest stamp.
		v.Out.Mark(MarkOfferAgain)
		s.becomeWaiting(v, l, h, p)
		return
	}
	if full(code) {
		s.backOff(v, l, peer, code, why.Said) // Before the lane is free for the next one.
	}
	if its {
		if code == effects.Expired {
			// What ties its clock to ours may be too old for any offer: shaking hands makes it new.
			s.failIts(v, l, p, effects.Expired, why)
		}
		s.endLease(v, p)
		p.phase, p.withdrawn = offered, false
		if !p.delivered {
			s.deliverHeld(v, p, code, p.lease.Out())
		}
		s.answered(v, l, h, p)
	} else {
		s.takeBack(v, l, h, p, code)
	}
}

// failIts gives up the link of which an answer to a put speaks. One that came late may find that link gone already:
// then another attempt is under way, which it knows nothing of, or has met another life.
func (s *Sender) failIts(v *env.Env, l *link.Links, p *put, code effects.Code, why effects.Why) {
	if met(l, p) {
		l.Fail(v, p.peer, code, why)
	}
}

// met says whether the link is up to the life that a put was sent to.
func met(l *link.Links, p *put) bool {
	state, _ := l.Outbound(p.peer).State()
	_, who := l.Of(p.peer).Link()
	return state == link.Ready && who == p.who
}

// ascending says whether indexes are below n and each beyond the one before.
func ascending(indexes []int64, n int) bool {
	last := int64(-1)
	for _, i := range indexes {
		if i <= last || i >= int64(n) {
			return false
		}
		last = i
	}
	return true
}

// OnDone handles a reader's word that it has read, or will not read, what was offered. It is looked for
// among what is lent; said twice, late, or of another life, it finds nothing.
func (s *Sender) OnDone(v *env.Env, l *link.Links, ev *effects.Received) {
	m := &s.done
	if err := m.Decode(ev.Body, &s.cfg.Wire); err != nil {
		v.Out.Mark(MarkDoneMalformed)
		why := link.Undecodable(err)
		why.Stage = effects.StageOffer
		v.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn), Why: &why})
		return
	}
	h := s.findPull(m.PullID)
	p := s.puts.Get(h)
	if p == nil || !p.lease.Stands() || !s.speaksFor(p, m) {
		v.Out.Mark(MarkDoneUnknown)
		return
	}
	if p.phase == offering || p.phase == waiting {
		v.Out.Mark(MarkDoneEarly)
	}
	code := effects.OK
	if m.HasExt {
		code = effects.CodeFromWire(m.Ext.Code)
		if code != effects.OK {
			p.blame(code, said(m.Ext.Reason))
		}
	}
	p.read = code == effects.OK
	s.endLease(v, p)
	if p.phase == waiting {
		s.unqueue(p, h)
		s.outcome(v, l, h, p, code)
		return
	}
	s.answered(v, l, h, p)
}

// speaksFor says whether a done is the word of the life to which the put was offered.
func (s *Sender) speaksFor(p *put, m *protocol.PullDoneSignal) bool {
	if p.who == (effects.Incarnation{}) {
		return true
	}
	return m.HasExt && p.lease.SpokenOfBy(m.Ext.Incarnation, m.Ext.To, m.Ext.Grant)
}

func (s *Sender) findPull(id protocol.PullID) table.Handle {
	for q := s.byPull.Seek(pullHash(id)); q.Found(); q = s.byPull.Next(q) {
		if s.puts.Get(q.Handle()).pull == id {
			return q.Handle()
		}
	}
	return 0
}

// orphaned says whether a put that waits to be offered again was offered to a life of its peer that is over.
func (s *Sender) orphaned(l *link.Links, peer table.Handle, p *put) bool {
	_, who := l.Of(peer).Link()
	return p.lease.Out() && p.who != who
}
