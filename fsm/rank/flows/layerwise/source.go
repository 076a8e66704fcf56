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
	cfg          Config `snap:"share"`
	runs         table.Slab[run]
	byID         table.Index
	saves        table.Slab[save]
	items        table.Slab[item]
	batches      table.Slab[batch]
	undecided    int // runs without a decision how they are sent
	heldFinishes int // Finishes of ended runs with pages that are still being read
	// needsSlot says that a batch could not be sent, because there was no free slot for it.
	needsSlot bool

	carried flow.CarriedPut `snap:"scratch"`
	keyText []byte          `snap:"scratch"` // the keys of a batch
	keyEnds []int           `snap:"scratch"`
	keys    [][]byte        `snap:"scratch"`
	pages   []effects.Page  `snap:"scratch"`

	chunkItems []table.Handle `snap:"scratch"` // items of a chunk
}

// Config configures a Source, in addition to the configuration of all flows.
type Config struct {
	Settings
	Layers uint32 // layers of a chunk
	// ItemsMax limits the layers of chunks that are queued or in flight.
	ItemsMax uint32
	Seed     uint64 // a secret of the rank
}

// Recycle returns a Source without any run, and reuses the memory of f. The old f must not be used any more.
func (f *Source) Recycle(cfg Config) Source {
	return Source{
		cfg: cfg, runs: f.runs.Recycle(int(cfg.RunsMax)), byID: f.byID.Recycle(),
		// The table of saves has a row for the Finish of each run, so that each run can finish, however many Saves
		// there are.
		saves:   f.saves.Recycle(int(cfg.SavesMax + cfg.RunsMax)),
		items:   f.items.Recycle(int(kernel.ClampCount(uint64(cfg.ItemsMax) + uint64(cfg.RunsMax)*uint64(cfg.Layers)))),
		batches: f.batches.Recycle(2 * int(cfg.Carried())),
		carried: f.carried, keyText: f.keyText[:0], keyEnds: f.keyEnds[:0], keys: f.keys[:0], pages: f.pages[:0], chunkItems: f.chunkItems[:0],
	}
}

// A run is the push of a request, from Begin until the request has ended. Batches and Saves of the run may outlive
// it.
type run struct {
	id          []byte
	beginTicket effects.Ticket // ticket of the Begin
	since       effects.Time   `snap:"skip"` // when the run began; for operators and the report
	finishedAt  effects.Time   `snap:"skip"` // when its Finish was received; for the report
	trace       effects.Trace  `snap:"skip"`
	peer        engine.Peer
	// outbound is the peer in the link room; zero: nothing is sent.
	outbound table.Handle
	request  table.Handle // of the engine's request
	figures  Figures
	base     uint32 // first chunk that may be sent
	epoch    uint32
	mode     SendMode
	// savedEnds is, for each layer, the first chunk of which the layer was not saved in this epoch. The layer of all
	// chunks before was sent, is in flight or queued, or need not be sent.
	savedEnds []uint32
	keys      []byte // keys of the chunks from base on
	keyEnds   []uint32
	chunks    []chunk
	queue     table.List // items to send, grouped by chunk
	// blocked lists the items of chunks that are not open at the peer, while the peer has no room for another chunk.
	// Layers of open chunks are sent meanwhile, because the peer has reserved room for these chunks.
	blocked table.List
	// peerFull says that the peer had no room for a single chunk more, and no chunk of this run has become whole since.
	peerFull bool
	// paused says that layers of an open chunk were refused. Nothing is sent until the retry.
	paused bool
	// openLimit limits the chunks that a batch opens, after a batch was refused; 0: as many as fit in a message.
	openLimit uint32
	// opening is the batch in flight that opens chunks. There is at most one; zero: none.
	opening       table.Handle
	refusalCode   effects.Code // code of the latest refusal for lack of room
	refusalReason *effects.Why // reason of that refusal
	// retryTimer is the timer for sending again even if no chunk of this run has become whole.
	retryTimer kernel.TimerID `snap:"set"`
	batches    table.List     // batches without an outcome
	failCode   effects.Code
	why        *effects.Why
	finishSave table.Handle // the Finish, as a save; zero: not received
	chunkCount uint32       // number of chunks, set by Finish
	tailTokens uint32       // tokens of the last chunk, if that is incomplete
	timeout    effects.Duration
	// timer is the deadline of the Finish. Before the Finish it is the instant at which an idle run is dropped.
	timer kernel.TimerID `snap:"set"`
}

