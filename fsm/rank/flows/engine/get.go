package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Gets contains the Get commands that wait for chunks, and the Get commands that have pinned chunks until Unpin.
//
// A Get waits while its next chunk may still arrive: until its time is over, or until every source from which the chunk
// was expected is gone. A chunk may arrive through a fill in flight, a deferred offer, or a pending request or offer. A
// Get that came before any source existed has lost nothing and continues to wait, because its sender may not have begun
// yet. A Get that had such a source and has none left ends with the prefix that is here. A source that was lost while
// the Get waited for an earlier chunk is not recorded; then the Get waits its whole time. After the sender of a request
// has reported the end of the request, a Get for the request waits for nothing more.
type Gets struct {
	waitMax   effects.Duration `snap:"share"`
	rows      table.Slab[get]
	byMissing table.Index // waiting Gets, by the hash of the missing key
	byRequest table.Index // waiting Gets of requests, by outcomes.ID
	// backlog means that the store's last notifications are not completely handled; the rest is for the next step.
	backlog bool
	found   []store.Entry  // the ready prefix that collectReady found last
	pages   []effects.Page `snap:"scratch"`
}

// Recycle returns an empty table for at most max Gets, each of which waits at most waitMax. Recycle reuses the memory
// of x, which must not be used afterwards.
func (x *Gets) Recycle(max int, waitMax effects.Duration) Gets {
	return Gets{
		waitMax: waitMax, rows: x.rows.Recycle(max), byMissing: x.byMissing.Recycle(), byRequest: x.byRequest.Recycle(),
		found: x.found[:0], pages: x.pages[:0],
	}
}

// A get either waits for the first key that it misses, and pins nothing; the Get is looked at again when that key
// becomes ready. Or a get has pins.
type get struct {
	ticket      effects.Ticket
	waiting     bool
	inByRequest bool   // byRequest has it
	request     uint64 // hash of the request's id; 0: no request was named
	realm       effects.Realm
	keys        []byte
	keyEnds     []uint32
	missingHash uint64 // hash of the key that the Get waits for
	// missingIndex is the index of the missing key. The keys before the missing key were ready when the missing key was
	// found.
	missingIndex int
	pinned       []store.Entry
	timer        kernel.TimerID `snap:"set"`
	since        effects.Time   `snap:"skip"` // when the Get began; for operators
}

func (g *get) keyAt(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = g.keyEnds[i-1]
	}
	return g.keys[from:g.keyEnds[i]]
}

// outcomeID returns the ID under which the Get's request has an outcome: that of the tenant of the first chunk.
func (g *get) outcomeID() outcomes.ID { return outcomes.IDByKey(g.request, g.keyAt(0)) }

// OnGet begins a Get. Its outcome is delivered at once if all of the chunks are ready, or if Wait is 0.
func (x *Gets) OnGet(v *env.Env, s *store.Store, r *outcomes.Requests, t effects.Ticket, c *Get) {
	h, g := x.rows.Add()
	if g == nil {
		v.Out.Mark(Marks.GetsFull)
		RefuseCommand(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: formatCount(x.rows.Max()) + ", and as many gets wait or are held",
			Remedy: "release what was got, or raise tables.commands",
		})
		return
	}
	*g = get{
		ticket: t, waiting: true, request: s.HashRequest(c.Request), realm: c.Realm, since: v.Now,
		keys: g.keys[:0], keyEnds: g.keyEnds[:0], pinned: g.pinned[:0],
	}
	for _, key := range c.Keys {
		if c.Layered {
			g.keys = protocol.AppendLayerKey(g.keys, key, 0)
		} else {
			g.keys = append(g.keys, key...)
		}
		g.keyEnds = append(g.keyEnds, uint32(len(g.keys)))
	}
	v.Tickets.Add(t, kernel.Ref{Owner: kernel.OwnerGets, Subject: h})
	all := x.collectReady(s, g)
	end, over := r.OutcomeOf(v.Now, g.outcomeID())
	if all || c.Wait == 0 || over {
		if !all && over {
			v.Out.Mark(Marks.GetOver)
			if end.Code == effects.OK {
				r.SetNote(end.Class, NotSentNote(v, end.Class, g.keyAt(g.missingIndex), end.Key))
			}
		}
		x.deliverOutcome(v, s, r, h, g)
		return
	}
	v.Out.Mark(Marks.GetWaits)
	x.byMissing.Add(g.missingHash, h)
	if g.request != 0 {
		x.byRequest.Add(uint64(g.outcomeID()), h)
		g.inByRequest = true
	}
	v.Timers.Set(&g.timer, v.Now.Add(min(c.Wait, x.waitMax)), kernel.Ref{Owner: kernel.OwnerGets, Subject: h})
}

