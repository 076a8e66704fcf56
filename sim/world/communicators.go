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
	Machine   communicator.Initiator
	out       communicator.Effects `snap:"scratch"`
	corr      effects.Corr
	mapped    bool                 // the peer's memory is mapped here, as over HCCS
	Transfers []uint64             // transfers that were not reported as ended, by id
	busy      bool                 // the driver is about to submit and takes no events
	deferred  []communicator.Event // events that occurred while busy
	Epochs    []*CommEpoch         // by number-1
	lastBatch uint64               // number of the newest batch
	Stream    []CommBatch          // batches that the hardware has, in order
	halted    bool                 // the stream has failed or was aborted
	closed    bool                 // this end has closed the channel
	cut       bool                 // a fault has cut the channel
	tickCount uint64               `snap:"skip"`
	// targetSawEnd and unproven are state of the target: the connection has ended, and nothing has proven that the
	// initiator's hardware has stopped.
	targetSawEnd, unproven bool
	// lastToTarget, lastToInitiator and lastCompletion are the instants of the latest message to the target, message to
	// the initiator, and completion. Later messages and completions do not arrive before these instants and therefore
	// stay in order.
	lastToTarget, lastToInitiator, lastCompletion int64 `snap:"skip"`
}

// CommEpoch is the true state of an epoch, whatever the two ends assume.
type CommEpoch struct {
	Number          uint64
	Stopped         bool // the initiator's hardware touches nothing through the epoch any more
	aborted         bool
	Fenced          bool              // by the initiator: nothing may be submitted any more
	PeerFenced      bool              // the initiator was notified that the target fenced the epoch
	FailedTransfers []uint64          // transfers of which a batch failed in the epoch
	Revoked         []effects.GrantID // grants that the accept listed
	ListedBefore    effects.Time      // grants that were given before this count as listed, too

	forming      bool // the initiator has begun to create its end
	awaitsTarget bool // the initiator waits for the target's end
	Up           bool // both ends are formed
	// Decided is set when the forming has ended, successfully or not.
	Decided            bool
	TargetBegun        bool // the target has begun to create its end
	targetCreated      bool // the target's end is created
	targetFailed       bool // the target's end could not be created
	targetLeaving      bool // the target's end is to be destroyed
	targetGone         bool // the target's end is destroyed
	targetDestroyEnded bool // the destruction of the target's end has ended, successfully or not
	falselyGone        bool // the initiator reported too early that its end is gone
}

// CanReach reports whether an access through an epoch may reach the target's pool.
func (c *commLink) CanReach(e *CommEpoch) bool {
	return e.forming && !e.Stopped && (c.mapped || !e.targetGone)
}

// CommBatch is a batch in a stream.
type CommBatch struct {
	number   uint64
	Epoch    uint64
	transfer uint64 // id of the transfer
	first    int    // number of the first pair
	pairs    int
	broken   bool // the call failed half-way
}

// IsLast reports whether the batch is the last batch of its transfer.
func (b CommBatch) IsLast(t *Transfer) bool { return b.first+b.pairs == len(t.Pairs) }

// commPages is the number of pages of a batch.
const commPages = 2

func (c *commLink) EpochAt(number uint64) *CommEpoch { return c.Epochs[number-1] }

func sessionID(l *Link) (id communicator.SessionID) {
	binary.LittleEndian.PutUint64(id[:], l.ID)
	return id
}

// CommunicatorRules returns the rules of the communicators. The rules are so tight that runs reach each limit. In half of
// the worlds the window, the tries and the grace are drawn, so that each of them decides in some world.
func (w *World) CommunicatorRules() communicator.Rules {
	r := communicator.Rules{
		Window: 1 + int(w.Seed%3), Tries: 3, Transfers: 256, AnswerTimeout: 500 * effects.Millisecond,
		ProgressTimeout: effects.Duration(200+100*(w.Seed%5)) * effects.Millisecond, Grace: 20 * effects.Millisecond,
	}
	at := func(n uint64) draw.Value { return draw.Hash(w.Seed, draw.Communicator, rulesDraw, n) }
	if !draw.IsFixed(w.Seed) && at(0).ChancePermille(500) {
		r.Window, r.Tries = at(1).Between(1, 6), at(2).Between(1, 4)
		r.Grace = at(3).Duration(20*effects.Millisecond, r.ProgressTimeout*3/4)
	}
	return r
}