// A chunk is the state of a chunk in this epoch.
type chunk struct {
	lastItem table.Handle // the item that was queued last
	// opener is the batch that opens the chunk, until that batch has an outcome.
	opener         table.Handle
	grant          effects.GrantID // the grant for the first layers
	open           bool            // the peer has accepted layers of the chunk
	acceptedLayers uint32          // number of accepted layers
	wholeAtPeer    bool            // the chunk is whole at the peer
}

// A save holds the pages of a command until all of them were sent and are not read any more.
type save struct {
	engine.Op
	itemsLeft   uint32 // items that are queued or in flight
	outlivesRun bool   // a Finish: its run has ended
}

// An item is a layer of a chunk.
type item struct {
	save   table.Handle
	chunk  uint32
	layer  uint32
	page   effects.Page
	queued bool
	// savedAt is when the layer was saved, and readyBefore for how long the link to the peer had been up by then. Both are
	// for the report of the batch.
	savedAt     effects.Time     `snap:"skip"`
	readyBefore effects.Duration `snap:"skip"`
}

// A batch is a put that carries items.
type batch struct {
	run   table.Handle // the run
	epoch uint32
	// openedChunks is the number of chunks that the batch opens; 0: the batch contains layers of open chunks.
	openedChunks uint32
	put          table.Handle
	items        table.List
}

// Kinds of tickets, deadlines and puts.
const (
	kindRun   uint8 = iota + 1 // the deadline of a run, and the ticket of a Finish
	kindBatch                  // a put
	kindRetry                  // the retry of a run when the peer had no room
)

func sourceRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerLayers, Kind: kind, Subject: h}
}

// Step panics, because outcomes of puts for this flow are reported through [flow.Env.CarriedResults].
func (f *Source) Step(*flow.Env, kernel.Ref, effects.Event) {
	kernel.PanicUnexpected("the source of layers")
}

// OnCommand handles a Begin, Save, Preempt, Finish or Drop. It returns false for other commands.
func (f *Source) OnCommand(e *flow.Env, x *effects.Command) bool {
	var code effects.Code
	var why *effects.Why
	switch c := x.Body.(type) {
	case *Begin:
		code, why = f.startRun(e, x.Ticket, c)
	case *Save:
		f.saveLayer(e, x.Ticket, c)
		return true
	case *Preempt:
		code, why = f.preemptRun(e, c)
	case *Finish:
		f.finishRun(e, x.Ticket, c)
		return true
	case *Drop:
		code, why = f.dropRun(e, c)
	default:
		return false
	}
	if code != effects.OK {
		engine.RefuseCommand(&e.Env, x.Ticket, code, why)
		return true
	}
	engine.DeliverOK(&e.Env, x.Ticket)
	return true
}

func (f *Source) hashID(id []byte) uint64 { return table.Hash(f.cfg.Seed, id) }

// findRun returns the run of a request, or nil if there is none. If begin is not 0, the run must be that of the given
// Begin, because the name of a dropped run may have been used again.
func (f *Source) findRun(id []byte, begin effects.Ticket) (table.Handle, *run) {
	for p := f.byID.Find(f.hashID(id)); p.Found(); p = f.byID.Next(p) {
		if r := f.runs.Get(p.Handle()); bytes.Equal(r.id, id) && (begin == 0 || begin == r.beginTicket) {
			return p.Handle(), r
		}
	}
	return 0, nil
}

// checkComputing returns an error if r is nil or has a Finish, so that the engine cannot add to the run of request id.
func (r *run) checkComputing(id []byte) (effects.Code, *effects.Why) {
	switch {
	case r == nil:
		return effects.NotFound, noRunReason(id)
	case r.finishSave != 0:
		return effects.Invalid, invalidReason("Request", "finishing", "one whose Finish did not come")
	}
	return effects.OK, nil
}