// collectReady collects the ready prefix in x.found, and reports whether the prefix contains all keys. If not,
// g.missingHash is the hash of the next key.
func (x *Gets) collectReady(s *store.Store, g *get) bool {
	x.found = x.found[:0]
	for i := range g.keyEnds {
		e := x.findReady(s, g, i)
		if e == 0 {
			return false
		}
		x.found = append(x.found, e)
	}
	return true
}

// findReady returns the entry of key i if it is ready. Otherwise findReady returns zero and records the key as the one
// that the Get waits for.
func (x *Gets) findReady(s *store.Store, g *get, i int) store.Entry {
	hash := s.HashIn(g.realm, g.keyAt(i))
	e := s.Find(hash, g.keyAt(i))
	if _, ok := s.ReadyPage(e); ok {
		return e
	}
	g.missingHash, g.missingIndex = hash, i
	return 0
}

// continueScan checks the keys from the missing one on, so that a Get does not check all of its keys each time while
// the keys become ready singly. Earlier keys may be gone by then, so all are checked once the last key is ready.
func (x *Gets) continueScan(s *store.Store, g *get) bool {
	for i := g.missingIndex; i < len(g.keyEnds); i++ {
		if x.findReady(s, g, i) == 0 {
			return false
		}
	}
	return x.collectReady(s, g)
}

// stopWaiting makes a Get stop waiting. The caller has removed the Get from byMissing.
func (x *Gets) stopWaiting(v *env.Env, h table.Handle, g *get) {
	if v.Timers.Stop(&g.timer); g.waiting && g.inByRequest {
		x.byRequest.Remove(uint64(g.outcomeID()), h)
	}
	g.waiting, g.inByRequest = false, false
}

// deliverOutcome pins the prefix that collectReady has just found and delivers it.
func (x *Gets) deliverOutcome(v *env.Env, s *store.Store, r *outcomes.Requests, h table.Handle, g *get) {
	x.stopWaiting(v, h, g)
	x.pages = x.pages[:0]
	n := len(x.found)
	for _, e := range x.found {
		page, _ := s.ReadyPage(e)
		s.PinEntry(e, g.request, v)
		g.pinned = append(g.pinned, e)
		x.pages = v.Pools.PoolOf(page).AppendFrame(page, x.pages)
	}
	out := effects.Deliver{Ticket: g.ticket, Pages: x.pages, Hits: uint32(n)}
	if n < len(g.keyEnds) {
		v.Out.Mark(Marks.GetShort)
		out.Code, out.Why = MissingReason(v, s, r, g.missingHash, g.request, g.outcomeID(), g.keyAt(n))
	}
	v.Out.Deliver(out)
	if n == 0 {
		x.removeGet(v, h, g)
	}
}

// AbsentCode returns the code of a command that misses the chunk with this hash first: Lapsed if the chunk expired
// before the request read it, else NotFound.
func AbsentCode(v *env.Env, s *store.Store, hash, request uint64) effects.Code {
	if !s.HasLapsed(v.Now, hash, request) {
		return effects.NotFound
	}
	v.Out.Mark(Marks.GetLapsed)
	return effects.Lapsed
}

// MissingReason returns the code and the reason of a command that misses a chunk. The reason includes how the request
// ended, if its sender has reported that.
func MissingReason(v *env.Env, s *store.Store, r *outcomes.Requests, hash, request uint64, id outcomes.ID, key []byte) (
	effects.Code, *effects.Why) {
	end, over := r.OutcomeOf(v.Now, id)
	if over && end.Code != effects.OK {
		return effects.SenderFailed, &effects.Why{
			Name: v.PeerName(end.Class), Stage: effects.StageMemory, Field: "request", Theirs: end.Code.String(), Said: end.Reason,
		}
	}
	code := AbsentCode(v, s, hash, request)
	if code == effects.NotFound && over {
		why := NotSentReason(key, end.Key)
		why.Name = v.PeerName(end.Class)
		return effects.NotSent, why
	}
	return code, nil
}

