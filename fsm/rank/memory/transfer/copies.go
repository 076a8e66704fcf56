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
	targets []effects.Page // the targets; each has a reference until DropTargets or KeepFirst
	corrs   []effects.Corr // for each copy; zero when the copy has settled
}

// Begin takes target pages and submits the copies: at most parallel copies at a time, each of a contiguous range of the
// chunks. ref receives the completion of each copy; the Attempt of ref is the number of the copy. pairs is scratch
// space, which Begin returns.
func (x *Copies) Begin(
	v *env.Env, from []effects.Page, parallel int, ref kernel.Ref, pairs []effects.CopyPair,
) []effects.CopyPair {
	x.targets = v.Pool.TakePages(uint32(len(from)), x.targets[:0])
	for i := range x.targets {
		x.targets[i].Length, x.targets[i].Sum = from[i].Length, from[i].Sum
		v.Pools.PoolOf(from[i]).HoldPage(from[i])
		v.Pool.HoldPage(x.targets[i])
	}
	v.Out.Publish(x.targets)
	for range min(len(from), parallel) {
		x.corrs = append(x.corrs, 0)
	}
	for part := range x.corrs {
		ref.Attempt = uint64(part)
		x.corrs[part] = v.Corrs.Open(ref)
		pairs = pairs[:0]
		for i, end := x.rangeOf(part); i < end; i++ {
			pairs = append(pairs, effects.CopyPair{From: from[i], To: x.targets[i]})
		}
		v.Out.Copy(effects.Copy{Corr: x.corrs[part], Pairs: pairs})
	}
	return pairs
}

// TargetPages returns the target pages, in the order of the chunks. There are none before Begin.
func (x *Copies) TargetPages() []effects.Page { return x.targets }

// rangeOf returns the range of chunks that copy i moves.
func (x *Copies) rangeOf(i int) (first, end int) {
	n, parts := len(x.targets), len(x.corrs)
	return n * i / parts, n * (i + 1) / parts
}

// OnSettled releases the in-flight references of one copy. OnSettled panics if the copy has settled already.
func (x *Copies) OnSettled(v *env.Env, from []effects.Page, part int) {
	if x.corrs[part] == 0 {
		panic("BUG: a copy settled twice")
	}
	x.corrs[part] = 0
	for i, end := x.rangeOf(part); i < end; i++ {
		v.Pools.PoolOf(from[i]).ReleaseHold(from[i])
		v.Pool.ReleaseHold(x.targets[i])
	}
}

// HasUnsettled reports whether a copy has not settled.
func (x *Copies) HasUnsettled() bool {
	for _, c := range x.corrs {
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
	for _, c := range x.corrs[first:] {
		if c != 0 {
			v.Out.Cancel(c)
		}
	}
}

// DropTargets releases the references to the target pages. A page is free when nothing reads or writes it.
func (x *Copies) DropTargets(v *env.Env) {
	for _, page := range x.targets {
		v.Pool.DropRef(page)
	}
}

// KeepFirst releases the references to all target pages but the first n, and returns these: the caller now owns their
// references. All copies must have settled.
func (x *Copies) KeepFirst(v *env.Env, n int) []effects.Page {
	for _, page := range x.targets[n:] {
		v.Pool.DropRef(page)
	}
	return x.targets[:n]
}

// Recycle returns an empty Copies that reuses the memory of x, whose put has ended.
func (x *Copies) Recycle() Copies { return Copies{targets: x.targets[:0], corrs: x.corrs[:0]} }

// TrimMemory releases the memory of large lists.
func (x *Copies) TrimMemory() { x.targets = table.TrimSlice(x.targets) }
