package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/systems/pd"
)

// tell makes an engine report the outcome of a job. The engine does not wait for the answer.
func (e *engineProcess) tell(t *task, code effects.Code) {
	if !e.a.w.Jobs[t.job].Said[pd.Tells] {
		return
	}
	e.ask(protocol.EngineCall{Code: uint32(code), Reason: []byte("drawn")}, protocol.CallEnd, t.job, 0)
}

// tellEnd makes the rank send the end-of-request message to the receiver of a job.
func (h *host) tellEnd(x *work, b *protocol.EngineCall) bool {
	if !h.n.Sends() {
		return false
	}
	j := &h.a.w.Jobs[x.job]
	h.give(x, j.End(h.a.w, effects.Code(b.Code), b.Reason), pd.Its(h.n).Cfg.PutTimeout)
	return true
}
