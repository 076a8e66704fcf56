package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/protocol"
)

// answer serves r.message, which is of this request, if its new keys fit, all or none, and says whether it did, or what
// it lacks.
func (r *Receiver) answer(
	v *env.Env, to effects.Request, class int, peer effects.Incarnation, operation, request uint64,
) (lacks shortfall, done bool) {
	if !r.mayBegin(v, len(r.message.Keys)) {
		return shortfall{}, false
	}
	fresh := r.classify(class, r.message.Keys, r.message.LastChunkTokens, r.cfg.ReplyForm != protocol.FormAsync1)
	if fresh > 0 && !v.Pools.Fits(v.Pool, class, fresh) {
		r.declassify(v)
		return r.short(fresh, endless), false
	}
	m := &r.reply
	m.Form, m.AllocFailed, m.HasExt = r.cfg.ReplyForm, false, r.message.HasExt
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0], Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
	var pages []effects.Page
	var b *batch
	if fresh > 0 {
		var id effects.GrantID
		id, pages = v.Pools.Grant(v.Pool, class, r.lengths, grantRef(kindLanding))
		b = r.begin(v, id, class, peer, operation, request)
		b.what = sum(r.hashes, r.message.LastChunkTokens)
		m.Ext.Grant, m.Ext.LeaseNS = uint64(id), uint64(r.cfg.Lease)
		v.Out.Grant(effects.Grant{ID: id, Peer: peer, Pages: pages})
		v.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: fresh, ID: uint64(id), Peer: peer})
	}
	for i := range r.spots {
		s := &r.spots[i]
		if s.ready {
			v.Out.Mark(MarkAlreadySent)
			m.AlreadySent = append(m.AlreadySent, int64(i))
			if s.repeat < 0 {
				r.claim(v, s.entry, class, request)
			}
			continue
		}
		page := s.page
		if s.repeat >= 0 {
			v.Out.Mark(MarkKeyRepeated)
			page = r.spots[s.repeat].page
		} else {
			b.fills = append(b.fills, s.entry)
		}
		m.RemoteIndexes = append(m.RemoteIndexes, int64(pages[page].Index))
		m.RemoteUUIDs = append(m.RemoteUUIDs, r.cfg.Buffer)
		m.Ext.Generations = append(m.Ext.Generations, uint64(pages[page].Generation))
	}
	body := v.Out.Cut(m.Append(v.Out.Arena()))
	if b != nil && operation != 0 {
		b.reply = append(b.reply, body...)
	}
	v.Out.Reply(effects.Reply{Request: to, Body: body})
	if b != nil && r.cfg.TrustUncommitted && peer == (effects.Incarnation{}) {
		r.trust(v, b)
	}
	return shortfall{}, true
}

// requestID is the request that the asker works for, if it told one.
func (r *Receiver) requestID() []byte {
	if r.message.HasExt {
		return r.message.Ext.Request
	}
	return r.message.RequestID
}

// requestHash is the hash of a request's id; 0 of none.
func (r *Receiver) requestHash(id []byte) uint64 {
	if len(id) == 0 {
		return 0
	}
	return r.Store.Hash(id)
}

// classify finds out what becomes of each key, beginning a fill for each new one;
// r.lengths gets the lengths of the pages needed. A key that stands twice in the
// batch shares one page. With dedup, a chunk that is ready needs none, if a claim on it can be kept
// until its request comes: else it would be promised and might be gone.
func (r *Receiver) classify(class int, keys [][]byte, lastTokens uint32, dedup bool) (fresh uint32) {
	r.spots, r.lengths, r.hashes = r.spots[:0], r.lengths[:0], r.hashes[:0]
	r.batch++
	claimable := r.Store.ClaimsLeft(class)
	r.unpromised = false
	for i, key := range keys {
		hash := r.Store.Hash(key)
		r.hashes = append(r.hashes, hash)
		length := uint32(r.cfg.PageBytes)
		if i == len(keys)-1 {
			length = uint32(r.tokenBytes * uint64(lastTokens)) // checked on arrival
		}
		h := r.Store.Find(hash, key)
		// Whatever became of a key, it has an entry from its first place in the batch on.
		if first, again := r.Store.Noted(h, r.batch); again {
			s := r.spots[first]
			s.repeat = first
			if !s.ready {
				r.lengths[s.page] = max(r.lengths[s.page], length)
			}
			r.spots = append(r.spots, s)
			continue
		}
		s := spot{repeat: -1}
		if h != 0 && dedup {
			_, s.ready = r.Store.Ready(h)
			s.entry = h
			if s.ready && claimable == 0 {
				s.ready, r.unpromised = false, true
			} else if s.ready {
				claimable--
			}
		}
		if !s.ready {
			s.entry = r.Store.BeginFill(hash, key)
			s.page = len(r.lengths)
			r.lengths = append(r.lengths, length)
		}
		r.Store.Note(s.entry, r.batch, i)
		r.spots = append(r.spots, s)
	}
	return uint32(len(r.lengths))
}

