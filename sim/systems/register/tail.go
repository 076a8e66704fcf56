package register

import (
	"bytes"

	ops "github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine of vLLM states no positions for the blocks that it registers: they are the last blocks of the request. The
// registrations of some jobs are changed on their way to what a gateway sends for such an engine. Only a leased plane
// carries them, because without positions there are no generations, and both engines must have blocks of one size.

const tailDraw = 1 << 42 // of the draw of this file, which is labelled Engine

// statesTail reports whether the registrations of a request state no positions. Both ends must mean the same last block.
func (x *request) statesTail() bool {
	return !x.isFixed && x.w.Conditions.Leased && x.shape.kernelPerLogical[0] == x.shape.kernelPerLogical[1] &&
		x.computedBlocks == x.promptBlocks && !x.sharesName &&
		draw.Hash(x.w.Seed, draw.Engine, uint64(x.job.Index), tailDraw).ChancePermille(600)
}

// rewriteRequest returns a request of a node as it is sent.
func rewriteRequest(w *pd.Cluster, n *world.Node, body []byte) []byte {
	var m protocol.PushRegistration
	if s := drawShape(w.SourcePlan); !s.isConsumer(n.ID) || protocol.PushKindOf(body) != protocol.PushKindRegistration ||
		m.Decode(body, &pd.WireLimits) != nil || !m.HasExt {
		return body
	}
	for _, t := range w.OpenCommands.Items {
		c := &w.Commands[t-1]
		if r, ok := c.Body.(*ops.Register); !ok || c.Node != n.ID || c.Incarnation != n.Incarnation || !bytes.Equal(r.Request, m.RequestID) {
			continue
		}
		if x := drawRequest(w, &w.Jobs[c.Job]); x.statesTail() {
			m.Ext.Tail, m.Ext.Generations = true, nil
			for i, list := range m.Blocks {
				m.Ext.First[i], m.Ext.Ends[i] = 0, uint64(len(list))*uint64(x.shape.kernelPerLogicalOf(n.ID))
			}
			return m.Append(nil)
		}
	}
	return body
}
