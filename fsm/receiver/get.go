package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A get waits under the first key that it misses, pinning nothing, and is looked
// at again when that key becomes ready; or it holds pins.
type get struct {
	ticket  effects.Ticket
	waiting bool
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

func ticketHash(t effects.Ticket) uint64 { return uint64(t) * 0x9E3779B97F4A7C15 }

func refuse(v *env.Env, t effects.Ticket, code effects.Code) {
	v.Out.Deliver(effects.Deliver{Ticket: t, Code: code})
}

func (r *Receiver) checkKeys(keys [][]byte) (effects.Code, *effects.Why) {
	switch {
	case r.draining:
		return effects.Draining, &effects.Why{}
	case len(keys) == 0:
		return effects.Invalid, &effects.Why{Field: "Keys", Theirs: "empty", Ours: "one or more"}
	case len(keys) > int(r.cfg.BatchMax):
		return effects.TooLarge, &effects.Why{
			Field: "Keys", Theirs: number(len(keys)), Ours: "at most " + number(r.cfg.BatchMax) + " (limits.keys_per_batch)",
		}
	}
	var check protocol.KeyCheck
	for i, key := range keys {
		if err := check.Check(key, r.cfg.Wire.KeyBytes); err != nil {
			return effects.Invalid, &effects.Why{Field: at("Keys", i), Theirs: effects.Words([]byte(err.Error()))}
		}
	}
	return effects.OK, nil
}

// waitable says whether a wait can be one.
func waitable(field string, d effects.Duration) (effects.Code, *effects.Why) {
	if d < 0 {
		return effects.Invalid, &effects.Why{Field: field, Theirs: d.String(), Ours: "0 or more"}
	}
	return effects.OK, nil
}

// OnGet handles a Get.
func (r *Receiver) OnGet(v *env.Env, t effects.Ticket, c *Get) {
	code, why := r.checkKeys(c.Keys)
	if code == effects.OK {
		code, why = waitable("Wait", c.Wait)
	}
	if code != effects.OK {
		turnDown(v, t, code, why)
		return
	}
	h, g := r.gets.Add()
	if g == nil {
		v.Out.Mark(MarkGetsFull)
		turnDown(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(r.cfg.GetsMax) + ", and as many gets wait or are held",
			Remedy: "release what was got, or raise tables.commands",
		})
		return
	}
	*g = get{ticket: t, waiting: true, request: r.requestHash(c.Request), keys: g.keys[:0], ends: g.ends[:0], pinned: g.pinned[:0]}
	for _, key := range c.Keys {
		g.keys = append(g.keys, key...)
		g.ends = append(g.ends, uint32(len(g.keys)))
	}
	r.byTicket.Add(ticketHash(t), h)
	if r.ready(g) || c.Wait == 0 {
		r.take(v, h, g)
		return
	}
	v.Out.Mark(MarkGetWaits)
	r.byWanted.Add(g.missing, h)
	v.Timers.Set(&g.timer, v.Now.Add(min(c.Wait, r.cfg.GetWaitMax)), timerRef(timerGet, h))
}

// ready finds the ready prefix, and says whether that is all; if not, g.missing is the key after it.
func (r *Receiver) ready(g *get) bool {
	r.found = r.found[:0]
	for i := range g.ends {
		e := r.readyAt(g, i)
		if e == 0 {
			return false
		}
		r.found = append(r.found, e)
	}
	return true
}

// readyAt is the entry of one of the keys if it is ready; otherwise the get waits for it.
func (r *Receiver) readyAt(g *get, i int) store.Entry {
	hash := r.Store.Hash(g.key(i))
	e := r.Store.Find(hash, g.key(i))
	if _, ok := r.Store.Ready(e); ok {
		return e
	}
	g.missing, g.from = hash, i
	return 0
}

// goOn goes on from the key that was missing, so that keys that come one by one are not looked at by all of their
// number each time. Those before it may be gone meanwhile: that is looked at once the last one is here.
func (r *Receiver) goOn(g *get) bool {
	for i := g.from; i < len(g.ends); i++ {
		if r.readyAt(g, i) == 0 {
			return false
		}
	}
	return r.ready(g)
}

// take pins what ready has just found and delivers it.
func (r *Receiver) take(v *env.Env, h table.Handle, g *get) {
	v.Timers.Stop(&g.timer)
	g.waiting = false
	r.pages = r.pages[:0]
	n := len(r.found)
	for _, e := range r.found {
		page, _ := r.Store.Ready(e)
		r.Store.Pin(e, g.request, v, claimRef)
		g.pinned = append(g.pinned, e)
		r.pages = append(r.pages, page)
	}
	code := effects.OK
	if n < len(g.ends) {
		v.Out.Mark(MarkGetShort)
		code = r.absent(v, g.missing, g.request)
	}
	v.Out.Deliver(effects.Deliver{Ticket: g.ticket, Code: code, Pages: r.pages, Hits: uint32(n)})
	if n == 0 {
		r.removeGet(h, g)
	}
}

