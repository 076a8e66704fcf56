package world

import (
	"encoding/binary"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// A plane of communicators is a leased plane as between NPUs. The hardware of a peer stores and loads by itself through
// a communicator, which can be ended only as a whole. The machines of fsm/communicator make the decisions. These files
// model their driver, as in runtime/hccl, and the hardware, which nothing can observe.

// commLink is the initiator's end of an import.
type commLink struct {
	M      communicator.Initiator
	out    communicator.Effects `snap:"scratch"`
	corr   effects.Corr
	mapped bool                 // the peer's memory is mapped here, as over HCCS
	Jobs   []uint64             // transfers that were not reported as ended, by id
	busy   bool                 // the driver is about to submit and takes no events
	late   []communicator.Event // events that occurred while busy
	Epochs []*CommEpoch         // by number-1
	batch  uint64               // number of the newest batch
	Stream []CommBatch          // batches that the hardware has, in order
	halted bool                 // the stream has failed or was aborted
	closed bool                 // this end has closed the channel
	cut    bool                 // a fault has cut the channel
	tick   uint64               `snap:"skip"`
	// targetSawEnd and unproven are state of the target: the connection has ended, and nothing has proven that the
	// initiator's hardware has stopped.
	heardEnd, unproven bool
	// lastToTarget, lastToInitiator and lastCompletion are the instants of the latest message to the target, message to
	// the initiator, and completion. Later messages and completions do not arrive before these instants and therefore stay
	// in order.
	said, heard, ends int64 `snap:"skip"`
}

// CommEpoch is the true state of an epoch, whatever the two ends assume.
type CommEpoch struct {
	Number  uint64
	Over    bool // the initiator's hardware touches nothing through the epoch any more
	aborted bool
	Fenced  bool              // by the initiator: nothing may be submitted any more
	Heard   bool              // the initiator was notified that the target fenced the epoch
	Broke   []uint64          // transfers of which a batch failed in the epoch
	Revoked []effects.GrantID // grants that the accept listed
	Since   effects.Time      // grants that were given before this count as listed, too

	formed bool // the initiator has begun to create its end
	meets  bool // the initiator waits for the target's end
	Up     bool // both ends are formed
	// Decided is set when the forming has ended, successfully or not.
	Decided bool
	Begun   bool // the target has begun to create its end
	made    bool // the target's end is created
	failed  bool // the target's end could not be created
	leaves  bool // the target's end is to be destroyed
	gone    bool // the target's end is destroyed
	led     bool // the destruction of the target's end has ended, successfully or not
	lied    bool // the initiator reported too early that its end is gone
}

// Reaches reports whether an access through an epoch may reach the target's pool.
func (c *commLink) Reaches(e *CommEpoch) bool { return e.formed && !e.Over && (c.mapped || !e.gone) }

// CommBatch is a batch in a stream.
type CommBatch struct {
	number uint64
	Epoch  uint64
	t      uint64 // id of the transfer
	first  int    // number of the first pair
	pairs  int
	broken bool // the call failed half-way
}

// Last reports whether the batch is the last batch of its transfer.
func (b CommBatch) Last(t *Transfer) bool { return b.first+b.pairs == len(t.Pairs) }

// commPages is the number of pages of a batch.
const commPages = 2

func (c *commLink) Epoch(number uint64) *CommEpoch { return c.Epochs[number-1] }

func session(l *Link) (id communicator.SessionID) {
	binary.LittleEndian.PutUint64(id[:], l.ID)
	return id
}

// CommRules returns the rules of the communicators. The rules are so tight that runs reach each limit.
func (w *World) CommRules() communicator.Rules {
	return communicator.Rules{
		Window: 1 + int(w.Seed%3), Tries: 3, Transfers: 256, AnswerTimeout: 500 * effects.Millisecond,
		ProgressTimeout: effects.Duration(200+100*(w.Seed%5)) * effects.Millisecond, Grace: 20 * effects.Millisecond,
	}
}

// commImport opens a link to a peer that was found.
func (l *Link) commImport(w *World, n *Node, corr effects.Corr) {
	c := &commLink{M: communicator.NewInitiator(w.CommRules()), corr: corr}
	c.mapped = draw.Hash(w.Seed, draw.Communicator, uint64(l.From)<<8|uint64(l.To), 0).Permille(400)
	l.Comm = c
	peer := w.Nodes[l.To]
	peer.target.tell(w, peer, communicator.TargetEvent{
		Kind: communicator.LinkArrived, Session: session(l), Peer: l.Us, From: communicator.Address{Bits: uint8(n.ID)},
		MemoryMapped: c.mapped,
	})
	if entry := peer.target.out.Admission; entry != communicator.Admitted {
		l.Lost, l.Dropped, c.closed = true, true, true
		n.inOrder(w, 0, Delivery{Kind: KindImported, A: uint64(corr), B: uint64(effects.TooMany)})
		return
	}
	l.feed(w, communicator.Event{Kind: communicator.Begin})
}

// feed passes an event to a link's machine, or keeps the event while the driver submits.
func (l *Link) feed(w *World, ev communicator.Event) {
	c := l.Comm
	if !w.Lives(l.From, l.FromLife) {
		return
	}
	if c.busy {
		c.late = append(c.late, ev)
		return
	}
	l.initiate(w, ev)
	l.pump(w)
}

// initiate passes an event to the machine and carries out the result.
func (l *Link) initiate(w *World, ev communicator.Event) {
	c, n := l.Comm, w.Nodes[l.From]
	OnEpochTold.Report(&w.Panel, n.ID, EpochTold{n, l, &ev})
	c.M.Step(w.Clock(n), &ev, &c.out)
	for _, p := range c.out.Posts {
		l.owe(w, n, p)
	}
	for _, s := range c.out.Messages {
		OnEpochSaid.Report(&w.Panel, oracle.Nobody, EpochSaid{l, s})
		l.sayTarget(w, s.Kind, s.Epoch)
	}
	if epoch := c.out.FormEpoch; epoch != 0 {
		c.Epoch(epoch).formed = true
		w.ForNode(n, l.commDraw(w).Heavy(2*w.Setting.Net), Delivery{Kind: KindCommForm, A: l.ID, B: epoch})
	}
	if d := c.out.TearDown; d.Epoch != 0 {
		l.tearDown(w, n, d)
	}
	c.out.Reset()
	if c.M.IsOver() && !c.closed {
		l.closeChannel(w)
	}
}

// pump schedules the submission of the batch that the machine wants next, or else a wake-up at the machine's deadline.
func (l *Link) pump(w *World) {
	c, n := l.Comm, w.Nodes[l.From]
	if b, ok := c.M.Next(); ok {
		c.busy = true
		t := w.Transfers[c.job(w, b.Corr)-1]
		after := l.commDraw(w).Heavy(w.Setting.Device) + t.stalled(w, b.Index)
		w.ForNode(n, after, Delivery{Kind: kindCommSubmit, A: l.ID})
		return
	}
	OnEpochPumped.Report(&w.Panel, oracle.Nobody, EpochPumped{l})
	if at, ok := c.M.Deadline(); ok {
		c.tick++
		w.ForNode(n, effects.Duration(max(n.When(at)-w.Now, 0)), Delivery{Kind: KindCommTick, A: l.ID, B: c.tick})
	}
}

// job returns the transfer of a Corr.
func (c *commLink) job(w *World, corr effects.Corr) uint64 {
	for _, id := range c.Jobs {
		if w.Transfers[id-1].Corr == corr {
			return id
		}
	}
	panic("BUG: an initiator speaks of a transfer that nobody wanted, or whose end it told")
}

func (l *Link) commDraw(w *World) draw.Of {
	l.draws++
	return draw.Hash(w.Seed, draw.Communicator, l.ID, l.draws)
}

// owe carries out a notification of the link's machine to the node's machine.
func (l *Link) owe(w *World, n *Node, p communicator.Post) {
	c := l.Comm
	switch p.Kind {
	case communicator.PostImported:
		x := Delivery{Kind: KindImported, A: uint64(c.corr), B: uint64(p.Code)}
		if p.Code == effects.OK {
			x.C = l.ID
		} else {
			l.Lost, l.Dropped = true, true
		}
		n.inOrder(w, 0, x)
	case communicator.PostTransferDone:
		id := c.job(w, p.Corr)
		t := w.Transfers[id-1]
		OnEpochEnded.Report(&w.Panel, oracle.Nobody, EpochEnded{l, t, p})
		c.Jobs = slices.DeleteFunc(c.Jobs, func(x uint64) bool { return x == id })
		t.Ended = p.Settled
		t.report(w, p.Code, p.Settled, 0)
	case communicator.PostSettled:
		t := l.unsettled(w, n, p.Corr)
		OnEpochSettled.Report(&w.Panel, oracle.Nobody, EpochSettled{l, t})
		t.Ended = true
		t.settle(w, p.Code, 0)
	case communicator.PostLinkLost:
		l.Lost = true
		n.inOrder(w, 0, Delivery{Kind: KindLinkLost, A: l.ID})
	case communicator.PostDropped:
		n.inOrder(w, 0, Delivery{Kind: KindDropped, A: l.ID})
	}
}

// unsettled returns the transfer that was reported as ended but not as settled.
func (l *Link) unsettled(w *World, n *Node, corr effects.Corr) *Transfer {
	for _, t := range slices.Backward(w.Transfers) {
		if t.Link == l && t.Corr == corr {
			return t
		}
	}
	panic("BUG: an initiator settles a transfer that never was")
}

// commTransfer passes a transfer to its link's machine.
func (t *Transfer) commTransfer(w *World, l *Link, since effects.Time) {
	l.Comm.Jobs = append(l.Comm.Jobs, t.ID)
	t.Since = since
	l.feed(w, communicator.Event{
		Kind: communicator.Transfer, Corr: t.Corr, Grant: t.Grant, Since: since, NotAfter: t.NotAfter,
		Batches: (len(t.Pairs) + commPages - 1) / commPages,
	})
}

// commDrop drops a link.
func (l *Link) commDrop(w *World) { l.feed(w, communicator.Event{Kind: communicator.Drop}) }

// commCancel cancels a transfer.
func (t *Transfer) commCancel(w *World) {
	t.Link.feed(w, communicator.Event{Kind: communicator.Cancel, Corr: t.Corr})
}

// CommTick ticks the machine of a link.
func (w *World) CommTick(l *Link) { l.feed(w, communicator.Event{Kind: communicator.Tick}) }

// commSubmit puts the next batch into the stream. The clock is read immediately before (M4).
func (l *Link) commSubmit(w *World) {
	c, n := l.Comm, w.Nodes[l.From]
	b, ok := c.M.Next()
	if !ok {
		panic("BUG: an initiator has changed its mind about what to submit")
	}
	t := w.Transfers[c.job(w, b.Corr)-1]
	how := communicator.InFlight
	x := CommBatch{Epoch: c.M.Epoch(), t: t.ID, first: b.Index * commPages}
	x.pairs = min(commPages, len(t.Pairs)-x.first)
	switch {
	case w.Clock(n) > b.NotAfter:
		how = communicator.TooLate
	default:
		OnEpochSubmitted.Report(&w.Panel, n.ID, EpochSubmitted{n, l, t, x})
		c.batch++
		x.number = c.batch
		if x.broken = w.Struck(plan.FaultDMA, t.Name, uint64(b.Index)<<16|x.Epoch); x.broken {
			how = communicator.SubmitFailed
			c.Epoch(x.Epoch).breaks(t)
		}
		t.submitted = true
		t.Flying++
		if !t.Read && c.Reaches(c.Epoch(x.Epoch)) {
			for pair := range x.pairs {
				OnFlying.Report(&w.Panel, oracle.Nobody, Flying{t, x.first + pair})
			}
		}
		c.Stream = append(c.Stream, x)
		if len(c.Stream) == 1 {
			l.runStream(w)
		}
		// The initiator reports that its end is gone while its hardware continues. Where the target's end stays, this
		// report is the only proof and is trusted, so the fault does not strike there.
		e := c.Epoch(x.Epoch)
		if !c.mapped && (!e.led || e.gone) && w.Struck(plan.FaultGoneEarly, t.Name, uint64(b.Index)<<16|x.Epoch) {
			e.lied = true
			l.sayTarget(w, communicator.MessageGone, x.Epoch)
		}
	}
	c.busy = false
	l.initiate(w, communicator.Event{Kind: communicator.Submitted, Outcome: how})
	late := c.late
	c.late = nil
	for _, ev := range late {
		l.initiate(w, ev)
	}
	l.pump(w)
}

// breaks records a transfer of which a batch failed.
func (e *CommEpoch) breaks(t *Transfer) { e.Broke = append(e.Broke, t.ID) }

// commAct carries out a delivery of a plane of communicators.
func (w *World) commAct(d Delivery) {
	w.Journal.Note(w.Now, d.Kind, d.Node, d.A, d.B, d.C)
	if d.Kind == kindCommRestart {
		w.operator(d)
		return
	}
	l := w.Links[d.A-1]
	c := l.Comm
	switch d.Kind {
	case KindCommTick:
		if d.B == c.tick {
			l.feed(w, communicator.Event{Kind: communicator.Tick})
		}
	case kindCommSubmit:
		l.commSubmit(w)
	case kindCommStep:
		l.streamStep(w, d.B, int(d.C))
	case KindCommEnded:
		l.feed(w, communicator.Event{Kind: communicator.BatchEnded, Epoch: d.B, Succeeded: d.C == 1})
	case KindCommForm:
		l.forms(w, d.B, d.C)
	case kindCommAbort:
		c.Epoch(d.B).aborted, c.halted = true, true
	case kindCommStuck:
		l.feed(w, communicator.Event{Kind: communicator.Stuck, Epoch: d.B})
	case kindCommProof:
		if d.C == 1 {
			l.feed(w, communicator.Event{Kind: communicator.NoProof, Epoch: d.B})
			return
		}
		l.epochOver(w, c.Epoch(d.B))
		l.feed(w, communicator.Event{Kind: communicator.TornDown, Epoch: d.B})
	case KindCommHear:
		l.hears(w, d)
	case kindCommLost:
		l.feed(w, communicator.Event{Kind: communicator.ChannelLost})
	case kindCommDead:
		for _, e := range c.Epochs {
			l.epochOver(w, e)
		}
	case KindCommSay:
		l.targetHears(w, w.Nodes[d.Node], communicator.MessageKind(d.C), d.B)
	case KindCommEnd:
		l.channelEnds(w, w.Nodes[d.Node], d.B == 1)
	case kindCommMade:
		l.made(w, w.Nodes[d.Node], c.Epoch(d.B))
	case kindCommLed:
		l.led(w, w.Nodes[d.Node], c.Epoch(d.B))
	case kindCommMargin:
		w.Nodes[d.Node].target.tell(w, w.Nodes[d.Node], communicator.TargetEvent{
			Kind: communicator.MarginPassed, Session: session(l), Epoch: d.B,
		})
	default:
		panic("BUG: no work of a plane of communicators")
	}
}

// Touches reports whether hardware may still access pages of a transfer.
func (x *Link) Touches(t *Transfer) bool {
	return slices.ContainsFunc(x.Comm.Stream, func(b CommBatch) bool { return b.t == t.ID })
}
