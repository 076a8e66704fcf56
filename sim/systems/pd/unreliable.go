package pd

import "github.com/kvferry/kvferry/sim/plan"

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
	for _, f := range []plan.Fault{
		plan.FaultRequestCorrupted, plan.FaultReplyCorrupted, plan.FaultEffectRefused, plan.FaultHandshakeRefused, plan.FaultPushRefused,
		plan.FaultImportFailed,
	} {
		if w.Conditions.Rates[f] > 0 {
			return true
		}
		for _, s := range w.SourcePlan.Strikes {
			if s.Fault == f {
				return true
			}
		}
	}
	return false
}
