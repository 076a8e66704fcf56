package layerwise

import (
	"math"
	"math/bits"

	"github.com/kvferry/kvferry/effects"
)

// Figures are the measurements from which the way of sending a request is decided. All are of a single rank; zero
// means unknown.
type Figures struct {
	Chunks    uint32 // chunks to send, as far as known
	ComputeNS uint64 // time to compute a layer of these chunks
	LinkBytes uint64 // bytes per second to the peer
	BatchNS   uint64 // time of a batch in addition to the transfer of its bytes
}

// figures adds to the Figures of a request what the rank knows itself.
type figures struct {
	Figures
	layers, pageBytes, mergeBytes uint64
	// batch is the maximum number of pages in a batch of a request that is sent as a whole.
	batch uint64
}

// A Way is a way of sending a request.
type Way uint8

// The ways.
const (
	Undecided Way = iota
	ByLayer       // each layer when it is ready
	AsWhole       // everything when the request is finished
	// ByChunk sends each chunk when all its layers are ready, to a peer that stores them in one page.
	ByChunk
)

// way chooses the way of sending: by layer only if less time of the transfer remains after the last layer is ready.
// If figures are unknown, the engine's preference applies, which is by layer because the engine saves layers.
func (f *figures) way() Way {
	if f.Chunks == 0 || f.ComputeNS == 0 || f.LinkBytes == 0 {
		return ByLayer
	}
	if f.byLayer() < f.asWhole() {
		return ByLayer
	}
	return AsWhole
}

// asWhole returns the time that a request takes after the last layer is ready, if it is sent as a whole.
func (f *figures) asWhole() uint64 { return f.cost(mul(f.layers, uint64(f.Chunks)), f.batch) }

// byLayer returns the time that a request takes after the last layer is ready, if it is sent by layers: the link
// sends one batch after the other, and each batch contains the layers that are ready when the link becomes free.
func (f *figures) byLayer() (exposed uint64) {
	layer := mul(uint64(f.Chunks), f.pageBytes)
	// free is the time at which the link becomes free, and sent the number of layers that were sent.
	free, sent := uint64(0), uint64(0)
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

// cost returns the time that the pages take on the link, in batches of at most most pages.
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

// mul and add saturate at the largest 63-bit number.
func mul(a, b uint64) uint64 {
	if hi, lo := bits.Mul64(a, b); hi == 0 {
		return min(lo, math.MaxInt64)
	}
	return math.MaxInt64
}

func add(a, b uint64) uint64 { return min(min(a, math.MaxInt64)+min(b, math.MaxInt64), math.MaxInt64) }