// startRun starts a run.
func (f *Source) startRun(e *flow.Env, t effects.Ticket, c *Begin) (effects.Code, *effects.Why) {
	_, former := f.findRun(c.Request, 0)
	switch {
	case e.Draining:
		return effects.Draining, &effects.Why{}
	case len(c.Request) == 0:
		return effects.Invalid, flow.NoRequestReason()
	case len(c.Request) > e.Commands.RequestIDMax():
		return effects.TooLarge, invalidReason("Request", formatCount(len(c.Request))+" bytes",
			"at most "+formatCount(e.Commands.RequestIDMax()))
	case former != nil:
		return effects.Invalid, alreadyBegunReason(c.Request)
	case c.Peer.Host != "" && (c.Peer.InitPort == 0 || c.Peer.AllocPort == 0):
		return effects.Invalid, invalidReason("Peer", effects.SanitizeText([]byte(c.Peer.Host))+" without a port", "a host and two ports")
	case f.runs.Len()+f.heldFinishes >= int(f.cfg.RunsMax): // so that each run can finish
		e.Out.Mark(Marks.RunsFull)
		return effects.TooMany, tableFullReason("runs", f.cfg.RunsMax)
	}
	to, request := table.Handle(0), table.Handle(0)
	if c.Peer.Host == "" {
		e.Out.Mark(Marks.Nowhere)
	} else {
		// A refused Begin leaves no trace: no link is requested for it.
		if code, why := e.Commands.CheckJoin(&e.Env, c.Request); code != effects.OK {
			return code, why
		}
		if to = e.Links.AcquirePeer(&e.Env, link.PeerAddr(c.Peer)); to == 0 {
			return effects.TooMany, peersFullReason(e.Cfg.PeersMax)
		}
		request, _, _ = e.Commands.JoinRequest(&e.Env, c.Request)
		f.undecided++
	}
	h, r := f.runs.Add()
	*r = run{
		id: append(r.id[:0], c.Request...), beginTicket: t, since: e.Now, trace: c.Trace,
		peer: c.Peer, outbound: to, request: request, figures: c.Figures,
		base: c.Skip / e.Cfg.Layout.TokenCount(), epoch: 1, savedEnds: r.savedEnds[:0], keys: r.keys[:0], keyEnds: r.keyEnds[:0],
		chunks: r.chunks[:0],
	}
	for range f.cfg.Layers {
		r.savedEnds = append(r.savedEnds, r.base)
	}
	f.byID.Add(f.hashID(c.Request), h)
	f.restartIdleTimer(e, h, r)
	return effects.OK, nil
}

// restartIdleTimer restarts the time after which an idle run is dropped.
func (f *Source) restartIdleTimer(e *flow.Env, h table.Handle, r *run) {
	e.Timers.Stop(&r.timer)
	e.Timers.Set(&r.timer, e.Now.Add(f.cfg.RunTTL), sourceRef(kindRun, h))
}

// hasNoPeer reports whether the run has no peer, so that nothing is sent.
func (r *run) hasNoPeer() bool { return r.outbound == 0 }

func (r *run) keyAt(chunk uint32) []byte {
	i, from := chunk-r.base, uint32(0)
	if i > 0 {
		from = r.keyEnds[i-1]
	}
	return r.keys[from:r.keyEnds[i]]
}

func (r *run) chunkAt(at uint32) *chunk { return &r.chunks[at-r.base] }

// knownEnd returns the first chunk of which no layer was saved.
func (r *run) knownEnd() uint32 { return r.base + uint32(len(r.keyEnds)) }

// addChunk appends the key of the next chunk.
func (r *run) addChunk(key []byte) {
	r.keys = append(r.keys, key...)
	r.keyEnds = append(r.keyEnds, uint32(len(r.keys)))
	r.chunks = append(r.chunks, chunk{})
}

