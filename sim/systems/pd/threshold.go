package pd

import (
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/world"
)

// A Threshold is a bound on work inside a rank (plan.Tuning), on each side of which a machine does something else. What
// was beside it is counted by how it compares: campaigns must meet each of them in worlds below, at, above and far
// above, or a defect on one side stays unseen.
type Threshold uint8

// The thresholds that worlds can be on either side of. Tries that end at their bound have marks of machines.
const (
	LeasesRenewed Threshold = iota // offers that are kept of one sender, against the leases in one renewal
	thresholds
)

const bands = 4

var pointThreshold = coverage.Section(int(thresholds)*bands, func(i int) string {
	names := [thresholds]string{"leases renewed"}
	return "threshold " + names[i/bands] + [bands]string{": below", ": at", ": above", ": far above"}[i%bands]
})

// Loaded counts how much there was of what a threshold bounds to most at a time.
func Loaded(r *world.Result, t Threshold, load, most int) {
	band := 0
	switch {
	case load >= 4*most:
		band = 3
	case load > most:
		band = 2
	case load == most:
		band = 1
	}
	r.Coverage.Hit(pointThreshold + coverage.Point(t)*bands + coverage.Point(band))
}
