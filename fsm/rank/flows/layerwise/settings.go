package layerwise

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that is about who pushes layer by layer. Zero means the default.
type Settings struct {
	RunsMax    uint32 // default 256: requests of which layers go, at a time
	SavesMax   uint32 // default 4096: Saves whose pages are not back
	ChunksMax  uint32 // default 4096: chunks of one request
	BatchesMax uint32 // default 4: of one request in flight
	// RunTTL is how long a request stands of which nothing is heard, such as a preempted one.
	RunTTL effects.Duration // default 10 min
	// MergeBytes is what one batch has at the most: of layers that are smaller it has several.
	MergeBytes uint64 // default 8 MiB
}

// Fill puts defaults where nothing is said.
func (s *Settings) Fill() {
	kernel.Default(&s.RunsMax, 256)
	kernel.Default(&s.SavesMax, 4096)
	kernel.Default(&s.ChunksMax, 4096)
	kernel.Default(&s.BatchesMax, 4)
	kernel.Default(&s.RunTTL, 600*effects.Second)
	kernel.Default(&s.MergeBytes, 8<<20)
}

// Check says what cannot work.
func (s *Settings) Check(layers, batchMax uint32) error {
	if layers > batchMax {
		return fmt.Errorf("rank: Layers is %d with a BatchMax of %d: a chunk's last tokens go with all layers at once; "+
			"raise BatchMax", layers, batchMax)
	}
	return kernel.Countable(kernel.Count{Name: "RunsMax", Value: s.RunsMax},
		kernel.Count{Name: "SavesMax", Value: s.SavesMax}, kernel.Count{Name: "ChunksMax", Value: s.ChunksMax},
		kernel.Count{Name: "BatchesMax", Value: s.BatchesMax},
		kernel.Count{Name: "batches", Value: s.Carried()})
}

// Carried is how many batches are in flight at the most.
func (s *Settings) Carried() uint32 { return kernel.Clamped(uint64(s.RunsMax) * uint64(s.BatchesMax)) }

// Need is that of who pushes layers: each batch has a question, a transfer, its deadline and its answer's.
func (s *Settings) Need() kernel.Need {
	n := int(s.Carried())
	return kernel.Need{Deadlines: 2*int(s.RunsMax) + 2*n, Limits: effects.Limits{
		Sends: n, Transfers: n, Commands: int(s.RunsMax) + int(s.SavesMax),
	}}
}