// preemptRun handles a Preempt: it stops all batches and begins another epoch.
func (f *Source) preemptRun(e *flow.Env, c *Preempt) (effects.Code, *effects.Why) {
	h, r := f.findRun(c.Request, c.Run)
	if code, why := r.checkComputing(c.Request); code != effects.OK {
		return code, why
	}
	e.Out.Mark(Marks.Preempted)
	f.restartIdleTimer(e, h, r)
	f.stopSending(e, r)
	r.epoch++
	for i := range r.savedEnds {
		r.savedEnds[i] = r.base
	}
	for i := range r.chunks {
		switch x := &r.chunks[i]; {
		case x.wholeAtPeer:
			e.Out.Mark(Marks.WholeStays)
		case x.open || x.opener != 0:
			e.Out.Mark(Marks.HalfSent)
			*x = chunk{}
		default:
			*x = chunk{}
		}
	}
	f.resumeRun(e, r)
	r.openLimit, r.refusalCode, r.refusalReason = 0, effects.OK, nil
	return effects.OK, nil
}

// dropRun handles a Drop: it ends the run.
func (f *Source) dropRun(e *flow.Env, c *Drop) (effects.Code, *effects.Why) {
	h, r := f.findRun(c.Request, c.Run)
	if code, why := r.checkComputing(c.Request); code != effects.OK {
		return code, why
	}
	f.discardRun(e, h, r)
	return effects.OK, nil
}

// discardRun ends a run without a Finish. The proxy is not notified.
func (f *Source) discardRun(e *flow.Env, h table.Handle, r *run) {
	f.stopSending(e, r)
	e.Commands.LeaveRequest(&e.Env, r.request, 0, effects.OK)
	f.removeRun(e, h, r)
}

// stopSending removes all queued items of a run, and cancels the batches in flight.
func (f *Source) stopSending(e *flow.Env, r *run) {
	f.items.JoinLists(&r.queue, &r.blocked)
	for h := r.queue.Front(); h != 0; h = r.queue.Front() {
		f.items.Unlink(&r.queue, h)
		f.removeItem(e, h)
	}
	for h := r.batches.Front(); h != 0; h = f.batches.Next(h) {
		e.Carrier.StopCarriedPut(e, f.batches.Get(h).put)
	}
}

// removeRun removes a run. The caller has delivered all outcomes of the run.
func (f *Source) removeRun(e *flow.Env, h table.Handle, r *run) {
	for b := r.batches.Front(); b != 0; b = r.batches.Front() {
		f.batches.Unlink(&r.batches, b)
	}
	e.Timers.Stop(&r.retryTimer)
	if e.Timers.Stop(&r.timer); !r.hasNoPeer() {
		if r.mode == Undecided {
			f.undecided--
		}
		e.Links.ReleasePeer(r.outbound)
	}
	f.byID.Remove(f.hashID(r.id), h)
	r.keys, r.keyEnds, r.chunks = table.TrimBytes(r.keys), table.TrimSlice(r.keyEnds), table.TrimSlice(r.chunks)
	f.runs.Remove(h)
}

// failRun records the failure of a run and stops its batches. If the run has a Finish, this is the outcome; otherwise
// Saves are refused until a Finish arrives.
func (f *Source) failRun(e *flow.Env, h table.Handle, r *run, code effects.Code, why *effects.Why) {
	if r.failCode != effects.OK {
		return
	}
	e.Out.Mark(Marks.RunFailed)
	r.failCode, r.why = code, why
	if f.stopSending(e, r); r.finishSave != 0 {
		f.completeRun(e, h, r)
	}
}

// removeItem removes an item. When all items of a command are gone and its outcome was delivered, the pages are
// returned to the engine.
func (f *Source) removeItem(e *flow.Env, h table.Handle) {
	x := f.items.Get(h)
	at := x.save
	f.items.Remove(h)
	s := f.saves.Get(at)
	if s.itemsLeft--; s.itemsLeft == 0 && s.IsDelivered() {
		s.ReturnPages(&e.Env)
		f.removeSave(at, s)
	}
}

