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

// A Source is the flow that pushes requests layer by layer.
type Source struct {
	cfg     Config `snap:"share"`
	runs    table.Slab[run]
	byID    table.Index
	saves   table.Slab[save]
	items   table.Slab[item]
	batches table.Slab[batch]
	waiting int // runs without a decision how they are sent
	held    int // Finishes of ended runs with pages that are still being read
	// stuck says that a batch could not be sent, because there was no free slot for it.
	stuck bool

	put  flow.Carried   `snap:"scratch"`
	text []byte         `snap:"scratch"` // the keys of a batch
	ends []int          `snap:"scratch"`
	keys [][]byte       `snap:"scratch"`
	page []effects.Page `snap:"scratch"`

	chunk []table.Handle `snap:"scratch"` // items of a chunk
}

// Config configures a Source, in addition to the configuration of all flows.
type Config struct {
	Settings
	Layers uint32 // layers of a chunk
	// ItemsMax limits the layers of chunks that are queued or in flight.
	ItemsMax uint32
	Seed     uint64 // a secret of the rank
}

// Emptied returns a Source without any run, and reuses the memory of f. The old f must not be used any more.
func (f *Source) Emptied(cfg Config) Source {
	return Source{
		cfg: cfg, runs: f.runs.Emptied(int(cfg.RunsMax)), byID: f.byID.Emptied(),
		// The table of saves has a row for the Finish of each run, so that each run can finish, however many Saves
		// there are.
		saves:   f.saves.Emptied(int(cfg.SavesMax + cfg.RunsMax)),
		items:   f.items.Emptied(int(kernel.Clamped(uint64(cfg.ItemsMax) + uint64(cfg.RunsMax)*uint64(cfg.Layers)))),
		batches: f.batches.Emptied(2 * int(cfg.Carried())),
		put:     f.put, text: f.text[:0], ends: f.ends[:0], keys: f.keys[:0], page: f.page[:0], chunk: f.chunk[:0],
	}
}

// A run is the push of a request, from Begin until the request has ended. Batches and Saves of the run may outlive
// it.
type run struct {
	id    []byte
	begin effects.Ticket // ticket of the Begin
	peer  engine.Peer
	// to is the peer in the link room; zero: nothing is sent.
	to      table.Handle
	request table.Handle // of the engine's request
	figures Figures
	base    uint32 // first chunk that may be sent
	epoch   uint32
	way     Way
	// sent is, for each layer, the first chunk of which the layer was not saved in this epoch. The layer of all
	// chunks before was sent, is in flight or queued, or need not be sent.
	sent   []uint32
	keys   []byte // keys of the chunks from base on
	ends   []uint32
	chunks []chunk
	queue  table.List // items to send, grouped by chunk
	// shut lists the items of chunks that are not open at the peer, while the peer has no room for another chunk.
	// Layers of open chunks are sent meanwhile, because the peer has reserved room for these chunks.
	shut table.List
	// full says that the peer had no room for a single chunk more, and no chunk of this run has become whole since.
	full bool
	// paused says that layers of an open chunk were refused. Nothing is sent until the retry.
	paused bool
	// narrow limits the chunks that a batch opens, after a batch was refused; 0: as many as fit in a message.
	narrow uint32
	// opening is the batch in flight that opens chunks. There is at most one; zero: none.
	opening table.Handle
	refusal effects.Code // code of the latest refusal for lack of room
	said    *effects.Why // reason of that refusal
	// retry is the timer for sending again even if no chunk of this run has become whole.
	retry    kernel.TimerID `snap:"set"`
	batches  table.List     // batches without an outcome
	failed   effects.Code
	why      *effects.Why
	finish   table.Handle // the Finish, as a save; zero: not received
	total    uint32       // number of chunks, set by Finish
	tokens   uint32       // tokens of the last chunk, if that is incomplete
	patience effects.Duration
	// timer is the deadline of the Finish. Before the Finish it is the instant at which an idle run is dropped.
	timer kernel.TimerID `snap:"set"`
}

// A chunk is the state of a chunk in this epoch.
type chunk struct {
	last table.Handle // the item that was queued last
	// opener is the batch that opens the chunk, until that batch has an outcome.
	opener table.Handle
	grant  effects.GrantID // the grant for the first layers
	open   bool            // the peer has accepted layers of the chunk
	taken  uint32          // number of accepted layers
	there  bool            // the chunk is whole at the peer
}

// A save holds the pages of a command until all of them were sent and are not read any more.
type save struct {
	engine.Op
	left     uint32 // items that are queued or in flight
	outlives bool   // a Finish: its run has ended
}

// An item is a layer of a chunk.
type item struct {
	save   table.Handle
	chunk  uint32
	layer  uint32
	page   effects.Page
	queued bool
}

// A batch is a put that carries items.
type batch struct {
	of    table.Handle // the run
	epoch uint32
	// opens is the number of chunks that the batch opens; 0: the batch contains layers of open chunks.
	opens uint32
	put   table.Handle
	items table.List
}

// Kinds of tickets, deadlines and puts.
const (
	kindRun   uint8 = iota + 1 // the deadline of a run, and the ticket of a Finish
	kindBatch                  // a put
	kindRetry                  // the retry of a run when the peer had no room
)