// rulesDraw and limitsDraw identify the draws of the rules and of the limits. Other draws with the label Communicator are
// those of a link, by its small id.
const limitsDraw, rulesDraw = 1 << 40, 1 << 41

// importComm opens a link to a peer that was found.
func (l *Link) importComm(w *World, n *Node, corr effects.Corr) {
	c := &commLink{Machine: communicator.NewInitiator(w.CommunicatorRules()), corr: corr}
	c.mapped = draw.Hash(w.Seed, draw.Communicator, uint64(l.From)<<8|uint64(l.To), 0).ChancePermille(400)
	l.Comm = c
	peer := w.Nodes[l.To]
	peer.target.stepTarget(w, peer, communicator.TargetEvent{
		Kind: communicator.LinkArrived, Session: sessionID(l), Peer: l.ImporterName, From: commAddress(w, n),
		MemoryMapped: c.mapped,
	})
	if entry := peer.target.out.Admission; entry != communicator.Admitted {
		l.Lost, l.Dropped, c.closed = true, true, true
		w.QueueForNode(n, 0, Delivery{Kind: KindImported, A: uint64(corr), B: uint64(effects.TooMany)})
		return
	}
	l.feedEvent(w, communicator.Event{Kind: communicator.Begin})
}

// feedEvent passes an event to a link's machine, or keeps the event while the driver submits.
func (l *Link) feedEvent(w *World, ev communicator.Event) {
	c := l.Comm
	if !w.IsRunning(l.From, l.FromIncarnation) {
		return
	}
	if c.busy {
		c.deferred = append(c.deferred, ev)
		return
	}
	l.stepInitiator(w, ev)
	l.scheduleSubmit(w)
}

// stepInitiator passes an event to the machine and carries out the result.
func (l *Link) stepInitiator(w *World, ev communicator.Event) {
	c, n := l.Comm, w.Nodes[l.From]
	OnEpochEvent.Report(&w.Panel, n.ID, EpochEvent{n, l, &ev})
	c.Machine.Step(w.ReadClock(n), &ev, &c.out)
	for _, p := range c.out.Posts {
		l.notifyMachine(w, n, p)
	}
	for _, s := range c.out.Messages {
		OnEpochMessage.Report(&w.Panel, oracle.NoNode, EpochMessage{l, s})
		l.sendToTarget(w, s.Kind, s.Epoch)
	}
	if epoch := c.out.FormEpoch; epoch != 0 {
		c.EpochAt(epoch).forming = true
		w.QueueForNode(n, l.drawComm(w).HeavyTail(2*w.Conditions.MessageTime), Delivery{Kind: KindCommFormCheck, A: l.ID, B: epoch})
	}
	if d := c.out.TearDown; d.Epoch != 0 {
		l.tearDownEpoch(w, n, d)
	}
	c.out.Reset()
	if c.Machine.IsOver() && !c.closed {
		l.closeChannel(w)
	}
}

// scheduleSubmit schedules the submission of the batch that the machine wants next, or else a wake-up at the machine's
// deadline.
func (l *Link) scheduleSubmit(w *World) {
	c, n := l.Comm, w.Nodes[l.From]
	if b, ok := c.Machine.Next(); ok {
		c.busy = true
		t := w.Transfers[c.transferOf(w, b.Corr)-1]
		after := l.drawComm(w).HeavyTail(w.Conditions.DeviceTime) + t.drawStall(w, b.Index)
		w.QueueForNode(n, after, Delivery{Kind: kindCommSubmit, A: l.ID})
		return
	}
	OnEpochIdle.Report(&w.Panel, oracle.NoNode, EpochIdle{l})
	if at, ok := c.Machine.Deadline(); ok {
		c.tickCount++
		w.QueueForNode(n, effects.Duration(max(n.InstantOf(at)-w.Now, 0)), Delivery{Kind: KindCommTick, A: l.ID, B: c.tickCount})
	}
}

// transferOf returns the transfer of a Corr.
func (c *commLink) transferOf(w *World, corr effects.Corr) uint64 {
	for _, id := range c.Transfers {
		if w.Transfers[id-1].Corr == corr {
			return id
		}
	}
	panic("BUG: an initiator names a transfer that was never started, or whose end was already reported")
}

