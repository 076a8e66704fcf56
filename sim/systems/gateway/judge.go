package gateway

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// This file judges what the gateway does towards the rank, and what the node's engine receives. Each judgment is a fact,
// which the oracles of System look at.

// completeSend judges the completion of a send of the rank: there is one for each.
func (h *host) completeSend(corr effects.Corr, out *effects.Effects) {
	if _, open := h.sends[corr]; !open {
		observe(out, factCompleted, effects.Invalid, fmt.Sprintf("the gateway completes send %d of the rank, which is not open", corr))
		return
	}
	delete(h.sends, corr)
	observe(out, factCompleted, effects.OK, "")
}

// verifyClosed judges that everything that was sent over a connection is completed when the rank has closed it.
func (h *host) verifyClosed(conn effects.Conn, out *effects.Effects) {
	completed := map[effects.Corr]bool{}
	for _, ev := range h.events {
		switch e := ev.(type) {
		case *effects.Replied:
			completed[e.Corr] = true
		case *effects.Unanswered:
			completed[e.Corr] = true
		default: // It completes no send.
		}
	}
	for _, corr := range sortedKeys(h.sends) {
		if h.sends[corr] == conn && !completed[corr] {
			observe(out, factCompleted, effects.Invalid,
				fmt.Sprintf("the rank closes a connection, and the gateway does not complete its send %d", corr))
			return
		}
	}
}

// verifyHellosCancelled judges that no hello of the rank waits any more.
func (h *host) verifyHellosCancelled(out *effects.Effects) {
	if n := h.g.Counts().Hellos; n > 0 {
		observe(out, factCompleted, effects.Invalid, fmt.Sprintf("%d hellos of the rank wait for plain engines after all were cancelled",
			n))
	}
}

// verifyBlocks judges what a request received.
func (h *host) verifyBlocks(j *job, out *effects.Effects) {
	for layer := range layerCount {
		for i, block := range j.blocks {
			for cell := range h.layout.shares {
				got, want := h.memory[h.layout.pageOf(layer, block, cell)], contentOf(j.name, layer, j.first+i, cell)
				if got != want {
					observe(out, factReceived, effects.Invalid, fmt.Sprintf("%s is received, and its block %d holds %q, not %q", j.name,
						block, got, want))
					return
				}
			}
		}
	}
	if len(j.blocks) > 0 {
		observe(out, factReceived, effects.OK, "")
	}
}
