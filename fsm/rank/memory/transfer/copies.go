package transfer

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Copies are a put's chunks, or a loan's, on their way to pages of another pool. Each copy holds both its ends until it
// has settled: so nothing of the put's, nor its end, can free a page that a device may still touch.
type Copies struct {
	to  []effects.Page // with a reference each, until Drop
	out []effects.Corr // one for each copy, zero when that has settled
}

// Begin starts to copy pages, by so many copies side by side at the most, each of a run of its chunks.
// Ref hears of each copy, which is its Attempt; pairs is a place to list them.
func (x *Copies) Begin(
	v *env.Env, from []effects.Page, most int, ref kernel.Ref, pairs []effects.CopyPair,
) []effects.CopyPair {
	x.to = v.Pool.Take(uint32(len(from)), x.to[:0])
	for i := range x.to {
		x.to[i].Length = from[i].Length
		v.Pools.Of(from[i]).Hold(from[i])
		v.Pool.Hold(x.to[i])
	}
	v.Out.Publish(x.to)
	for range min(len(from), most) {
		x.out = append(x.out, 0)
	}
	for part := range x.out {
		ref.Attempt = uint64(part)
		x.out[part] = v.Corrs.Open(ref)
		pairs = pairs[:0]
		for i, end := x.part(part); i < end; i++ {
			pairs = append(pairs, effects.CopyPair{From: from[i], To: x.to[i]})
		}
		v.Out.Copy(effects.Copy{Corr: x.out[part], Pairs: pairs})
	}
	return pairs
}

// Pages are where the chunks are copied to; none before Begin.
func (x *Copies) Pages() []effects.Page { return x.to }

// part is the run of chunks that one of the copies moves.
func (x *Copies) part(i int) (first, end int) {
	n, parts := len(x.to), len(x.out)
	return n * i / parts, n * (i + 1) / parts
}

// Settled lets go of what one copy touched.
func (x *Copies) Settled(v *env.Env, from []effects.Page, part int) {
	if x.out[part] == 0 {
		panic("BUG: a copy settled twice")
	}
	x.out[part] = 0
	for i, end := x.part(part); i < end; i++ {
		v.Pools.Of(from[i]).Unhold(from[i])
		v.Pool.Unhold(x.to[i])
	}
}

// Touch says whether any copy has not settled.
func (x *Copies) Touch() bool {
	for _, c := range x.out {
		if c != 0 {
			return true
		}
	}
	return false
}

// Cancel asks for the end of all that have not settled, which comes as any other does.
func (x *Copies) Cancel(v *env.Env) { x.CancelFrom(v, 0) }

// CancelFrom does so from one of them on.
func (x *Copies) CancelFrom(v *env.Env, first int) {
	for _, c := range x.out[first:] {
		if c != 0 {
			v.Out.Cancel(c)
		}
	}
}

// Drop gives up the put's references to the copies: they are free when nothing reads or writes them.
func (x *Copies) Drop(v *env.Env) {
	for _, page := range x.to {
		v.Pool.Unref(page)
	}
}

// Keep gives up the references to all copies but the first n, which it returns: they are the caller's. None may touch
// anything any more.
func (x *Copies) Keep(v *env.Env, n int) []effects.Page {
	for _, page := range x.to[n:] {
		v.Pool.Unref(page)
	}
	return x.to[:n]
}

// Reuse is an empty one in the memory of one whose put has ended.
func (x *Copies) Reuse() Copies { return Copies{to: x.to[:0], out: x.out[:0]} }

// Shed gives large memory back.
func (x *Copies) Shed() { x.to = table.Shed(x.to) }