// NotSentReason returns the reason that the request did not contain the wanted chunk. NotSentReason names a chunk that
// the request contained, which is of the tenant of the command's first chunk.
func NotSentReason(wanted, sent []byte) *effects.Why {
	w := &effects.Why{Stage: effects.StageMemory, Field: "key", Ours: effects.SanitizeText(wanted), Theirs: "no chunk"}
	if len(sent) > 0 {
		w.Theirs = effects.SanitizeText(sent)
	}
	return w
}

// NotSentNote returns NotSentReason for the peer of a class, which sent the request. The note names no chunk that the
// peer must not be told of (S31). Example: the policy took the tenant from the sender, and another peer has the class now.
func NotSentNote(v *env.Env, class int, wanted, sent []byte) *effects.Why {
	w := NotSentReason(wanted, sent)
	if !v.HasTenant(class, effects.Tenant(protocol.TenantOf(wanted))) {
		v.Out.Mark(Marks.NoteWithheld)
		w.Ours, w.Theirs = "a chunk of another tenant", ""
	}
	return w
}

// AwaitedKey returns the key that a Get of this request waits for, or nil if no Get of the request waits.
func (x *Gets) AwaitedKey(request outcomes.ID) []byte {
	g := x.rows.Get(x.byRequest.Find(uint64(request)).Handle())
	if request == 0 || g == nil {
		return nil
	}
	return g.keyAt(g.missingIndex)
}

// FinishRequest ends the Gets that wait for chunks of a request that has ended, as many as this step has work for.
// FinishRequest reports whether all have ended.
func (x *Gets) FinishRequest(v *env.Env, s *store.Store, r *outcomes.Requests, request outcomes.ID) (all bool) {
	for at := x.byRequest.Find(uint64(request)); at.Found(); at = x.byRequest.Find(uint64(request)) {
		if !x.hasBudget(v) {
			return false
		}
		v.Out.Mark(Marks.GetOver)
		v.Work.SpendRows(len(x.rows.Get(at.Handle()).keyEnds))
		x.finishGet(v, s, r, at.Handle())
	}
	return true
}

// WakeReady looks again at the Gets that wait for keys that have become ready, or that can no longer become ready. All
// Gets may wait for the same key, so each step continues only as many as the step has work for. The store keeps the
// notifications for the next step. A Get that was not reached has pinned nothing yet; when the Get is reached, the
// prefix that is ready then is delivered.
func (x *Gets) WakeReady(v *env.Env, s *store.Store, r *outcomes.Requests, p *allocqueue.Queue) {
	x.backlog = false
	became := s.ReadyKeys()
	if len(became)+len(s.LostKeys()) == 0 {
		return
	}
	for n, hash := range became {
		if !x.wakeKey(v, s, r, hash) {
			s.ClearReadyKeys(n)
			// The remaining Gets may turn out to wait for a lost key, so lost keys are handled after them.
			return
		}
	}
	s.ClearReadyKeys(len(became))
	x.FinishLost(v, s, r, p)
}

// wakeKey continues the Gets that wait for a key, and reports whether all of these Gets were reached.
func (x *Gets) wakeKey(v *env.Env, s *store.Store, r *outcomes.Requests, hash uint64) bool {
	for at := x.byMissing.Find(hash); at.Found(); at = x.byMissing.Find(hash) {
		if !x.hasBudget(v) {
			return false
		}
		h := at.Handle()
		g := x.rows.Get(h)
		from := g.missingIndex
		x.byMissing.Remove(hash, h)
		if x.continueScan(s, g) {
			v.Work.SpendRows(len(g.keyEnds))
			x.deliverOutcome(v, s, r, h, g)
			continue
		}
		v.Work.SpendLooks(1 + max(0, g.missingIndex-from))
		x.byMissing.Add(g.missingHash, h)
		if g.missingHash == hash {
			// Another key with this hash became ready, or the key is gone again.
			break
		}
	}
	return true
}

// hasBudget reports whether this step has work for another Get. If not, HasBacklog reports true afterwards.
func (x *Gets) hasBudget(v *env.Env) bool {
	if v.Work.HasBudget() {
		return true
	}
	v.Out.Mark(Marks.WakingCut)
	x.backlog = true
	return false
}

// HasBacklog reports whether the store's last notifications are not completely handled. The store keeps them.
func (x *Gets) HasBacklog() bool { return x.backlog }

