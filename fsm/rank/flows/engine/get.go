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

// Gets are the commands that wait for chunks, and those that hold what they got until it is released.
//
// A Get waits as long as its next chunk may still come: its time is not over, and what it was expected from is not
// all gone. It may come of a fill under way, an offer that is kept, or a request or an offer that waits for memory. A
// Get that asked before any of them came has lost none, and waits on: its sender may not have begun. One that had any
// and has none left ends with the prefix that is here. What was lost while it waited for a chunk before is not
// remembered: then it waits its whole time.
// One for a request whose sender has said how it ended waits for nothing more.
type Gets struct {
	waitMax  effects.Duration `snap:"share"`
	rows     table.Slab[get]
	byWanted table.Index    // those that wait, by the hash of the key they miss
	byName   table.Index    // those that wait for chunks of a request, by the hash of its id
	cut      bool           // what was heard last is not all done: the rest is for the next step
	found    []store.Entry  // the ready prefix that was looked for last
	pages    []effects.Page `snap:"scratch"`
}

// Emptied has room for so many, each of which waits at most that long, in the memory of x, which is not used any more.
func (x *Gets) Emptied(max int, waitMax effects.Duration) Gets {
	return Gets{
		waitMax: waitMax, rows: x.rows.Emptied(max), byWanted: x.byWanted.Emptied(), byName: x.byName.Emptied(),
		found: x.found[:0], pages: x.pages[:0],
	}
}

// A get waits under the first key that it misses, pinning nothing, and is looked
// at again when that key becomes ready; or it holds pins.
type get struct {
	ticket  effects.Ticket
	waiting bool
	listed  bool   // byName has it
	request uint64 // hash of the request's id; 0 when it told none
	keys    []byte
	ends    []uint32
	missing uint64 // hash of the key that it waits for
	from    int    // which one that is; those before it were ready when it was found to be missing
	pinned  []store.Entry
	timer   kernel.TimerID `snap:"set"`
}

func (g *get) key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = g.ends[i-1]
	}
	return g.keys[from:g.ends[i]]
}

// Open begins a Get: it is delivered at once if all of its chunks are ready, or if it does not wait.
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

// ready finds the ready prefix, and says whether that is all; if not, g.missing is the key after it.
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

// readyAt is the entry of one of the keys if it is ready; otherwise the get waits for it.
func (x *Gets) readyAt(s *store.Store, g *get, i int) store.Entry {
	hash := s.Hash(g.key(i))
	e := s.Find(hash, g.key(i))
	if _, ok := s.Ready(e); ok {
		return e
	}
	g.missing, g.from = hash, i
	return 0
}

// goOn goes on from the key that was missing, so that keys that come one by one are not looked at by all of their
// number each time. Those before it may be gone meanwhile: that is looked at once the last one is here.
func (x *Gets) goOn(s *store.Store, g *get) bool {
	for i := g.from; i < len(g.ends); i++ {
		if x.readyAt(s, g, i) == 0 {
			return false
		}
	}
	return x.ready(s, g)
}

// unwait takes a Get that waits out of those that do; byWanted does not have it any more.
func (x *Gets) unwait(v *env.Env, h table.Handle, g *get) {
	if v.Timers.Stop(&g.timer); g.waiting && g.listed {
		x.byName.Remove(g.request, h)
	}
	g.waiting, g.listed = false, false
}

// take pins what ready has just found and delivers it.
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

// Absent is the outcome of a command that misses a chunk first.
func Absent(v *env.Env, s *store.Store, hash, request uint64) effects.Code {
	if !s.Lapsed(v.Now, hash, request) {
		return effects.NotFound
	}
	v.Out.Mark(Marks.GetLapsed)
	return effects.Lapsed
}

// Missing is the outcome of a command that misses a chunk first, with what its sender said of how the request ended.
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

// NotSent says that a chunk is waited for which its request did not have, and names one that it had.
func NotSent(wanted, came []byte) *effects.Why {
	w := &effects.Why{Stage: effects.StageMemory, Field: "key", Ours: effects.Words(wanted), Theirs: "no chunk"}
	if len(came) > 0 {
		w.Theirs = effects.Words(came)
	}
	return w
}