// absent is the outcome of a command that misses a chunk first.
func (r *Receiver) absent(v *env.Env, hash, request uint64) effects.Code {
	if !r.Store.Lapsed(v.Now, hash, request) {
		return effects.NotFound
	}
	v.Out.Mark(MarkGetLapsed)
	return effects.Lapsed
}

// Wake looks again at the gets that waited for keys that became ready, or that will not.
func (r *Receiver) Wake(v *env.Env) {
	became := r.Store.Became()
	if len(became)+len(r.Store.Lost()) == 0 {
		return
	}
	r.stirred = r.stirred || len(became) > 0
	for _, hash := range became {
		for p := r.byWanted.Seek(hash); p.Found(); p = r.byWanted.Seek(hash) {
			h := p.Handle()
			g := r.gets.Get(h)
			r.byWanted.Remove(hash, h)
			if r.goOn(g) {
				r.take(v, h, g)
				continue
			}
			r.byWanted.Add(g.missing, h)
			if g.missing == hash {
				break // another key with this hash became ready, or it is gone again
			}
		}
	}
	r.Store.HeardBecame()
	r.despair(v)
}

func (r *Receiver) onGetDeadline(v *env.Env, h table.Handle) {
	g := r.gets.Get(h)
	r.byWanted.Remove(g.missing, h)
	r.ready(g)
	r.take(v, h, g)
}

// finishGet ends a waiting get with nothing.
func (r *Receiver) finishGet(v *env.Env, h table.Handle, code effects.Code) {
	g := r.gets.Get(h)
	r.byWanted.Remove(g.missing, h)
	v.Timers.Stop(&g.timer)
	turnDown(v, g.ticket, code, &effects.Why{Stage: effects.StageMemory, Field: at("Keys", g.from), Theirs: "not here"})
	r.removeGet(h, g)
}

func (r *Receiver) removeGet(h table.Handle, g *get) {
	r.byTicket.Remove(ticketHash(g.ticket), h)
	g.keys, g.ends, g.pinned = table.ShedBytes(g.keys), table.Shed(g.ends), table.Shed(g.pinned)
	r.gets.Remove(h)
}

func (r *Receiver) findGet(t effects.Ticket) table.Handle {
	for p := r.byTicket.Seek(ticketHash(t)); p.Found(); p = r.byTicket.Next(p) {
		if r.gets.Get(p.Handle()).ticket == t {
			return p.Handle()
		}
	}
	return 0
}

// OnContains handles a Contains.
func (r *Receiver) OnContains(v *env.Env, t effects.Ticket, c *Contains) {
	if code, why := r.checkKeys(c.Keys); code != effects.OK {
		turnDown(v, t, code, why)
		return
	}
	hits := uint32(0)
	for _, key := range c.Keys {
		e := r.Store.Find(r.Store.Hash(key), key)
		if _, ok := r.Store.Ready(e); !ok && r.place(v, e, 0) == 0 {
			break
		}
		hits++
	}
	v.Out.Deliver(effects.Deliver{Ticket: t, Hits: hits})
}

// OnRelease handles a Release.
func (r *Receiver) OnRelease(v *env.Env, t effects.Ticket, c *Release) {
	h := r.findGet(c.Got)
	if h == 0 || r.gets.Get(h).waiting {
		v.Out.Mark(MarkReleaseUnknown)
		turnDown(v, t, effects.NotFound, &effects.Why{
			Field: "Got", Theirs: number(uint64(c.Got)), Ours: "the ticket of a Get that was not released",
		})
		return
	}
	g := r.gets.Get(h)
	for _, e := range g.pinned {
		r.Store.Unpin(e, v)
	}
	r.removeGet(h, g)
	refuse(v, t, effects.OK)
}

// OnAbort handles an Abort.
func (r *Receiver) OnAbort(v *env.Env, t effects.Ticket, c *Abort) {
	if h := r.findGet(c.Target); h != 0 && r.gets.Get(h).waiting {
		r.finishGet(v, h, effects.Cancelled)
	} else if h := r.findFetch(c.Target); h != 0 && !r.fetches.Get(h).running {
		r.giveUp(v, h, effects.Cancelled, effects.Why{Stage: effects.StageMemory})
	} else if r.Pipe.Abort(v, c.Target) {
		r.settleFetches(v)
	} else {
		turnDown(v, t, effects.NotFound, &effects.Why{
			Field: "Target", Theirs: number(uint64(c.Target)), Ours: "the ticket of a command that has not ended",
		})
		return
	}
	refuse(v, t, effects.OK)
}
