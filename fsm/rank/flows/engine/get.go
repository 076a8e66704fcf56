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
	waitMax  effects.Duration `snap:"share"`
	rows     table.Slab[get]
	byWanted table.Index // waiting Gets, by the hash of the missing key
	byName   table.Index // waiting Gets of requests, by the hash of the request id
	// cut means that the store's last notifications are not completely handled; the rest is for the next step.
	cut   bool
	found []store.Entry  // the ready prefix of the last call of ready
	pages []effects.Page `snap:"scratch"`
}

// Emptied returns an empty table for at most max Gets, each of which waits at most waitMax. Emptied reuses the memory
// of x, which must not be used afterwards.
func (x *Gets) Emptied(max int, waitMax effects.Duration) Gets {
	return Gets{
		waitMax: waitMax, rows: x.rows.Emptied(max), byWanted: x.byWanted.Emptied(), byName: x.byName.Emptied(),
		found: x.found[:0], pages: x.pages[:0],
	}
}

// A get either waits for the first key that it misses, and pins nothing; the Get is looked at again when that key
// becomes ready. Or a get has pins.
type get struct {
	ticket  effects.Ticket
	waiting bool
	listed  bool   // byName has it
	request uint64 // hash of the request's id; 0: no request was named
	keys    []byte
	ends    []uint32
	missing uint64 // hash of the key that the Get waits for
	// from is the index of the missing key. The keys before the missing key were ready when the missing key was found.
	from   int
	pinned []store.Entry
	timer  kernel.TimerID `snap:"set"`
}

func (g *get) key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = g.ends[i-1]
	}
	return g.keys[from:g.ends[i]]
}

// Open begins a Get. Its outcome is delivered at once if all of the chunks are ready, or if Wait is 0.
func (x *Gets) Open(v *env.Env, s *store.Store, r *outcomes.Requests, t effects.Ticket, c *Get) {
	h, g := x.rows.Add()
	if g == nil {
		v.Out.Mark(Marks.GetsFull)
		TurnDown(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(x.rows.Max()) + ", and as many gets wait or are held",
			Remedy: "release what was got, or raise tables.commands",
		})
		return
	}
	*g = get{
		ticket: t, waiting: true, request: s.RequestHash(c.Request),
		keys: g.keys[:0], ends: g.ends[:0], pinned: g.pinned[:0],
	}
	for _, key := range c.Keys {
		if c.Layered {
			g.keys = protocol.AppendLayerKey(g.keys, key, 0)
		} else {
			g.keys = append(g.keys, key...)
		}
		g.ends = append(g.ends, uint32(len(g.keys)))
	}
	v.Tickets.Add(t, kernel.Ref{Owner: kernel.OwnerGets, Subject: h})
	all := x.ready(s, g)
	end, over := r.Of(v.Now, g.request)
	if all || c.Wait == 0 || over {
		if !all && over {
			v.Out.Mark(Marks.GetOver)
			if end.Code == effects.OK {
				r.Note(end.Class, NotSent(g.key(g.from), end.Key))
			}
		}
		x.take(v, s, r, h, g)
		return
	}
	v.Out.Mark(Marks.GetWaits)
	x.byWanted.Add(g.missing, h)
	if g.request != 0 {
		x.byName.Add(g.request, h)
		g.listed = true
	}
	v.Timers.Set(&g.timer, v.Now.Add(min(c.Wait, x.waitMax)), kernel.Ref{Owner: kernel.OwnerGets, Subject: h})
}

// ready collects the ready prefix in x.found, and reports whether the prefix contains all keys. If not, g.missing is
// the hash of the next key.
func (x *Gets) ready(s *store.Store, g *get) bool {
	x.found = x.found[:0]
	for i := range g.ends {
		e := x.readyAt(s, g, i)
		if e == 0 {
			return false
		}
		x.found = append(x.found, e)
	}
	return true
}

// readyAt returns the entry of key i if it is ready. Otherwise readyAt returns zero and records the key as the one that
// the Get waits for.
func (x *Gets) readyAt(s *store.Store, g *get, i int) store.Entry {
	hash := s.Hash(g.key(i))
	e := s.Find(hash, g.key(i))
	if _, ok := s.Ready(e); ok {
		return e
	}
	g.missing, g.from = hash, i
	return 0
}

// goOn checks the keys from the missing one on, so that a Get does not check all of its keys each time while the keys
// become ready singly. Earlier keys may be gone by then, so all are checked once the last key is ready.
func (x *Gets) goOn(s *store.Store, g *get) bool {
	for i := g.from; i < len(g.ends); i++ {
		if x.readyAt(s, g, i) == 0 {
			return false
		}
	}
	return x.ready(s, g)
}

// unwait makes a Get stop waiting. The caller has removed the Get from byWanted.
func (x *Gets) unwait(v *env.Env, h table.Handle, g *get) {
	if v.Timers.Stop(&g.timer); g.waiting && g.listed {
		x.byName.Remove(g.request, h)
	}
	g.waiting, g.listed = false, false
}

