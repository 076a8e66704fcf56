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

// decide decides how a run is sent, as soon as the peer's abilities are known. It reports whether the decision has
// been made. Once made, the decision does not change.
func (f *Source) decide(e *flow.Env, r *run) bool {
	state, _ := e.Links.Outbound(r.to).State()
	gate, _ := e.Links.Outbound(r.to).Gate()
	of := e.Links.Of(r.to)
	switch {
	case state == link.Ready && of.Chunks():
		r.way = ByChunk
	case gate == link.GateUnfit || state == link.Ready && of.Layers() == 0:
		r.way = ByLayer // The first batch fails with the reason why nothing can be sent.
	case state == link.Ready && of.TakesLayers():
		x := figures{r.figures, uint64(f.cfg.Layers), e.Cfg.PageBytes, f.cfg.MergeBytes, f.most(e, r)}
		r.way = x.way()
	case state == link.Ready || r.finish != 0:
		r.way = AsWhole
	default:
		return false
	}
	f.waiting--
	e.Out.Mark([...]effects.Mark{ByLayer: Marks.ByLayer, AsWhole: Marks.AsWhole, ByChunk: Marks.ByChunk}[r.way])
	return true
}

// most returns the number of layers that fit in a batch of a run that is sent as a whole, estimated from the length
// of the first key.
func (f *Source) most(e *flow.Env, r *run) uint64 {
	key := int(r.ends[0]) + len("@1023")
	fits := (e.Cfg.Wire.MessageBytes - put.HeadBytes) / max(key+put.KeyHeadBytes, put.PlaceBytes)
	chunks := min(uint64(max(0, fits)), uint64(e.Cfg.BatchMax)) / uint64(f.cfg.Layers)
	return max(1, chunks) * uint64(f.cfg.Layers)
}

// flush sends the batches that are due. If no batch of the run is in flight, ready layers are sent at once; otherwise
// layers are collected until a batch has MergeBytes.
func (f *Source) flush(e *flow.Env, h table.Handle, r *run) {
	if r.failed != effects.OK || r.paused || r.queue.Len() == 0 || r.way == Undecided && !f.decide(e, r) {
		return
	}
	for r.queue.Len() > 0 && r.batches.Len() < int(f.cfg.BatchesMax) {
		if r.finish == 0 && (r.way == AsWhole || r.batches.Len() > 0 &&
			uint64(r.ready(&f.items, f.cfg.Layers))*e.Cfg.PageBytes < f.cfg.MergeBytes) {
			return
		}
		if !e.Carrier.Room() || f.batches.Full() {
			f.stuck = true
			return
		}
		if !f.send(e, h, r) {
			return
		}
	}
}

// ready returns the number of queued items that may be sent. In a run that is sent by chunks, only items of
// completely saved chunks may be sent.
func (r *run) ready(items *table.Slab[item], layers uint32) int {
	first := items.Get(r.queue.Front())
	if r.way != ByChunk || first == nil {
		return r.queue.Len()
	}
	return int(max(r.whole(), first.chunk)-first.chunk) * int(layers)
}

// whole returns the chunk before which every layer of each chunk was saved. Items of these chunks are at the front of
// the queue.
func (r *run) whole() uint32 {
	if r.finish != 0 {
		return r.total
	}
	return slices.Min(r.sent)
}

// kind returns whether a batch b that begins with the item x opens the item's chunk, and whether the item may be sent
// now.
func (r *run) kind(x *item, b table.Handle) (opens, may bool) {
	c := r.chunk(x.chunk)
	return !c.open, c.open || c.opener == 0 || c.opener == b
}

// isTail reports whether an item belongs to the incomplete chunk at the end of the request.
func (r *run) isTail(x *item) bool { return r.tokens > 0 && x.chunk+1 == r.total }

// send sends a batch of items from the front of the queue, and reports whether a batch was sent.
//
// Chunks are opened in order, by a single batch at a time. Suppose that several opening batches were in flight: a
// peer that is almost full could refuse the first batch and have room for the next. The peer would then hold chunks
// that the engine reads only after the missing ones, and a few requests of this kind would keep the peer full
// forever.
func (f *Source) send(e *flow.Env, h table.Handle, r *run) bool {
	first := f.first(e, r)
	if first == nil {
		return false
	}
	opens, may := r.kind(first, 0)
	if !may || opens && r.opening != 0 {
		e.Out.Mark(Marks.Blocked)
		return false
	}
	if r.way == ByChunk && first.chunk >= r.whole() {
		return false // Layers of the chunk are missing.
	}
	bh, b := f.batches.Add()
	*b = batch{of: h, epoch: r.epoch}
	tail := r.isTail(first)
	chunks := f.gather(e, r, bh, b, opens, tail)
	if b.items.Len() == 0 {
		f.batches.Remove(bh)
		f.fail(e, h, r, effects.TooLarge, invalid("Keys", "all layers of a chunk", "what a message can have"))
		return false
	}
	f.batches.PushBack(&r.batches, bh)
	keys := f.keys[:0]
	for i := range f.ends {
		from := 0
		if i > 0 {
			from = f.ends[i-1]
		}
		keys = append(keys, f.text[from:f.ends[i]])
	}
	f.keys = keys
	tokens := e.Cfg.Layout.Tokens()
	if tail {
		e.Out.Mark(Marks.TailSent)
		tokens = r.tokens
	}
	f.put = flow.Carried{
		Put: engine.Put{
			Peer: r.peer, Keys: keys, Pages: f.page, LastChunkTokens: tokens, Patience: e.Commands.PutTimeout(),
		},
		For: ref(kindBatch, bh), Request: r.request, Layers: f.cfg.Layers, Whole: r.way != ByLayer, Epoch: r.epoch,
		Opened: r.chunk(first.chunk).grant,
	}
	if opens {
		b.opens, r.opening = chunks, bh
	}
	b.put = e.Carrier.Carry(e, &f.put)
	return true
}

