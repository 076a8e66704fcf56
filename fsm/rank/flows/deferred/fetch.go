package deferred

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
	"github.com/kvferry/kvferry/fsm/table"
)

// A Fetches is the table of Fetch commands: those that wait until their chunks are known and reachable, and those
// that the pipeline carries out.
type Fetches struct {
	timeout  effects.Duration `snap:"share"`
	rows     table.Slab[fetch]
	waiting  table.List
	at       table.Handle  // the waiting fetch at which a pass continues; 0: no pass is in progress
	again    bool          // another pass follows the present one
	plan     staging.Fetch `snap:"scratch"`
	resolved uint64        // the number of the latest plan
	pipe     staging.Pipeline
}

// Emptied returns a Fetches without commands, with the given configuration of the staging. timeout is the longest
// time that a fetch may take. The memory of f is reused, so f must not be used afterwards.
func (f *Fetches) Emptied(cfg staging.Config, timeout effects.Duration) Fetches {
	return Fetches{timeout: timeout, rows: f.rows.Emptied(int(cfg.FetchesMax)), plan: f.plan, pipe: f.pipe.Emptied(cfg)}
}

// A fetch is one Fetch command. A fetch waits until all chunks are known and the senders that have the chunks can
// be reached; meanwhile the fetch reserves nothing. Then the pipeline carries the fetch out, and the row keeps
// what has to be updated when the fetch ends.
type fetch struct {
	ticket   effects.Ticket
	running  bool
	request  uint64
	keys     []byte
	ends     []uint32
	deadline effects.Time
	timer    kernel.TimerID `snap:"set"`
	takes    []taken
	from     int // the first key that was not known at the latest look; all keys before were known
	// stuck is one more than the index of the first key without a link at the latest look; 0: not looked at, or
	// all links were there
	stuck int
}

// A taken is a chunk that leaves its offer with the fetch, because the chunk was offered for the fetch's request,
// or because the fetch reads the chunk from an offer that names no request.
type taken struct {
	offer table.Handle
	item  uint32
}

// missing returns the reason that chunk i is neither here nor offered.
func (f *fetch) missing(i int) effects.Why {
	return effects.Why{
		Stage: effects.StageMemory, Field: "chunk " + strconv.Itoa(i) + " of " + strconv.Itoa(len(f.ends)),
		Theirs: "neither here nor offered",
	}
}

func (f *fetch) key(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = f.ends[i-1]
	}
	return f.keys[from:f.ends[i]]
}

// Open inserts a Fetch, and starts it unless the fetch has to wait for chunks.
func (x *Fetches) Open(
	v *env.Env, s *store.Store, d *Deferred, r *outcomes.Requests, l *link.Links, t effects.Ticket, c *engine.Fetch,
) {
	h, f := x.rows.Add()
	if f == nil {
		v.Out.Mark(engine.Marks.GetsFull)
		engine.TurnDown(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: strconv.Itoa(x.rows.Max()) + ", and as many fetches are in progress",
			Remedy: "retry when one has ended, or raise tables.commands",
		})
		return
	}
	patience := x.timeout
	if c.Patience > 0 {
		patience = min(c.Patience, patience)
	}
	*f = fetch{
		ticket: t, request: s.RequestHash(c.Request), deadline: v.Now.Add(patience),
		keys: f.keys[:0], ends: f.ends[:0], takes: f.takes[:0],
	}
	for _, key := range c.Keys {
		f.keys = append(f.keys, key...)
		f.ends = append(f.ends, uint32(len(f.keys)))
	}
	v.Tickets.Add(t, kernel.Ref{Owner: kernel.OwnerDeferred, Kind: kindFetch, Subject: h})
	x.rows.PushBack(&x.waiting, h)
	v.Timers.Set(&f.timer, f.deadline, kernel.Ref{Owner: kernel.OwnerDeferred, Kind: kindFetch, Subject: h})
	x.Start(v, s, d, r, l, h)
}