// claim notes that a request expects a chunk. One that others' requests expect already, and its class has its share of such, may be
// gone when the request comes for it: then it is a miss, never wrong.
func (r *Receiver) claim(v *env.Env, h store.Entry, class int, request uint64) {
	if !r.Store.Claim(h, class, request, v, claimRef) {
		v.Out.Mark(MarkClaimsFull)
	}
}

// declassify takes back what classify began.
func (r *Receiver) declassify(v *env.Env) {
	for i := range r.spots {
		if s := &r.spots[i]; !s.ready && s.repeat < 0 {
			r.Store.EndFill(s.entry, effects.Page{}, false)
			r.Store.Settle(s.entry, v)
		}
	}
}

// trust makes a plain sender's chunks readable although nothing will ever tell
// that they are whole (rule M5: trust_uncommitted, exempt from S1 by name). The
// grant stays in force beside the reference, so the pages are not reused early.
func (r *Receiver) trust(v *env.Env, b *batch) {
	v.Out.Mark(MarkTrusted)
	for position, page := range v.Pools.Pages(b.id) {
		v.Pool.Share(page)
		h := b.fills[position]
		if !r.Store.Trust(h, page) {
			v.Pool.Unref(page)
			continue
		}
		r.claim(v, h, b.class, b.request)
	}
}

// settle answers a message without keys: commits and aborts.
func (r *Receiver) settle(v *env.Env, to effects.Request, class int, peer effects.Incarnation) {
	m := &r.reply
	m.Form, m.AllocFailed, m.HasExt = r.cfg.ReplyForm, false, true
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0], Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
	for _, id := range r.message.Ext.Commit {
		if r.commit(v, peer, effects.GrantID(id)) {
			m.Ext.Committed = append(m.Ext.Committed, id)
		} else {
			m.Ext.Gone = append(m.Ext.Gone, id)
		}
	}
	for _, id := range r.message.Ext.Abort {
		r.abort(v, peer, effects.GrantID(id))
		m.Ext.Gone = append(m.Ext.Gone, id)
	}
	if e := &r.message.Ext; len(e.Abort) > 0 {
		r.givenBack(v, class, peer, len(e.Abort), effects.StageAsk, e.Code, e.Reason)
	}
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}

// never says whether asking again cannot help, because what was asked for can never be carried.
func never(code effects.Code) bool {
	return code == effects.Unsupported || code == effects.Mismatch || code == effects.Malformed ||
		code == effects.Invalid || code == effects.TooLarge
}

// refuseForGood answers who knows none of our codes with an empty frame, as LMCache-Ascend's receiver does whatever it cannot
// serve: the put there raises. After an allocation that failed the sender tells its proxy all the same that everything was sent.
func refuseForGood(v *env.Env, to effects.Request) {
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(v.Out.Arena())})
}

// refuse answers that there are no pages, and why.
func (r *Receiver) refuse(v *env.Env, who asker, keys int, code effects.Code, why *effects.Why) {
	if why != nil {
		why.Stage = effects.StageAsk
	}
	r.note(v, who, r.message.Ext.Incarnation, code, keys, why)
	if !who.extended && never(code) {
		refuseForGood(v, who.to)
		return
	}
	m := &r.reply
	m.Form, m.AllocFailed, m.HasExt = r.cfg.ReplyForm, true, who.extended
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	if r.cfg.ReplyForm == protocol.FormAsync1 || r.cfg.ReplyForm == protocol.FormAsync2 {
		for range max(keys, 1) {
			m.RemoteIndexes = append(m.RemoteIndexes, -1)
		}
	}
	m.Ext = protocol.AllocReplyExt{
		Version: link.VersionMax, Code: uint32(code), Generations: m.Ext.Generations[:0],
		Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0],
	}
	if why != nil {
		m.Ext.Reason = why.Reason()
	}
	if code == effects.NoMemory || code == effects.TooMany {
		m.Ext.RetryNS = uint64(r.cfg.AllocTimeout)
	}
	v.Out.Reply(effects.Reply{Request: who.to, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}
