package pd

import "github.com/kvferry/kvferry/sim/plan"

// Lies says whether messages of a world may arrive as nobody wrote them, or planes refuse what they were given.
func Lies(w *Cluster) bool {
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
