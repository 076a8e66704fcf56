package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// address sends a node a real message, changed, on any of its channels. What can still be read, and only its sender may
// say, is said in that one's name, as far as a stranger can know it.
func (w *Cluster) address(n *world.Node, d draw.Of) {
	if len(w.Overheard) == 0 || len(n.Listens) == 0 {
		return
	}
	if n.Receives() && d.Again().Again().Again().Again().Permille(400) && w.forgeWord(n, d) {
		return
	}
	as := d.Again().Again().Again()
	b := append([]byte(nil), w.Overheard[d.Below(uint64(len(w.Overheard)))]...)
	port := w.AnyPort(n, d.Again().Again())
	said, name, sent := w.disguised(b, as)
	to := w.LifeOf(name)
	switch {
	case to == nil || as.Again().Permille(300):
		said, _, sent = w.disguised(world.Mutate(b, d.Again()), as)
	case protocol.HasTag(said, protocol.TagCacheQueryRequest, &WireLimits) && to.Lends:
		n, port = to, effects.ChannelQuery
	case to.Shares && (protocol.HasTag(said, protocol.TagAscendBatchedLookupAndGetMsg, &WireLimits) ||
		protocol.HasTag(said, protocol.TagAscendBatchedLookupAndGetDoneMsg, &WireLimits)):
		n, port = to, effects.ChannelLookup
	case to.Sends(): // Where it would do harm.
		n, port = to, effects.ChannelInit
	default:
		n, port = to, effects.ChannelAlloc
	}
	if !sent {
		return
	}
	w.Result.Fault(plan.FaultHostile)
	w.Stranger(n, port, said)
}
