package layerwise

import (
	"math"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// decideMode decides how a run is sent, as soon as the peer's abilities are known. It reports whether the decision has
// been made. Once made, the decision does not change.
func (f *Source) decideMode(e *flow.Env, r *run) bool {
	state, _ := e.Links.Outbound(r.outbound).State()
	gate, _ := e.Links.Outbound(r.outbound).Gate()
	remote := e.Links.IncarnationOf(r.outbound)
	switch {
	case state == link.Ready && remote.HasWholeChunks():
		r.mode = ByChunk
	case gate == link.GateUnfit || state == link.Ready && remote.Layers() == 0:
		r.mode = ByLayer // The first batch fails with the reason why nothing can be sent.
	case state == link.Ready && remote.AcceptsLayers():
		x := costModel{r.figures, uint64(f.cfg.Layers), e.Cfg.PageBytes, f.cfg.MergeBytes, f.batchLayersMax(e, r)}
		r.mode = x.chooseMode()
	case state == link.Ready || r.finishSave != 0:
		r.mode = AsWhole
	default:
		return false
	}
	f.undecided--
	e.Out.Mark([...]effects.Mark{ByLayer: Marks.ByLayer, AsWhole: Marks.AsWhole, ByChunk: Marks.ByChunk}[r.mode])
	return true
}

// batchLayersMax returns the number of layers that fit in a batch of a run that is sent as a whole, estimated from the
// length of the first key.
func (f *Source) batchLayersMax(e *flow.Env, r *run) uint64 {
	key := int(r.keyEnds[0]) + len("@1023")
	fits := (e.Cfg.Wire.MessageBytes - put.HeadBytes) / max(key+put.KeyHeadBytes, put.PageNameBytes)
	chunks := min(uint64(max(0, fits)), uint64(e.Cfg.BatchMax)) / uint64(f.cfg.Layers)
	return max(1, chunks) * uint64(f.cfg.Layers)
}

// advanceRun sends the batches that are due, and ends the run if nothing is left of it: what was queued may be whole at
// the peer already.
func (f *Source) advanceRun(e *flow.Env, h table.Handle, r *run) {
	if f.flushRun(e, h, r); f.runs.Get(h) != nil {
		f.maybeCompleteRun(e, h, r)
	}
}

// flushRun sends the batches that are due. If no batch of the run is in flight, ready layers are sent at once;
// otherwise layers are collected until a batch has MergeBytes.
func (f *Source) flushRun(e *flow.Env, h table.Handle, r *run) {
	if r.failCode != effects.OK || r.paused || r.queue.Len() == 0 || r.mode == Undecided && !f.decideMode(e, r) {
		return
	}
	for r.queue.Len() > 0 && r.batches.Len() < int(f.cfg.BatchesMax) {
		if r.finishSave == 0 && (r.mode == AsWhole || r.batches.Len() > 0 &&
			uint64(r.countReady(&f.items, f.cfg.Layers))*e.Cfg.PageBytes < f.cfg.MergeBytes) {
			return
		}
		if !e.Carrier.HasRoom() || f.batches.Full() {
			f.needsSlot = true
			return
		}
		if !f.sendBatch(e, h, r) {
			return
		}
	}
}

// countReady returns the number of queued items that may be sent. In a run that is sent by chunks, only items of
// completely saved chunks may be sent.
func (r *run) countReady(items *table.Slab[item], layers uint32) int {
	first := items.Get(r.queue.Front())
	if r.mode != ByChunk || first == nil {
		return r.queue.Len()
	}
	return int(max(r.savedEnd(), first.chunk)-first.chunk) * int(layers)
}

// savedEnd returns the chunk before which every layer of each chunk was saved. Items of these chunks are at the front
// of the queue.
func (r *run) savedEnd() uint32 {
	if r.finishSave != 0 {
		return r.chunkCount
	}
	return slices.Min(r.savedEnds)
}

// checkItem returns whether a batch b that begins with the item x opens the item's chunk, and whether the item may be
// sent now.
func (r *run) checkItem(x *item, b table.Handle) (opens, may bool) {
	c := r.chunkAt(x.chunk)
	return !c.open, c.open || c.opener == 0 || c.opener == b
}

// isTail reports whether an item belongs to the incomplete chunk at the end of the request.
func (r *run) isTail(x *item) bool { return r.tailTokens > 0 && x.chunk+1 == r.chunkCount }

// sendBatch sends a batch of items from the front of the queue, and reports whether a batch was sent.
//
// Chunks are opened in order, by a single batch at a time. Suppose that several opening batches were in flight: a
// peer that is almost full could refuse the first batch and have room for the next. The peer would then hold chunks
// that the engine reads only after the missing ones, and a few requests of this kind would keep the peer full
// forever.
func (f *Source) sendBatch(e *flow.Env, h table.Handle, r *run) bool {
	first := f.firstItem(e, r)
	if first == nil {
		return false
	}
	opens, may := r.checkItem(first, 0)
	if !may || opens && r.opening != 0 {
		e.Out.Mark(Marks.Blocked)
		return false
	}
	if r.mode == ByChunk && first.chunk >= r.savedEnd() {
		return false // Layers of the chunk are missing.
	}
	bh, b := f.batches.Add()
	*b = batch{run: h, epoch: r.epoch}
	tail := r.isTail(first)
	chunks := f.gatherItems(e, r, bh, b, opens, tail)
	if b.items.Len() == 0 {
		f.batches.Remove(bh)
		f.failRun(e, h, r, effects.TooLarge, invalidReason("Keys", "all layers of a chunk", "what a message can have"))
		return false
	}
	f.batches.PushBack(&r.batches, bh)
	keys := f.keys[:0]
	for i := range f.keyEnds {
		from := 0
		if i > 0 {
			from = f.keyEnds[i-1]
		}
		keys = append(keys, f.keyText[from:f.keyEnds[i]])
	}
	f.keys = keys
	tokens := e.Cfg.Layout.TokenCount()
	if tail {
		e.Out.Mark(Marks.TailSent)
		tokens = r.tailTokens
	}
	f.carried = flow.CarriedPut{
		Put: engine.Put{
			Peer: r.peer, Keys: keys, Pages: f.pages, LastChunkTokens: tokens, Timeout: e.Commands.PutTimeout(), Trace: r.trace,
		},
		Requester: sourceRef(kindBatch, bh), Request: r.request, Layers: f.cfg.Layers, WholeChunks: r.mode != ByLayer, Epoch: r.epoch,
		OpeningGrant: r.chunkAt(first.chunk).grant,
	}
	f.carried.QueuedAt, f.carried.ReadyBefore = f.firstSaved(b)
	if opens {
		b.openedChunks, r.opening = chunks, bh
	}
	b.put = e.Carrier.StartCarriedPut(e, &f.carried)
	return true
}

// firstSaved returns when the first of a batch's layers was saved, and for how long the link had been up by then.
func (f *Source) firstSaved(b *batch) (at effects.Time, readyBefore effects.Duration) {
	at = math.MaxInt64
	for h := b.items.Front(); h != 0; h = f.items.Next(h) {
		if x := f.items.Get(h); x.savedAt < at {
			at, readyBefore = x.savedAt, x.readyBefore
		}
	}
	return at, readyBefore
}

// firstItem returns the first queued item, or nil. Items of chunks that are whole at the peer are removed from the
// queue.
func (f *Source) firstItem(e *flow.Env, r *run) *item {
	for at := r.queue.Front(); at != 0; at = r.queue.Front() {
		x := f.items.Get(at)
		if !r.chunkAt(x.chunk).wholeAtPeer {
			return x
		}
		f.items.Unlink(&r.queue, at)
		f.removeItem(e, at)
	}
	return nil
}

// gatherItems moves items from the front of the queue into a batch, as long as they may be sent together. It returns
// the number of chunks.
func (f *Source) gatherItems(e *flow.Env, r *run, bh table.Handle, b *batch, opens, tail bool) (chunks uint32) {
	// of is the chunk of the previous item, and grant the grant of all items.
	of, grant := uint32(math.MaxUint32), effects.GrantID(0)
	if x := f.firstItem(e, r); x != nil {
		grant = r.chunkAt(x.chunk).grant
	}
	f.keyText, f.keyEnds, f.pages = f.keyText[:0], f.keyEnds[:0], f.pages[:0]
	ask, answer, size := put.HeadBytes, put.HeadBytes, uint64(0)
	// group is the number of layers that must be sent together, and end the first chunk that may not be sent.
	group, end := uint32(1), uint32(math.MaxUint32)
	if r.mode == ByChunk {
		end = r.savedEnd()
	}
	if r.mode != ByLayer {
		group = f.cfg.Layers
	}
	for x := f.firstItem(e, r); x != nil; x = f.firstItem(e, r) {
		o, may := r.checkItem(x, bh)
		if o != opens || !may || r.isTail(x) != tail || x.chunk >= end || r.chunkAt(x.chunk).grant != grant {
			return chunks
		}
		another := uint32(0)
		if x.chunk != of {
			another = 1
		}
		if opens && r.openLimit > 0 && chunks+another > r.openLimit {
			e.Out.Mark(Marks.Narrowed)
			return chunks
		}
		key := r.keyAt(x.chunk)
		ask += int(group) * (len(key) + len("@1023") + put.KeyHeadBytes)
		answer += int(group) * put.PageNameBytes
		if len(f.pages)+int(group) > int(e.Cfg.BatchMax) || max(ask, answer) > e.Cfg.Wire.MessageBytes {
			e.Out.Mark(Marks.Split)
			return chunks
		}
		size += uint64(group) * uint64(x.page.Length)
		if r.mode != AsWhole && len(f.keyEnds) > 0 && size > f.cfg.MergeBytes {
			e.Out.Mark(Marks.Split)
			return chunks
		}
		chunks, of = chunks+another, x.chunk
		if r.mode == ByLayer {
			f.keyText = protocol.AppendLayerKey(f.keyText, key, x.layer)
			f.moveItem(r, bh, b, r.queue.Front(), opens)
		} else {
			f.keyText = append(f.keyText, key...)
			f.chunkItems = r.appendByLayer(&f.items, f.cfg.Layers, f.chunkItems[:0])
			for _, at := range f.chunkItems {
				f.moveItem(r, bh, b, at, opens)
			}
		}
		f.keyEnds = append(f.keyEnds, len(f.keyText))
	}
	if r.mode == ByLayer && len(f.keyEnds) > 1 {
		e.Out.Mark(Marks.Merged)
	}
	return chunks
}

// appendByLayer appends all layers of the first queued chunk, sorted by layer.
func (r *run) appendByLayer(items *table.Slab[item], layers uint32, dst []table.Handle) []table.Handle {
	for at := r.queue.Front(); len(dst) < int(layers); at = items.Next(at) {
		dst = append(dst, at)
	}
	slices.SortFunc(dst, func(a, b table.Handle) int { return int(items.Get(a).layer) - int(items.Get(b).layer) })
	return dst
}

// moveItem moves an item from the queue to a batch.
func (f *Source) moveItem(r *run, bh table.Handle, b *batch, h table.Handle, opens bool) {
	x := f.items.Get(h)
	f.items.Unlink(&r.queue, h)
	f.items.PushBack(&b.items, h)
	x.queued = false
	if opens {
		r.chunkAt(x.chunk).opener = bh
	}
	f.pages = append(f.pages, x.page)
}

// OnCarriedResult handles the outcome of a batch, or the later notice that the pages of a batch are not read any more.
func (f *Source) OnCarriedResult(e *flow.Env, t *flow.CarriedResult) {
	bh := t.Requester.Subject
	b := f.batches.Get(bh)
	if t.Returned {
		f.releaseBatch(e, bh, b)
		return
	}
	h := b.run
	r := f.runs.Get(h)
	if r != nil {
		f.batches.Unlink(&r.batches, bh)
		if r.opening == bh {
			r.opening = 0
		}
		switch {
		case b.epoch != r.epoch || r.failCode != effects.OK:
		case t.NoRoom && !t.Held:
			f.requeueBatch(e, h, r, bh, b, t)
		case t.Code != effects.OK:
			f.failRun(e, h, r, t.Code, t.Why)
		default:
			f.confirmBatch(e, r, b, t)
		}
	}
	if !t.Held {
		f.releaseBatch(e, bh, b)
	}
	if r = f.runs.Get(h); r != nil {
		f.advanceRun(e, h, r)
	}
}

// requeueBatch handles a batch that the peer refused for lack of room. The items return to the queue. A batch that
// opens several chunks is sent again with half as many chunks. A batch that opens a single chunk is sent again when a
// chunk of this run has become whole, or after a delay. So a prompt that exceeds the free room of the peer is sent in
// parts, and a prompt that has to wait for others is sent after them; neither is computed again. If the run does not
// finish in time, it fails with the reason that the peer gave.
func (f *Source) requeueBatch(e *flow.Env, h table.Handle, r *run, bh table.Handle, b *batch, t *flow.CarriedResult) {
	e.Out.Mark(Marks.NoRoom)
	if t.Code != effects.BackedOff || r.refusalCode == effects.OK {
		r.refusalCode, r.refusalReason = t.Code, t.Why
	}
	for at := b.items.Front(); at != 0; at = f.items.Next(at) {
		x := f.items.Get(at)
		x.queued = true
		if c := r.chunkAt(x.chunk); c.opener == bh {
			c.opener = 0
		}
	}
	tail := r.isTail(f.items.Get(b.items.Front()))
	f.requeueItems(&r.queue, &b.items, tail)
	if b.openedChunks > 0 {
		r.openLimit = max(1, b.openedChunks/2)
	}
	if b.openedChunks > 1 && !r.peerFull {
		return
	}
	// The peer reserved room for the chunk and lacks something else: a grant.
	if b.openedChunks == 0 {
		r.paused = true
	} else {
		r.peerFull = true
		e.Work.SpendLooks(r.queue.Len())
		shut := table.List{}
		for at := r.queue.Front(); at != 0; {
			next := f.items.Next(at)
			if !r.chunkAt(f.items.Get(at).chunk).open {
				f.items.Unlink(&r.queue, at)
				f.items.PushBack(&shut, at)
			}
			at = next
		}
		f.requeueItems(&r.blocked, &shut, tail)
	}
	if r.retryTimer == 0 {
		e.Timers.Set(&r.retryTimer, e.Now.Add(max(1, e.Cfg.AllocTimeout/8)),
			kernel.Ref{Owner: kernel.OwnerLayers, Kind: kindRetry, Subject: h})
	}
}

// requeueItems inserts items in front of a list, because the items of the list were queued later. Items of the
// incomplete last chunk are appended instead, because that chunk is sent last.
func (f *Source) requeueItems(list, items *table.List, tail bool) {
	if tail {
		f.items.JoinLists(list, items)
		return
	}
	f.items.JoinLists(items, list)
	*list, *items = *items, table.List{}
}

// resumeRun lets a run send again what the peer had no room for.
func (f *Source) resumeRun(e *flow.Env, r *run) {
	if r.peerFull || r.paused {
		r.peerFull, r.paused = false, false
		e.Timers.Stop(&r.retryTimer)
		f.items.JoinLists(&r.queue, &r.blocked)
	}
}

// confirmBatch records what the peer has accepted.
func (f *Source) confirmBatch(e *flow.Env, r *run, b *batch, t *flow.CarriedResult) {
	room := b.openedChunks > 0
	if room && r.openLimit < e.Cfg.BatchMax {
		r.openLimit += r.openLimit
	}
	place, seen := uint32(0), 0
	for at := b.items.Front(); at != 0; at = f.items.Next(at) {
		x := f.items.Get(at)
		c := r.chunkAt(x.chunk)
		if c.opener = 0; !c.open {
			c.open, c.grant = true, t.Grant
		}
		if c.acceptedLayers++; c.acceptedLayers == f.cfg.Layers {
			c.wholeAtPeer, room = true, true
		}
		if seen < len(t.PresentPages) && t.PresentPages[seen] == place {
			seen, c.wholeAtPeer = seen+1, true
		}
		place++
	}
	if room {
		f.resumeRun(e, r)
	}
}

// releaseBatch returns the pages of a batch that nothing reads any more, and removes the batch.
func (f *Source) releaseBatch(e *flow.Env, bh table.Handle, b *batch) {
	for at := b.items.Front(); at != 0; at = b.items.Front() {
		f.items.Unlink(&b.items, at)
		f.removeItem(e, at)
	}
	f.batches.Remove(bh)
}
