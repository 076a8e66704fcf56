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
	p.found = p.batchesByName.findRows(e, &x.name, p.batchName, p.found[:0])
	match, unambiguous := p.pickMatch(&x.name)
	switch {
	case match == 0:
		e.Out.Mark(Marks.Parked)
	case !unambiguous || p.batches.Get(match).name.likenessTo(&x.name) != nameExact && p.hasRivalRequests(e, &x.name):
		p.refuseAmbiguous(e, h)
	default:
		p.joinBatch(e, h, x, match)
	}
}

// matchParked searches parked registrations for a new batch. Several ranks of a consumer may be waiting.
func (p *Producer) matchParked(e *flow.Env, batchHandle table.Handle, b *batch) {
	p.found = p.parkedByName.findRows(e, &b.name, p.registrationName, p.found[:0])
	exactCount, similarCount := 0, 0
	for _, h := range p.found {
		switch p.registrations.Get(h).name.likenessTo(&b.name) {
		case nameExact:
			exactCount++
		case nameSimilar:
			similarCount++
		case nameDiffers:
		}
	}
	isAmbiguous := exactCount == 0 && similarCount > 0 && (p.cfg.ExactIDs || p.hasRivalRequests(e, &b.name) || p.hasRivalBatch(e,
		batchHandle, &b.name))
	for _, h := range p.found { // The loop body does not use p.found for another search.
		x := p.registrations.Get(h)
		switch {
		// The registration of another rank has ended the batch.
		case x == nil || p.batches.Get(batchHandle) == nil:
		case exactCount > 0 && x.name.likenessTo(&b.name) != nameExact:
		case isAmbiguous && !p.cfg.ExactIDs:
			p.refuseAmbiguous(e, h)
		case !isAmbiguous:
			p.joinBatch(e, h, x, batchHandle)
		}
	}
}

