package demo

import (
	"fmt"
	"os"
)

// A shape gives the dimensions of the KV cache and of the pools. The KV cache belongs to one tensor-parallel rank of a
// grouped-query model with 128 elements per head, with as many layers as the machine has memory for.
type shape struct {
	chunkTokens, layers, kvHeads, headSize int
	prefillPages, decodePages              int
}

const (
	elementBytes = 2 // bfloat16
	layersMin    = 1
)

// LayersMax is the largest number of layers of the model of a demo.
const LayersMax = 4

func (s shape) pageBytes() int {
	return 2 * s.layers * s.chunkTokens * s.kvHeads * s.headSize * elementBytes
}

func (s shape) poolBytes() int { return (s.prefillPages + decodeNodes*s.decodePages) * s.pageBytes() }

// ringBytes returns the size of all pools of a ring in bytes.
func (s shape) ringBytes() int { return ringNodes * s.ringPages() * s.pageBytes() }

// shapeFor returns the shape with the most layers, of at most layers, with which all pools together need at most an
// eighth of the available memory. The shape has at least layersMin layers.
func shapeFor(availableBytes, layers int, ring bool) shape {
	pools := shape.poolBytes
	if ring {
		pools = shape.ringBytes
	}
	s := shape{chunkTokens: 256, layers: layers, kvHeads: 2, headSize: 128, prefillPages: 320, decodePages: 640}
	for s.layers > layersMin && pools(s) > availableBytes/8 {
		s.layers--
	}
	return s
}

// availableBytes returns the memory that programs may still allocate, or 1 GiB if /proc/meminfo does not tell.
func availableBytes() int {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 1 << 30
	}
	defer f.Close()
	var name, unit string
	var kib int
	for {
		if n, err := fmt.Fscan(f, &name, &kib, &unit); n < 3 || err != nil {
			return 1 << 30
		}
		if name == "MemAvailable:" {
			return kib << 10
		}
	}
}
