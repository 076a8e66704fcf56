package sim

import "github.com/kvferry/kvferry/effects"

// address sends a node a real message, changed, on any of its channels. What can still be read, and only its sender may
// say, is said in that one's name, as far as a stranger can know it.
func (w *world) address(n *node, d draw) {
	if len(w.overheard) == 0 || len(n.listens) == 0 {
		return
	}
	if n.receives() && d.again().again().again().again().permille(400) && w.forgeWord(n, d) {
		return
	}
	as := d.again().again().again()
	b := append([]byte(nil), w.overheard[d.below(uint64(len(w.overheard)))]...)
	port := w.anyPort(n, d.again().again())
	said, name, sent := w.disguised(b, as)
	to := w.lifeOf(name)
	switch {
	case to == nil || as.again().permille(300):
		said, _, sent = w.disguised(mutate(b, d.again()), as)
	case to.sends(): // Where it would do harm.
		n, port = to, effects.ChannelInit
	default:
		n, port = to, effects.ChannelAlloc
	}
	if !sent {
		return
	}
	w.result.fault(FaultHostile)
	w.stranger(n, port, said)
}