// hasRivalRequests reports whether parked registrations of several requests, or of several consumers, have a name that
// equals n except for the suffix: then the meaning is ambiguous.
func (p *Producer) hasRivalRequests(e *flow.Env, n *requestName) bool {
	var first *registration
	for at := p.parkedByName.bases.Find(e.Store.HashKey(n.baseName())); at.Found(); at = p.parkedByName.bases.Next(at) {
		x := p.registrations.Get(at.Handle())
		if x.name.likenessTo(n) == nameDiffers {
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

// hasRivalBatch reports whether another batch has a name that equals n except for the suffix.
func (p *Producer) hasRivalBatch(e *flow.Env, batchHandle table.Handle, n *requestName) bool {
	for at := p.batchesByName.bases.Find(e.Store.HashKey(n.baseName())); at.Found(); at = p.batchesByName.bases.Next(at) {
		if at.Handle() != batchHandle && p.batches.Get(at.Handle()).name.likenessTo(n) != nameDiffers {
			return true
		}
	}
	return false
}

// refuseAmbiguous refuses a registration that may mean any of several requests.
func (p *Producer) refuseAmbiguous(e *flow.Env, h table.Handle) {
	e.Out.Mark(Marks.Ambiguous)
	p.finishRegistration(e, h, effects.Refused, &effects.Why{
		Field: "request_id", Theirs: effects.SanitizeText(p.registrations.Get(h).name.request), Ours: "like several but for its end",
		Remedy: "give each transfer a name of its own, at both ends",
	})
}

// joinBatch assigns a registration to a batch and starts the write, or answers why that is not possible.
func (p *Producer) joinBatch(e *flow.Env, h table.Handle, x *registration, batchHandle table.Handle) {
	b := p.batches.Get(batchHandle)
	code, why := effects.OK, (*effects.Why)(nil)
	peerNumbers := e.Links.IncarnationByClass(x.class).Geometry()
	peerGeometry, ok := decodeGeometry(peerNumbers, p.peerGeometry)
	p.peerGeometry = peerGeometry
	if !ok || x.cacheSum != Checksum(peerNumbers, p.ownNumbers) {
		code, why = effects.Stale, cacheMismatchReason()
	}
	if code == effects.OK {
		code, why = b.bindConsumer(e, p.cfg.Geometry, &peerGeometry, x.engine, x.name.request)
	}
	if code == effects.OK && p.isRankServed(e, batchHandle, x.rank) {
		code, why = effects.Ended, &effects.Why{
			Field: "register.tp_rank", Theirs: flow.FormatCount(x.rank), Ours: "one that is being written already,",
			Remedy: "register a request once at each rank",
		}
	}
	if code != effects.OK {
		p.finishRegistration(e, h, code, why)
		return
	}
	code, why = p.pairPages(e, x, b, &peerGeometry)
	p.parkedByName.removeRow(e, &x.name, h)
	x.batch, x.phase, x.matchedAt = batchHandle, regLinkTried, e.Now
	b.registrationCount++
	// Without pairs, the sibling ranks of this producer write everything that the registration asks for.
	if code != effects.OK || len(x.pairs) == 0 {
		p.registrations.PushBack(&p.ready, h)
		p.finishRegistration(e, h, code, why)
		return
	}
	if peerLink := e.Links.ReachPeer(&e.Env, x.class); peerLink != 0 {
		p.startWrite(e, h, x, peerLink)
		return
	}
	x.phase = regLinking
	p.registrations.PushBack(&p.waitingByClass[x.class], h)
}

// isRankServed reports whether another registration of the same rank is in progress from a batch.
func (p *Producer) isRankServed(e *flow.Env, batchHandle table.Handle, rank uint32) bool {
	if p.batches.Get(batchHandle).registrationCount == 0 {
		return false
	}
	e.Work.SpendLooks(int(p.registrations.Slots()))
	for slot := range p.registrations.Slots() {
		if x := p.registrations.Get(p.registrations.At(slot)); x != nil && x.batch == batchHandle && x.rank == rank {
			return true
		}
	}
	return false
}

// pairPages computes which page is written to which page: by positions only, never by counting from the ends of lists.
func (p *Producer) pairPages(e *flow.Env, x *registration, b *batch, peerGeometry *geometry.Geometry) (
	effects.Code, *effects.Why,
) {
	plan, err := geometry.MatchRanks(p.cfg.Geometry, peerGeometry)
	if err != nil {
		return geometryReason(err)
	}
	if x.isTail {
		p.alignTail(x, b)
	}
	pairs, err := plan.PairBlocks(b.blocks.groups, x.blocks.groups)
	if err != nil {
		e.Out.Mark(Marks.Uncovered)
		return geometryReason(err)
	}
	if x.isTail { // A registration without positions states no generations.
		x.generations = append(x.generations[:0], make([]uint64, pairs.Len())...)
	}
	if pairs.Len() != uint64(len(x.generations)) {
		return effects.Stale, cacheMismatchReason()
	}
	x.pairs = x.pairs[:0]
	buffer := e.Links.IncarnationByClass(x.class).FirstBuffer()
	for from, into := range pairs.All() {
		x.pairs = append(x.pairs, effects.Pair{
			Local: e.Pool.CurrentPage(from, uint32(e.Cfg.PageBytes)),
			Remote: effects.RemotePage{
				Buffer: buffer, Index: into, Generation: effects.Generation(x.generations[len(x.pairs)]),
			},
		})
	}
	e.Work.SpendRows(len(x.pairs))
	return effects.OK, nil
}

// alignTail gives a registration without positions the positions of the last finished blocks, which is what its engine
// means. A registration that lists more blocks than were finished keeps the stated positions, and fails as not
// covered.
func (p *Producer) alignTail(x *registration, b *batch) {
	per := uint64(p.cfg.Geometry.PerLogical)
	for i := range x.blocks.groups {
		theirList := &x.blocks.groups[i]
		for _, ourList := range b.blocks.groups {
			if ourList.Group != theirList.Group || len(theirList.Logical) == 0 {
				continue
			}
			listed, end, last := uint64(len(theirList.Logical))*per, ourList.First+uint64(len(ourList.Logical))*per, ourList.End
			if last == 0 {
				last = end
			}
			// Blocks behind the last that counts hold nothing.
			end = min(end, (last+per-1)/per*per)
			if ourList.First+listed <= end {
				theirList.First, theirList.End = end-listed, last
			}
		}
	}
}

// startWrite starts the write. The write ends before the consumer's grant does, by this node's clock from before the
// grant was given (M4). The end of the batch's lease only prevents new writes: the blocks remain lent until this
// write has settled.
func (p *Producer) startWrite(e *flow.Env, h table.Handle, x *registration, peerLink effects.Link) {
	e.Timers.Stop(&x.timer)
	x.phase, x.link, x.writeAt = regWriting, peerLink, e.Now
	p.batches.Get(x.batch).beginWrite(e.Now)
	x.transfer.Begin(&e.Env, effects.Transfer{
		Link: peerLink, Peer: x.peerID, Grant: x.grant, Pairs: x.pairs, Since: x.grantedAfter, NotAfter: x.writeUntil,
	}, producerRef(kindRegistration, h))
}

// onWriteDone handles the end of a write. The consumer receives the answer when nothing writes any more, whatever the
// result is.
func (p *Producer) onWriteDone(e *flow.Env, h table.Handle, ev *effects.TransferDone) {
	x := p.registrations.Get(h)
	if x.code = ev.Code; x.code == effects.PeerLost || x.code == effects.Stale {
		e.Links.DropInboundLink(&e.Env, x.link)
	}
	if !x.transfer.OnDone(ev) {
		e.Out.Mark(Marks.WriteUnsettled)
		x.phase = regSettling
		if x.code == effects.OK {
			x.code = effects.Expired
		}
		return
	}
	p.finishWrite(e, h, x)
}

// onSettled handles the late notice that nothing writes any more.
func (p *Producer) onSettled(e *flow.Env, h table.Handle) {
	x := p.registrations.Get(h)
	x.transfer.OnSettled()
	p.finishWrite(e, h, x)
}

func (p *Producer) finishWrite(e *flow.Env, h table.Handle, x *registration) {
	p.batches.Get(x.batch).endWrite(e.Now)
	code := x.code
	var why *effects.Why
	if code != effects.OK {
		e.Out.Mark(Marks.WriteFailed)
		why = endReason(code)
	}
	x.phase = regLinkTried
	p.registrations.PushBack(&p.ready, h)
	p.finishRegistration(e, h, code, why)
}

// onReachOutcome records the end of an attempt to make the link to the pages of a class.
func (p *Producer) onReachOutcome(class int, code effects.Code) {
	for h := p.waitingByClass[class].Front(); h != 0; h = p.waitingByClass[class].Front() {
		p.registrations.Unlink(&p.waitingByClass[class], h)
		x := p.registrations.Get(h)
		x.phase, x.code = regLinkTried, code
		p.registrations.PushBack(&p.ready, h)
	}
}

// ContinueWork starts the writes to peers with a new link, and answers registrations without a link. It reports whether
// work is left for the next step.
func (p *Producer) ContinueWork(e *flow.Env) (left bool) {
	for h := p.ready.Front(); h != 0; h = p.ready.Front() {
		if !e.Work.HasBudget() {
			return true
		}
		e.Work.SpendRows(1)
		x := p.registrations.Get(h)
		if x.code != effects.OK {
			p.finishRegistration(e, h, x.code, endReason(x.code))
			continue
		}
		p.registrations.Unlink(&p.ready, h)
		if peerLink := e.Links.ReachPeer(&e.Env, x.class); peerLink != 0 {
			p.startWrite(e, h, x, peerLink)
			continue
		}
		x.phase = regLinking // The link was lost again meanwhile.
		p.registrations.PushBack(&p.waitingByClass[x.class], h)
	}
	return false
}
