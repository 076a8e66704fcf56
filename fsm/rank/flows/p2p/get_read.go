package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// answered handles the reply to a request for chunks.
func (f *Requester) answered(e *flow.Env, h table.Handle, r *get, body []byte) {
	if protocol.HasTag(body, protocol.TagP2PErrorMsg, &e.Cfg.Wire) && f.fault.Decode(body, &e.Cfg.Wire) == nil {
		f.failed(e, h, r)
		return
	}
	m := &f.reply
	if err := m.Decode(body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.AnswerMalformed)
		f.senseless(e, h, r, link.Undecodable(err))
		return
	}
	if r.mode == Push {
		f.writeAnswered(e, h, r)
		return
	}
	if m.HasExt {
		r.grant = m.Ext.Grant
	}
	r.hearCut(m)
	switch code := effects.CodeFromWire(m.Ext.Code); {
	case m.HasExt && code != effects.OK:
		e.Out.Mark(Marks.Refused)
		r.blame(code, effects.Why{Said: effects.Words(m.Ext.Reason)})
		f.finish(e, h, r, code)
	case r.delivered:
		e.Out.Mark(Marks.GhostAnswered)
		f.giveBack(e, h, r)
	case !f.met(e, r):
		// The link went down while the reply was queued, so no read can use it. The next attempt finds the same loan,
		// if the peer's incarnation is the same.
		e.Out.Mark(Marks.AnswerAfterLink)
		r.grant = 0
		f.again(e, h, r, effects.Stale, effects.Why{Field: "life", Theirs: "another one than that which was asked"})
	case m.HitChunks == 0 && r.grant == 0:
		e.Out.Mark(Marks.Miss)
		f.finish(e, h, r, effects.NotFound)
	case !f.sensible(e, r):
		e.Out.Mark(Marks.AnswerSenseless)
		f.senseless(e, h, r, effects.Why{
			Field: "AscendBatchedLookupAndGetRetMsg", Ours: "a prefix of " + flow.Number(r.size()-int(r.here)) +
				" keys, under a grant",
			Theirs: flow.Number(m.HitChunks) + " hits, or such without a page and a generation of a buffer that was listed",
		})
	case unwanted(e, r) != effects.OK:
		f.finish(e, h, r, unwanted(e, r))
	case r.mode == Delayed:
		f.keepLent(e, h, r)
	default:
		f.becomeReading(e, h, r)
	}
}

// hearCut records that the owner has more chunks than it lends or writes at a time, if the reply says so. The missing
// chunks are then reported with that limit as the reason.
func (r *get) hearCut(m *protocol.AscendBatchedLookupAndGetRetMsg) {
	r.cut = m.HasExt && m.Ext.Code == 0 && len(m.Ext.Reason) > 0 && int(m.HitChunks) < r.size()-int(r.here)
	if r.cut {
		r.blame(effects.NotFound, effects.Why{Said: effects.Words(m.Ext.Reason)})
	}
}

// failed handles an error reply. If the peer does not know this node, the handshake is repeated.
func (f *Requester) failed(e *flow.Env, h table.Handle, r *get) {
	why := effects.Why{Field: "P2PErrorMsg.error_code", Theirs: f.fault.Code.String()}
	if f.fault.Code != protocol.P2PNotIntroduced {
		e.Out.Mark(Marks.Failed)
		r.blame(effects.Refused, why)
		f.finish(e, h, r, effects.Refused)
		return
	}
	e.Out.Mark(Marks.IntroduceAgain)
	if f.met(e, r) { // Otherwise the link has been replaced already.
		e.Links.Fail(&e.Env, r.peer, effects.Stale, why)
	}
	f.again(e, h, r, effects.Stale, why)
}

// met reports whether the link is up to the incarnation that was asked (M2).
func (f *Requester) met(e *flow.Env, r *get) bool {
	g, _ := e.Links.Outbound(r.peer).Gate()
	_, who := e.Links.Of(r.peer).Link()
	return g == link.GateOpen && who == r.who
}