// Awaits is the key that a Get waits for of a request; nil: none does.
func (x *Gets) Awaits(request uint64) []byte {
	g := x.rows.Get(x.byName.Seek(request).Handle())
	if request == 0 || g == nil {
		return nil
	}
	return g.key(g.from)
}

// Over ends the Gets that wait for chunks of a request of which nothing more comes, so many a step, and says whether
// all have ended.
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

// Wake looks again at the Gets that waited for keys that became ready, or that will not. All Gets there are may wait
// for one key, so as many go on as this step has work for, and the others in the next one, of which the news are kept.
// One that was not come to has nothing yet: it gets what is there when its turn comes, as if it had asked then.
func (x *Gets) Wake(v *env.Env, s *store.Store, r *outcomes.Requests, p *allocqueue.Pending) {
	x.cut = false
	became := s.Became()
	if len(became)+len(s.Lost()) == 0 {
		return
	}
	for n, hash := range became {
		if !x.wakeAll(v, s, r, hash) {
			s.HeardBecame(n)
			return // One of the rest may come to a key that was lost: those are looked at behind it.
		}
	}
	s.HeardBecame(len(became))
	x.GiveUp(v, s, r, p)
}

// wakeAll lets those go on that wait for a key, and says whether it came to all of them.
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
			break // another key with this hash became ready, or it is gone again
		}
	}
	return true
}

// may says whether this step has work for one Get more; if not, Cut says so.
func (x *Gets) may(v *env.Env) bool {
	if v.Work.Left() {
		return true
	}
	v.Out.Mark(Marks.WakingCut)
	x.cut = true
	return false
}

// Cut says that what was heard last is not all done. The news of it are kept.
func (x *Gets) Cut() bool { return x.cut }

// GiveUp ends the Gets that waited for a chunk which cannot come any more, so many a step. What was lost is looked at
// again in the same step if chunks became ready after it, because a Get may have come to it then.
func (x *Gets) GiveUp(v *env.Env, s *store.Store, r *outcomes.Requests, p *allocqueue.Pending) {
	for _, hash := range s.Lost() {
		if !x.byWanted.Seek(hash).Found() || p.Asked(hash) {
			continue
		}
		for at := x.byWanted.Seek(hash); at.Found(); at = x.byWanted.Seek(hash) {
			h := at.Handle()
			g := x.rows.Get(h)
			if s.MayCome(hash, g.key(g.from)) {
				break // So it may for all of them: a key may be named as often as a message is long.
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

// Due delivers what there is to a Get whose time is over.
func (x *Gets) Due(v *env.Env, s *store.Store, r *outcomes.Requests, h table.Handle) {
	x.rows.Get(h).timer = 0
	x.end(v, s, r, h)
}

// end delivers what there is.
func (x *Gets) end(v *env.Env, s *store.Store, r *outcomes.Requests, h table.Handle) {
	g := x.rows.Get(h)
	x.byWanted.Remove(g.missing, h)
	x.ready(s, g)
	x.take(v, s, r, h, g)
}

// finish ends a waiting Get with nothing.
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

// Unpin unpins what a Get gave. A second one finds nothing: the Get is gone, so nothing is unpinned twice.
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

// Abort ends a Get that waits, and says whether there was one.
func (x *Gets) Abort(v *env.Env, h table.Handle) bool {
	if !x.rows.Get(h).waiting {
		return false
	}
	x.finish(v, h, effects.Cancelled)
	return true
}

// DrainAt ends the one at a slot if it waits, and says whether there is such a slot. Those that hold pins stay until
// they are released.
func (x *Gets) DrainAt(v *env.Env, slot int32) bool {
	if h := x.rows.At(slot); h != 0 && x.rows.Get(h).waiting {
		v.Work.Spend(1)
		x.finish(v, h, effects.Draining)
	}
	return slot < x.rows.Slots()
}

// Waits says whether any Get waits for a chunk.
func (x *Gets) Waits() bool { return x.byWanted.Len() > 0 }

func (x *Gets) Len() int { return x.rows.Len() }

// State says whether a Get is open, and whether it waits.
func (x *Gets) State(h table.Handle) (waits, open bool) {
	g := x.rows.Get(h)
	return g != nil && g.waiting, g != nil
}
