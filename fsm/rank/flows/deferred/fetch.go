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
	timeout     effects.Duration `snap:"share"`
	rows        table.Slab[fetch]
	waiting     table.List
	passNext    table.Handle  // the waiting fetch at which a pass continues; 0: no pass is in progress
	anotherPass bool          // another pass follows the present one
	plan        staging.Fetch `snap:"scratch"`
	planCount   uint64        // the number of the latest plan
	pipe        staging.Pipeline
}

// Recycle returns a Fetches without commands, with the given configuration of the staging. timeout is the longest
// time that a fetch may take. The memory of f is reused, so f must not be used afterwards.
func (f *Fetches) Recycle(cfg staging.Config, timeout effects.Duration) Fetches {
	return Fetches{timeout: timeout, rows: f.rows.Recycle(int(cfg.FetchesMax)), plan: f.plan, pipe: f.pipe.Recycle(cfg)}
}

// A fetch is one Fetch command. A fetch waits until all chunks are known and the senders that have the chunks can
// be reached; meanwhile the fetch reserves nothing. Then the pipeline carries the fetch out, and the row keeps
// what has to be updated when the fetch ends.
type fetch struct {
	ticket       effects.Ticket
	running      bool
	request      uint64
	realm        effects.Realm // the trust domain whose chunks the fetch accepts
	keys         []byte
	keyEnds      []uint32
	deadline     effects.Time
	since        effects.Time   `snap:"skip"` // when the Fetch began; for operators
	timer        kernel.TimerID `snap:"set"`
	offered      []offeredChunk
	missingIndex int // the first key that was not known at the latest look; all keys before were known
	// unlinkedIndex is one more than the index of the first key without a link at the latest look; 0: not looked at, or
	// all links were there
	unlinkedIndex int
}

// An offeredChunk is a chunk that leaves its offer with the fetch, because the chunk was offered for the fetch's
// request, or because the fetch reads the chunk from an offer that names no request.
type offeredChunk struct {
	offer table.Handle
	item  uint32
}

// missingReason returns the reason that chunk i is neither here nor offered.
func (f *fetch) missingReason(i int) effects.Why {
	return effects.Why{
		Stage: effects.StageMemory, Field: "chunk " + strconv.Itoa(i) + " of " + strconv.Itoa(len(f.keyEnds)),
		Theirs: "neither here nor offered",
	}
}

func (f *fetch) keyAt(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = f.keyEnds[i-1]
	}
	return f.keys[from:f.keyEnds[i]]
}

// findEntry returns the entry of chunk i of the fetch's trust domain, or zero.
func (f *fetch) findEntry(s *store.Store, i int) store.Entry {
	return s.Find(s.HashIn(f.realm, f.keyAt(i)), f.keyAt(i))
}

// outcomeID returns the ID under which the fetch's request has an outcome: that of the tenant of the first chunk.
func (f *fetch) outcomeID() outcomes.ID { return outcomes.IDByKey(f.request, f.keyAt(0)) }

// OnFetch inserts a Fetch, and starts it unless the fetch has to wait for chunks.
func (x *Fetches) OnFetch(
	v *env.Env, s *store.Store, d *Offers, r *outcomes.Requests, l *link.Links, t effects.Ticket, c *engine.Fetch,
) {
	h, f := x.rows.Add()
	if f == nil {
		v.Out.Mark(engine.Marks.GetsFull)
		engine.RefuseCommand(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: strconv.Itoa(x.rows.Max()) + ", and as many fetches are in progress",
			Remedy: "retry when one has ended, or raise tables.commands",
		})
		return
	}
	timeout := x.timeout
	if c.Timeout > 0 {
		timeout = min(c.Timeout, timeout)
	}
	*f = fetch{
		ticket: t, request: s.HashRequest(c.Request), realm: c.Realm, deadline: v.Now.Add(timeout), since: v.Now,
		keys: f.keys[:0], keyEnds: f.keyEnds[:0], offered: f.offered[:0],
	}
	for _, key := range c.Keys {
		f.keys = append(f.keys, key...)
		f.keyEnds = append(f.keyEnds, uint32(len(f.keys)))
	}
	v.Tickets.Add(t, kernel.Ref{Owner: kernel.OwnerDeferred, Kind: kindFetch, Subject: h})
	x.rows.PushBack(&x.waiting, h)
	v.Timers.Set(&f.timer, f.deadline, kernel.Ref{Owner: kernel.OwnerDeferred, Kind: kindFetch, Subject: h})
	x.StartFetch(v, s, d, r, l, h)
}

