package pd

import (
	"slices"

	"github.com/kvferry/kvferry/sim/plan"
)

// IsUnreliable reports whether messages of a world may arrive changed, planes may refuse effects, or the handshake of a
// peer may displace another peer's unfinished handshake, so that the remaining messages of the displaced peer make no
// sense.
func IsUnreliable(w *Cluster) bool {
	// A node with both roles shakes hands under two names.
	if t := w.SourcePlan.Topology; int(w.SourcePlan.Bounds.Peers)+1 < t.Senders+t.Receivers {
		return true
	}
	return MayChangeMessages(w)
}

// MayChangeMessages reports whether messages of a world may arrive changed, or planes may refuse effects.
func MayChangeMessages(w *Cluster) bool {
	return MayStrike(w, plan.FaultRequestCorrupted, plan.FaultReplyCorrupted, plan.FaultEffectRefused, plan.FaultHandshakeRefused,
		plan.FaultPushRefused, plan.FaultImportFailed)
}

// MayStrike reports whether one of these faults may strike in a world.
func MayStrike(w *Cluster, faults ...plan.Fault) bool {
	return slices.ContainsFunc(faults, func(f plan.Fault) bool {
		return w.Conditions.Rates[f] > 0 ||
			slices.ContainsFunc(w.SourcePlan.Strikes, func(s plan.Strike) bool { return s.Fault == f })
	})
}