func (l *Link) drawComm(w *World) draw.Value {
	l.drawCount++
	return draw.Hash(w.Seed, draw.Communicator, l.ID, l.drawCount)
}

// notifyMachine carries out a notification of the link's machine to the node's machine.
func (l *Link) notifyMachine(w *World, n *Node, p communicator.Post) {
	c := l.Comm
	switch p.Kind {
	case communicator.PostImported:
		x := Delivery{Kind: KindImported, A: uint64(c.corr), B: uint64(p.Code)}
		if p.Code == effects.OK {
			x.C = l.ID
		} else {
			l.Lost, l.Dropped = true, true
		}
		n.queueInOrder(w, &l.queue, 0, x)
	case communicator.PostTransferDone:
		id := c.transferOf(w, p.Corr)
		t := w.Transfers[id-1]
		OnEpochTransferDone.Report(&w.Panel, oracle.NoNode, EpochTransferDone{l, t, p})
		c.Transfers = slices.DeleteFunc(c.Transfers, func(x uint64) bool { return x == id })
		t.Ended = p.Settled
		t.reportDone(w, p.Code, p.Settled, 0)
	case communicator.PostSettled:
		t := l.findUnsettled(w, n, p.Corr)
		OnEpochTransferSettled.Report(&w.Panel, oracle.NoNode, EpochTransferSettled{l, t})
		t.Ended = true
		t.reportSettled(w, p.Code, 0)
	case communicator.PostLinkLost:
		l.Lost = true
		n.queueInOrder(w, &l.queue, 0, Delivery{Kind: KindLinkLost, A: l.ID})
	case communicator.PostDropped:
		n.queueInOrder(w, &l.queue, 0, Delivery{Kind: KindDropped, A: l.ID})
	}
}

// findUnsettled returns the transfer that was reported as ended but not as settled.
func (l *Link) findUnsettled(w *World, n *Node, corr effects.Corr) *Transfer {
	for _, t := range slices.Backward(w.Transfers) {
		if t.Link == l && t.Corr == corr {
			return t
		}
	}
	panic("BUG: an initiator settles a transfer that does not exist")
}

// startOnComm passes a transfer to its link's machine.
func (t *Transfer) startOnComm(w *World, l *Link, since effects.Time) {
	l.Comm.Transfers = append(l.Comm.Transfers, t.ID)
	t.Since = since
	l.feedEvent(w, communicator.Event{
		Kind: communicator.Transfer, Corr: t.Corr, Grant: t.Grant, Since: since, NotAfter: t.NotAfter,
		Batches: (len(t.Pairs) + commPages - 1) / commPages,
	})
}

// dropComm drops a link.
func (l *Link) dropComm(w *World) { l.feedEvent(w, communicator.Event{Kind: communicator.Drop}) }

// cancelOnComm cancels a transfer.
func (t *Transfer) cancelOnComm(w *World) {
	t.Link.feedEvent(w, communicator.Event{Kind: communicator.Cancel, Corr: t.Corr})
}

// TickComm ticks the machine of a link.
func (w *World) TickComm(l *Link) { l.feedEvent(w, communicator.Event{Kind: communicator.Tick}) }

// submitBatch puts the next batch into the stream. The clock is read immediately before (M4).
func (l *Link) submitBatch(w *World) {
	c, n := l.Comm, w.Nodes[l.From]
	b, ok := c.Machine.Next()
	if !ok {
		panic("BUG: the next batch of an initiator changed before the submission")
	}
	t := w.Transfers[c.transferOf(w, b.Corr)-1]
	outcome := communicator.InFlight
	x := CommBatch{Epoch: c.Machine.Epoch(), transfer: t.ID, first: b.Index * commPages}
	x.pairs = min(commPages, len(t.Pairs)-x.first)
	switch {
	case w.ReadClock(n) > b.NotAfter:
		outcome = communicator.TooLate
	default:
		OnBatchSubmitted.Report(&w.Panel, n.ID, BatchSubmitted{n, l, t, x})
		c.lastBatch++
		x.number = c.lastBatch
		if x.broken = w.IsStruck(plan.FaultDMAFailed, t.Name, uint64(b.Index)<<16|x.Epoch); x.broken {
			outcome = communicator.SubmitFailed
			c.EpochAt(x.Epoch).addFailed(t)
		}
		t.submitted = true
		t.InFlight++
		if !t.Read && c.CanReach(c.EpochAt(x.Epoch)) {
			for pair := range x.pairs {
				OnStoreInFlight.Report(&w.Panel, oracle.NoNode, StoreInFlight{t, x.first + pair})
			}
		}
		c.Stream = append(c.Stream, x)
		if len(c.Stream) == 1 {
			l.startOldestBatch(w)
		}
		// The initiator reports that its end is gone while its hardware continues. Where the target's end stays, this
		// report is the only proof and is trusted, so the fault does not strike there.
		e := c.EpochAt(x.Epoch)
		if !c.mapped && (!e.targetDestroyEnded || e.targetGone) && w.IsStruck(plan.FaultCommGoneEarly, t.Name, uint64(b.Index)<<16|x.Epoch) {
			e.falselyGone = true
			l.sendToTarget(w, communicator.MessageGone, x.Epoch)
		}
	}
	c.busy = false
	l.stepInitiator(w, communicator.Event{Kind: communicator.Submitted, Outcome: outcome})
	deferred := c.deferred
	c.deferred = nil
	for _, ev := range deferred {
		l.stepInitiator(w, ev)
	}
	l.scheduleSubmit(w)
}