// first returns the first queued item, or nil. Items of chunks that are whole at the peer are removed from the queue.
func (f *Source) first(e *flow.Env, r *run) *item {
	for at := r.queue.Front(); at != 0; at = r.queue.Front() {
		x := f.items.Get(at)
		if !r.chunk(x.chunk).there {
			return x
		}
		f.items.Unlink(&r.queue, at)
		f.back(e, at)
	}
	return nil
}

// gather moves items from the front of the queue into a batch, as long as they may be sent together. It returns the
// number of chunks.
func (f *Source) gather(e *flow.Env, r *run, bh table.Handle, b *batch, opens, tail bool) (chunks uint32) {
	// of is the chunk of the previous item, and grant the grant of all items.
	of, grant := uint32(math.MaxUint32), effects.GrantID(0)
	if x := f.first(e, r); x != nil {
		grant = r.chunk(x.chunk).grant
	}
	f.text, f.ends, f.page = f.text[:0], f.ends[:0], f.page[:0]
	ask, answer, size := put.HeadBytes, put.HeadBytes, uint64(0)
	// group is the number of layers that must be sent together, and end the first chunk that may not be sent.
	group, end := uint32(1), uint32(math.MaxUint32)
	if r.way == ByChunk {
		end = r.whole()
	}
	if r.way != ByLayer {
		group = f.cfg.Layers
	}
	for x := f.first(e, r); x != nil; x = f.first(e, r) {
		o, may := r.kind(x, bh)
		if o != opens || !may || r.isTail(x) != tail || x.chunk >= end || r.chunk(x.chunk).grant != grant {
			return chunks
		}
		another := uint32(0)
		if x.chunk != of {
			another = 1
		}
		if opens && r.narrow > 0 && chunks+another > r.narrow {
			e.Out.Mark(Marks.Narrowed)
			return chunks
		}
		key := r.key(x.chunk)
		ask += int(group) * (len(key) + len("@1023") + put.KeyHeadBytes)
		answer += int(group) * put.PlaceBytes
		if len(f.page)+int(group) > int(e.Cfg.BatchMax) || max(ask, answer) > e.Cfg.Wire.MessageBytes {
			e.Out.Mark(Marks.Split)
			return chunks
		}
		size += uint64(group) * uint64(x.page.Length)
		if r.way != AsWhole && len(f.ends) > 0 && size > f.cfg.MergeBytes {
			e.Out.Mark(Marks.Split)
			return chunks
		}
		chunks, of = chunks+another, x.chunk
		if r.way == ByLayer {
			f.text = protocol.AppendLayerKey(f.text, key, x.layer)
			f.move(r, bh, b, r.queue.Front(), opens)
		} else {
			f.text = append(f.text, key...)
			f.chunk = r.inOrder(&f.items, f.cfg.Layers, f.chunk[:0])
			for _, at := range f.chunk {
				f.move(r, bh, b, at, opens)
			}
		}
		f.ends = append(f.ends, len(f.text))
	}
	if r.way == ByLayer && len(f.ends) > 1 {
		e.Out.Mark(Marks.Merged)
	}
	return chunks
}

// inOrder appends all layers of the first queued chunk, sorted by layer.
func (r *run) inOrder(items *table.Slab[item], layers uint32, dst []table.Handle) []table.Handle {
	for at := r.queue.Front(); len(dst) < int(layers); at = items.Next(at) {
		dst = append(dst, at)
	}
	slices.SortFunc(dst, func(a, b table.Handle) int { return int(items.Get(a).layer) - int(items.Get(b).layer) })
	return dst
}

// move moves an item from the queue to a batch.
func (f *Source) move(r *run, bh table.Handle, b *batch, h table.Handle, opens bool) {
	x := f.items.Get(h)
	f.items.Unlink(&r.queue, h)
	f.items.PushBack(&b.items, h)
	x.queued = false
	if opens {
		r.chunk(x.chunk).opener = bh
	}
	f.page = append(f.page, x.page)
}

