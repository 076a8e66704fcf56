package shm

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// movers are how pages are copied.
type movers struct {
	small, large plane.Mover
	// largeBytes is the size of a batch from which on large copies its pages.
	largeBytes uint64
}

// of chooses how the pages of a batch are copied.
func (m movers) of(pairs []effects.Pair) plane.Mover {
	var bytes uint64
	for _, pair := range pairs {
		bytes += uint64(pair.Local.Length)
	}
	if bytes < m.largeBytes {
		return m.small
	}
	return m.large
}
