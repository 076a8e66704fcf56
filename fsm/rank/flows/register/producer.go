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

// A Producer writes what is finished into blocks that are registered for it.
type Producer struct {
	cfg      *Settings     `snap:"share"`
	whole    geometry.Plan `snap:"share"` // all pages of ours
	own      []uint64      `snap:"share"` // Numbers of ours
	batches  table.Slab[batch]
	named    byName // batches
	rows     table.Slab[registration]
	parked   byName      // registrations without a batch
	byWho    table.Index // registrations, by their operation
	share    table.Share // of registrations, by class
	waits    []table.List
	ready    table.List
	said     replies.Words
	aborted  flow.Abandons // requests that will not come
	unneeded flow.Abandons // that nobody needs

	reg    protocol.PushRegistration `snap:"scratch"`
	off    protocol.PushWithdrawal   `snap:"scratch"`
	keep   protocol.PushKeep         `snap:"scratch"`
	end    protocol.PushEnd          `snap:"scratch"`
	theirs geometry.Geometry         `snap:"scratch"`
	pages  []effects.Page            `snap:"scratch"`
	blocks []geometry.Blocks         `snap:"scratch"`
	found  []table.Handle            `snap:"scratch"`
}

// Kinds of what a Producer's Refs are for.
const (
	kindBatch        uint8 = iota + 1 // a batch: its lease, and its ticket
	kindRegistration                  // a registration: its time, and its write
)

func producerRef(kind uint8, h table.Handle) kernel.Ref {
	return kernel.Ref{Owner: kernel.OwnerProducer, Kind: kind, Subject: h}
}

// Emptied returns a Producer that has finished nothing, in the memory of p, which is not used any more.
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

// Step takes a command, a message, or what becomes of a write.
func (p *Producer) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.Command:
		switch body := x.Body.(type) {
		case *Finished:
			p.lend(e, x.Ticket, body)
		case *Aborted:
			p.abortNamed(e, x.Ticket, body)
		}
	case *effects.Received:
		p.received(e, x)
	case *effects.TransferDone:
		p.written(e, ref.Subject, x)
	case *effects.Settled:
		p.settled(e, ref.Subject)
	default:
		kernel.Foreign("who writes what is finished")
	}
}

// Due takes a deadline.
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

// Signal is told how an attempt ended to reach the pages of a peer.
func (p *Producer) Signal(_ *flow.Env, _ kernel.Ref, s flow.Signal) {
	if s.Kind != flow.Reached {
		kernel.Foreign("who writes what is finished")
	}
	p.reached(s.Class, s.Code)
}

// Abort ends a batch early, and says whether there was anything to end.
func (p *Producer) Abort(e *flow.Env, ref kernel.Ref) bool {
	if p.batches.Get(ref.Subject).closing {
		return false
	}
	p.closeBatch(e, ref.Subject, effects.Cancelled, effects.Why{})
	return true
}

// Left counts what a drain waits for.
func (p *Producer) Left(*flow.Env) int { return p.batches.Len() + p.rows.Len() }

// Batches is how many requests are lent.
func (p *Producer) Batches() int { return p.batches.Len() }

// Registrations is how many wait or are written.
func (p *Producer) Registrations() int { return p.rows.Len() }

// Tables shows what is in the tables of who writes what is finished.
func (p *Producer) Tables(visit table.Visit) {
	visit("finished requests", p.batches.Len(), table.Empty)
	visit("registrations", p.rows.Len(), table.Empty)
	visit("registrations answered", p.said.Len(), table.Bounded)
	visit("requests aborted", p.aborted.Len(), table.Bounded)
	visit("requests not needed", p.unneeded.Len(), table.Bounded)
}

// Busy adds what is kept for each class, so that it stays its peer's.
func (p *Producer) Busy(all []uint32) {
	for class := range all {
		all[class] += uint32(p.share.Of(class))
	}
}

// ClassLeft handles that a class is another peer's from now on.
func (p *Producer) ClassLeft(class int) { p.said.Left(class) }

// DrainAt ends what is at a slot, for a drain, and says whether there are more.
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

// Lost handles that a peer is gone: what it registered and nothing writes yet, it does not want any more.
func (p *Producer) Lost(e *flow.Env, peer effects.Incarnation) {
	e.Work.Looks(int(p.rows.Slots()))
	for slot := range p.rows.Slots() {
		h := p.rows.At(slot)
		if x := p.rows.Get(h); x != nil && x.who == peer && !x.writes() {
			e.Out.Mark(Marks.AskerLost)
			p.conclude(e, h, effects.PeerLost, flow.Cut())
		}
	}
}

// State is where what a Ref is of stands.
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

// ProducerStates is how many there are.
const ProducerStates = 3 + int(regPhases)

// ProducerStateNames are their names.
func ProducerStateNames() []string {
	return []string{
		"batch over", "batch lent", "batch closing", "registration parked", "registration linking", "registration linked",
		"registration writing", "registration settling",
	}
}

var _ flow.Flow = (*Producer)(nil)