// FinishLost ends the Gets that wait for a chunk that cannot arrive any more, as many as this step has work for. If
// chunks become ready later in the same step, the lost keys are checked again, because a Get may now wait for a lost
// key.
func (x *Gets) FinishLost(v *env.Env, s *store.Store, r *outcomes.Requests, p *allocqueue.Queue) {
	for _, hash := range s.LostKeys() {
		if !x.byMissing.Find(hash).Found() || p.HasKey(hash) {
			continue
		}
		for at := x.byMissing.Find(hash); at.Found(); at = x.byMissing.Find(hash) {
			h := at.Handle()
			g := x.rows.Get(h)
			if s.MayArrive(hash, g.keyAt(g.missingIndex)) {
				// The chunk may arrive for all Gets that wait for the key. Checking each Get would be too much work,
				// because a message can name a key very often.
				break
			}
			if !x.hasBudget(v) {
				return
			}
			v.Work.SpendRows(len(g.keyEnds))
			v.Out.Mark(Marks.GetUnrecoverable)
			x.finishGet(v, s, r, h)
		}
	}
}

// OnTimer delivers the ready prefix to a Get that has run out of time.
func (x *Gets) OnTimer(v *env.Env, s *store.Store, r *outcomes.Requests, h table.Handle) {
	x.rows.Get(h).timer = 0
	x.finishGet(v, s, r, h)
}

// finishGet delivers the ready prefix of a waiting Get.
func (x *Gets) finishGet(v *env.Env, s *store.Store, r *outcomes.Requests, h table.Handle) {
	g := x.rows.Get(h)
	x.byMissing.Remove(g.missingHash, h)
	x.collectReady(s, g)
	x.deliverOutcome(v, s, r, h, g)
}

// failGet ends a waiting Get with a code and no chunks.
func (x *Gets) failGet(v *env.Env, h table.Handle, code effects.Code) {
	g := x.rows.Get(h)
	x.byMissing.Remove(g.missingHash, h)
	x.stopWaiting(v, h, g)
	RefuseCommand(v, g.ticket, code, &effects.Why{
		Stage: effects.StageMemory, Field: "Keys[" + formatCount(g.missingIndex) + "]", Theirs: "not here",
	})
	x.removeGet(v, h, g)
}

func (x *Gets) removeGet(v *env.Env, h table.Handle, g *get) {
	v.Tickets.Remove(g.ticket)
	g.keys, g.keyEnds, g.pinned = table.TrimBytes(g.keys), table.TrimSlice(g.keyEnds), table.TrimSlice(g.pinned)
	x.rows.Remove(h)
}

// OnUnpin ends the pins of a Get and removes the Get. A second Unpin therefore finds nothing, and no chunk is unpinned
// twice.
func (x *Gets) OnUnpin(v *env.Env, s *store.Store, t effects.Ticket, c *Unpin) {
	ref := v.Tickets.Find(c.Got)
	h := ref.Subject
	if ref.Owner != kernel.OwnerGets || x.rows.Get(h).waiting {
		v.Out.Mark(Marks.ReleaseUnknown)
		RefuseCommand(v, t, effects.NotFound, &effects.Why{
			Field: "Got", Theirs: formatCount(uint64(c.Got)), Ours: "the ticket of a Get that was not released",
		})
		return
	}
	g := x.rows.Get(h)
	for _, e := range g.pinned {
		s.UnpinEntry(e, v)
	}
	x.removeGet(v, h, g)
	DeliverOK(v, t)
}

// AbortWaiting ends a Get that waits, and reports whether there was one.
func (x *Gets) AbortWaiting(v *env.Env, h table.Handle) bool {
	if !x.rows.Get(h).waiting {
		return false
	}
	x.failGet(v, h, effects.Cancelled)
	return true
}

// SweepDrain ends the Get at a slot if the Get waits, and reports whether the table has that slot. Gets that have pins
// stay until Unpin.
func (x *Gets) SweepDrain(v *env.Env, slot int32) bool {
	if h := x.rows.At(slot); h != 0 && x.rows.Get(h).waiting {
		v.Work.SpendRows(1)
		x.failGet(v, h, effects.Draining)
	}
	return slot < x.rows.Slots()
}

// HasWaiting reports whether any Get waits for a chunk.
func (x *Gets) HasWaiting() bool { return x.byMissing.Len() > 0 }

func (x *Gets) Len() int { return x.rows.Len() }

// StateOf reports whether a Get waits, and whether the Get is open.
func (x *Gets) StateOf(h table.Handle) (waits, open bool) {
	g := x.rows.Get(h)
	return g != nil && g.waiting, g != nil
}
