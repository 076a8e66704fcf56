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

// Fetches are the commands that wait for chunks to be known and reachable, and those that the pipeline carries out.
type Fetches struct {
	timeout  effects.Duration `snap:"share"`
	rows     table.Slab[fetch]
	waiting  table.List
	at       table.Handle  // of those, where a pass over them goes on; 0: none is under way
	again    bool          // another pass follows
	plan     staging.Fetch `snap:"scratch"`
	resolved uint64        // numbers the plans
	pipe     staging.Pipeline
}

// Emptied has none, and stages what they read as configured, in the memory of f, which is not used any more. timeout is
// the longest that one takes.
func (f *Fetches) Emptied(cfg staging.Config, timeout effects.Duration) Fetches {
	return Fetches{timeout: timeout, rows: f.rows.Emptied(int(cfg.FetchesMax)), plan: f.plan, pipe: f.pipe.Emptied(cfg)}
}

// A fetch waits until all of its chunks are known and the senders that have them can be reached. Then it is the
// pipeline's; here stays what its end is to be noted on. It holds nothing while it waits.
type fetch struct {
	ticket   effects.Ticket
	running  bool
	request  uint64
	keys     []byte
	ends     []uint32
	deadline effects.Time
	timer    kernel.TimerID `snap:"set"`
	takes    []taken
	from     int // the key that was not known when it was looked at last; those before it were
	stuck    int // plus one: the key to which there was no way then; 0: it was not looked at, or there was one to all
}

// taken is a chunk that leaves its offer with the fetch: one that was offered for its request.
type taken struct {
	offer table.Handle
	item  uint32
}

// missing says which chunk nobody has.
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

// Open begins a Fetch, or has it wait for what it needs.
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

// Start begins the fetch if everything that it needs is there, or ends it if its sender has said that nothing more
// comes.
func (x *Fetches) Start(v *env.Env, s *store.Store, d *Deferred, r *outcomes.Requests, l *link.Links, h table.Handle) {
	f := x.rows.Get(h)
	n := len(f.ends)
	begins := x.known(v, s, d, f) && !x.outOfReach(v, s, d, l, f)
	if begins && !x.resolve(v, s, d, l, f) {
		v.Work.Looks(n)
		begins = false
	}
	if !begins {
		if f.from == n { // It waits for a way to one chunk, and another may have left meanwhile.
			x.findMissing(v, s, d, r, f)
		}
		if f.from < n { // A chunk is missing, whichever of the four has found that.
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

// findMissing looks all chunks up again of a fetch that knew all of them and has no way to one, for one that is neither
// here nor offered any more. It does so only if nothing more comes of the request: else the fetch waits for the chunk
// as for the way.
//
// Example: a fetch wants A and B, and its peer's link is down. B was in another request's offer, which ends. The sender
// has said that the fetch's own request ended: nothing brings B, however soon the link is back.
func (x *Fetches) findMissing(v *env.Env, s *store.Store, d *Deferred, r *outcomes.Requests, f *fetch) {
	if _, is := r.Of(v.Now, f.request); is {
		f.from = 0
		x.known(v, s, d, f)
	}
}

// over ends a fetch that misses a chunk of a request of which nothing more comes.
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

// refuse takes back what start did, where the pipeline would not have it.
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

// settle notes what the pipeline reports.
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

// ended forgets a fetch that has its outcome: the chunks that were offered for it leave.
func (x *Fetches) ended(v *env.Env, s *store.Store, d *Deferred, h table.Handle, f *fetch, code effects.Code) {
	for _, t := range f.takes {
		d.leave(v, s, t.offer, t.item, code)
	}
	v.Timers.Stop(&f.timer)
	v.Tickets.Remove(f.ticket)
	f.keys, f.ends, f.takes = table.ShedBytes(f.keys), table.Shed(f.ends), table.Shed(f.takes)
	x.rows.Remove(h)
}

// giveUp ends a fetch that waits.
func (x *Fetches) giveUp(
	v *env.Env, s *store.Store, d *Deferred, h table.Handle, code effects.Code, why effects.Why,
) {
	f := x.rows.Get(h)
	x.unwait(h)
	f.takes = f.takes[:0]
	engine.TurnDown(v, f.ticket, code, &why)
	x.ended(v, s, d, h, f, code)
}

// Overdue ends a fetch whose time is up before it began: a chunk is missing, or its sender out of reach, or the last
// one came in this very step.
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

// Abort ends a fetch early, and says whether there was one.
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

// Drain begins no fetch any more.
func (x *Fetches) Drain() { x.pipe.Drain() }

// DrainFirst ends the first of those that wait, and says whether there was one.
func (x *Fetches) DrainFirst(v *env.Env, s *store.Store, d *Deferred) bool {
	h := x.waiting.Front()
	if h != 0 {
		x.giveUp(v, s, d, h, effects.Draining, effects.Why{Stage: effects.StageMemory})
	}
	return h != 0
}

// DrainAt ends the one at a slot of the pipeline if it has read nothing, and says whether there is such a slot. Others
// go on until their own deadlines.
func (x *Fetches) DrainAt(v *env.Env, slot int32) bool { return x.pipe.DrainAt(v, slot) }

// Drained takes back what was lent for those that DrainAt has ended.
func (x *Fetches) Drained(v *env.Env, s *store.Store, d *Deferred) { x.settle(v, s, d) }

// Running says whether there is such a fetch and it has begun.
func (x *Fetches) Running(h table.Handle) bool {
	f := x.rows.Get(h)
	return f != nil && f.running
}

// Request is the one that a fetch is for; 0 if it told none.
func (x *Fetches) Request(h table.Handle) uint64 { return x.rows.Get(h).request }

// Withdraw ends the fetches that want to read an offer: all, or those for one request. Others go on, as the lease
// stands until the offer's end. It says whether all of them have ended: if not, it is called again in the next step.
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

// Left is the number of fetches that have not ended.
func (x *Fetches) Left() int { return x.waiting.Len() + x.pipe.Left() }

// Len is how many wait or run.
func (x *Fetches) Len() int { return x.rows.Len() }
