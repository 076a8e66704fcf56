package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Producer is the flow that writes finished blocks of its engine into blocks that consumers registered.
type Producer struct {
	flow.Passive
	cfg              *Settings     `snap:"share"`
	fullPlan         geometry.Plan `snap:"share"` // all pages of this rank
	ownNumbers       []uint64      `snap:"share"` // Numbers of this rank
	batches          table.Slab[batch]
	batchesByName    nameIndex // batches by name
	registrations    table.Slab[registration]
	parkedByName     nameIndex   // registrations without a batch, by name
	byOperation      table.Index // registrations by their operation
	share            table.Share // of registrations, by class
	waitingByClass   []table.List
	ready            table.List
	replays          replies.Records
	abortedRequests  flow.Abandons // requests that the engine will not finish
	unneededRequests flow.Abandons // requests that no consumer needs

	registration protocol.PushRegistration `snap:"scratch"`
	withdrawal   protocol.PushWithdrawal   `snap:"scratch"`
	keepMessage  protocol.PushKeep         `snap:"scratch"`
	endMessage   protocol.PushEnd          `snap:"scratch"`
	peerGeometry geometry.Geometry         `snap:"scratch"`
	pages        []effects.Page            `snap:"scratch"`
	blocks       []geometry.Blocks         `snap:"scratch"`
	found        []table.Handle            `snap:"scratch"`
}

// Kinds of the Refs of a Producer.
const (
	kindBatch        uint8 = iota + 1 // the lease and the ticket of a batch
	kindRegistration                  // the deadline and the write of a registration
)

func producerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerProducer, Kind: kind, Subject: h}
}

// Recycle returns a Producer without batches and registrations, and reuses the memory of p. The old p must not be
// used any more.
func (p *Producer) Recycle(cfg *Settings, classes int) Producer {
	limit := int(cfg.RegistrationsMax)
	e := Producer{
		cfg: cfg, batches: p.batches.Recycle(int(cfg.FinishedMax)), batchesByName: p.batchesByName.recycle(),
		registrations: p.registrations.Recycle(limit),
		parkedByName:  p.parkedByName.recycle(), byOperation: p.byOperation.Recycle(), share: p.share.Recycle(limit, classes),
		waitingByClass: table.RecycleSlice(p.waitingByClass, classes), replays: p.replays.Recycle(limit, classes),
		abortedRequests: p.abortedRequests.Recycle(cfg.FinishedMax), unneededRequests: p.unneededRequests.Recycle(cfg.FinishedMax),
		registration: p.registration, endMessage: p.endMessage, pages: p.pages, blocks: p.blocks, found: p.found,
	}
	if cfg.On() {
		e.fullPlan, e.ownNumbers = planAllPages(cfg.Geometry), EncodeGeometry(cfg.Geometry)
	}
	return e
}

// Step handles the completions of writes.
func (p *Producer) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.TransferDone:
		p.onWriteDone(e, ref.Subject, x)
	case *effects.Settled:
		p.onSettled(e, ref.Subject)
	default:
		kernel.PanicUnexpected("the producer of registrations")
	}
}

// OnCommand handles a Finished or an Aborted. It returns false for other commands.
func (p *Producer) OnCommand(e *flow.Env, x *effects.Command) bool {
	switch body := x.Body.(type) {
	case *Finished:
		p.startBatch(e, x.Ticket, body)
	case *Aborted:
		p.abortRequest(e, x.Ticket, body)
	default:
		return false
	}
	return true
}

// ServedTag reports that the producer receives registrations.
func (p *Producer) ServedTag(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelRegister
}

// HandleMessage handles a message on that channel.
func (p *Producer) HandleMessage(e *flow.Env, x *effects.Received) { p.handleMessage(e, x) }

// OnTimer handles the end of a lease, or the deadline of a registration.
func (p *Producer) OnTimer(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	if ref.Kind == kindBatch {
		b := p.batches.Get(h)
		b.timer = 0
		e.Out.Mark(Marks.LeaseOver)
		p.closeBatch(e, h, effects.Expired, effects.Why{
			Field: "register.kv_lease_duration", Ours: e.Now.Sub(b.startedAt).String() + " since it was finished",
			Theirs: "not registered by every rank",
			Remedy: "look whether the consumer got the request, have it Expect what waits, or raise it",
		})
		return
	}
	x := p.registrations.Get(h)
	x.timer = 0
	e.Out.Mark(Marks.ParkedLong)
	p.finishRegistration(e, h, effects.Expired, &effects.Why{
		Field: "kvf_patience_ns", Ours: "over, and the request has not been finished,",
		Remedy: "look whether the producer got the request, or raise register.push_registration_timeout",
	})
}

