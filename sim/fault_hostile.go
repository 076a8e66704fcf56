package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// address sends a node a real message, changed, on any of its channels. What can still be read, and only its sender may
// say, is said in that one's name, as far as a stranger can know it.
func (w *world) address(n *node, d draw.Of) {
	if len(w.overheard) == 0 || len(n.listens) == 0 {
		return
	}
	if n.receives() && d.Again().Again().Again().Again().Permille(400) && w.forgeWord(n, d) {
		return
	}
	as := d.Again().Again().Again()
	b := append([]byte(nil), w.overheard[d.Below(uint64(len(w.overheard)))]...)
	port := w.anyPort(n, d.Again().Again())
	said, name, sent := w.disguised(b, as)
	to := w.lifeOf(name)
	switch {
	case to == nil || as.Again().Permille(300):
		said, _, sent = w.disguised(mutate(b, d.Again()), as)
	case to.sends(): // Where it would do harm.
		n, port = to, effects.ChannelInit
	default:
		n, port = to, effects.ChannelAlloc
	}
	if !sent {
		return
	}
	w.result.fault(plan.FaultHostile)
	w.stranger(n, port, said)
}
