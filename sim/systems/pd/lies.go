package pd

import "github.com/kvferry/kvferry/sim/plan"

// Lies reports whether messages of a world may arrive changed, planes may refuse effects, or the handshake of a peer
// may displace another peer's unfinished handshake, so that the remaining messages of the displaced peer make no sense.
func Lies(w *Cluster) bool {
	// A node with both roles shakes hands under two names.
	if t := w.Source.Topology; int(w.Source.Bounds.Peers)+1 < t.Senders+t.Receivers {
		return true
	}
	for _, f := range []plan.Fault{
		plan.FaultCorruptRequest, plan.FaultCorruptReply, plan.FaultRefused, plan.FaultHandshake, plan.FaultPushRefused,
		plan.FaultImport,
	} {
		if w.Setting.Rates[f] > 0 {
			return true
		}
		for _, s := range w.Source.Strikes {
			if s.Fault == f {
				return true
			}
		}
	}
	return false
}
