package pd

import (
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/world"
)

// A Threshold is a bound on the work inside a rank (plan.Tuning). A machine behaves differently on each side of the
// bound. Loads are counted relative to the bound: campaigns must reach loads below, at, above and far above each
// threshold, or a defect on one side stays hidden.
type Threshold uint8

// The thresholdCount on either side of which a world can be. Attempts that end at their bound have marks of machines
// instead.
const (
	// number of deferred offers of one sender, compared with the number of leases in one renewal
	LeasesRenewed Threshold = iota
	thresholdCount
)

// bandCount is the number of ranges of a load relative to a threshold.
const bandCount = 4

// pointThreshold counts loads by threshold and range.
var pointThreshold = coverage.NewSection(int(thresholdCount)*bandCount, func(i int) string {
	names := [thresholdCount]string{"leases renewed"}
	return "threshold " + names[i/bandCount] + [bandCount]string{": below", ": at", ": above", ": far above"}[i%bandCount]
})

// CountLoad counts a load in comparison with the bound of the threshold t.
func CountLoad(r *world.Result, t Threshold, load, bound int) {
	band := 0
	switch {
	case load >= 4*bound:
		band = 3
	case load > bound:
		band = 2
	case load == bound:
		band = 1
	}
	r.Coverage.Hit(pointThreshold + coverage.Point(t)*bandCount + coverage.Point(band))
}