// Start begins the fetch if all chunks can be had now, and ends the fetch if a chunk is missing and the sender
// has reported that no more of the request follows.
func (x *Fetches) Start(v *env.Env, s *store.Store, d *Deferred, r *outcomes.Requests, l *link.Links, h table.Handle) {
	f := x.rows.Get(h)
	n := len(f.ends)
	begins := x.known(v, s, d, f) && !x.outOfReach(v, s, d, l, f)
	if begins && !x.resolve(v, s, d, l, f) {
		v.Work.Looks(n)
		begins = false
	}
	if !begins {
		if f.from == n { // The fetch waits for a link to one chunk; another chunk may have left meanwhile.
			x.findMissing(v, s, d, r, f)
		}
		if f.from < n { // A chunk is missing, as found by any of the four functions above.
			x.over(v, s, d, r, h, f)
		}
		return
	}
	v.Timers.Stop(&f.timer)
	x.unwait(h)
	f.running = true
	p := &x.plan
	for i := range p.Items {
		if it := &p.Items[i]; it.Pin != 0 {
			s.Pin(it.Pin, f.request, v)
		}
	}
	for i := range p.Sources {
		d.get(p.Sources[i].ID).readers++
	}
	if code, why := x.pipe.Open(v, d, p); code != effects.OK {
		x.refuse(v, s, d, h, f, code, why)
		return
	}
	if s.Spare(v.StagedIn()) > 0 && x.pipe.Lacks() > 0 {
		x.stage(v, s)
		x.pipe.Admit(v, d)
	}
	v.Work.Spend(n)
	x.settle(v, s, d)
}

// findMissing looks up all chunks again, for a chunk that is neither here nor offered any more. The fetch knew
// all chunks and lacks a link to one. The look-up is made only if no more of the request follows; otherwise the
// fetch may wait for the missing chunk as it waits for the link.
//
// Example: a fetch needs A and B, and the link to the peer is down. B was in another request's offer, which ends.
// The sender has reported that the fetch's own request ended: nothing brings B, however soon the link is back.
func (x *Fetches) findMissing(v *env.Env, s *store.Store, d *Deferred, r *outcomes.Requests, f *fetch) {
	if _, is := r.Of(v.Now, f.request); is {
		f.from = 0
		x.known(v, s, d, f)
	}
}

// over ends a fetch that misses a chunk, if no more of the fetch's request follows.
func (x *Fetches) over(v *env.Env, s *store.Store, d *Deferred, r *outcomes.Requests, h table.Handle, f *fetch) {
	end, is := r.Of(v.Now, f.request)
	if !is {
		return
	}
	key := f.key(f.from)
	v.Out.Mark(Marks.FetchOver)
	code, why := engine.Missing(v, s, r, s.Hash(key), f.request, key)
	if why == nil {
		missing := f.missing(f.from)
		why = &missing
	}
	if code == effects.NotSent {
		r.Note(end.Class, why)
	}
	x.giveUp(v, s, d, h, code, *why)
}

// refuse undoes what Start did, if the pipeline refuses the fetch.
func (x *Fetches) refuse(
	v *env.Env, s *store.Store, d *Deferred, h table.Handle, f *fetch, code effects.Code, why effects.Why) {
	why.Stage = effects.StageMemory
	v.Out.Deliver(effects.Deliver{Ticket: f.ticket, Code: code, Begun: true, Why: &why})
	p := &x.plan
	for i := range p.Items {
		if it := &p.Items[i]; it.Pin != 0 {
			s.Unpin(it.Pin, v)
		}
	}
	x.ended(v, s, d, h, f, code)
	for i := range p.Sources {
		d.released(v, p.Sources[i].ID)
	}
}

// settle applies the reports of the pipeline: released sources and pages, and fetches that have ended.
func (x *Fetches) settle(v *env.Env, s *store.Store, d *Deferred) {
	for {
		said, ok := x.pipe.Next()
		if !ok {
			return
		}
		switch said.Kind {
		case staging.SourceReleased:
			d.released(v, said.Subject)
		case staging.LocalReleased:
			s.Unpin(said.Subject, v)
		case staging.Ended:
			h := v.Tickets.Find(said.Ticket).Subject
			x.ended(v, s, d, h, x.rows.Get(h), said.Code)
		}
	}
}

// ended removes a fetch that has its outcome, and the chunks that were offered for it leave their offers, whether
// the fetch was successful or not (M7).
func (x *Fetches) ended(v *env.Env, s *store.Store, d *Deferred, h table.Handle, f *fetch, code effects.Code) {
	for _, t := range f.takes {
		d.leave(v, s, t.offer, t.item, code)
	}
	v.Timers.Stop(&f.timer)
	v.Tickets.Remove(f.ticket)
	f.keys, f.ends, f.takes = table.ShedBytes(f.keys), table.Shed(f.ends), table.Shed(f.takes)
	x.rows.Remove(h)
}

