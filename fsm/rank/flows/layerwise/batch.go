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

// decide decides how a run goes, once, when it is known how its peer takes layers, and says whether it is decided.
func (f *Source) decide(e *flow.Env, r *run) bool {
	state, _ := e.Links.Outbound(r.to).State()
	gate, _ := e.Links.Outbound(r.to).Gate()
	of := e.Links.Of(r.to)
	switch {
	case state == link.Ready && of.Chunks():
		r.way = ByChunk
	case gate == link.GateUnfit || state == link.Ready && of.Layers() == 0:
		r.way = ByLayer // The first batch learns why nothing can go.
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

// most is how many layers of chunks go together of a run that goes as a whole, as far as its keys tell.
func (f *Source) most(e *flow.Env, r *run) uint64 {
	key := int(r.ends[0]) + len("@1023")
	fits := (e.Cfg.Wire.MessageBytes - put.HeadBytes) / max(key+put.KeyHeadBytes, put.PlaceBytes)
	chunks := min(uint64(max(0, fits)), uint64(e.Cfg.BatchMax)) / uint64(f.cfg.Layers)
	return max(1, chunks) * uint64(f.cfg.Layers)
}

// flush sends what is to go now. Layers go at once if nothing of their run is in flight; else they are gathered until
// there are enough for a batch.
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

// ready is how many items of the queue can go, as far as the way of their run says.
func (r *run) ready(items *table.Slab[item], layers uint32) int {
	first := items.Get(r.queue.Front())
	if r.way != ByChunk || first == nil {
		return r.queue.Len()
	}
	return int(max(r.whole(), first.chunk)-first.chunk) * int(layers)
}

// whole is the chunk before which every layer of each was saved. They stand first in the queue.
func (r *run) whole() uint32 {
	if r.finish != 0 {
		return r.total
	}
	return slices.Min(r.sent)
}

// kind is what a batch would be that has an item first: whether it opens its chunk, and whether it can go now.
func (r *run) kind(x *item, b table.Handle) (opens, may bool) {
	c := r.chunk(x.chunk)
	return !c.open, c.open || c.opener == 0 || c.opener == b
}

// isTail says whether an item is of what is less than a chunk.
func (r *run) isTail(x *item) bool { return r.tokens > 0 && x.chunk+1 == r.total }

// send sends one batch of what stands first in the queue, and says whether it did.
//
// Chunks are opened in their order, by one batch at a time. Were there more in flight, a peer that is almost full could
// refuse the first one and have room for the next; and with chunks that its engine comes to only after those that are
// missing, of a few requests, it would be full for good.
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
		return false // Layers of it are missing.
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

// first is the item that stands first in the queue. Those of chunks that are there need not go any more.
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

// gather moves items into a batch: those from the front of the queue on that may go together. It counts their chunks.
func (f *Source) gather(e *flow.Env, r *run, bh table.Handle, b *batch, opens, tail bool) (chunks uint32) {
	of, grant := uint32(math.MaxUint32), effects.GrantID(0) // the chunk of the item before, and the grant of all
	if x := f.first(e, r); x != nil {
		grant = r.chunk(x.chunk).grant
	}
	f.text, f.ends, f.page = f.text[:0], f.ends[:0], f.page[:0]
	ask, answer, size := put.HeadBytes, put.HeadBytes, uint64(0)
	group, end := uint32(1), uint32(math.MaxUint32) // that go together, or not; and before which chunk
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

// inOrder appends all layers of the chunk that stands first in the queue, in their order.
func (r *run) inOrder(items *table.Slab[item], layers uint32, dst []table.Handle) []table.Handle {
	for at := r.queue.Front(); len(dst) < int(layers); at = items.Next(at) {
		dst = append(dst, at)
	}
	slices.SortFunc(dst, func(a, b table.Handle) int { return int(items.Get(a).layer) - int(items.Get(b).layer) })
	return dst
}

// move moves an item of the queue into a batch.
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

// Hear takes what became of a batch.
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

// putOff takes back a batch for which its peer had no room, and tries it again: of several chunks at once with half as
// many, and of a single one when a chunk of this run has become whole, or after a while. So a prompt that is larger
// than what its peer has room for goes in parts, and one behind others goes after them; neither is computed again. If
// it does not come to an end, it fails with what the peer said.
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
	if b.opens == 0 { // Room was promised, and something else is short: a grant.
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

// takeBack puts items in front of those of a list, which came later; or behind them what is less than a chunk, which
// goes last.
func (f *Source) takeBack(list, items *table.List, tail bool) {
	if tail {
		f.items.Join(list, items)
		return
	}
	f.items.Join(items, list)
	*list, *items = *items, table.List{}
}

// reopen has a run try again what its peer had no room for.
func (f *Source) reopen(e *flow.Env, r *run) {
	if r.full || r.paused {
		r.full, r.paused = false, false
		e.Timers.Stop(&r.retry)
		f.items.Join(&r.queue, &r.shut)
	}
}

// confirm notes what the other end has taken.
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

// release gives back what a batch was of. Nothing reads it any more.
func (f *Source) release(e *flow.Env, bh table.Handle, b *batch) {
	for at := b.items.Front(); at != 0; at = b.items.Front() {
		f.items.Unlink(&b.items, at)
		f.back(e, at)
	}
	f.batches.Remove(bh)
}