// addFailed records a transfer of which a batch failed.
func (e *CommEpoch) addFailed(t *Transfer) { e.FailedTransfers = append(e.FailedTransfers, t.ID) }

// handleCommDelivery carries out a delivery of a plane of communicators.
func (w *World) handleCommDelivery(d Delivery) {
	w.Journal.AddLine(w.Now, d.Kind, d.Node, d.A, d.B, d.C)
	if d.Kind == kindCommRestart {
		w.restartByOperator(d)
		return
	}
	l := w.Links[d.A-1]
	c := l.Comm
	switch d.Kind {
	case KindCommTick:
		if d.B == c.tickCount {
			l.feedEvent(w, communicator.Event{Kind: communicator.Tick})
		}
	case kindCommSubmit:
		l.submitBatch(w)
	case kindCommStep:
		l.streamStep(w, d.B, int(d.C))
	case KindCommBatchEnded:
		l.feedEvent(w, communicator.Event{Kind: communicator.BatchEnded, Epoch: d.B, Succeeded: d.C == 1})
	case KindCommFormCheck:
		l.finishForming(w, d.B, d.C)
	case kindCommAbort:
		c.EpochAt(d.B).aborted, c.halted = true, true
	case kindCommProofLate:
		l.feedEvent(w, communicator.Event{Kind: communicator.Stuck, Epoch: d.B})
	case kindCommProof:
		if d.C == 1 {
			l.feedEvent(w, communicator.Event{Kind: communicator.NoProof, Epoch: d.B})
			return
		}
		l.stopEpoch(w, c.EpochAt(d.B))
		l.feedEvent(w, communicator.Event{Kind: communicator.TornDown, Epoch: d.B})
	case KindCommToInitiator:
		l.handleTargetMessage(w, d)
	case kindCommChannelLost:
		l.feedEvent(w, communicator.Event{Kind: communicator.ChannelLost})
	case kindCommHardwareStopped:
		for _, e := range c.Epochs {
			l.stopEpoch(w, e)
		}
	case KindCommToTarget:
		l.handleInitiatorMessage(w, w.Nodes[d.Node], communicator.MessageKind(d.C), d.B)
	case KindCommChannelEnded:
		l.handleChannelEnd(w, w.Nodes[d.Node], d.B == 1)
	case kindCommEndCreated:
		l.handleTargetEndCreated(w, w.Nodes[d.Node], c.EpochAt(d.B))
	case kindCommEndDestroyed:
		l.handleTargetEndDestroyed(w, w.Nodes[d.Node], c.EpochAt(d.B))
	case kindCommMargin:
		w.Nodes[d.Node].target.stepTarget(w, w.Nodes[d.Node], communicator.TargetEvent{
			Kind: communicator.MarginPassed, Session: sessionID(l), Epoch: d.B,
		})
	default:
		panic("BUG: unknown kind of delivery for a plane of communicators")
	}
}

// MayTouch reports whether hardware may still access pages of a transfer.
func (x *Link) MayTouch(t *Transfer) bool {
	return slices.ContainsFunc(x.Comm.Stream, func(b CommBatch) bool { return b.transfer == t.ID })
}
