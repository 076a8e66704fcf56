package demo

import (
	"fmt"
	"os"
)

// A shape is how large things are: the KV cache of one tensor-parallel rank of a grouped-query model
// with 128 elements a head, with as many of its layers as the machine has memory for.
type shape struct {
	chunkTokens, layers, kvHeads, headSize int
	prefillPages, decodePages              int
}

const (
	elementBytes = 2 // bfloat16
	layersMax    = 4
	layersMin    = 1
)

func (s shape) pageBytes() int {
	return 2 * s.layers * s.chunkTokens * s.kvHeads * s.headSize * elementBytes
}

func (s shape) poolBytes() int { return (s.prefillPages + decoders*s.decodePages) * s.pageBytes() }

// ringBytes are those of the pools of a ring.
func (s shape) ringBytes() int { return ringNodes * s.ringPages() * s.pageBytes() }

// shapeFor takes the most layers with which all pools together need an eighth of the free memory.
func shapeFor(availableBytes int, ring bool) shape {
	pools := shape.poolBytes
	if ring {
		pools = shape.ringBytes
	}
	s := shape{chunkTokens: 256, layers: layersMax, kvHeads: 2, headSize: 128, prefillPages: 320, decodePages: 640}
	for s.layers > layersMin && pools(s) > availableBytes/8 {
		s.layers--
	}
	return s
}

// availableBytes reads how much memory programs may still take; 1 GiB where nobody says.
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