func (f *Source) removeSave(h table.Handle, s *save) {
	if s.MustBeFinished(); s.outlivesRun {
		f.heldFinishes--
	}
	s.Pages = table.TrimSlice(s.Pages)
	f.saves.Remove(h)
}

// OnTimer handles the deadlines of a run.
func (f *Source) OnTimer(e *flow.Env, of kernel.Ref) {
	h := of.Subject
	r := f.runs.Get(h)
	if of.Kind == kindRetry {
		r.retryTimer = 0
		f.resumeRun(e, r)
		f.advanceRun(e, h, r)
		return
	}
	if r.timer = 0; r.finishSave != 0 {
		code, why := effects.Expired, timeoutReason(r)
		if r.refusalCode != effects.OK { // The run failed for lack of room, not of time.
			code, why = r.refusalCode, r.refusalReason
		}
		f.failRun(e, h, r, code, why)
		return
	}
	e.Out.Mark(Marks.RunForgotten)
	f.discardRun(e, h, r)
}

// OnSignal handles a change of an outbound peer: runs without a decision how they are sent are examined again.
func (f *Source) OnSignal(e *flow.Env, of kernel.Ref, s flow.Signal) {
	if s.Kind != flow.PeerChanged {
		kernel.PanicUnexpected("the source of layers")
	}
	for slot := range f.runs.Slots() {
		if f.undecided == 0 {
			return
		}
		e.Work.SpendLook()
		h := f.runs.At(slot)
		if r := f.runs.Get(h); r != nil && r.mode == Undecided && r.outbound == of.Subject {
			f.advanceRun(e, h, r)
		}
	}
}

// SendWaiting sends items that found no free slot for a batch before.
func (f *Source) SendWaiting(e *flow.Env) {
	if !f.needsSlot || !e.Carrier.HasRoom() {
		return
	}
	f.needsSlot = false
	for slot := range f.runs.Slots() {
		e.Work.SpendLook()
		h := f.runs.At(slot)
		if r := f.runs.Get(h); r != nil {
			f.advanceRun(e, h, r)
		}
	}
}

// AbortCommand ends a Finish early.
func (f *Source) AbortCommand(e *flow.Env, of kernel.Ref) bool {
	f.failRun(e, of.Subject, f.runs.Get(of.Subject), effects.Cancelled, nil)
	return true
}

// SweepDrainRun ends the run in a slot if the run has no Finish, and reports whether there is a slot of this number.
func (f *Source) SweepDrainRun(e *flow.Env, slot int32) bool {
	h := f.runs.At(slot)
	if r := f.runs.Get(h); r != nil && r.finishSave == 0 {
		e.Out.Mark(Marks.RunDrained)
		e.Work.SpendRows(1 + r.queue.Len() + r.blocked.Len())
		f.discardRun(e, h, r)
	}
	return slot < f.runs.Slots()
}

// CountUnfinished returns the number of rows that a drain waits for.
func (f *Source) CountUnfinished(*flow.Env) int {
	return f.runs.Len() + f.saves.Len() + f.batches.Len()
}

// Len returns the number of runs.
func (f *Source) Len() int { return f.runs.Len() }

// VisitTables reports the sizes of the tables.
func (f *Source) VisitTables(visit table.VisitFunc) {
	visit("layer runs", f.runs.Len(), table.Empty)
	visit("layer saves", f.saves.Len(), table.Empty)
	visit("layers queued", f.items.Len(), table.Empty)
	visit("layer batches", f.batches.Len(), table.Empty)
}

// The states of a run.
const (
	runNone = iota
	runComputing
	runFailed
	runFinishing
)

// StateNames returns the names of the states.
func StateNames() []string { return []string{"no run", "run computing", "run failed", "run finishing"} }

// RowState returns the state of the run of a Ref.
func (f *Source) RowState(_ *flow.Rooms, of kernel.Ref) uint16 {
	switch r := f.runs.Get(of.Subject); {
	case r == nil:
		return runNone
	case r.finishSave != 0:
		return runFinishing
	case r.failCode != effects.OK:
		return runFailed
	}
	return runComputing
}
