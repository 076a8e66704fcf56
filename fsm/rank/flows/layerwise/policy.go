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

// costModel adds to the Figures of a request what the rank knows itself.
type costModel struct {
	Figures
	layers, pageBytes, mergeBytes uint64
	// batch is the maximum number of pages in a batch of a request that is sent as a whole.
	batch uint64
}

// A SendMode is a way of sending a request.
type SendMode uint8

// The ways.
const (
	Undecided SendMode = iota
	ByLayer            // each layer when it is ready
	AsWhole            // everything when the request is finished
	// ByChunk sends each chunk when all its layers are ready, to a peer that stores them in one page.
	ByChunk
)

// chooseMode chooses the way of sending: by layer only if less time of the transfer remains after the last layer is
// ready. If figures are unknown, the engine's preference applies, which is by layer because the engine saves layers.
func (f *costModel) chooseMode() SendMode {
	if f.Chunks == 0 || f.ComputeNS == 0 || f.LinkBytes == 0 {
		return ByLayer
	}
	if f.exposedByLayer() < f.exposedAsWhole() {
		return ByLayer
	}
	return AsWhole
}

// exposedAsWhole returns the time that a request takes after the last layer is ready, if it is sent as a whole.
func (f *costModel) exposedAsWhole() uint64 {
	return f.linkTime(saturatingMul(f.layers, uint64(f.Chunks)), f.batch)
}

// exposedByLayer returns the time that a request takes after the last layer is ready, if it is sent by layers: the link
// sends one batch after the other, and each batch contains the layers that are ready when the link becomes free.
func (f *costModel) exposedByLayer() (exposed uint64) {
	layer := saturatingMul(uint64(f.Chunks), f.pageBytes)
	// free is the time at which the link becomes free, and sent the number of layers that were sent.
	free, sent := uint64(0), uint64(0)
	for sent < f.layers {
		start := max(free, saturatingMul(sent+1, f.ComputeNS))
		ready := min(max(start/f.ComputeNS, sent+1), f.layers)
		n := min(ready-sent, max(1, f.mergeBytes/max(1, layer)))
		free, sent = saturatingAdd(start, f.linkTime(saturatingMul(n, uint64(f.Chunks)), f.mergeBytes/max(1, f.pageBytes))), sent+n
	}
	if end := saturatingMul(f.layers, f.ComputeNS); free > end {
		exposed = free - end
	}
	return exposed
}

// linkTime returns the time that the pages take on the link, in batches of at most limit pages.
func (f *costModel) linkTime(pages, limit uint64) uint64 {
	limit = max(1, limit)
	batches := pages/limit + min(1, pages%limit)
	hi, lo := bits.Mul64(saturatingMul(pages, f.pageBytes), uint64(effects.Second))
	ns := uint64(math.MaxInt64)
	if hi < f.LinkBytes {
		ns, _ = bits.Div64(hi, lo, f.LinkBytes)
	}
	return saturatingAdd(ns, saturatingMul(batches, f.BatchNS))
}

// saturatingMul and add saturate at the largest 63-bit number.
func saturatingMul(a, b uint64) uint64 {
	if hi, lo := bits.Mul64(a, b); hi == 0 {
		return min(lo, math.MaxInt64)
	}
	return math.MaxInt64
}

func saturatingAdd(a, b uint64) uint64 {
	return min(min(a, math.MaxInt64)+min(b, math.MaxInt64), math.MaxInt64)
}
