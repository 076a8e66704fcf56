package layerwise

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

var _ flow.Flow = (*Source)(nil)

// A Source is who pushes layer by layer.
type Source struct {
	cfg     Config `snap:"share"`
	runs    table.Slab[run]
	byID    table.Index
	saves   table.Slab[save]
	items   table.Slab[item]
	batches table.Slab[batch]
	waiting int  // runs whose way is not decided
	held    int  // Finishes of runs that have ended, of which pages are read still
	stuck   bool // a batch found no room

	put  flow.Carried   `snap:"scratch"`
	text []byte         `snap:"scratch"` // of the keys of a batch
	ends []int          `snap:"scratch"`
	keys [][]byte       `snap:"scratch"`
	page []effects.Page `snap:"scratch"`

	chunk []table.Handle `snap:"scratch"` // items of one
}

// Config is what a Source goes by, beside what all flows do.
type Config struct {
	Settings
	Layers   uint32 // of a chunk
	ItemsMax uint32 // layers of chunks that are queued or in flight
	Seed     uint64 // a secret of the rank
}

// Emptied returns a Source without any run, in the memory of f, which is not used any more.
func (f *Source) Emptied(cfg Config) Source {
	return Source{
		cfg: cfg, runs: f.runs.Emptied(int(cfg.RunsMax)), byID: f.byID.Emptied(), // Each run can finish, whatever is saved.
		saves:   f.saves.Emptied(int(cfg.SavesMax + cfg.RunsMax)),
		items:   f.items.Emptied(int(kernel.Clamped(uint64(cfg.ItemsMax) + uint64(cfg.RunsMax)*uint64(cfg.Layers)))),
		batches: f.batches.Emptied(2 * int(cfg.Carried())),
		put:     f.put, text: f.text[:0], ends: f.ends[:0], keys: f.keys[:0], page: f.page[:0], chunk: f.chunk[:0],
	}
}

// A run is one request, from Begin until it has ended. Batches and Saves may be left of it then.
type run struct {
	id      []byte
	begin   effects.Ticket // of its Begin
	peer    engine.Peer
	to      table.Handle // of the link room; zero: nobody
	request table.Handle // of the engine's
	figures Figures
	base    uint32 // the first chunk that may go
	epoch   uint32
	way     Way
	sent    []uint32 // by layer: chunks before this one need not go any more, or are under way
	keys    []byte   // of chunks, from base on
	ends    []uint32
	chunks  []chunk
	queue   table.List // items that are to go, all of a chunk together
	// shut are items of chunks that are not open at the peer, while that has no room for one more. Layers of open chunks
	// go on meanwhile: room was promised for them.
	shut     table.List
	full     bool           // the peer had no room for a single chunk more, and none of ours has become whole since
	paused   bool           // layers of an open chunk were refused: nothing goes for a moment
	narrow   uint32         // the most chunks that a batch opens, after one was refused; 0: as many as fit a message
	opening  table.Handle   // the batch in flight that opens chunks: there is one at most; zero: none
	refusal  effects.Code   // of that
	said     *effects.Why   // and what was said of it
	retry    kernel.TimerID `snap:"set"` // when it is tried again though nothing of ours has become whole
	batches  table.List     // without an outcome
	failed   effects.Code
	why      *effects.Why
	finish   table.Handle // the Finish, as a save; zero: none came
	total    uint32       // chunks in all, then
	tokens   uint32       // of the last one
	patience effects.Duration
	timer    kernel.TimerID `snap:"set"` // when it must have finished, or is forgotten
}

// A chunk is how far one is, in this epoch.
type chunk struct {
	last   table.Handle    // the item of it that was queued last
	opener table.Handle    // the batch that opens it, until that has its outcome
	grant  effects.GrantID // under which its first layers went
	open   bool            // layers of it were taken
	taken  uint32          // how many
	there  bool            // it is whole at the other end, or was there
}

// A save is the pages of a command that go, or have gone and are read still.
type save struct {
	engine.Op
	left     uint32 // items
	outlives bool   // its run, which it was to finish
}

// An item is one layer of one chunk.
type item struct {
	save   table.Handle
	chunk  uint32
	layer  uint32
	page   effects.Page
	queued bool
}

// A batch is a put that carries items.
type batch struct {
	of    table.Handle // its run
	epoch uint32
	opens uint32 // chunks that it opens; 0: layers of open ones
	put   table.Handle
	items table.List
}

