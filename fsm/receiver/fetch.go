package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pipeline"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
)

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
		Stage: effects.StageMemory, Field: "chunk " + number(i) + " of " + number(len(f.ends)),
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

// OnFetch handles a Fetch.
func (r *Receiver) OnFetch(v *env.Env, l *link.Links, t effects.Ticket, c *Fetch) {
	code, why := r.checkKeys(c.Keys)
	if code == effects.OK {
		code, why = waitable("Patience", c.Patience)
	}
	if code != effects.OK {
		turnDown(v, t, code, why)
		return
	}
	h, f := r.fetches.Add()
	if f == nil {
		v.Out.Mark(MarkGetsFull)
		turnDown(v, t, effects.TooMany, &effects.Why{
			Field: "tables.commands", Ours: number(r.cfg.Pipeline.FetchesMax) + ", and as many fetches are in progress",
			Remedy: "retry when one has ended, or raise tables.commands",
		})
		return
	}
	patience := r.cfg.FetchTimeout
	if c.Patience > 0 {
		patience = min(c.Patience, patience)
	}
	*f = fetch{ticket: t, request: requestHash(&r.Store, c.Request), keys: f.keys[:0], ends: f.ends[:0], takes: f.takes[:0], deadline: v.Now.Add(patience)}
	for _, key := range c.Keys {
		f.keys = append(f.keys, key...)
		f.ends = append(f.ends, uint32(len(f.keys)))
	}
	r.byFetch.Add(ticketHash(t), h)
	r.fetches.PushBack(&r.fetching, h)
	v.Timers.Set(&f.timer, f.deadline, timerRef(timerFetch, h))
	r.start(v, l, h, f)
}

// start begins the fetch if everything that it needs is there.
func (r *Receiver) start(v *env.Env, l *link.Links, h table.Handle, f *fetch) {
	if !r.known(v, f) || r.outOfReach(v, l, f) || !r.resolve(v, l, f) {
		return
	}
	v.Timers.Stop(&f.timer)
	r.fetches.Unlink(&r.fetching, h)
	f.running = true
	p := &r.plan
	for i := range p.Items {
		if it := &p.Items[i]; it.Pin != 0 {
			r.Store.Pin(it.Pin, f.request, v, claimRef)
		}
	}
	for i := range p.Sources {
		r.offers.Get(p.Sources[i].ID).readers++
	}
	if code, why := r.Pipe.Open(v, p); code != effects.OK {
		r.refuseFetch(v, h, f, code, why)
		return
	}
	if r.Store.Spare() > 0 && r.Pipe.Lacks() > 0 {
		r.stage(v)
		r.Pipe.Admit(v)
	}
	r.settleFetches(v)
}

// refuseFetch takes back what start did, where the pipeline would not have it.
func (r *Receiver) refuseFetch(v *env.Env, h table.Handle, f *fetch, code effects.Code, why effects.Why) {
	why.Stage = effects.StageMemory
	v.Out.Deliver(effects.Deliver{Ticket: f.ticket, Code: code, Begun: true, Why: &why})
	p := &r.plan
	for i := range p.Items {
		if it := &p.Items[i]; it.Pin != 0 {
			r.Store.Unpin(it.Pin, v)
		}
	}
	r.ended(v, h, f, code)
	for i := range p.Sources {
		r.released(v, p.Sources[i].ID)
	}
}

// known says whether there may be all chunks. It goes on from the one that was missing: those before it are looked at
// again once the last one is known.
func (r *Receiver) known(v *env.Env, f *fetch) bool {
	for ; f.from < len(f.ends); f.from++ {
		e := r.Store.Find(r.Store.Hash(f.key(f.from)), f.key(f.from))
		if _, ok := r.Store.Ready(e); !ok && r.place(v, e, f.request) == 0 {
			return false
		}
	}
	return true
}

// outOfReach says whether there is still no way to one of the chunks, of a fetch that was resolved before. As known
// does, it goes on from the one that was missing: else all of them would be looked up again whenever anything comes.
func (r *Receiver) outOfReach(v *env.Env, l *link.Links, f *fetch) bool {
	if f.stuck == 0 {
		return false
	}
	for ; f.stuck <= len(f.ends); f.stuck++ {
		key := f.key(f.stuck - 1)
		e := r.Store.Find(r.Store.Hash(key), key)
		if _, ok := r.Store.Ready(e); ok {
			continue
		}
		at := r.place(v, e, f.request)
		if at == 0 {
			f.from = f.stuck - 1
			return true
		}
		if offer, _ := r.Store.Offered(at); l.Reach(v, r.offers.Get(offer).class) == 0 {
			return true
		}
	}
	f.stuck = 0
	return false
}