// Hear handles the outcome of a batch, or the later notice that the pages of a batch are not read any more.
func (f *Source) Hear(e *flow.Env, t *flow.Told) {
	bh := t.For.Subject
	b := f.batches.Get(bh)
	if t.Returned {
		f.release(e, bh, b)
		return
	}
	h := b.of
	r := f.runs.Get(h)
	if r != nil {
		f.batches.Unlink(&r.batches, bh)
		if r.opening == bh {
			r.opening = 0
		}
		switch {
		case b.epoch != r.epoch || r.failed != effects.OK:
		case t.NoRoom && !t.Held:
			f.putOff(e, h, r, bh, b, t)
		case t.Code != effects.OK:
			f.fail(e, h, r, t.Code, t.Why)
		default:
			f.confirm(e, r, b, t)
		}
	}
	if !t.Held {
		f.release(e, bh, b)
	}
	if r = f.runs.Get(h); r != nil {
		if f.flush(e, h, r); f.runs.Get(h) != nil {
			f.maybeConclude(e, h, r)
		}
	}
}

// putOff handles a batch that the peer refused for lack of room. The items return to the queue. A batch that opens
// several chunks is sent again with half as many chunks. A batch that opens a single chunk is sent again when a chunk
// of this run has become whole, or after a delay. So a prompt that exceeds the free room of the peer is sent in
// parts, and a prompt that has to wait for others is sent after them; neither is computed again. If the run does not
// finish in time, it fails with the reason that the peer gave.
func (f *Source) putOff(e *flow.Env, h table.Handle, r *run, bh table.Handle, b *batch, t *flow.Told) {
	e.Out.Mark(Marks.NoRoom)
	if t.Code != effects.BackedOff || r.refusal == effects.OK {
		r.refusal, r.said = t.Code, t.Why
	}
	for at := b.items.Front(); at != 0; at = f.items.Next(at) {
		x := f.items.Get(at)
		x.queued = true
		if c := r.chunk(x.chunk); c.opener == bh {
			c.opener = 0
		}
	}
	tail := r.isTail(f.items.Get(b.items.Front()))
	f.takeBack(&r.queue, &b.items, tail)
	if b.opens > 0 {
		r.narrow = max(1, b.opens/2)
	}
	if b.opens > 1 && !r.full {
		return
	}
	// The peer reserved room for the chunk and lacks something else: a grant.
	if b.opens == 0 {
		r.paused = true
	} else {
		r.full = true
		e.Work.Looks(r.queue.Len())
		shut := table.List{}
		for at := r.queue.Front(); at != 0; {
			next := f.items.Next(at)
			if !r.chunk(f.items.Get(at).chunk).open {
				f.items.Unlink(&r.queue, at)
				f.items.PushBack(&shut, at)
			}
			at = next
		}
		f.takeBack(&r.shut, &shut, tail)
	}
	if r.retry == 0 {
		e.Timers.Set(&r.retry, e.Now.Add(max(1, e.Cfg.AllocTimeout/8)),
			kernel.Ref{Owner: kernel.OwnerLayers, Kind: kindRetry, Subject: h})
	}
}

// takeBack inserts items in front of a list, because the items of the list were queued later. Items of the incomplete
// last chunk are appended instead, because that chunk is sent last.
func (f *Source) takeBack(list, items *table.List, tail bool) {
	if tail {
		f.items.Join(list, items)
		return
	}
	f.items.Join(items, list)
	*list, *items = *items, table.List{}
}

// reopen lets a run send again what the peer had no room for.
func (f *Source) reopen(e *flow.Env, r *run) {
	if r.full || r.paused {
		r.full, r.paused = false, false
		e.Timers.Stop(&r.retry)
		f.items.Join(&r.queue, &r.shut)
	}
}

// confirm records what the peer has accepted.
func (f *Source) confirm(e *flow.Env, r *run, b *batch, t *flow.Told) {
	room := b.opens > 0
	if room && r.narrow < e.Cfg.BatchMax {
		r.narrow += r.narrow
	}
	place, seen := uint32(0), 0
	for at := b.items.Front(); at != 0; at = f.items.Next(at) {
		x := f.items.Get(at)
		c := r.chunk(x.chunk)
		if c.opener = 0; !c.open {
			c.open, c.grant = true, t.Grant
		}
		if c.taken++; c.taken == f.cfg.Layers {
			c.there, room = true, true
		}
		if seen < len(t.Already) && t.Already[seen] == place {
			seen, c.there = seen+1, true
		}
		place++
	}
	if room {
		f.reopen(e, r)
	}
}

// release returns the pages of a batch that nothing reads any more, and removes the batch.
func (f *Source) release(e *flow.Env, bh table.Handle, b *batch) {
	for at := b.items.Front(); at != 0; at = b.items.Front() {
		f.items.Unlink(&b.items, at)
		f.back(e, at)
	}
	f.batches.Remove(bh)
}
