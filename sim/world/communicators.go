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

// A plane of communicators is a leased plane as between NPUs: hardware of the peer stores and loads by itself, through
// a communicator that can be ended only as a whole. The machines that decide are those of fsm/communicator; here is
// what drives them, as runtime/hccl does, and the hardware that nobody can watch.

// commLink is the initiator's end of one import.
type commLink struct {
	M      communicator.Initiator
	out    communicator.Out `snap:"scratch"`
	corr   effects.Corr
	mapped bool                 // the peer's memory is mapped here, as over HCCS
	Jobs   []uint64             // transfers whose end was not told, by id
	busy   bool                 // the driver is about to submit, and listens to nothing
	late   []communicator.Event // what happened meanwhile
	Epochs []*CommEpoch         // by number
	batch  uint64               // number of the newest
	Stream []CommBatch          // in the hands of hardware, in order
	halted bool                 // its stream has failed, or was aborted
	closed bool                 // the channel, by us
	cut    bool                 // the channel, by the world
	tick   uint64               `snap:"skip"`
	// At the target: its connection has ended, and nothing said that the initiator has.
	heardEnd, unproven bool
	// Words to and from the target, and completions, come in order: not before these instants.
	said, heard, ends int64 `snap:"skip"`
}

// CommEpoch is what is true of one epoch, whatever its ends believe.
type CommEpoch struct {
	Number  uint64
	Over    bool // nothing of the initiator's hardware touches anything by it any more
	aborted bool
	Fenced  bool              // by its initiator: nothing may be submitted on it
	Heard   bool              // the initiator was told that the target fenced it
	Broke   []uint64          // transfers that had a batch in it which failed
	Revoked []effects.GrantID // that its accept listed
	Since   effects.Time      // and what was given before this counts as listed, too

	formed bool // the initiator makes its end, or has
	meets  bool // and waits for the target's
	Up     bool // it has
	// decided says that it has, or could not.
	Decided bool
	Begun   bool // the target does
	made    bool
	failed  bool
	leaves  bool // it is to go away
	gone    bool // it is gone
	led     bool
	lied    bool // the initiator said that it is gone before it was
}

// Reaches says whether anything may reach the target's pool by an epoch.
func (c *commLink) Reaches(e *CommEpoch) bool { return e.formed && !e.Over && (c.mapped || !e.gone) }

// CommBatch is one batch in a stream.
type CommBatch struct {
	number uint64
	Epoch  uint64
	t      uint64
	first  int // pair
	pairs  int
	broken bool // its call failed half-way
}

// Last says whether it is the last one of its transfer.
func (b CommBatch) Last(t *Transfer) bool { return b.first+b.pairs == len(t.Pairs) }

// commPages is how many pages a batch has.
const commPages = 2

func (c *commLink) Epoch(number uint64) *CommEpoch { return c.Epochs[number-1] }

func session(l *Link) (id communicator.SessionID) {
	binary.LittleEndian.PutUint64(id[:], l.ID)
	return id
}

// CommRules are tight, so that each of them is met.
func (w *World) CommRules() communicator.Rules {
	return communicator.Rules{
		Window: 1 + int(w.Seed%3), Tries: 3, Transfers: 256, Answer: 500 * effects.Millisecond,
		Patience: effects.Duration(200+100*(w.Seed%5)) * effects.Millisecond, Grace: 20 * effects.Millisecond,
	}
}

// commImport opens a link to a peer that was found to be there.
func (l *Link) commImport(w *World, n *Node, corr effects.Corr) {
	c := &commLink{M: communicator.NewInitiator(w.CommRules()), corr: corr}
	c.mapped = draw.Hash(w.Seed, draw.Communicator, uint64(l.From)<<8|uint64(l.To), 0).Permille(400)
	l.Comm = c
	peer := w.Nodes[l.To]
	peer.target.tell(w, peer, communicator.TargetEvent{
		Kind: communicator.Arrives, Session: session(l), Peer: l.Us, From: communicator.Address{Bits: uint8(n.ID)},
		Mapped: c.mapped,
	})
	if entry := peer.target.out.Entry; entry != communicator.Open {
		l.Lost, l.Dropped, c.closed = true, true, true
		n.inOrder(w, 0, Delivery{Kind: KindImported, A: uint64(corr), B: uint64(effects.TooMany)})
		return
	}
	l.feed(w, communicator.Event{Kind: communicator.Begin})
}

// feed tells a link's machine what happened, or keeps it while the driver submits.
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

