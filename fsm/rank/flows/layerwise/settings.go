package layerwise

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that concerns layerwise pushes. Zero means the default.
type Settings struct {
	// RunsMax limits the requests that are pushed by layers at a time; default 256.
	RunsMax uint32
	// SavesMax limits the Saves with pages that were not returned; default 4096.
	SavesMax uint32
	// ChunksMax limits the chunks of a request; default 4096.
	ChunksMax uint32
	// BatchesMax limits the batches in flight of a request; default 4.
	BatchesMax uint32
	// RunTTL is the time after which a request is dropped of which nothing was received, such as a preempted request;
	// default 10 min.
	RunTTL effects.Duration
	// MergeBytes limits the bytes of a batch. Layers that are smaller are sent several in a batch. Default 8 MiB.
	MergeBytes uint64
}

// Fill sets unset fields to their defaults.
func (s *Settings) Fill() {
	kernel.SetDefault(&s.RunsMax, 256)
	kernel.SetDefault(&s.SavesMax, 4096)
	kernel.SetDefault(&s.ChunksMax, 4096)
	kernel.SetDefault(&s.BatchesMax, 4)
	kernel.SetDefault(&s.RunTTL, 600*effects.Second)
	kernel.SetDefault(&s.MergeBytes, 8<<20)
}

// Check returns an error if the settings are invalid.
func (s *Settings) Check(layers, batchMax uint32) error {
	if layers > batchMax {
		return fmt.Errorf("rank: Layers is %d with a BatchMax of %d: a chunk's last tokens go with all layers at once; "+
			"raise BatchMax", layers, batchMax)
	}
	return kernel.CheckCounts(kernel.Count{Name: "RunsMax", Value: s.RunsMax},
		kernel.Count{Name: "SavesMax", Value: s.SavesMax}, kernel.Count{Name: "ChunksMax", Value: s.ChunksMax},
		kernel.Count{Name: "BatchesMax", Value: s.BatchesMax},
		kernel.Count{Name: "batches", Value: s.Carried()})
}

// Carried returns the maximum number of batches in flight.
func (s *Settings) Carried() uint32 {
	return kernel.ClampCount(uint64(s.RunsMax) * uint64(s.BatchesMax))
}

// Need returns the number of deadlines, sends, transfers and commands that may be outstanding. Each batch has a
// request, a transfer, a deadline and the deadline of the reply.
func (s *Settings) Need() kernel.Need {
	n := int(s.Carried())
	return kernel.Need{Deadlines: 2*int(s.RunsMax) + 2*n, Limits: effects.Limits{
		Sends: n, Transfers: n, Commands: int(s.RunsMax) + int(s.SavesMax),
	}}
}