// StartFetch begins the fetch if all chunks can be had now, and ends the fetch if a chunk is missing and the sender
// has reported that no more of the request follows.
func (x *Fetches) StartFetch(v *env.Env, s *store.Store, d *Offers, r *outcomes.Requests, l *link.Links, h table.Handle) {
	f := x.rows.Get(h)
	n := len(f.keyEnds)
	begins := x.allKnown(v, s, d, f) && !x.lacksLink(v, s, d, l, f)
	if begins && !x.makePlan(v, s, d, l, f) {
		v.Work.SpendLooks(n)
		begins = false
	}
	if !begins {
		if f.missingIndex == n { // The fetch waits for a link to one chunk; another chunk may have left meanwhile.
			x.findMissing(v, s, d, r, f)
		}
		if f.missingIndex < n { // A chunk is missing, as found by any of the four functions above.
			x.failIfEnded(v, s, d, r, h, f)
		}
		return
	}
	v.Timers.Stop(&f.timer)
	x.stopWaiting(h)
	f.running = true
	p := &x.plan
	for i := range p.Items {
		if it := &p.Items[i]; it.Pin != 0 {
			s.PinEntry(it.Pin, f.request, v)
		}
	}
	for i := range p.Sources {
		d.get(p.Sources[i].ID).readers++
	}
	if code, why := x.pipe.OpenFetch(v, d, p); code != effects.OK {
		x.undoStart(v, s, d, h, f, code, why)
		return
	}
	if s.EvictablePages(v.StagingPool()) > 0 && x.pipe.PagesLacking() > 0 {
		x.makeStagingRoom(v, s)
		x.pipe.AdmitFetches(v, d)
	}
	v.Work.SpendRows(n)
	x.applyReports(v, s, d)
}

// findMissing looks up all chunks again, for a chunk that is neither here nor offered any more. The fetch knew
// all chunks and lacks a link to one. The look-up is made only if no more of the request follows; otherwise the
// fetch may wait for the missing chunk as it waits for the link.
//
// Example: a fetch needs A and B, and the link to the peer is down. B was in another request's offer, which ends.
// The sender has reported that the fetch's own request ended: nothing brings B, however soon the link is back.
func (x *Fetches) findMissing(v *env.Env, s *store.Store, d *Offers, r *outcomes.Requests, f *fetch) {
	if _, ended := r.OutcomeOf(v.Now, f.outcomeID()); ended {
		f.missingIndex = 0
		x.allKnown(v, s, d, f)
	}
}

// failIfEnded ends a fetch that misses a chunk, if no more of the fetch's request follows.
func (x *Fetches) failIfEnded(v *env.Env, s *store.Store, d *Offers, r *outcomes.Requests, h table.Handle, f *fetch) {
	end, ended := r.OutcomeOf(v.Now, f.outcomeID())
	if !ended {
		return
	}
	key := f.keyAt(f.missingIndex)
	v.Out.Mark(Marks.FetchOver)
	code, why := engine.MissingReason(v, s, r, s.HashIn(f.realm, key), f.request, f.outcomeID(), key)
	if why == nil {
		missing := f.missingReason(f.missingIndex)
		why = &missing
	}
	if code == effects.NotSent {
		r.SetNote(end.Class, engine.NotSentNote(v, end.Class, key, end.Key))
	}
	x.failFetch(v, s, d, h, code, *why)
}

// undoStart undoes what StartFetch did, if the pipeline refuses the fetch.
func (x *Fetches) undoStart(
	v *env.Env, s *store.Store, d *Offers, h table.Handle, f *fetch, code effects.Code, why effects.Why) {
	why.Stage = effects.StageMemory
	v.Out.Deliver(effects.Deliver{Ticket: f.ticket, Code: code, Begun: true, Why: &why})
	p := &x.plan
	for i := range p.Items {
		if it := &p.Items[i]; it.Pin != 0 {
			s.UnpinEntry(it.Pin, v)
		}
	}
	x.finishFetch(v, s, d, h, f, code)
	for i := range p.Sources {
		d.releaseReader(v, p.Sources[i].ID)
	}
}

// applyReports applies the reports of the pipeline: released sources and pages, and fetches that have ended.
func (x *Fetches) applyReports(v *env.Env, s *store.Store, d *Offers) {
	for {
		report, ok := x.pipe.Next()
		if !ok {
			return
		}
		switch report.Kind {
		case staging.SourceReleased:
			d.releaseReader(v, report.Subject)
		case staging.LocalReleased:
			s.UnpinEntry(report.Subject, v)
		case staging.Ended:
			h := v.Tickets.Find(report.Ticket).Subject
			x.finishFetch(v, s, d, h, x.rows.Get(h), report.Code)
		}
	}
}

// finishFetch removes a fetch that has its outcome, and the chunks that were offered for it leave their offers, whether
// the fetch was successful or not (M7).
func (x *Fetches) finishFetch(v *env.Env, s *store.Store, d *Offers, h table.Handle, f *fetch, code effects.Code) {
	for _, t := range f.offered {
		d.removeChunk(v, s, t.offer, t.item, code)
	}
	v.Timers.Stop(&f.timer)
	v.Tickets.Remove(f.ticket)
	f.keys, f.keyEnds, f.offered = table.TrimBytes(f.keys), table.TrimSlice(f.keyEnds), table.TrimSlice(f.offered)
	x.rows.Remove(h)
}