// initiate has the machine take an event, and carries out what comes of it.
func (l *Link) initiate(w *World, ev communicator.Event) {
	c, n := l.Comm, w.Nodes[l.From]
	OnEpochTold.Report(&w.Panel, n.ID, EpochTold{n, l, &ev})
	c.M.Step(w.Clock(n), &ev, &c.out)
	for _, p := range c.out.Posts {
		l.owe(w, n, p)
	}
	for _, s := range c.out.Says {
		OnEpochSaid.Report(&w.Panel, oracle.Nobody, EpochSaid{l, s})
		l.sayTarget(w, s.Word, s.Epoch)
	}
	if epoch := c.out.Form; epoch != 0 {
		c.Epoch(epoch).formed = true
		w.ForNode(n, l.commDraw(w).Heavy(2*w.Setting.Net), Delivery{Kind: KindCommForm, A: l.ID, B: epoch})
	}
	if d := c.out.TearDown; d.Epoch != 0 {
		l.tearDown(w, n, d)
	}
	c.out.Reset()
	if c.M.Over() && !c.closed {
		l.closeChannel(w)
	}
}

// pump has the driver submit what the machine wants, after it has got to it, and wakes it at its deadline.
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

// job is the transfer of a Corr.
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

// owe gives a machine what its link owes it.
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

// unsettled is the transfer that was told, and not that it is settled.
func (l *Link) unsettled(w *World, n *Node, corr effects.Corr) *Transfer {
	for _, t := range slices.Backward(w.Transfers) {
		if t.Link == l && t.Corr == corr {
			return t
		}
	}
	panic("BUG: an initiator settles a transfer that never was")
}

// commTransfer gives a transfer to its link's machine.
func (t *Transfer) commTransfer(w *World, l *Link, since effects.Time) {
	l.Comm.Jobs = append(l.Comm.Jobs, t.ID)
	t.Since = since
	l.feed(w, communicator.Event{
		Kind: communicator.Transfer, Corr: t.Corr, Grant: t.Grant, Since: since, NotAfter: t.NotAfter,
		Batches: (len(t.Pairs) + commPages - 1) / commPages,
	})
}

// commDrop lets go of a link.
func (l *Link) commDrop(w *World) { l.feed(w, communicator.Event{Kind: communicator.Drop}) }

// commCancel has a transfer end.
func (t *Transfer) commCancel(w *World) {
	t.Link.feed(w, communicator.Event{Kind: communicator.Cancel, Corr: t.Corr})
}

// CommTick says what time it is.
func (w *World) CommTick(l *Link) { l.feed(w, communicator.Event{Kind: communicator.Tick}) }

// commSubmit puts the next batch into the stream. The clock is read right before.
func (l *Link) commSubmit(w *World) {
	c, n := l.Comm, w.Nodes[l.From]
	b, ok := c.M.Next()
	if !ok {
		panic("BUG: an initiator has changed its mind about what to submit")
	}
	t := w.Transfers[c.job(w, b.Corr)-1]
	how := communicator.Done
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
			how = communicator.Broken
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
		// It says so, and its hardware goes on. Where the target's end stays, its word is all there is: that is trusted.
		e := c.Epoch(x.Epoch)
		if !c.mapped && (!e.led || e.gone) && w.Struck(plan.FaultGoneEarly, t.Name, uint64(b.Index)<<16|x.Epoch) {
			e.lied = true
			l.sayTarget(w, communicator.Gone, x.Epoch)
		}
	}
	c.busy = false
	l.initiate(w, communicator.Event{Kind: communicator.Submitted, How: how})
	late := c.late
	c.late = nil
	for _, ev := range late {
		l.initiate(w, ev)
	}
	l.pump(w)
}

// breaks notes whose batch failed.
func (e *CommEpoch) breaks(t *Transfer) { e.Broke = append(e.Broke, t.ID) }

// commAct does what is the work of planes of communicators.
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
		l.feed(w, communicator.Event{Kind: communicator.BatchEnded, Epoch: d.B, Well: d.C == 1})
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
		l.targetHears(w, w.Nodes[d.Node], communicator.Word(d.C), d.B)
	case KindCommEnd:
		l.channelEnds(w, w.Nodes[d.Node], d.B == 1)
	case kindCommMade:
		l.made(w, w.Nodes[d.Node], c.Epoch(d.B))
	case kindCommLed:
		l.led(w, w.Nodes[d.Node], c.Epoch(d.B))
	case kindCommMargin:
		w.Nodes[d.Node].target.tell(w, w.Nodes[d.Node], communicator.TargetEvent{
			Kind: communicator.MarginOver, Session: session(l), Epoch: d.B,
		})
	default:
		panic("BUG: no work of a plane of communicators")
	}
}

// Touches says whether hardware may still be at pages of a transfer.
func (x *Link) Touches(t *Transfer) bool {
	return slices.ContainsFunc(x.Comm.Stream, func(b CommBatch) bool { return b.t == t.ID })
}
