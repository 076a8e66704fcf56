package pd

import "github.com/kvferry/kvferry/sim/plan"

// Lies says whether messages of a world may arrive as nobody wrote them, planes refuse what they were given, or one
// peer's handshake takes another's place half-way, whose rest then makes no sense.
func Lies(w *Cluster) bool {
	// A node that is both says hello under two names.
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
