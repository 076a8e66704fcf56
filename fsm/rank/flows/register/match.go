package register

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/table"
)

// matchBatch searches a batch for a new registration.
func (p *Producer) matchBatch(e *flow.Env, h table.Handle, x *registration) {
	p.found = p.named.find(e, &x.name, p.batchName, p.found[:0])
	of, clear := p.matchFound(&x.name)
	switch {
	case of == 0:
		e.Out.Mark(Marks.Parked)
	case !clear || p.batches.Get(of).name.like(&x.name) != exact && p.rivals(e, &x.name):
		p.ambiguous(e, h)
	default:
		p.join(e, h, x, of)
	}
}

// matchParked searches parked registrations for a new batch. Several ranks of a consumer may be waiting.
func (p *Producer) matchParked(e *flow.Env, of table.Handle, b *batch) {
	p.found = p.parked.find(e, &b.name, p.rowName, p.found[:0])
	exactly, loosely := 0, 0
	for _, h := range p.found {
		switch p.rows.Get(h).name.like(&b.name) {
		case exact:
			exactly++
		case alike:
			loosely++
		case unlike:
		}
	}
	vague := exactly == 0 && loosely > 0 && (p.cfg.ExactIDs || p.rivals(e, &b.name) || p.rival(e, of, &b.name))
	for _, h := range p.found { // The loop body does not use p.found for another search.
		x := p.rows.Get(h)
		switch {
		// The registration of another rank has ended the batch.
		case x == nil || p.batches.Get(of) == nil:
		case exactly > 0 && x.name.like(&b.name) != exact:
		case vague && !p.cfg.ExactIDs:
			p.ambiguous(e, h)
		case !vague:
			p.join(e, h, x, of)
		}
	}
}

// rivals reports whether parked registrations of several requests, or of several consumers, have a name that equals n
// except for the suffix: then the meaning is ambiguous.
func (p *Producer) rivals(e *flow.Env, n *name) bool {
	var first *registration
	for at := p.parked.bases.Seek(e.Store.Hash(n.base())); at.Found(); at = p.parked.bases.Next(at) {
		x := p.rows.Get(at.Handle())
		if x.name.like(n) == unlike {
			continue
		}
		if first == nil {
			first = x
		}
		if !bytes.Equal(first.name.request, x.name.request) || !bytes.Equal(first.engine, x.engine) {
			return true
		}
	}
	return false
}

// rival reports whether another batch has a name that equals n except for the suffix.
func (p *Producer) rival(e *flow.Env, of table.Handle, n *name) bool {
	for at := p.named.bases.Seek(e.Store.Hash(n.base())); at.Found(); at = p.named.bases.Next(at) {
		if at.Handle() != of && p.batches.Get(at.Handle()).name.like(n) != unlike {
			return true
		}
	}
	return false
}

// ambiguous refuses a registration that may mean any of several requests.
func (p *Producer) ambiguous(e *flow.Env, h table.Handle) {
	e.Out.Mark(Marks.Ambiguous)
	p.conclude(e, h, effects.Refused, &effects.Why{
		Field: "request_id", Theirs: effects.Words(p.rows.Get(h).name.request), Ours: "like several but for its end",
		Remedy: "give each transfer a name of its own, at both ends",
	})
}

// join assigns a registration to a batch and starts the write, or answers why that is not possible.
func (p *Producer) join(e *flow.Env, h table.Handle, x *registration, of table.Handle) {
	b := p.batches.Get(of)
	code, why := effects.OK, (*effects.Why)(nil)
	said := e.Links.OfClass(x.class).Geometry()
	theirs, ok := read(said, p.theirs)
	p.theirs = theirs
	if !ok || x.caches != Sum(said, p.own) {
		code, why = effects.Stale, otherCache()
	}
	if code == effects.OK {
		code, why = b.bind(e, p.cfg.Geometry, &theirs, x.engine, x.name.request)
	}
	if code == effects.OK && p.served(e, of, x.rank) {
		code, why = effects.Ended, &effects.Why{
			Field: "register.tp_rank", Theirs: flow.Number(x.rank), Ours: "one that is being written already,",
			Remedy: "register a request once at each rank",
		}
	}
	if code != effects.OK {
		p.conclude(e, h, code, why)
		return
	}
	code, why = p.pair(e, x, b, &theirs)
	p.parked.remove(e, &x.name, h)
	x.batch, x.phase = of, regUnlinked
	b.rows++
	// Without pairs, the sibling ranks of this producer write everything that the registration asks for.
	if code != effects.OK || len(x.pairs) == 0 {
		p.rows.PushBack(&p.ready, h)
		p.conclude(e, h, code, why)
		return
	}
	if over := e.Links.Reach(&e.Env, x.class); over != 0 {
		p.begins(e, h, x, over)
		return
	}
	x.phase = regLinking
	p.rows.PushBack(&p.waits[x.class], h)
}

// served reports whether another registration of the same rank is in progress from a batch.
func (p *Producer) served(e *flow.Env, of table.Handle, rank uint32) bool {
	if p.batches.Get(of).rows == 0 {
		return false
	}
	e.Work.Looks(int(p.rows.Slots()))
	for slot := range p.rows.Slots() {
		if x := p.rows.Get(p.rows.At(slot)); x != nil && x.batch == of && x.rank == rank {
			return true
		}
	}
	return false
}