// Kinds of tickets, deadlines and what is carried.
const (
	kindRun   uint8 = iota + 1 // the deadline of a run, and the ticket of its Finish
	kindBatch                  // what is carried
	kindRetry                  // when a run looks again whether its peer has room
)

func ref(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerLayers, Kind: kind, Subject: h}
}

// Step panics: what is carried for this flow is reported through [flow.Env.Told].
func (f *Source) Step(*flow.Env, kernel.Ref, effects.Event) { kernel.Foreign("the source of layers") }

// Command takes a Begin, Save, Preempt, Finish or Drop.
func (f *Source) Command(e *flow.Env, x *effects.Command) bool {
	var code effects.Code
	var why *effects.Why
	switch c := x.Body.(type) {
	case *Begin:
		code, why = f.begin(e, x.Ticket, c)
	case *Save:
		f.save(e, x.Ticket, c)
		return true
	case *Preempt:
		code, why = f.preempt(e, c)
	case *Finish:
		f.take(e, x.Ticket, c)
		return true
	case *Drop:
		code, why = f.drop(e, c)
	default:
		return false
	}
	if code != effects.OK {
		engine.TurnDown(&e.Env, x.Ticket, code, why)
		return true
	}
	engine.Agree(&e.Env, x.Ticket)
	return true
}

func (f *Source) hash(id []byte) uint64 { return table.Hash(f.cfg.Seed, id) }

// find is the run of a request, if it is the one that a Begin began; nil: there is none. One that was forgotten may
// have another's name by now.
func (f *Source) find(id []byte, begin effects.Ticket) (table.Handle, *run) {
	for p := f.byID.Seek(f.hash(id)); p.Found(); p = f.byID.Next(p) {
		if r := f.runs.Get(p.Handle()); bytes.Equal(r.id, id) && (begin == 0 || begin == r.begin) {
			return p.Handle(), r
		}
	}
	return 0, nil
}

// computing says whether more may come of a run, which is that of a request.
func (r *run) computing(id []byte) (effects.Code, *effects.Why) {
	switch {
	case r == nil:
		return effects.NotFound, noRun(id)
	case r.finish != 0:
		return effects.Invalid, invalid("Request", "finishing", "one whose Finish did not come")
	}
	return effects.OK, nil
}

// begin begins with a run.
func (f *Source) begin(e *flow.Env, t effects.Ticket, c *Begin) (effects.Code, *effects.Why) {
	_, former := f.find(c.Request, 0)
	switch {
	case e.Draining:
		return effects.Draining, &effects.Why{}
	case len(c.Request) == 0:
		return effects.Invalid, flow.NoRequest()
	case len(c.Request) > e.Commands.RequestIDMax():
		return effects.TooLarge, invalid("Request", number(len(c.Request))+" bytes",
			"at most "+number(e.Commands.RequestIDMax()))
	case former != nil:
		return effects.Invalid, begun(c.Request)
	case c.Peer.Host != "" && (c.Peer.InitPort == 0 || c.Peer.AllocPort == 0):
		return effects.Invalid, invalid("Peer", effects.Words([]byte(c.Peer.Host))+" without a port", "a host and two ports")
	case f.runs.Len()+f.held >= int(f.cfg.RunsMax): // So that each can finish.
		e.Out.Mark(Marks.RunsFull)
		return effects.TooMany, full("runs", f.cfg.RunsMax)
	}
	to, request := table.Handle(0), table.Handle(0)
	if c.Peer.Host == "" {
		e.Out.Mark(Marks.Nowhere)
	} else {
		// Whoever is refused leaves no trace: nobody is called for it.
		if code, why := e.Commands.MayEnter(&e.Env, c.Request); code != effects.OK {
			return code, why
		}
		if to = e.Links.Want(&e.Env, link.Where(c.Peer)); to == 0 {
			return effects.TooMany, peersFull(e.Cfg.PeersMax)
		}
		request, _, _ = e.Commands.Enter(&e.Env, c.Request)
		f.waiting++
	}
	h, r := f.runs.Add()
	*r = run{
		id: append(r.id[:0], c.Request...), begin: t, peer: c.Peer, to: to, request: request, figures: c.Figures,
		base: c.Skip / e.Cfg.Layout.Tokens(), epoch: 1, sent: r.sent[:0], keys: r.keys[:0], ends: r.ends[:0],
		chunks: r.chunks[:0],
	}
	for range f.cfg.Layers {
		r.sent = append(r.sent, r.base)
	}
	f.byID.Add(f.hash(c.Request), h)
	f.live(e, h, r)
	return effects.OK, nil
}

