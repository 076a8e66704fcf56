package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// reportEnd makes an engine report the outcome of a job. The engine does not wait for the answer.
func (e *engineProcess) reportEnd(t *task, code effects.Code) {
	if !e.state.w.Jobs[t.job].Flags[pd.ReportsEnd] {
		return
	}
	e.sendCall(protocol.EngineCall{Code: uint32(code), Reason: []byte("drawn")}, protocol.CallEnd, t.job, 0)
}

// startEnd makes the rank send the end-of-request message to the receiver of a job.
func (h *host) startEnd(x *hostCall, b *protocol.EngineCall) bool {
	if !h.node.IsSender() {
		return false
	}
	j := &h.state.w.Jobs[x.job]
	h.giveCommand(x, j.EndCommand(h.state.w, effects.Code(b.Code), b.Reason), pd.InfoOf(h.node).Cfg.PutTimeout)
	return true
}