// sensible reports whether a reply names a valid page for each chunk that it claims to lend.
func (f *Requester) sensible(e *flow.Env, r *get) bool {
	m, of, n := &f.reply, e.Links.Of(r.peer), int(f.reply.HitChunks)
	if !m.HasExt || n == 0 || n > r.size()-int(r.here) || m.Ext.Grant == 0 || len(m.RemoteIndexes) != n ||
		len(m.Ext.Generations) != n {
		return false
	}
	for i, index := range m.RemoteIndexes {
		buffer, ok := of.Buffer(effects.BufferID(m.RemoteUUIDs[i]))
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return false
		}
	}
	return true
}

// becomeReading takes pages for the lent chunks, all or none, and starts the read. The read ends before the loan
// does, by this node's clock from before the request (M4). Chunks that arrived here meanwhile are not read. If there
// is no memory for the rest, the get ends with NoMemory.
func (f *Requester) becomeReading(e *flow.Env, h table.Handle, r *get) {
	m := &f.reply
	f.keys = f.keys[:0]
	for i := range m.HitChunks {
		f.keys = append(f.keys, r.key(int(r.here+i)))
	}
	if !f.mayTake(e) || !e.Landings.Room(&e.Env, &e.Store, len(f.keys)) {
		f.noRoom(e, h, r)
		return
	}
	p := e.Landings.Plan(&e.Store, own, f.keys, e.Cfg.Layout.Tokens(), true)
	if !p.Fits(&e.Env, &e.Store, e.LandsIn(), own) {
		p.Unplan(&e.Env, &e.Store)
		f.noRoom(e, h, r)
		return
	}
	if p.Fresh() == 0 {
		e.Out.Mark(Marks.CameElsewhere)
		f.finish(e, h, r, f.whole(r))
		return
	}
	f.passes(e)
	r.until = r.asked.Add(e.Stated(uint64(m.LeaseNS())) - e.Cfg.LeaseGuard)
	x, pages := e.Landings.Begin(&e.Env, p, e.LandsIn(), landing.For{
		Owner: kernel.OwnerP2PRequester, Class: own, Peer: r.who, Request: r.request, Ends: r.until, Over: r.until,
	})
	// The deadlines of the get and of the transfer end the landing.
	e.Landings.Undated(&e.Env, x)
	f.pairs = f.pairs[:0]
	for i := range p.Spots {
		if at := &p.Spots[i]; at.Fills() {
			f.pairs = append(f.pairs, effects.Pair{Local: pages[at.Page], Remote: effects.RemotePage{
				Buffer: effects.BufferID(m.RemoteUUIDs[i]), Index: uint32(m.RemoteIndexes[i]),
				Generation: effects.Generation(m.Ext.Generations[i]),
			}})
		}
	}
	r.phase, r.into, r.hits = reading, x.ID, m.HitChunks
	e.Out.Publish(pages)
	e.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: uint32(len(pages)), ID: uint64(x.ID), Peer: r.who})
	to, who := e.Links.Of(r.peer).Link()
	r.read.Begin(&e.Env, effects.Transfer{
		Link: to, Peer: who, Grant: effects.GrantID(r.grant), Read: true, Pairs: f.pairs, Since: r.since,
		NotAfter: min(r.deadline, r.until),
	}, getRef(kindTransfer, h))
}

// mayTake reports whether pages may be taken before the allocation requests that wait. Nothing waits for pages of the
// device pool.
func (f *Requester) mayTake(e *flow.Env) bool {
	if e.LandsIn() != e.Pool {
		return true
	}
	waits, _ := e.Commands.First()
	return waits == 0 && e.Pending.MayPass(&e.Env, own)
}

// passes records that pages are taken before allocation requests that may be waiting.
func (f *Requester) passes(e *flow.Env) {
	if e.LandsIn() == e.Pool {
		e.Pending.PassedByOwn(&e.Env)
	}
}

// noPages returns the reason for a get without memory for its chunks.
func noPages(e *flow.Env, keys int) *effects.Why {
	of := e.LandsIn()
	if of == e.Pool {
		return flow.NoPages(&e.Env, keys)
	}
	return &effects.Why{
		Field: "p2p_npu_buffer_size", Ours: flow.Number(of.Free()) + " of " + flow.Number(of.Total()) + " pages free",
		Theirs: flow.Number(keys) + " chunks",
		Remedy: "release what was got, ask for fewer at a time, or enlarge p2p_npu_buffer_size",
	}
}

