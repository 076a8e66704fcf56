package transfer

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Copies copies the chunks of a put or of a loan to pages of another pool. Invariant: each copy holds in-flight
// references to the source pages and the target pages until the copy has settled, so that neither the progress nor the
// end of the put can free a page that a device may still touch (M1).
type Copies struct {
	to  []effects.Page // the targets; each has a reference until Drop or Keep
	out []effects.Corr // for each copy; zero when the copy has settled
}

// Begin takes target pages and submits the copies: at most `most` copies in parallel, each of a contiguous range of the
// chunks. ref receives the completion of each copy; the Attempt of ref is the number of the copy. pairs is scratch
// space, which Begin returns.
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

// Pages returns the target pages, in the order of the chunks. There are none before Begin.
func (x *Copies) Pages() []effects.Page { return x.to }

// part returns the range of chunks that copy i moves.
func (x *Copies) part(i int) (first, end int) {
	n, parts := len(x.to), len(x.out)
	return n * i / parts, n * (i + 1) / parts
}

// Settled releases the in-flight references of one copy. Settled panics if the copy has settled already.
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

// Touch reports whether a copy has not settled.
func (x *Copies) Touch() bool {
	for _, c := range x.out {
		if c != 0 {
			return true
		}
	}
	return false
}

// Cancel asks the driver to end all copies that have not settled. Their ends are reported as usual.
func (x *Copies) Cancel(v *env.Env) { x.CancelFrom(v, 0) }

// CancelFrom does what Cancel does for the copies from number first on.
func (x *Copies) CancelFrom(v *env.Env, first int) {
	for _, c := range x.out[first:] {
		if c != 0 {
			v.Out.Cancel(c)
		}
	}
}

// Drop releases the references to the target pages. A page is free when nothing reads or writes it.
func (x *Copies) Drop(v *env.Env) {
	for _, page := range x.to {
		v.Pool.Unref(page)
	}
}

// Keep releases the references to all target pages but the first n, and returns these: the caller now owns their
// references. All copies must have settled.
func (x *Copies) Keep(v *env.Env, n int) []effects.Page {
	for _, page := range x.to[n:] {
		v.Pool.Unref(page)
	}
	return x.to[:n]
}

// Reuse returns an empty Copies that reuses the memory of x, whose put has ended.
func (x *Copies) Reuse() Copies { return Copies{to: x.to[:0], out: x.out[:0]} }

// Shed releases the memory of large lists.
func (x *Copies) Shed() { x.to = table.Shed(x.to) }
