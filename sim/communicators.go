package sim

import (
	"encoding/binary"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// A plane of communicators is a leased plane as between NPUs: hardware of the peer stores and loads by itself, through
// a communicator that can be ended only as a whole. The machines that decide are those of fsm/communicator; here is
// what drives them, as runtime/hccl does, and the hardware that nobody can watch.

// commLink is the initiator's end of one import.
type commLink struct {
	m      communicator.Initiator
	out    communicator.Out `snap:"scratch"`
	corr   effects.Corr
	mapped bool                 // the peer's memory is mapped here, as over HCCS
	jobs   []uint64             // transfers whose end was not told, by id
	busy   bool                 // the driver is about to submit, and listens to nothing
	late   []communicator.Event // what happened meanwhile
	epochs []*commEpoch         // by number
	batch  uint64               // number of the newest
	stream []commBatch          // in the hands of hardware, in order
	halted bool                 // its stream has failed, or was aborted
	closed bool                 // the channel, by us
	cut    bool                 // the channel, by the world
	tick   uint64               `snap:"skip"`
	// At the target: its connection has ended, and nothing said that the initiator has.
	heardEnd, unproven bool
	// Words to and from the target, and completions, come in order: not before these instants.
	said, heard, ends int64 `snap:"skip"`
}

// commEpoch is what is true of one epoch, whatever its ends believe.
type commEpoch struct {
	number  uint64
	over    bool // nothing of the initiator's hardware touches anything by it any more
	aborted bool
	fenced  bool              // by its initiator: nothing may be submitted on it
	heard   bool              // the initiator was told that the target fenced it
	broke   []uint64          // transfers that had a batch in it which failed
	revoked []effects.GrantID // that its accept listed
	since   effects.Time      // and what was given before this counts as listed, too

	formed bool // the initiator makes its end, or has
	meets  bool // and waits for the target's
	up     bool // it has
	// decided says that it has, or could not.
	decided bool
	begun   bool // the target does
	made    bool
	failed  bool
	leaves  bool // it is to go away
	gone    bool // it is gone
	led     bool
	lied    bool // the initiator said that it is gone before it was
}

// reaches says whether anything may reach the target's pool by an epoch.
func (c *commLink) reaches(e *commEpoch) bool { return e.formed && !e.over && (c.mapped || !e.gone) }

// commBatch is one batch in a stream.
type commBatch struct {
	number uint64
	epoch  uint64
	t      uint64
	first  int // pair
	pairs  int
	broken bool // its call failed half-way
}

// commPages is how many pages a batch has.
const commPages = 2

func (c *commLink) epoch(number uint64) *commEpoch { return c.epochs[number-1] }

func session(l *link) (id communicator.SessionID) {
	binary.LittleEndian.PutUint64(id[:], l.id)
	return id
}

// commRules are tight, so that each of them is met.
func (w *world) commRules() communicator.Rules {
	return communicator.Rules{
		Window: 1 + int(w.seed%3), Tries: 3, Transfers: 256, Answer: 500 * effects.Millisecond,
		Patience: effects.Duration(200+100*(w.seed%5)) * effects.Millisecond, Grace: 20 * effects.Millisecond,
	}
}

// commImport opens a link to a peer that was found to be there.
func (w *world) commImport(n *node, l *link, corr effects.Corr) {
	c := &commLink{m: communicator.NewInitiator(w.commRules()), corr: corr}
	c.mapped = draw.Hash(w.seed, draw.Communicator, uint64(l.from)<<8|uint64(l.to), 0).Permille(400)
	l.comm = c
	peer := w.nodes[l.to]
	w.tellTarget(peer, communicator.TargetEvent{
		Kind: communicator.Arrives, Session: session(l), Peer: l.us, From: communicator.Address{Bits: uint8(n.id)},
		Mapped: c.mapped,
	})
	if entry := peer.target.out.Entry; entry != communicator.Open {
		l.lost, l.dropped, c.closed = true, true, true
		w.inOrder(n, 0, delivery{kind: kindImported, a: uint64(corr), b: uint64(effects.TooMany)})
		return
	}
	w.feed(l, communicator.Event{Kind: communicator.Begin})
}

// feed tells a link's machine what happened, or keeps it while the driver submits.
func (w *world) feed(l *link, ev communicator.Event) {
	c := l.comm
	if !w.lives(l.from, l.fromLife) {
		return
	}
	if c.busy {
		c.late = append(c.late, ev)
		return
	}
	w.initiate(l, ev)
	w.pump(l)
}

// initiate has the machine take an event, and carries out what comes of it.
func (w *world) initiate(l *link, ev communicator.Event) {
	c, n := l.comm, w.nodes[l.from]
	c.m.Step(w.clock(n), &ev, &c.out)
	for _, p := range c.out.Posts {
		w.owe(n, l, p)
	}
	for _, s := range c.out.Says {
		w.oracles.onEpochSaid(l, s)
		w.sayTarget(l, s.Word, s.Epoch)
	}
	if epoch := c.out.Form; epoch != 0 {
		c.epoch(epoch).formed = true
		w.forNode(n, w.commDraw(l).Heavy(2*w.plan.Net), delivery{kind: kindCommForm, a: l.id, b: epoch})
	}
	if d := c.out.TearDown; d.Epoch != 0 {
		w.tearDown(n, l, d)
	}
	c.out.Reset()
	if c.m.Over() && !c.closed {
		w.closeChannel(l)
	}
}

// pump has the driver submit what the machine wants, after it has got to it, and wakes it at its deadline.
func (w *world) pump(l *link) {
	c, n := l.comm, w.nodes[l.from]
	if b, ok := c.m.Next(); ok {
		c.busy = true
		t := w.transfers[c.job(w, b.Corr)-1]
		after := w.commDraw(l).Heavy(w.plan.Device) + w.stalled(t, b.Index)
		w.forNode(n, after, delivery{kind: kindCommSubmit, a: l.id})
		return
	}
	w.oracles.onEpochPumped(l)
	if at, ok := c.m.Deadline(); ok {
		c.tick++
		w.forNode(n, effects.Duration(max(n.when(at)-w.now, 0)), delivery{kind: kindCommTick, a: l.id, b: c.tick})
	}
}

// job is the transfer of a Corr.
func (c *commLink) job(w *world, corr effects.Corr) uint64 {
	for _, id := range c.jobs {
		if w.transfers[id-1].corr == corr {
			return id
		}
	}
	panic("BUG: an initiator speaks of a transfer that nobody wanted, or whose end it told")
}

func (w *world) commDraw(l *link) draw.Of {
	l.draws++
	return draw.Hash(w.seed, draw.Communicator, l.id, l.draws)
}

// owe gives a machine what its link owes it.
func (w *world) owe(n *node, l *link, p communicator.Post) {
	c := l.comm
	switch p.Kind {
	case communicator.PostImported:
		x := delivery{kind: kindImported, a: uint64(c.corr), b: uint64(p.Code)}
		if p.Code == effects.OK {
			x.c = l.id
		} else {
			l.lost, l.dropped = true, true
		}
		w.inOrder(n, 0, x)
	case communicator.PostTransferDone:
		id := c.job(w, p.Corr)
		t := w.transfers[id-1]
		w.oracles.onEpochEnd(l, t, p)
		c.jobs = slices.DeleteFunc(c.jobs, func(x uint64) bool { return x == id })
		t.ended = p.Settled
		w.report(t, p.Code, p.Settled, 0)
	case communicator.PostSettled:
		t := w.unsettled(n, l, p.Corr)
		w.oracles.onEpochSettled(l, t)
		t.ended = true
		w.settle(t, p.Code, 0)
	case communicator.PostLinkLost:
		l.lost = true
		w.inOrder(n, 0, delivery{kind: kindLinkLost, a: l.id})
	case communicator.PostDropped:
		w.inOrder(n, 0, delivery{kind: kindDropped, a: l.id})
	}
}

// unsettled is the transfer that was told, and not that it is settled.
func (w *world) unsettled(n *node, l *link, corr effects.Corr) *transfer {
	for _, t := range slices.Backward(w.transfers) {
		if t.link == l && t.corr == corr {
			return t
		}
	}
	panic("BUG: an initiator settles a transfer that never was")
}

// commTransfer gives a transfer to its link's machine.
func (w *world) commTransfer(l *link, t *transfer, since effects.Time) {
	l.comm.jobs = append(l.comm.jobs, t.id)
	t.since = since
	w.feed(l, communicator.Event{
		Kind: communicator.Transfer, Corr: t.corr, Grant: t.grant, Since: since, NotAfter: t.notAfter,
		Batches: (len(t.pairs) + commPages - 1) / commPages,
	})
}

// commDrop lets go of a link.
func (w *world) commDrop(l *link) { w.feed(l, communicator.Event{Kind: communicator.Drop}) }

// commCancel has a transfer end.
func (w *world) commCancel(t *transfer) {
	w.feed(t.link, communicator.Event{Kind: communicator.Cancel, Corr: t.corr})
}

// commTick says what time it is.
func (w *world) commTick(l *link) { w.feed(l, communicator.Event{Kind: communicator.Tick}) }

// commSubmit puts the next batch into the stream. The clock is read right before.
func (w *world) commSubmit(l *link) {
	c, n := l.comm, w.nodes[l.from]
	b, ok := c.m.Next()
	if !ok {
		panic("BUG: an initiator has changed its mind about what to submit")
	}
	t := w.transfers[c.job(w, b.Corr)-1]
	how := communicator.Done
	x := commBatch{epoch: c.m.Epoch(), t: t.id, first: b.Index * commPages}
	x.pairs = min(commPages, len(t.pairs)-x.first)
	switch {
	case w.clock(n) > b.NotAfter:
		how = communicator.TooLate
	default:
		w.oracles.onEpochSubmit(n, l, t, x)
		c.batch++
		x.number = c.batch
		if x.broken = w.struck(plan.FaultDMA, t.name, uint64(b.Index)<<16|x.epoch); x.broken {
			how = communicator.Broken
			c.epoch(x.epoch).breaks(t)
		}
		t.submitted = true
		t.flying++
		if !t.read && c.reaches(c.epoch(x.epoch)) {
			for pair := range x.pairs {
				w.oracles.onFlying(t, x.first+pair)
			}
		}
		c.stream = append(c.stream, x)
		if len(c.stream) == 1 {
			w.runStream(l)
		}
		// It says so, and its hardware goes on. Where the target's end stays, its word is all there is: that is trusted.
		e := c.epoch(x.epoch)
		if !c.mapped && (!e.led || e.gone) && w.struck(plan.FaultGoneEarly, t.name, uint64(b.Index)<<16|x.epoch) {
			e.lied = true
			w.sayTarget(l, communicator.Gone, x.epoch)
		}
	}
	c.busy = false
	w.initiate(l, communicator.Event{Kind: communicator.Submitted, How: how})
	late := c.late
	c.late = nil
	for _, ev := range late {
		w.initiate(l, ev)
	}
	w.pump(l)
}

// breaks notes whose batch failed.
func (e *commEpoch) breaks(t *transfer) { e.broke = append(e.broke, t.id) }

// commAct does what is the work of planes of communicators.
func (w *world) commAct(d delivery) {
	w.journal.note(w.now, d.kind, d.node, d.a, d.b, d.c)
	if d.kind == kindCommRestart {
		w.operator(d)
		return
	}
	l := w.links[d.a-1]
	c := l.comm
	switch d.kind {
	case kindCommTick:
		if d.b == c.tick {
			w.feed(l, communicator.Event{Kind: communicator.Tick})
		}
	case kindCommSubmit:
		w.commSubmit(l)
	case kindCommStep:
		w.streamStep(l, d.b, int(d.c))
	case kindCommEnded:
		w.feed(l, communicator.Event{Kind: communicator.BatchEnded, Epoch: d.b, Well: d.c == 1})
	case kindCommForm:
		w.forms(l, d.b, d.c)
	case kindCommAbort:
		c.epoch(d.b).aborted, c.halted = true, true
	case kindCommStuck:
		w.feed(l, communicator.Event{Kind: communicator.Stuck, Epoch: d.b})
	case kindCommProof:
		if d.c == 1 {
			w.feed(l, communicator.Event{Kind: communicator.NoProof, Epoch: d.b})
			return
		}
		w.epochOver(l, c.epoch(d.b))
		w.feed(l, communicator.Event{Kind: communicator.TornDown, Epoch: d.b})
	case kindCommHear:
		w.hears(l, d)
	case kindCommLost:
		w.feed(l, communicator.Event{Kind: communicator.ChannelLost})
	case kindCommDead:
		for _, e := range c.epochs {
			w.epochOver(l, e)
		}
	case kindCommSay:
		w.targetHears(w.nodes[d.node], l, communicator.Word(d.c), d.b)
	case kindCommEnd:
		w.channelEnds(w.nodes[d.node], l, d.b == 1)
	case kindCommMade:
		w.made(w.nodes[d.node], l, c.epoch(d.b))
	case kindCommLed:
		w.led(w.nodes[d.node], l, c.epoch(d.b))
	case kindCommMargin:
		w.tellTarget(w.nodes[d.node], communicator.TargetEvent{
			Kind: communicator.MarginOver, Session: session(l), Epoch: d.b,
		})
	default:
		panic("BUG: no work of a plane of communicators")
	}
}
