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
	cfg      *Settings     `snap:"share"`
	whole    geometry.Plan `snap:"share"` // all pages of this rank
	own      []uint64      `snap:"share"` // Numbers of this rank
	batches  table.Slab[batch]
	named    byName // batches by name
	rows     table.Slab[registration]
	parked   byName      // registrations without a batch, by name
	byWho    table.Index // registrations by their operation
	share    table.Share // of registrations, by class
	waits    []table.List
	ready    table.List
	said     replies.Words
	aborted  flow.Abandons // requests that the engine will not finish
	unneeded flow.Abandons // requests that no consumer needs

	reg    protocol.PushRegistration `snap:"scratch"`
	off    protocol.PushWithdrawal   `snap:"scratch"`
	keep   protocol.PushKeep         `snap:"scratch"`
	end    protocol.PushEnd          `snap:"scratch"`
	theirs geometry.Geometry         `snap:"scratch"`
	pages  []effects.Page            `snap:"scratch"`
	blocks []geometry.Blocks         `snap:"scratch"`
	found  []table.Handle            `snap:"scratch"`
}

// Kinds of the Refs of a Producer.
const (
	kindBatch        uint8 = iota + 1 // the lease and the ticket of a batch
	kindRegistration                  // the deadline and the write of a registration
)

func producerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerProducer, Kind: kind, Subject: h}
}

// Emptied returns a Producer without batches and registrations, and reuses the memory of p. The old p must not be
// used any more.
func (p *Producer) Emptied(cfg *Settings, classes int) Producer {
	most := int(cfg.RegistrationsMax)
	e := Producer{
		cfg: cfg, batches: p.batches.Emptied(int(cfg.FinishedMax)), named: p.named.emptied(), rows: p.rows.Emptied(most),
		parked: p.parked.emptied(), byWho: p.byWho.Emptied(), share: p.share.Emptied(most, classes),
		waits: table.Zeroed(p.waits, classes), said: p.said.Emptied(most, classes),
		aborted: p.aborted.Emptied(cfg.FinishedMax), unneeded: p.unneeded.Emptied(cfg.FinishedMax),
		reg: p.reg, end: p.end, pages: p.pages, blocks: p.blocks, found: p.found,
	}
	if cfg.On() {
		e.whole, e.own = whole(cfg.Geometry), Numbers(cfg.Geometry)
	}
	return e
}

// Step handles the completions of writes.
func (p *Producer) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.TransferDone:
		p.written(e, ref.Subject, x)
	case *effects.Settled:
		p.settled(e, ref.Subject)
	default:
		kernel.Foreign("who writes what is finished")
	}
}

// Command handles a Finished or an Aborted. It returns false for other commands.
func (p *Producer) Command(e *flow.Env, x *effects.Command) bool {
	switch body := x.Body.(type) {
	case *Finished:
		p.lend(e, x.Ticket, body)
	case *Aborted:
		p.abortNamed(e, x.Ticket, body)
	default:
		return false
	}
	return true
}

// Serves reports that the producer receives registrations.
func (p *Producer) Serves(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelRegister
}

// Receive handles a message on that channel.
func (p *Producer) Receive(e *flow.Env, x *effects.Received) { p.received(e, x) }

// Due handles the end of a lease, or the deadline of a registration.
func (p *Producer) Due(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	if ref.Kind == kindBatch {
		b := p.batches.Get(h)
		b.timer = 0
		e.Out.Mark(Marks.LeaseOver)
		p.closeBatch(e, h, effects.Expired, effects.Why{
			Field: "register.kv_lease_duration", Ours: e.Now.Sub(b.began).String() + " since it was finished",
			Theirs: "not registered by every rank",
			Remedy: "look whether the consumer got the request, have it Expect what waits, or raise it",
		})
		return
	}
	x := p.rows.Get(h)
	x.timer = 0
	e.Out.Mark(Marks.ParkedLong)
	p.conclude(e, h, effects.Expired, &effects.Why{
		Field: "kvf_patience_ns", Ours: "over, and nothing was finished for it,",
		Remedy: "look whether the producer got the request, or raise register.push_registration_timeout",
	})
}

// Reached handles the end of an attempt to make the link to a peer's pages.
func (p *Producer) Reached(_ *flow.Env, class int, code effects.Code) { p.reached(class, code) }

// Abort ends a batch early. It returns false if the batch is ending already.
func (p *Producer) Abort(e *flow.Env, ref kernel.Ref) bool {
	if p.batches.Get(ref.Subject).closing {
		return false
	}
	p.closeBatch(e, ref.Subject, effects.Cancelled, effects.Why{})
	return true
}

// Left returns the number of rows that a drain waits for.
func (p *Producer) Left(*flow.Env) int { return p.batches.Len() + p.rows.Len() }

// Batches returns the number of lent requests.
func (p *Producer) Batches() int { return p.batches.Len() }

// Registrations returns the number of registrations that wait or are being written.
func (p *Producer) Registrations() int { return p.rows.Len() }

// Tables reports the sizes of the tables.
func (p *Producer) Tables(visit table.Visit) {
	visit("finished requests", p.batches.Len(), table.Empty)
	visit("registrations", p.rows.Len(), table.Empty)
	visit("registrations answered", p.said.Len(), table.Bounded)
	visit("requests aborted", p.aborted.Len(), table.Bounded)
	visit("requests not needed", p.unneeded.Len(), table.Bounded)
}

// Busy adds the number of registrations of each class, so that a class in use is not given to another peer.
func (p *Producer) Busy(all []uint32) {
	for class := range all {
		all[class] += uint32(p.share.Of(class))
	}
}

// ClassLeft handles that a class will belong to another peer.
func (p *Producer) ClassLeft(_ *flow.Env, class int) { p.said.Left(class) }

// DrainAt ends the batch and the registration in a slot, for a drain. It reports whether there are more slots.
func (p *Producer) DrainAt(e *flow.Env, slot int32) (more bool) {
	why := ended(effects.Draining)
	if h := p.batches.At(slot); p.batches.Get(h) != nil && !p.batches.Get(h).closing {
		p.closeBatch(e, h, effects.Draining, *why)
	}
	if h := p.rows.At(slot); p.rows.Get(h) != nil && !p.rows.Get(h).writes() {
		p.conclude(e, h, effects.Draining, why)
	}
	return slot < max(p.batches.Slots(), p.rows.Slots())
}

// PeerLost handles the loss of a silent peer: the registrations of the peer that are not being written end.
func (p *Producer) PeerLost(e *flow.Env, peer effects.Incarnation, silent bool) {
	if !silent {
		return
	}
	e.Work.Looks(int(p.rows.Slots()))
	for slot := range p.rows.Slots() {
		h := p.rows.At(slot)
		if x := p.rows.Get(h); x != nil && x.who == peer && !x.writes() {
			e.Out.Mark(Marks.AskerLost)
			p.conclude(e, h, effects.PeerLost, flow.Cut())
		}
	}
}

// State returns the state of the subject of a Ref.
func (p *Producer) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	if ref.Kind == kindBatch {
		if b := p.batches.Get(ref.Subject); b != nil {
			if b.closing {
				return 2
			}
			return 1
		}
		return 0
	}
	if x := p.rows.Get(ref.Subject); x != nil {
		return 3 + uint16(x.phase)
	}
	return 0
}

// ProducerStateNames returns the names of the states.
func ProducerStateNames() []string {
	return []string{
		"batch over", "batch lent", "batch closing", "registration parked", "registration linking", "registration linked",
		"registration writing", "registration settling",
	}
}

var _ flow.Flow = (*Producer)(nil)