// take pins the prefix that ready has just found and delivers it.
func (x *Gets) take(v *env.Env, s *store.Store, r *outcomes.Requests, h table.Handle, g *get) {
	x.unwait(v, h, g)
	x.pages = x.pages[:0]
	n := len(x.found)
	for _, e := range x.found {
		page, _ := s.Ready(e)
		s.Pin(e, g.request, v)
		g.pinned = append(g.pinned, e)
		x.pages = v.Pools.Of(page).Frame(page, x.pages)
	}
	out := effects.Deliver{Ticket: g.ticket, Pages: x.pages, Hits: uint32(n)}
	if n < len(g.ends) {
		v.Out.Mark(Marks.GetShort)
		out.Code, out.Why = Missing(v, s, r, g.missing, g.request, g.key(n))
	}
	v.Out.Deliver(out)
	if n == 0 {
		x.remove(v, h, g)
	}
}

// Absent returns the code of a command that misses the chunk with this hash first: Lapsed if the chunk expired before
// the request read it, else NotFound.
func Absent(v *env.Env, s *store.Store, hash, request uint64) effects.Code {
	if !s.Lapsed(v.Now, hash, request) {
		return effects.NotFound
	}
	v.Out.Mark(Marks.GetLapsed)
	return effects.Lapsed
}

// Missing returns the code and the reason of a command that misses a chunk. The reason includes how the request ended,
// if its sender has reported that.
func Missing(v *env.Env, s *store.Store, r *outcomes.Requests, hash, request uint64, key []byte) (effects.Code,
	*effects.Why) {
	end, over := r.Of(v.Now, request)
	if over && end.Code != effects.OK {
		return effects.SenderFailed, &effects.Why{
			Name: v.Name(end.Class), Stage: effects.StageMemory, Field: "request", Theirs: end.Code.String(), Said: end.Said,
		}
	}
	code := Absent(v, s, hash, request)
	if code == effects.NotFound && over {
		why := NotSent(key, end.Key)
		why.Name = v.Name(end.Class)
		return effects.NotSent, why
	}
	return code, nil
}

// NotSent returns the reason that the request did not contain the wanted chunk. NotSent names a chunk that the request
// contained.
func NotSent(wanted, came []byte) *effects.Why {
	w := &effects.Why{Stage: effects.StageMemory, Field: "key", Ours: effects.Words(wanted), Theirs: "no chunk"}
	if len(came) > 0 {
		w.Theirs = effects.Words(came)
	}
	return w
}

// Awaits returns the key that a Get of this request waits for, or nil if no Get of the request waits.
func (x *Gets) Awaits(request uint64) []byte {
	g := x.rows.Get(x.byName.Seek(request).Handle())
	if request == 0 || g == nil {
		return nil
	}
	return g.key(g.from)
}

// Over ends the Gets that wait for chunks of a request that has ended, as many as this step has work for. Over reports
// whether all have ended.
func (x *Gets) Over(v *env.Env, s *store.Store, r *outcomes.Requests, request uint64) (all bool) {
	for at := x.byName.Seek(request); at.Found(); at = x.byName.Seek(request) {
		if !x.may(v) {
			return false
		}
		v.Out.Mark(Marks.GetOver)
		v.Work.Spend(len(x.rows.Get(at.Handle()).ends))
		x.end(v, s, r, at.Handle())
	}
	return true
}

// Wake looks again at the Gets that wait for keys that have become ready, or that can no longer become ready. All Gets
// may wait for the same key, so each step continues only as many as the step has work for. The store keeps the
// notifications for the next step. A Get that was not reached has pinned nothing yet; when the Get is reached, the
// prefix that is ready then is delivered.
func (x *Gets) Wake(v *env.Env, s *store.Store, r *outcomes.Requests, p *allocqueue.Pending) {
	x.cut = false
	became := s.Became()
	if len(became)+len(s.Lost()) == 0 {
		return
	}
	for n, hash := range became {
		if !x.wakeAll(v, s, r, hash) {
			s.HeardBecame(n)
			// The remaining Gets may turn out to wait for a lost key, so lost keys are handled after them.
			return
		}
	}
	s.HeardBecame(len(became))
	x.GiveUp(v, s, r, p)
}

// wakeAll continues the Gets that wait for a key, and reports whether all of these Gets were reached.
func (x *Gets) wakeAll(v *env.Env, s *store.Store, r *outcomes.Requests, hash uint64) bool {
	for at := x.byWanted.Seek(hash); at.Found(); at = x.byWanted.Seek(hash) {
		if !x.may(v) {
			return false
		}
		h := at.Handle()
		g := x.rows.Get(h)
		from := g.from
		x.byWanted.Remove(hash, h)
		if x.goOn(s, g) {
			v.Work.Spend(len(g.ends))
			x.take(v, s, r, h, g)
			continue
		}
		v.Work.Looks(1 + max(0, g.from-from))
		x.byWanted.Add(g.missing, h)
		if g.missing == hash {
			// Another key with this hash became ready, or the key is gone again.
			break
		}
	}
	return true
}