func ref(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerLayers, Kind: kind, Subject: h}
}

// Step panics, because outcomes of puts for this flow are reported through [flow.Env.Told].
func (f *Source) Step(*flow.Env, kernel.Ref, effects.Event) { kernel.Foreign("the source of layers") }

// Command handles a Begin, Save, Preempt, Finish or Drop. It returns false for other commands.
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

// find returns the run of a request, or nil if there is none. If begin is not 0, the run must be that of the given
// Begin, because the name of a dropped run may have been used again.
func (f *Source) find(id []byte, begin effects.Ticket) (table.Handle, *run) {
	for p := f.byID.Seek(f.hash(id)); p.Found(); p = f.byID.Next(p) {
		if r := f.runs.Get(p.Handle()); bytes.Equal(r.id, id) && (begin == 0 || begin == r.begin) {
			return p.Handle(), r
		}
	}
	return 0, nil
}

// computing returns an error if r is nil or has a Finish, so that the engine cannot add to the run of request id.
func (r *run) computing(id []byte) (effects.Code, *effects.Why) {
	switch {
	case r == nil:
		return effects.NotFound, noRun(id)
	case r.finish != 0:
		return effects.Invalid, invalid("Request", "finishing", "one whose Finish did not come")
	}
	return effects.OK, nil
}

// begin starts a run.
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
	case f.runs.Len()+f.held >= int(f.cfg.RunsMax): // so that each run can finish
		e.Out.Mark(Marks.RunsFull)
		return effects.TooMany, full("runs", f.cfg.RunsMax)
	}
	to, request := table.Handle(0), table.Handle(0)
	if c.Peer.Host == "" {
		e.Out.Mark(Marks.Nowhere)
	} else {
		// A refused Begin leaves no trace: no link is requested for it.
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

// live restarts the time after which an idle run is dropped.
func (f *Source) live(e *flow.Env, h table.Handle, r *run) {
	e.Timers.Stop(&r.timer)
	e.Timers.Set(&r.timer, e.Now.Add(f.cfg.RunTTL), ref(kindRun, h))
}

// nowhere reports whether the run has no peer, so that nothing is sent.
func (r *run) nowhere() bool { return r.to == 0 }

func (r *run) key(chunk uint32) []byte {
	i, from := chunk-r.base, uint32(0)
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.keys[from:r.ends[i]]
}

func (r *run) chunk(at uint32) *chunk { return &r.chunks[at-r.base] }

// known returns the first chunk of which no layer was saved.
func (r *run) known() uint32 { return r.base + uint32(len(r.ends)) }

// know appends the key of the next chunk.
func (r *run) know(key []byte) {
	r.keys = append(r.keys, key...)
	r.ends = append(r.ends, uint32(len(r.keys)))
	r.chunks = append(r.chunks, chunk{})
}

// preempt handles a Preempt: it stops all batches and begins another epoch.
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

// drop handles a Drop: it ends the run.
func (f *Source) drop(e *flow.Env, c *Drop) (effects.Code, *effects.Why) {
	h, r := f.find(c.Request, c.Run)
	if code, why := r.computing(c.Request); code != effects.OK {
		return code, why
	}
	f.forget(e, h, r)
	return effects.OK, nil
}

// forget ends a run without a Finish. The proxy is not notified.
func (f *Source) forget(e *flow.Env, h table.Handle, r *run) {
	f.halt(e, r)
	e.Commands.Leave(&e.Env, r.request, 0, effects.OK)
	f.end(e, h, r)
}

// halt removes all queued items of a run, and cancels the batches in flight.
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

// end removes a run. The caller has delivered all outcomes of the run.
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

// fail records the failure of a run and stops its batches. If the run has a Finish, this is the outcome; otherwise
// Saves are refused until a Finish arrives.
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

// back removes an item. When all items of a command are gone and its outcome was delivered, the pages are returned to
// the engine.
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

// Due handles the deadlines of a run.
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
		if r.refusal != effects.OK { // The run failed for lack of room, not of time.
			code, why = r.refusal, r.said
		}
		f.fail(e, h, r, code, why)
		return
	}
	e.Out.Mark(Marks.RunForgotten)
	f.forget(e, h, r)
}

// Signal handles a change of an outbound peer: runs without a decision how they are sent are examined again.
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

// GoOn sends items that found no free slot for a batch before.
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

// DrainRunAt ends the run in a slot if the run has no Finish, and reports whether there is a slot of this number.
func (f *Source) DrainRunAt(e *flow.Env, slot int32) bool {
	h := f.runs.At(slot)
	if r := f.runs.Get(h); r != nil && r.finish == 0 {
		e.Out.Mark(Marks.RunDrained)
		e.Work.Spend(1 + r.queue.Len() + r.shut.Len())
		f.forget(e, h, r)
	}
	return slot < f.runs.Slots()
}

// Left returns the number of rows that a drain waits for.
func (f *Source) Left(*flow.Env) int { return f.runs.Len() + f.saves.Len() + f.batches.Len() }

// Len returns the number of runs.
func (f *Source) Len() int { return f.runs.Len() }

// Tables reports the sizes of the tables.
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

// StateNames returns the names of the states.
func StateNames() []string { return []string{"no run", "run computing", "run failed", "run finishing"} }

// State returns the state of the run of a Ref.
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