// failFetch ends a waiting fetch with the given code. The chunks that are kept for the request stay in their offers.
func (x *Fetches) failFetch(
	v *env.Env, s *store.Store, d *Offers, h table.Handle, code effects.Code, why effects.Why,
) {
	f := x.rows.Get(h)
	x.stopWaiting(h)
	f.offered = f.offered[:0]
	engine.RefuseCommand(v, f.ticket, code, &why)
	x.finishFetch(v, s, d, h, f, code)
}

// OnWaitTimer ends a waiting fetch at its deadline: a chunk is missing, a sender cannot be reached, or the last chunk
// arrived in this very step.
func (x *Fetches) OnWaitTimer(v *env.Env, s *store.Store, d *Offers, h table.Handle) {
	f := x.rows.Get(h)
	f.timer = 0
	code, why := effects.Expired, effects.Why{
		Stage: effects.StageMemory, Field: "pull.fetch_timeout", Ours: "over when the last chunk arrived",
	}
	for i := range f.keyEnds {
		e := f.findEntry(s, i)
		if _, ok := s.ReadyPage(e); ok {
			continue
		}
		at := d.FindLocation(v, s, e, f.request)
		if at == 0 {
			code = engine.AbsentCode(v, s, s.HashIn(f.realm, f.keyAt(i)), f.request)
			why = f.missingReason(i)
			break
		}
		offer, _ := s.OfferOf(at)
		o := d.get(offer)
		code = effects.Unreachable
		why = effects.Why{
			Name: o.senderName(v), Peer: o.Peer, Stage: effects.StagePlane, Field: "transfer_channel",
			Ours: "no way to its pages",
		}
	}
	v.Out.Mark(Marks.FetchShort)
	x.failFetch(v, s, d, h, code, why)
}

// AbortFetch ends a fetch early, and reports whether it did.
func (x *Fetches) AbortFetch(v *env.Env, s *store.Store, d *Offers, h table.Handle) bool {
	f := x.rows.Get(h)
	if !f.running {
		x.failFetch(v, s, d, h, effects.Cancelled, effects.Why{Stage: effects.StageMemory})
		return true
	}
	if !x.pipe.AbortFetch(v, f.ticket) {
		return false
	}
	x.applyReports(v, s, d)
	return true
}

// DrainPipeline makes the pipeline begin no more fetches.
func (x *Fetches) DrainPipeline() { x.pipe.BeginDrain() }

// DrainFirst ends the first waiting fetch, and reports whether there was one.
func (x *Fetches) DrainFirst(v *env.Env, s *store.Store, d *Offers) bool {
	h := x.waiting.Front()
	if h != 0 {
		x.failFetch(v, s, d, h, effects.Draining, effects.Why{Stage: effects.StageMemory})
	}
	return h != 0
}

// SweepDrain ends the fetch at a slot of the pipeline if the fetch has read nothing, and reports whether there is
// such a slot. A fetch that has read something continues until the deadline.
func (x *Fetches) SweepDrain(v *env.Env, slot int32) bool { return x.pipe.DrainAt(v, slot) }

// FinishDrained releases what was lent to the fetches that SweepDrain has ended.
func (x *Fetches) FinishDrained(v *env.Env, s *store.Store, d *Offers) { x.applyReports(v, s, d) }

// IsRunning reports whether there is such a fetch and it has begun.
func (x *Fetches) IsRunning(h table.Handle) bool {
	f := x.rows.Get(h)
	return f != nil && f.running
}

// RequestOf returns the request for which a fetch was made; 0 if the command named none.
func (x *Fetches) RequestOf(h table.Handle) uint64 { return x.rows.Get(h).request }

// FailFetchesOf ends the fetches that need an offer: all of them if request is 0, or else those for the given request.
// Fetches for other requests continue, because the lease stands until the offer's end. FailFetchesOf returns false if
// some fetches are left; then it is called again in the next step.
func (x *Fetches) FailFetchesOf(
	v *env.Env, s *store.Store, d *Offers, h table.Handle, code effects.Code, request uint64,
) (all bool) {
	ends := func(t effects.Ticket) bool {
		return request == 0 || x.rows.Get(v.Tickets.Find(t).Subject).request == request
	}
	if d.get(h).readers == 0 {
		return true
	}
	if all = x.pipe.WithdrawSource(v, h, code, ends); !all {
		v.Out.Mark(Marks.WithdrawalCut)
	}
	x.applyReports(v, s, d)
	return all
}

// CountUnfinished returns the number of fetches that have not ended.
func (x *Fetches) CountUnfinished() int { return x.waiting.Len() + x.pipe.CountUnfinished() }

// Len returns the number of fetches that wait or run.
func (x *Fetches) Len() int { return x.rows.Len() }