// giveUp ends a waiting fetch with the given code. The chunks that are kept for the request stay in their offers.
func (x *Fetches) giveUp(
	v *env.Env, s *store.Store, d *Deferred, h table.Handle, code effects.Code, why effects.Why,
) {
	f := x.rows.Get(h)
	x.unwait(h)
	f.takes = f.takes[:0]
	engine.TurnDown(v, f.ticket, code, &why)
	x.ended(v, s, d, h, f, code)
}

// Overdue ends a waiting fetch at its deadline: a chunk is missing, a sender cannot be reached, or the last chunk
// arrived in this very step.
func (x *Fetches) Overdue(v *env.Env, s *store.Store, d *Deferred, h table.Handle) {
	f := x.rows.Get(h)
	f.timer = 0
	code, why := effects.Expired, effects.Why{
		Stage: effects.StageMemory, Field: "pull.fetch_timeout", Ours: "over as the last chunk came",
	}
	for i := range f.ends {
		e := s.Find(s.Hash(f.key(i)), f.key(i))
		if _, ok := s.Ready(e); ok {
			continue
		}
		at := d.Location(v, s, e, f.request)
		if at == 0 {
			code = engine.Absent(v, s, s.Hash(f.key(i)), f.request)
			why = f.missing(i)
			break
		}
		offer, _ := s.Offered(at)
		o := d.get(offer)
		code = effects.Unreachable
		why = effects.Why{
			Name: o.name(v), Peer: o.Peer, Stage: effects.StagePlane, Field: "transfer_channel",
			Ours: "no way to its pages",
		}
	}
	v.Out.Mark(Marks.FetchShort)
	x.giveUp(v, s, d, h, code, why)
}

// Abort ends a fetch early, and reports whether it did.
func (x *Fetches) Abort(v *env.Env, s *store.Store, d *Deferred, h table.Handle) bool {
	f := x.rows.Get(h)
	if !f.running {
		x.giveUp(v, s, d, h, effects.Cancelled, effects.Why{Stage: effects.StageMemory})
		return true
	}
	if !x.pipe.Abort(v, f.ticket) {
		return false
	}
	x.settle(v, s, d)
	return true
}

// Drain makes the pipeline begin no more fetches.
func (x *Fetches) Drain() { x.pipe.Drain() }

// DrainFirst ends the first waiting fetch, and reports whether there was one.
func (x *Fetches) DrainFirst(v *env.Env, s *store.Store, d *Deferred) bool {
	h := x.waiting.Front()
	if h != 0 {
		x.giveUp(v, s, d, h, effects.Draining, effects.Why{Stage: effects.StageMemory})
	}
	return h != 0
}

// DrainAt ends the fetch at a slot of the pipeline if the fetch has read nothing, and reports whether there is
// such a slot. A fetch that has read something continues until the deadline.
func (x *Fetches) DrainAt(v *env.Env, slot int32) bool { return x.pipe.DrainAt(v, slot) }

// Drained releases what was lent to the fetches that DrainAt has ended.
func (x *Fetches) Drained(v *env.Env, s *store.Store, d *Deferred) { x.settle(v, s, d) }

// Running reports whether there is such a fetch and it has begun.
func (x *Fetches) Running(h table.Handle) bool {
	f := x.rows.Get(h)
	return f != nil && f.running
}

// Request returns the request for which a fetch was made; 0 if the command named none.
func (x *Fetches) Request(h table.Handle) uint64 { return x.rows.Get(h).request }

// Withdraw ends the fetches that need an offer: all of them if request is 0, or else those for the given request.
// Fetches for other requests continue, because the lease stands until the offer's end. Withdraw returns false if
// some fetches are left; then it is called again in the next step.
func (x *Fetches) Withdraw(
	v *env.Env, s *store.Store, d *Deferred, h table.Handle, code effects.Code, request uint64,
) (all bool) {
	ends := func(t effects.Ticket) bool {
		return request == 0 || x.rows.Get(v.Tickets.Find(t).Subject).request == request
	}
	if d.get(h).readers == 0 {
		return true
	}
	if all = x.pipe.WithdrawFrom(v, h, code, ends); !all {
		v.Out.Mark(Marks.WithdrawalCut)
	}
	x.settle(v, s, d)
	return all
}

// Left returns the number of fetches that have not ended.
func (x *Fetches) Left() int { return x.waiting.Len() + x.pipe.Left() }

// Len returns the number of fetches that wait or run.
func (x *Fetches) Len() int { return x.rows.Len() }