// live has a run stand for a while of which nothing is heard.
func (f *Source) live(e *flow.Env, h table.Handle, r *run) {
	e.Timers.Stop(&r.timer)
	e.Timers.Set(&r.timer, e.Now.Add(f.cfg.RunTTL), ref(kindRun, h))
}

// nowhere says that nothing of a run goes.
func (r *run) nowhere() bool { return r.to == 0 }

func (r *run) key(chunk uint32) []byte {
	i, from := chunk-r.base, uint32(0)
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.keys[from:r.ends[i]]
}

func (r *run) chunk(at uint32) *chunk { return &r.chunks[at-r.base] }

// known is the first chunk of which no layer was saved.
func (r *run) known() uint32 { return r.base + uint32(len(r.ends)) }

// know notes the key of the next chunk.
func (r *run) know(key []byte) {
	r.keys = append(r.keys, key...)
	r.ends = append(r.ends, uint32(len(r.keys)))
	r.chunks = append(r.chunks, chunk{})
}

// preempt begins another epoch.
func (f *Source) preempt(e *flow.Env, c *Preempt) (effects.Code, *effects.Why) {
	h, r := f.find(c.Request, c.Run)
	if code, why := r.computing(c.Request); code != effects.OK {
		return code, why
	}
	e.Out.Mark(Marks.Preempted)
	f.live(e, h, r)
	f.halt(e, r)
	r.epoch++
	for i := range r.sent {
		r.sent[i] = r.base
	}
	for i := range r.chunks {
		switch x := &r.chunks[i]; {
		case x.there:
			e.Out.Mark(Marks.WholeStays)
		case x.open || x.opener != 0:
			e.Out.Mark(Marks.HalfSent)
			*x = chunk{}
		default:
			*x = chunk{}
		}
	}
	f.reopen(e, r)
	r.narrow, r.refusal, r.said = 0, effects.OK, nil
	return effects.OK, nil
}

// drop ends a run of which nothing more is to go.
func (f *Source) drop(e *flow.Env, c *Drop) (effects.Code, *effects.Why) {
	h, r := f.find(c.Request, c.Run)
	if code, why := r.computing(c.Request); code != effects.OK {
		return code, why
	}
	f.forget(e, h, r)
	return effects.OK, nil
}

// forget ends a run that has no Finish. The proxy is not told.
func (f *Source) forget(e *flow.Env, h table.Handle, r *run) {
	f.halt(e, r)
	e.Commands.Leave(&e.Env, r.request, 0, effects.OK)
	f.end(e, h, r)
}

// halt takes back what is queued of a run, and stops what is in flight.
func (f *Source) halt(e *flow.Env, r *run) {
	f.items.Join(&r.queue, &r.shut)
	for h := r.queue.Front(); h != 0; h = r.queue.Front() {
		f.items.Unlink(&r.queue, h)
		f.back(e, h)
	}
	for h := r.batches.Front(); h != 0; h = f.batches.Next(h) {
		e.Carrier.Stop(e, f.batches.Get(h).put)
	}
}

// end removes a run that owes no outcome.
func (f *Source) end(e *flow.Env, h table.Handle, r *run) {
	for b := r.batches.Front(); b != 0; b = r.batches.Front() {
		f.batches.Unlink(&r.batches, b)
	}
	e.Timers.Stop(&r.retry)
	if e.Timers.Stop(&r.timer); !r.nowhere() {
		if r.way == Undecided {
			f.waiting--
		}
		e.Links.Unwant(r.to)
	}
	f.byID.Remove(f.hash(r.id), h)
	r.keys, r.ends, r.chunks = table.ShedBytes(r.keys), table.Shed(r.ends), table.Shed(r.chunks)
	f.runs.Remove(h)
}

// fail ends what a run has under way. A Finish ends so; until it comes Saves are refused.
func (f *Source) fail(e *flow.Env, h table.Handle, r *run, code effects.Code, why *effects.Why) {
	if r.failed != effects.OK {
		return
	}
	e.Out.Mark(Marks.RunFailed)
	r.failed, r.why = code, why
	if f.halt(e, r); r.finish != 0 {
		f.conclude(e, h, r)
	}
}

