package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/table"
)

// How chunks come that their owner writes: into pages that are granted to it in the step that asks. They are free again
// by its answer, which it gives when nothing of its writes any more, or as any that a peer may write into: on fenced
// planes when the grant is revoked, on leased ones with the proof alone, never by time.

// lay grants its owner pages for each chunk that a get asks for, all or none, unless those stand that a former attempt
// granted. Where none can be had, or none is needed any more, the get ends: then it says false.
func (t *Target) lay(e *flow.Env, h table.Handle, r *get) bool {
	f := (*Requester)(t)
	if x := e.Landings.Find(r.into); x != nil && !x.Revoking && x.Peer == r.who {
		return true
	}
	t.withdraw(e, r)
	r.into = 0
	if f.keys = r.all(f.keys); int(e.Readable(f.keys)) == r.size() {
		e.Out.Mark(Marks.CameElsewhere)
		t.unasked(e, h, r, effects.OK)
		return false
	}
	if code := unwanted(e, r); code != effects.OK {
		t.unasked(e, h, r, code)
		return false
	}
	f.keys = f.keys[r.here:]
	if !f.mayTake(e) || !e.Landings.Room(&e.Env, &e.Store, len(f.keys)) {
		t.noPages(e, h, r)
		return false
	}
	p := e.Landings.Plan(&e.Store, own, f.keys, e.Cfg.Layout.Tokens(), false)
	if !p.Fits(&e.Env, &e.Store, e.LandsIn(), own) {
		p.Unplan(&e.Env, &e.Store)
		t.noPages(e, h, r)
		return false
	}
	f.passes(e)
	if r.attempt > 0 { // An operation has one grant.
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

// unwanted says why nobody would come for what a get brings.
func unwanted(e *flow.Env, r *get) effects.Code {
	switch {
	case e.Draining:
		return effects.Draining
	case e.Abandons.Has(e.Now, r.request):
		return effects.Cancelled
	}
	return effects.OK
}

// name says in the question which page each chunk is to be written to.
func (t *Target) name(e *flow.Env, r *get) {
	f := (*Requester)(t)
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
	m.Ext.PatienceNS = min(m.Ext.PatienceNS, uint64(f.cfg.LookupTime))
	m.Ext.Stamps = e.Links.Of(r.peer).Stamps(e.Now)
}

// all lists the keys of a get, in the memory of a list.
func (r *get) all(into [][]byte) [][]byte {
	into = into[:0]
	for i := range r.size() {
		into = append(into, r.key(i))
	}
	return into
}

// noPages ends a get that could not ask: there is no memory for what it asks for.
func (t *Target) noPages(e *flow.Env, h table.Handle, r *get) {
	f := (*Requester)(t)
	e.Out.Mark(Marks.NoRoom)
	r.blame(effects.NoMemory, *noPages(e, len(f.keys)))
	t.unasked(e, h, r, effects.NoMemory)
}

// unasked ends a get whose turn it was.
func (t *Target) unasked(e *flow.Env, h table.Handle, r *get, code effects.Code) {
	f := (*Requester)(t)
	f.deliver(e, r, code)
	f.end(e, h, r)
}

// pushed handles the answer to a question whose chunks are written here. It says how many were, and that nothing of its
// owner's writes any more, whatever became of it.
func (t *Target) pushed(e *flow.Env, h table.Handle, r *get) {
	f := (*Requester)(t)
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

// pages is how many pages the first chunks of a get take: one that is asked for twice takes one.
func (r *get) pages(chunks uint32) (most uint32) {
	for _, place := range r.places[:chunks] {
		most = max(most, place+1)
	}
	return most
}

// withdraw takes pages back that a peer was granted for a get, where the plane proves that it writes no more. Elsewhere
// its late answer says so, or the end of the grant is proven as any other is.
func (t *Target) withdraw(e *flow.Env, r *get) {
	if r.mode != Push || e.Cfg.Leased {
		return
	}
	if x := e.Landings.Find(r.into); x != nil && !x.Revoking {
		e.Landings.Revoke(&e.Env, x)
	}
}

// PeerLost takes pages back that a peer was granted which is gone, on fenced planes: it cannot write any more. Whoever
// asked may ask again, with others.
func (t *Target) PeerLost(e *flow.Env, peer effects.Incarnation, _ bool) {
	f := (*Requester)(t)
	for slot := range f.gets.Slots() {
		if r := f.gets.Get(f.gets.At(slot)); r != nil && r.mode == Push && r.into != 0 && r.who == peer {
			t.withdraw(e, r)
		}
	}
}

// A Target is who is written to: the grants of a Requester.
type Target Requester

// Step takes what lands, and the proof that nobody writes under a grant any more.
func (t *Target) Step(e *flow.Env, _ kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Landed:
		x := e.Landings.Find(ev.Grant)
		if x == nil || x.Peer != ev.Peer {
			landing.Unknown(&e.Env, ev)
			return
		}
		// Of a write that went wrong nobody comes for what is behind a gap, and of one whose get is over for nothing: the
		// outcome keeps what there is of its prefix.
		e.Landings.Landed(&e.Env, &e.Store, x, ev, ev.Complete && !x.Revoking && e.Wanted(x))
	case *effects.Revoked:
		e.Landings.Revoked(&e.Env, &e.Store, ev.Grant)
	default:
		kernel.Foreign("who is written to")
	}
}

// Due ends a grant whose time is over.
func (t *Target) Due(e *flow.Env, ref kernel.Ref) {
	e.Landings.Overdue(&e.Env, &e.Store, e.Landings.Due(&e.Env, ref.Subject.Slot()))
}

// Signal is told that a grant is to end for a reason of ours. Who asked with it has its outcome.
func (t *Target) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.Ended {
		kernel.Foreign("who is written to")
	}
	id := e.Landings.At(ref.Subject.Slot()).ID
	t.ended(e, id, s.Code)
	if x := e.Landings.Find(id); x != nil && !x.Revoking {
		e.Landings.Revoke(&e.Env, x)
	}
}

// ended has gets end whose pages are wanted back.
func (t *Target) ended(e *flow.Env, id effects.GrantID, code effects.Code) {
	f := (*Requester)(t)
	for slot := range f.gets.Slots() {
		h := f.gets.At(slot)
		if r := f.gets.Get(h); r != nil && r.into == id && !r.delivered {
			f.stop(e, h, r, code)
		}
	}
}

// Abort has nothing to end.
func (t *Target) Abort(*flow.Env, kernel.Ref) bool { return false }

// Left counts nothing beside what is in the rooms.
func (t *Target) Left(*flow.Env) int { return 0 }

// Tables shows nothing: what was granted lies in the rooms.
func (t *Target) Tables(table.Visit) {}

// State is that of the grant of a Ref.
func (t *Target) State(r *flow.Rooms, ref kernel.Ref) uint16 {
	if r.Landings.At(ref.Subject.Slot()).Revoking {
		return 1
	}
	return 0
}

var _ flow.Flow = (*Target)(nil)
