package layerwise

import (
	"math"
	"math/bits"

	"github.com/kvferry/kvferry/effects"
)

// Figures are what a request's way is decided by. All are of one rank; zero is not known.
type Figures struct {
	Chunks    uint32 // that are to go, as far as is known
	ComputeNS uint64 // to compute one layer of them
	LinkBytes uint64 // a second, to the peer
	BatchNS   uint64 // that a batch takes beside its bytes
}

// figures are those of a request, with what a rank knows by itself.
type figures struct {
	Figures
	layers, pageBytes, mergeBytes uint64
	batch                         uint64 // pages of a batch of a request that goes as a whole, at the most
}

// A Way is how a request goes.
type Way uint8

// The ways.
const (
	Undecided Way = iota
	ByLayer       // each layer as it is ready
	AsWhole       // all of it when it is finished
	ByChunk       // each chunk when all its layers are ready, to a peer that has them in one page
)

// way decides it: layer by layer only if less of the transfer is left when the last layer is ready. Where that cannot
// be known the engine has its wish: it saves layers.
func (f *figures) way() Way {
	if f.Chunks == 0 || f.ComputeNS == 0 || f.LinkBytes == 0 {
		return ByLayer
	}
	if f.byLayer() < f.asWhole() {
		return ByLayer
	}
	return AsWhole
}

// asWhole is how long a request takes as a whole, after its last layer.
func (f *figures) asWhole() uint64 { return f.cost(mul(f.layers, uint64(f.Chunks)), f.batch) }

// byLayer is how much of it is left then, if it goes layer by layer: the link carries one batch after the other, each
// of what is ready when it is free.
func (f *figures) byLayer() (exposed uint64) {
	layer := mul(uint64(f.Chunks), f.pageBytes)
	free, sent := uint64(0), uint64(0) // when the link is free, and how many layers have gone
	for sent < f.layers {
		start := max(free, mul(sent+1, f.ComputeNS))
		ready := min(max(start/f.ComputeNS, sent+1), f.layers)
		n := min(ready-sent, max(1, f.mergeBytes/max(1, layer)))
		free, sent = add(start, f.cost(mul(n, uint64(f.Chunks)), f.mergeBytes/max(1, f.pageBytes))), sent+n
	}
	if end := mul(f.layers, f.ComputeNS); free > end {
		exposed = free - end
	}
	return exposed
}

// cost is what so many pages take on the link, in as many batches as they need.
func (f *figures) cost(pages, most uint64) uint64 {
	most = max(1, most)
	batches := pages/most + min(1, pages%most)
	hi, lo := bits.Mul64(mul(pages, f.pageBytes), uint64(effects.Second))
	ns := uint64(math.MaxInt64)
	if hi < f.LinkBytes {
		ns, _ = bits.Div64(hi, lo, f.LinkBytes)
	}
	return add(ns, mul(batches, f.BatchNS))
}

// mul and add come to no more than the largest number of 63 bits.
func mul(a, b uint64) uint64 {
	if hi, lo := bits.Mul64(a, b); hi == 0 {
		return min(lo, math.MaxInt64)
	}
	return math.MaxInt64
}

func add(a, b uint64) uint64 { return min(min(a, math.MaxInt64)+min(b, math.MaxInt64), math.MaxInt64) }