// resolve finds out where each chunk is, into r.plan, and says whether all can be had now.
func (r *Receiver) resolve(v *env.Env, l *link.Links, f *fetch) bool {
	p := &r.plan
	*p = pipeline.Fetch{Ticket: f.ticket, Deadline: f.deadline, Items: p.Items[:0], Sources: p.Sources[:0]}
	f.takes = f.takes[:0]
	r.resolved++
	all := true
	for i := range f.ends {
		key := f.key(i)
		e := r.Store.Find(r.Store.Hash(key), key)
		f.takes = r.offeredFor(f.request, e, f.takes)
		if page, ok := r.Store.Ready(e); ok {
			p.Items = append(p.Items, pipeline.Item{Local: page, Pin: e})
			continue
		}
		at := r.place(v, e, f.request)
		if at == 0 {
			f.from = i
			return false
		}
		offer, item := r.Store.Offered(at)
		o := r.offers.Get(offer)
		to := l.Reach(v, o.class)
		if to == 0 {
			if all = false; f.stuck == 0 { // All senders are reached for at once.
				f.stuck = i + 1
			}
			continue
		}
		if o.resolved != r.resolved {
			o.resolved, o.source = r.resolved, uint32(len(p.Sources))
			p.Sources = append(p.Sources, pipeline.Source{
				ID: offer, Name: v.Name(o.class), Link: to, Peer: o.peer, Grant: effects.GrantID(o.grant), Since: o.since,
				NotAfter: o.until,
			})
		}
		p.Items = append(p.Items, pipeline.Item{Source: o.source, Remote: o.items[item].remote, Length: o.items[item].length})
		if o.request == 0 {
			f.takes = append(f.takes, taken{offer, item})
		}
	}
	return all
}

// offeredFor adds the places of a chunk that leave with a fetch of this request: all that it has in offers for it,
// wherever the chunk is read. Nobody would come for the others.
func (r *Receiver) offeredFor(request uint64, e store.Entry, takes []taken) []taken {
	for at := r.Store.FirstPlace(e); at != 0; at = r.Store.NextPlace(at) {
		offer, item := r.Store.Offered(at)
		if is := r.offers.Get(offer).request; is != 0 && is == request {
			takes = append(takes, taken{offer, item})
		}
	}
	return takes
}

// place chooses where to read a chunk: what was offered for this request, else what stands longest. To read
// what is another's takes nothing from it. An offer whose lease is over is none, though that is its deadline and may
// be handled only later in this step.
func (r *Receiver) place(v *env.Env, e store.Entry, request uint64) (best store.Place) {
	longest := v.Now
	for at := r.Store.FirstPlace(e); at != 0; at = r.Store.NextPlace(at) {
		offer, _ := r.Store.Offered(at)
		o := r.offers.Get(offer)
		switch {
		case o.until <= v.Now:
		case request != 0 && o.request == request:
			return at
		case o.until > longest:
			best, longest = at, o.until
		}
	}
	return best
}

// StartFetches looks again at the fetches that wait, when something came that they may wait for.
func (r *Receiver) StartFetches(v *env.Env, l *link.Links) {
	r.Store.HeardLost() // Gets have heard of it.
	if !r.stirred {
		return
	}
	r.stirred = false
	for h := r.fetching.Front(); h != 0; {
		next := r.fetches.Next(h)
		r.start(v, l, h, r.fetches.Get(h))
		h = next
	}
	r.gets.giveUp(v, &r.Store, &r.pending) // Of what fetches took with them.
	r.Store.HeardLost()
}

// settleFetches notes what the pipeline reports.
func (r *Receiver) settleFetches(v *env.Env) {
	for {
		said, ok := r.Pipe.Next()
		if !ok {
			return
		}
		switch said.Kind {
		case pipeline.SourceReleased:
			r.released(v, said.Subject)
		case pipeline.LocalReleased:
			r.Store.Unpin(said.Subject, v)
		case pipeline.Ended:
			h := r.findFetch(said.Ticket)
			r.ended(v, h, r.fetches.Get(h), said.Code)
		}
	}
}

func (r *Receiver) released(v *env.Env, offer table.Handle) {
	o := r.offers.Get(offer)
	o.readers--
	r.maybeOver(v, offer, o)
}

// ended forgets a fetch that has its outcome: the chunks that were offered for it leave.
func (r *Receiver) ended(v *env.Env, h table.Handle, f *fetch, code effects.Code) {
	for _, t := range f.takes {
		r.leave(v, t.offer, t.item, code)
	}
	v.Timers.Stop(&f.timer)
	r.byFetch.Remove(ticketHash(f.ticket), h)
	f.keys, f.ends, f.takes = table.ShedBytes(f.keys), table.Shed(f.ends), table.Shed(f.takes)
	r.fetches.Remove(h)
}

