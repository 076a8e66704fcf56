package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/table"
)

// Push mode: the owner writes the chunks into pages that are granted in the step that sends the request. The pages
// become free with the owner's reply, which is sent when nothing of the owner writes any more. Without a reply they
// become free like all pages that a peer may write: on fenced planes when the grant is revoked, on leased planes only
// with the proof that writing has stopped, never by time alone (M4).

// grantPages grants pages to the owner, one for each chunk that the get requests, all or none, unless the grant of a
// former attempt is still in force. If there are no pages, or the get does not need any, the get ends and grantPages
// returns false.
func (f *Requester) grantPages(e *flow.Env, h table.Handle, r *get) bool {
	if x := e.Landings.Find(r.into); x != nil && !x.Revoking && x.Peer == r.who {
		return true
	}
	f.withdrawGrant(e, r)
	r.into = 0
	if f.keys = r.all(f.keys); int(e.Readable(f.keys)) == r.size() {
		e.Out.Mark(Marks.CameElsewhere)
		f.endUnasked(e, h, r, effects.OK)
		return false
	}
	if code := unwanted(e, r); code != effects.OK {
		f.endUnasked(e, h, r, code)
		return false
	}
	f.keys = f.keys[r.here:]
	if !f.mayTake(e) || !e.Landings.Room(&e.Env, &e.Store, len(f.keys)) {
		f.endWithoutPages(e, h, r)
		return false
	}
	p := e.Landings.Plan(&e.Store, own, f.keys, e.Cfg.Layout.Tokens(), false)
	if !p.Fits(&e.Env, &e.Store, e.LandsIn(), own) {
		p.Unplan(&e.Env, &e.Store)
		f.endWithoutPages(e, h, r)
		return false
	}
	f.passes(e)
	if r.attempt > 0 { // An operation has a single grant.
		f.operation++
		r.operation = f.operation
	}
	ends := e.Now.Add(e.Cfg.Lease)
	x, pages := e.Landings.Begin(&e.Env, p, e.LandsIn(), landing.For{
		Owner: kernel.OwnerP2PTarget, Class: own, Peer: r.who, Request: r.request, Ends: ends, Over: ends,
	})
	r.into, r.granted, r.places = x.ID, e.Now, r.places[:0]
	for i := range p.Spots {
		r.places = append(r.places, uint32(p.Spots[i].Page))
	}
	e.Out.Grant(effects.Grant{ID: x.ID, Peer: r.who, Pages: pages})
	e.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: uint32(len(pages)), ID: uint64(x.ID), Peer: r.who})
	return true
}

// unwanted returns the reason why nobody would fetch the chunks of a get, or OK.
func unwanted(e *flow.Env, r *get) effects.Code {
	switch {
	case e.Draining:
		return effects.Draining
	case e.Abandons.Has(e.Now, r.request):
		return effects.Cancelled
	}
	return effects.OK
}

// nameGranted writes into the request the page for each chunk.
func (f *Requester) nameGranted(e *flow.Env, r *get) {
	m, x := &f.ask, e.Landings.Find(r.into)
	pages := e.Pools.Pages(x.ID)
	for _, place := range r.places {
		page := pages[place]
		buffer, index := e.Cfg.Named(page)
		m.MemIndexes, m.BufferUUIDs = append(m.MemIndexes, index), append(m.BufferUUIDs, buffer)
		m.Ext.Generations = append(m.Ext.Generations, uint64(page.Generation))
	}
	m.PullMode, m.Ext.Grant, m.Ext.GrantedNS, m.Ext.LeaseNS = false, uint64(x.ID), int64(r.granted),
		uint64(x.Ends.Sub(r.granted))
	m.Ext.PatienceNS = min(m.Ext.PatienceNS, uint64(f.cfg.LookupTimeout))
	m.Ext.Stamps = e.Links.Of(r.peer).Stamps(e.Now)
}

// all lists the keys of a get in the memory of into.
func (r *get) all(into [][]byte) [][]byte {
	into = into[:0]
	for i := range r.size() {
		into = append(into, r.key(i))
	}
	return into
}

// endWithoutPages ends a get that was not sent, because there is no memory for the chunks.
func (f *Requester) endWithoutPages(e *flow.Env, h table.Handle, r *get) {
	e.Out.Mark(Marks.NoRoom)
	r.blame(effects.NoMemory, *noPages(e, len(f.keys)))
	f.endUnasked(e, h, r, effects.NoMemory)
}

// endUnasked ends a get at its turn, before the request is sent.
func (f *Requester) endUnasked(e *flow.Env, h table.Handle, r *get, code effects.Code) {
	f.deliver(e, r, code)
	f.end(e, h, r)
}