// may reports whether this step has work for another Get. If not, Cut reports true.
func (x *Gets) may(v *env.Env) bool {
	if v.Work.Left() {
		return true
	}
	v.Out.Mark(Marks.WakingCut)
	x.cut = true
	return false
}

// Cut reports whether the store's last notifications are not completely handled. The store keeps them.
func (x *Gets) Cut() bool { return x.cut }

// GiveUp ends the Gets that wait for a chunk that cannot arrive any more, as many as this step has work for. If chunks
// become ready later in the same step, the lost keys are checked again, because a Get may now wait for a lost key.
func (x *Gets) GiveUp(v *env.Env, s *store.Store, r *outcomes.Requests, p *allocqueue.Pending) {
	for _, hash := range s.Lost() {
		if !x.byWanted.Seek(hash).Found() || p.Asked(hash) {
			continue
		}
		for at := x.byWanted.Seek(hash); at.Found(); at = x.byWanted.Seek(hash) {
			h := at.Handle()
			g := x.rows.Get(h)
			if s.MayCome(hash, g.key(g.from)) {
				// The chunk may arrive for all Gets that wait for the key. Checking each Get would be too much work,
				// because a message can name a key very often.
				break
			}
			if !x.may(v) {
				return
			}
			v.Work.Spend(len(g.ends))
			v.Out.Mark(Marks.GetUnrecoverable)
			x.end(v, s, r, h)
		}
	}
}

// Due delivers the ready prefix to a Get that has run out of time.
func (x *Gets) Due(v *env.Env, s *store.Store, r *outcomes.Requests, h table.Handle) {
	x.rows.Get(h).timer = 0
	x.end(v, s, r, h)
}

// end delivers the ready prefix of a waiting Get.
func (x *Gets) end(v *env.Env, s *store.Store, r *outcomes.Requests, h table.Handle) {
	g := x.rows.Get(h)
	x.byWanted.Remove(g.missing, h)
	x.ready(s, g)
	x.take(v, s, r, h, g)
}

// finish ends a waiting Get with a code and no chunks.
func (x *Gets) finish(v *env.Env, h table.Handle, code effects.Code) {
	g := x.rows.Get(h)
	x.byWanted.Remove(g.missing, h)
	x.unwait(v, h, g)
	TurnDown(v, g.ticket, code, &effects.Why{
		Stage: effects.StageMemory, Field: "Keys[" + number(g.from) + "]", Theirs: "not here",
	})
	x.remove(v, h, g)
}

func (x *Gets) remove(v *env.Env, h table.Handle, g *get) {
	v.Tickets.Remove(g.ticket)
	g.keys, g.ends, g.pinned = table.ShedBytes(g.keys), table.Shed(g.ends), table.Shed(g.pinned)
	x.rows.Remove(h)
}

// Unpin ends the pins of a Get and removes the Get. A second Unpin therefore finds nothing, and no chunk is unpinned
// twice.
func (x *Gets) Unpin(v *env.Env, s *store.Store, t effects.Ticket, c *Unpin) {
	ref := v.Tickets.Find(c.Got)
	h := ref.Subject
	if ref.Owner != kernel.OwnerGets || x.rows.Get(h).waiting {
		v.Out.Mark(Marks.ReleaseUnknown)
		TurnDown(v, t, effects.NotFound, &effects.Why{
			Field: "Got", Theirs: number(uint64(c.Got)), Ours: "the ticket of a Get that was not released",
		})
		return
	}
	g := x.rows.Get(h)
	for _, e := range g.pinned {
		s.Unpin(e, v)
	}
	x.remove(v, h, g)
	Agree(v, t)
}

// Abort ends a Get that waits, and reports whether there was one.
func (x *Gets) Abort(v *env.Env, h table.Handle) bool {
	if !x.rows.Get(h).waiting {
		return false
	}
	x.finish(v, h, effects.Cancelled)
	return true
}

// DrainAt ends the Get at a slot if the Get waits, and reports whether the table has that slot. Gets that have pins
// stay until Unpin.
func (x *Gets) DrainAt(v *env.Env, slot int32) bool {
	if h := x.rows.At(slot); h != 0 && x.rows.Get(h).waiting {
		v.Work.Spend(1)
		x.finish(v, h, effects.Draining)
	}
	return slot < x.rows.Slots()
}

// Waits reports whether any Get waits for a chunk.
func (x *Gets) Waits() bool { return x.byWanted.Len() > 0 }

func (x *Gets) Len() int { return x.rows.Len() }

// State reports whether a Get waits, and whether the Get is open.
func (x *Gets) State(h table.Handle) (waits, open bool) {
	g := x.rows.Get(h)
	return g != nil && g.waiting, g != nil
}