// noRoom ends a get without memory. A later get may succeed.
func (f *Requester) noRoom(e *flow.Env, h table.Handle, r *get) {
	e.Out.Mark(Marks.NoRoom)
	r.blame(effects.NoMemory, *noPages(e, len(f.keys)))
	f.finish(e, h, r, effects.NoMemory)
}

// whole returns the outcome of a get that fetched everything that the peer has: OK if that is everything that was
// requested, otherwise NotFound.
func (f *Requester) whole(r *get) effects.Code {
	if int(f.reply.HitChunks)+int(r.here) == r.size() {
		return effects.OK
	}
	return effects.NotFound
}

// transferred handles the end of the read. If the outcome was delivered before (by a deadline or an abort), the
// chunks are not used.
func (f *Requester) transferred(e *flow.Env, h table.Handle, ev *effects.TransferDone) {
	r := f.gets.Get(h)
	code := ev.Code
	switch {
	case code == effects.PeerLost || code == effects.Stale:
		if now, _ := e.Links.Of(r.peer).Link(); r.read.Over(now) {
			e.Links.Fail(&e.Env, r.peer, code, effects.Why{
				Stage: effects.StageTransfer, Field: "data plane", Theirs: "gone",
			})
		}
	case code == effects.OK && e.Cfg.Leased && ev.At > r.until:
		// The plane did not observe the read: the pages may have been reused by then (M4).
		e.Out.Mark(Marks.ReadLate)
		code = effects.Expired
	}
	if code != effects.OK {
		e.Out.Mark(Marks.ReadFailed)
		r.blame(code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Ours: code.String()})
	}
	if !r.read.Done(ev) {
		e.Out.Mark(Marks.Unsettled)
		r.phase = settling
		e.Landings.Quarantine(&e.Env, e.Landings.Find(r.into))
		if code == effects.OK {
			code = effects.Expired
		}
		f.deliver(e, r, code)
		return
	}
	if code == effects.OK && !r.delivered {
		x := e.Landings.Find(r.into)
		e.Landings.LandAll(&e.Env, &e.Store, x, e.Wanted(x))
		if int(r.hits)+int(r.here) < r.size() {
			code = effects.NotFound
		}
	}
	f.landed(e, r)
	f.finish(e, h, r, code)
}

// settled handles the late notice that nothing stores into the pages any more.
func (f *Requester) settled(e *flow.Env, h table.Handle) {
	r := f.gets.Get(h)
	r.read.Settled()
	f.landed(e, r)
	f.giveBack(e, h, r)
}

// landed ends the grant of this node's pages. Pages that did not land become free.
func (f *Requester) landed(e *flow.Env, r *get) {
	e.Landings.End(&e.Env, &e.Store, e.Landings.Find(r.into))
	r.into = 0
}

// finish delivers the outcome of a get, if necessary, and then gives the loan back.
func (f *Requester) finish(e *flow.Env, h table.Handle, r *get, code effects.Code) {
	f.deliver(e, r, code)
	f.giveBack(e, h, r)
}

// giveBack queues the done message for the loan, so that the owner need not wait for the end of the loan's time.
// Invariant: nothing of this node reads under the loan any more.
func (f *Requester) giveBack(e *flow.Env, h table.Handle, r *get) {
	if r.grant == 0 {
		f.end(e, h, r)
		return
	}
	r.phase, r.conn = leaving, 0
	f.gets.PushBack(&f.line(r).words, h)
	f.pump(e, r.peer)
}

// senseless ends a get with an invalid reply.
func (f *Requester) senseless(e *flow.Env, h table.Handle, r *get, why effects.Why) {
	r.blame(effects.Malformed, why)
	why.Addr, why.Peer, why.Stage = r.where.Addr(), r.who, effects.StageAsk
	e.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(r.operation), Peer: r.who, Why: &why,
	})
	f.finish(e, h, r, effects.Malformed)
}