// writeAnswered handles the reply in push mode. The reply says how many chunks the owner wrote, and that the owner
// writes no more, whatever the code is.
func (f *Requester) writeAnswered(e *flow.Env, h table.Handle, r *get) {
	m := &f.reply
	if !m.HasExt || effects.Incarnation(m.Ext.Incarnation) != r.who || int(m.HitChunks) > r.size()-int(r.here) {
		e.Out.Mark(Marks.AnswerSenseless)
		f.senseless(e, h, r, effects.Why{
			Field: "AscendBatchedLookupAndGetRetMsg", Ours: "at most " + flow.Number(r.size()-int(r.here)) +
				" hits, of who was asked",
			Theirs: flow.Number(m.HitChunks) + " hits, or another's",
		})
		return
	}
	if _, who := e.Links.Of(r.peer).Link(); who == r.who {
		e.Links.Of(r.peer).Seen(m.Ext.Stamps)
	}
	code := effects.CodeFromWire(m.Ext.Code)
	if code != effects.OK {
		e.Out.Mark(Marks.Refused)
		r.blame(code, effects.Why{Said: effects.Words(m.Ext.Reason)})
	}
	r.hearCut(m)
	if x := e.Landings.Find(r.into); x != nil {
		if code == effects.OK && e.Cfg.Leased && !r.delivered && m.HitChunks > 0 {
			e.Landings.LandFirst(&e.Env, &e.Store, x, r.pages(m.HitChunks), e.Wanted(x))
		}
		if !x.Revoking || e.Cfg.Leased {
			e.Landings.Quiet(&e.Env, &e.Store, x)
		}
	}
	r.into = 0
	switch {
	case r.delivered:
		e.Out.Mark(Marks.GhostAnswered)
	case code == effects.OK:
		if f.keys = r.all(f.keys); int(e.Readable(f.keys)) < r.size() {
			e.Out.Mark(Marks.Miss)
			code = effects.NotFound
		}
	}
	f.finish(e, h, r, code)
}

// pages returns how many pages the first chunks of a get take. A chunk that is requested twice takes a single page.
func (r *get) pages(chunks uint32) (most uint32) {
	for _, place := range r.places[:chunks] {
		most = max(most, place+1)
	}
	return most
}

// withdrawGrant revokes the grant of a get, if the plane proves that the peer writes no more. On leased planes the
// peer's late reply proves that, or the end of the grant is proven like that of any other grant (M4).
func (f *Requester) withdrawGrant(e *flow.Env, r *get) {
	if r.mode != Push || e.Cfg.Leased {
		return
	}
	if x := e.Landings.Find(r.into); x != nil && !x.Revoking {
		e.Landings.Revoke(&e.Env, x)
	}
}

// PeerLost revokes the grants of a lost peer. On fenced planes the peer cannot write any more, and a get may send its
// request again with new pages.
func (f *Requester) PeerLost(e *flow.Env, peer effects.Incarnation, _ bool) {
	for slot := range f.gets.Slots() {
		if r := f.gets.Get(f.gets.At(slot)); r != nil && r.mode == Push && r.into != 0 && r.who == peer {
			f.withdrawGrant(e, r)
		}
	}
}

// A grantFlow is the flow that owns the grants of a Requester. The events of a grant have a different owner than the
// events of a get.
type grantFlow struct{ requester *Requester }

// Grants returns the flow that owns the grants of the gets.
func (f *Requester) Grants() flow.Flow { return grantFlow{f} }

// Step handles landed chunks, and the proof that nobody writes under a grant any more.
func (grantFlow) Step(e *flow.Env, _ kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Landed:
		x := e.Landings.Find(ev.Grant)
		if x == nil || x.Peer != ev.Peer {
			landing.Unknown(&e.Env, ev)
			return
		}
		// If a write failed, nobody fetches the chunks behind a gap, and if the get is over nobody fetches any: the
		// outcome has claimed the prefix that was present.
		e.Landings.Landed(&e.Env, &e.Store, x, ev, ev.Complete && !x.Revoking && e.Wanted(x))
	case *effects.Revoked:
		e.Landings.Revoked(&e.Env, &e.Store, ev.Grant)
	default:
		kernel.Foreign("grants of p2p gets")
	}
}

// Due ends a grant whose time is over.
func (grantFlow) Due(e *flow.Env, ref kernel.Ref) {
	e.Landings.Overdue(&e.Env, &e.Store, e.Landings.Due(&e.Env, ref.Subject.Slot()))
}

// Signal ends a grant for a reason of this node. The get of the grant receives its outcome.
func (g grantFlow) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.Ended {
		kernel.Foreign("grants of p2p gets")
	}
	id := e.Landings.At(ref.Subject.Slot()).ID
	g.requester.grantEnded(e, id, s.Code)
	if x := e.Landings.Find(id); x != nil && !x.Revoking {
		e.Landings.Revoke(&e.Env, x)
	}
}

// grantEnded ends the get of a grant that this node takes back.
func (f *Requester) grantEnded(e *flow.Env, id effects.GrantID, code effects.Code) {
	for slot := range f.gets.Slots() {
		h := f.gets.At(slot)
		if r := f.gets.Get(h); r != nil && r.into == id && !r.delivered {
			f.stop(e, h, r, code)
		}
	}
}

// Abort does nothing and returns false.
func (grantFlow) Abort(*flow.Env, kernel.Ref) bool { return false }

// Left returns 0: all grants are in the room for landings, which counts them.
func (grantFlow) Left(*flow.Env) int { return 0 }

// Tables reports nothing: all grants are in the room for landings.
func (grantFlow) Tables(table.Visit) {}

// State returns the state of the grant of a Ref.
func (grantFlow) State(r *flow.Rooms, ref kernel.Ref) uint16 {
	if r.Landings.At(ref.Subject.Slot()).Revoking {
		return 1
	}
	return 0
}