func (r *Receiver) findFetch(t effects.Ticket) table.Handle {
	for p := r.byFetch.Seek(ticketHash(t)); p.Found(); p = r.byFetch.Next(p) {
		if r.fetches.Get(p.Handle()).ticket == t {
			return p.Handle()
		}
	}
	return 0
}

// giveUp ends a fetch that waits.
func (r *Receiver) giveUp(v *env.Env, h table.Handle, code effects.Code, why effects.Why) {
	f := r.fetches.Get(h)
	r.fetches.Unlink(&r.fetching, h)
	f.takes = f.takes[:0]
	turnDown(v, f.ticket, code, &why)
	r.ended(v, h, f, code)
}

// onFetchOver ends a fetch whose time is up before it began: a chunk is missing, or its sender out of reach, or the last
// one came in this very step.
func (r *Receiver) onFetchOver(v *env.Env, h table.Handle) {
	f := r.fetches.Get(h)
	f.timer = 0
	code, why := effects.Expired, effects.Why{
		Stage: effects.StageMemory, Field: "pull.fetch_timeout", Ours: "over as the last chunk came",
	}
	for i := range f.ends {
		e := r.Store.Find(r.Store.Hash(f.key(i)), f.key(i))
		if _, ok := r.Store.Ready(e); ok {
			continue
		}
		at := r.place(v, e, f.request)
		if at == 0 {
			code = absent(v, &r.Store, r.Store.Hash(f.key(i)), f.request)
			why = f.missing(i)
			break
		}
		offer, _ := r.Store.Offered(at)
		o := r.offers.Get(offer)
		code = effects.Unreachable
		why = effects.Why{
			Name: v.Name(o.class), Peer: o.peer, Stage: effects.StagePlane, Field: "transfer_channel",
			Ours: "no way to its pages",
		}
	}
	v.Out.Mark(MarkFetchShort)
	r.giveUp(v, h, code, why)
}

// AdmitFetches lets fetches that are short of staging pages have what became free.
func (r *Receiver) AdmitFetches(v *env.Env) {
	r.stage(v)
	r.Pipe.Admit(v)
	r.settleFetches(v)
}

// stage has a cache give up what fetches lack of staging pages, or as much of it as there is.
func (r *Receiver) stage(v *env.Env) {
	if lacks := r.Pipe.Lacks(); lacks > v.Pool.Free() && r.Store.Spare() > 0 {
		r.Store.MakeRoom(v, v.Pool, min(lacks, v.Pool.Free()+r.Store.Spare()), 0)
	}
}

// OnFetched handles the end of one of the pipeline's reads.
func (r *Receiver) OnFetched(v *env.Env, l *link.Links, ref kernel.Ref, ev *effects.TransferDone) {
	lost := effects.Link(0)
	if ev.Code == effects.PeerLost || ev.Code == effects.Stale {
		lost = r.Pipe.Link(ref)
		l.Unreach(v, lost)
	}
	r.Pipe.OnTransferDone(v, ref, ev)
	if lost != 0 {
		r.Pipe.OnLinkLost(v, lost) // It is dropped: nobody else can read over it either.
	}
	r.settleFetches(v)
}

// OnFetchSettled handles the late word that one of the pipeline's reads touches nothing any more.
func (r *Receiver) OnFetchSettled(v *env.Env, ref kernel.Ref) {
	r.Pipe.OnSettled(v, ref)
	r.settleFetches(v)
}

// OnScattered handles the end of a scatter.
func (r *Receiver) OnScattered(v *env.Env, ref kernel.Ref, ev *effects.Scattered) {
	r.Pipe.OnScattered(v, ref, ev)
	r.settleFetches(v)
}

// OnFetchTimer handles the deadlines of the pipeline.
func (r *Receiver) OnFetchTimer(v *env.Env, ref kernel.Ref) {
	r.Pipe.OnTimer(v, ref)
	r.settleFetches(v)
}

// OnLinkLost handles the end of a data-plane link: what is read over it fails, and what its sender still has for
// us is looked for at once over another one.
func (r *Receiver) OnLinkLost(v *env.Env, l *link.Links, lost effects.Link) {
	class := l.OnReachLost(v, lost)
	if class == 0 {
		return
	}
	r.Pipe.OnLinkLost(v, lost)
	r.settleFetches(v)
	for slot := range r.offers.Slots() {
		if h := r.offers.At(slot); h != 0 && r.offers.Get(h).class == class {
			l.Reach(v, class)
			return
		}
	}
}