// pair computes which page is written to which page: by positions only, never by counting from the ends of lists.
func (p *Producer) pair(e *flow.Env, x *registration, b *batch, theirs *geometry.Geometry) (
	effects.Code, *effects.Why,
) {
	plan, err := geometry.Match(p.cfg.Geometry, theirs)
	if err != nil {
		return unpaired(err)
	}
	if x.tail {
		p.align(x, b)
	}
	pairs, err := plan.Pairs(b.blocks.of, x.blocks.of)
	if err != nil {
		e.Out.Mark(Marks.Uncovered)
		return unpaired(err)
	}
	if x.tail { // A registration without positions states no generations.
		x.lives = append(x.lives[:0], make([]uint64, pairs.Len())...)
	}
	if pairs.Len() != uint64(len(x.lives)) {
		return effects.Stale, otherCache()
	}
	x.pairs = x.pairs[:0]
	buffer := e.Links.OfClass(x.class).FirstBuffer()
	for from, into := range pairs.All() {
		x.pairs = append(x.pairs, effects.Pair{
			Local: e.Pool.Life(from, uint32(e.Cfg.PageBytes)),
			Remote: effects.RemotePage{
				Buffer: buffer, Index: into, Generation: effects.Generation(x.lives[len(x.pairs)]),
			},
		})
	}
	e.Work.Spend(len(x.pairs))
	return effects.OK, nil
}

// align gives a registration without positions the positions of the last finished blocks, which is what its engine
// means. A registration that lists more blocks than were finished keeps the stated positions, and fails as not
// covered.
func (p *Producer) align(x *registration, b *batch) {
	per := uint64(p.cfg.Geometry.PerLogical)
	for i := range x.blocks.of {
		theirs := &x.blocks.of[i]
		for _, ours := range b.blocks.of {
			if ours.Group != theirs.Group || len(theirs.Logical) == 0 {
				continue
			}
			listed, end, last := uint64(len(theirs.Logical))*per, ours.First+uint64(len(ours.Logical))*per, ours.End
			if last == 0 {
				last = end
			}
			// Blocks behind the last that counts hold nothing.
			end = min(end, (last+per-1)/per*per)
			if ours.First+listed <= end {
				theirs.First, theirs.End = end-listed, last
			}
		}
	}
}

// begins starts the write. The write ends before the consumer's grant does, by this node's clock from before the
// grant was given (M4). The end of the batch's lease only prevents new writes: the blocks remain lent until this
// write has settled.
func (p *Producer) begins(e *flow.Env, h table.Handle, x *registration, over effects.Link) {
	e.Timers.Stop(&x.timer)
	x.phase, x.link = regWriting, over
	x.write.Begin(&e.Env, effects.Transfer{
		Link: over, Peer: x.who, Grant: x.grant, Pairs: x.pairs, Since: x.since, NotAfter: x.until,
	}, producerRef(kindRegistration, h))
}

// written handles the end of a write. The consumer receives the answer when nothing writes any more, whatever the
// result is.
func (p *Producer) written(e *flow.Env, h table.Handle, ev *effects.TransferDone) {
	x := p.rows.Get(h)
	if x.code = ev.Code; x.code == effects.PeerLost || x.code == effects.Stale {
		e.Links.Unreach(&e.Env, x.link)
	}
	if !x.write.Done(ev) {
		e.Out.Mark(Marks.WriteUnsettled)
		x.phase = regSettling
		if x.code == effects.OK {
			x.code = effects.Expired
		}
		return
	}
	p.ended(e, h, x)
}

// settled handles the late notice that nothing writes any more.
func (p *Producer) settled(e *flow.Env, h table.Handle) {
	x := p.rows.Get(h)
	x.write.Settled()
	p.ended(e, h, x)
}

func (p *Producer) ended(e *flow.Env, h table.Handle, x *registration) {
	code := x.code
	var why *effects.Why
	if code != effects.OK {
		e.Out.Mark(Marks.WriteFailed)
		why = ended(code)
	}
	x.phase = regUnlinked
	p.rows.PushBack(&p.ready, h)
	p.conclude(e, h, code, why)
}

// reached records the end of an attempt to make the link to the pages of a class.
func (p *Producer) reached(class int, code effects.Code) {
	for h := p.waits[class].Front(); h != 0; h = p.waits[class].Front() {
		p.rows.Unlink(&p.waits[class], h)
		x := p.rows.Get(h)
		x.phase, x.code = regUnlinked, code
		p.rows.PushBack(&p.ready, h)
	}
}

// Continue starts the writes to peers with a new link, and answers registrations without a link. It reports whether
// work is left for the next step.
func (p *Producer) Continue(e *flow.Env) (left bool) {
	for h := p.ready.Front(); h != 0; h = p.ready.Front() {
		if !e.Work.Left() {
			return true
		}
		e.Work.Spend(1)
		x := p.rows.Get(h)
		if x.code != effects.OK {
			p.conclude(e, h, x.code, ended(x.code))
			continue
		}
		p.rows.Unlink(&p.ready, h)
		if over := e.Links.Reach(&e.Env, x.class); over != 0 {
			p.begins(e, h, x, over)
			continue
		}
		x.phase = regLinking // The link was lost again meanwhile.
		p.rows.PushBack(&p.waits[x.class], h)
	}
	return false
}