// back gives an item's page back to the command that it came with, which is the engine's again with its last one.
func (f *Source) back(e *flow.Env, h table.Handle) {
	x := f.items.Get(h)
	at := x.save
	f.items.Remove(h)
	s := f.saves.Get(at)
	if s.left--; s.left == 0 && s.Delivered() {
		s.Return(&e.Env)
		f.over(at, s)
	}
}

func (f *Source) over(h table.Handle, s *save) {
	if s.MustBeOver(); s.outlives {
		f.held--
	}
	s.Pages = table.Shed(s.Pages)
	f.saves.Remove(h)
}

// Due handles the deadline of a run.
func (f *Source) Due(e *flow.Env, of kernel.Ref) {
	h := of.Subject
	r := f.runs.Get(h)
	if of.Kind == kindRetry {
		r.retry = 0
		f.reopen(e, r)
		f.flush(e, h, r)
		return
	}
	if r.timer = 0; r.finish != 0 {
		code, why := effects.Expired, outOfTime(r)
		if r.refusal != effects.OK { // Time was not what it lacked.
			code, why = r.refusal, r.said
		}
		f.fail(e, h, r, code, why)
		return
	}
	e.Out.Mark(Marks.RunForgotten)
	f.forget(e, h, r)
}

// Signal is told that an outbound peer changed: who waits to know how its peer takes layers looks again.
func (f *Source) Signal(e *flow.Env, of kernel.Ref, s flow.Signal) {
	if s.Kind != flow.Changed {
		kernel.Foreign("who pushes layers")
	}
	for slot := range f.runs.Slots() {
		if f.waiting == 0 {
			return
		}
		e.Work.Look()
		h := f.runs.At(slot)
		if r := f.runs.Get(h); r != nil && r.way == Undecided && r.to == of.Subject {
			f.flush(e, h, r)
		}
	}
}

// GoOn sends what found no room before.
func (f *Source) GoOn(e *flow.Env) {
	if !f.stuck || !e.Carrier.Room() {
		return
	}
	f.stuck = false
	for slot := range f.runs.Slots() {
		e.Work.Look()
		h := f.runs.At(slot)
		if r := f.runs.Get(h); r != nil {
			f.flush(e, h, r)
		}
	}
}

// Abort ends a Finish early.
func (f *Source) Abort(e *flow.Env, of kernel.Ref) bool {
	f.fail(e, of.Subject, f.runs.Get(of.Subject), effects.Cancelled, nil)
	return true
}

// DrainRunAt ends the run at a slot if it has no Finish, and says whether there is such a slot.
func (f *Source) DrainRunAt(e *flow.Env, slot int32) bool {
	h := f.runs.At(slot)
	if r := f.runs.Get(h); r != nil && r.finish == 0 {
		e.Out.Mark(Marks.RunDrained)
		e.Work.Spend(1 + r.queue.Len() + r.shut.Len())
		f.forget(e, h, r)
	}
	return slot < f.runs.Slots()
}

// Left counts what a drain waits for.
func (f *Source) Left(*flow.Env) int { return f.runs.Len() + f.saves.Len() + f.batches.Len() }

// Len is the number of runs.
func (f *Source) Len() int { return f.runs.Len() }

// Tables shows what there is.
func (f *Source) Tables(visit table.Visit) {
	visit("layer runs", f.runs.Len(), table.Empty)
	visit("layer saves", f.saves.Len(), table.Empty)
	visit("layers queued", f.items.Len(), table.Empty)
	visit("layer batches", f.batches.Len(), table.Empty)
}

// The states of a run.
const (
	runGone = iota
	runComputing
	runFailed
	runFinishing
)

// StateNames are their names.
func StateNames() []string { return []string{"no run", "run computing", "run failed", "run finishing"} }

// State is where the run of a Ref stands.
func (f *Source) State(_ *flow.Rooms, of kernel.Ref) uint16 {
	switch r := f.runs.Get(of.Subject); {
	case r == nil:
		return runGone
	case r.finish != 0:
		return runFinishing
	case r.failed != effects.OK:
		return runFailed
	}
	return runComputing
}