// OnReachOutcome handles the end of an attempt to make the link to a peer's pages.
func (p *Producer) OnReachOutcome(_ *flow.Env, class int, code effects.Code) {
	p.onReachOutcome(class, code)
}

// AbortCommand ends a batch early. It returns false if the batch is ending already.
func (p *Producer) AbortCommand(e *flow.Env, ref kernel.Ref) bool {
	if p.batches.Get(ref.Subject).isClosing {
		return false
	}
	p.closeBatch(e, ref.Subject, effects.Cancelled, effects.Why{})
	return true
}

// CountUnfinished returns the number of rows that a drain waits for.
func (p *Producer) CountUnfinished(*flow.Env) int { return p.batches.Len() + p.registrations.Len() }

// Batches returns the number of lent requests.
func (p *Producer) Batches() int { return p.batches.Len() }

// Registrations returns the number of registrations that wait or are being written.
func (p *Producer) Registrations() int { return p.registrations.Len() }

// VisitTables reports the sizes of the tables.
func (p *Producer) VisitTables(visit table.VisitFunc) {
	visit("finished requests", p.batches.Len(), table.Empty)
	visit("registrations", p.registrations.Len(), table.Empty)
	visit("registrations answered", p.replays.Len(), table.Bounded)
	visit("requests aborted", p.abortedRequests.Len(), table.Bounded)
	visit("requests not needed", p.unneededRequests.Len(), table.Bounded)
}

// AddClassRows adds the number of registrations of each class, so that a class in use is not given to another peer.
func (p *Producer) AddClassRows(all []uint32) {
	for class := range all {
		all[class] += uint32(p.share.CountOf(class))
	}
}

// OnClassReassigned handles that a class will belong to another peer.
func (p *Producer) OnClassReassigned(_ *flow.Env, class int) { p.replays.DropClass(class) }

// SweepDrain ends the batch and the registration in a slot, for a drain. It reports whether there are more slots.
func (p *Producer) SweepDrain(e *flow.Env, slot int32) (more bool) {
	why := endReason(effects.Draining)
	if h := p.batches.At(slot); p.batches.Get(h) != nil && !p.batches.Get(h).isClosing {
		p.closeBatch(e, h, effects.Draining, *why)
	}
	if h := p.registrations.At(slot); p.registrations.Get(h) != nil && !p.registrations.Get(h).isWriting() {
		p.finishRegistration(e, h, effects.Draining, why)
	}
	return slot < max(p.batches.Slots(), p.registrations.Slots())
}

// OnPeerLost handles the loss of a silent peer: the registrations of the peer that are not being written end.
func (p *Producer) OnPeerLost(e *flow.Env, peer effects.Incarnation, silent bool) {
	if !silent {
		return
	}
	e.Work.SpendLooks(int(p.registrations.Slots()))
	for slot := range p.registrations.Slots() {
		h := p.registrations.At(slot)
		if x := p.registrations.Get(h); x != nil && x.peerID == peer && !x.isWriting() {
			e.Out.Mark(Marks.AskerLost)
			p.finishRegistration(e, h, effects.PeerLost, flow.LinkLostReason())
		}
	}
}

// RowState returns the state of the subject of a Ref.
func (p *Producer) RowState(_ *flow.Rooms, ref kernel.Ref) uint16 {
	if ref.Kind == kindBatch {
		if b := p.batches.Get(ref.Subject); b != nil {
			if b.isClosing {
				return 2
			}
			return 1
		}
		return 0
	}
	if x := p.registrations.Get(ref.Subject); x != nil {
		return 3 + uint16(x.phase)
	}
	return 0
}

// ProducerStateNames returns the names of the states.
func ProducerStateNames() []string {
	return []string{
		"batch over", "batch lent", "batch closing", "registration parked", "registration linking", "registration link tried",
		"registration writing", "registration settling",
	}
}

var _ flow.Flow = (*Producer)(nil)

// RecountShares counts the registrations and the replay records of each class again.
func (p *Producer) RecountShares(r *table.Recount) {
	table.RecountRows(r, "registrations of peers", &p.share, &p.registrations, table.Empty, func(x *registration) (class, n int) {
		return x.class, 1
	})
	p.replays.RecountShares(r, "records of registrations")
}
