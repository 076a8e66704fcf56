package gateway

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
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

// verifyPassed judges a registration of a consumer that the gateway passes to the rank: it is passed once, and again only
// while the rank answers that it does not know the consumer.
func (h *host) verifyPassed(e *effects.Received, out *effects.Effects) {
	limits := protocol.DefaultLimits()
	var m protocol.PushRegistration
	if protocol.PushKindOf(e.Body) != protocol.PushKindRegistration || m.Decode(e.Body, &limits) != nil {
		return
	}
	name := fmt.Sprintf("%s of %x", m.RequestID, m.Ext.Incarnation)
	// The gateway remembers a bounded number of registrations that are over, those of strangers too.
	if recent := h.over[max(0, len(h.over)-2):]; slices.Contains(recent, name) && !hasStrangers(h.boot.Plan) {
		observe(out, factPassed, effects.Invalid, "the gateway passes registration "+name+" to the rank after its end")
		return
	}
	for _, request := range sortedKeys(h.asked) {
		if h.asked[request] == name {
			observe(out, factPassed, effects.Invalid, "the gateway passes registration "+name+" to the rank twice")
			return
		}
	}
	h.asked[e.Request] = name
	observe(out, factPassed, effects.OK, "")
}

// recordReply records the rank's reply to a registration of a consumer.
func (h *host) recordReply(e *effects.Reply) {
	name, is := h.asked[e.Request]
	if !is {
		return
	}
	delete(h.asked, e.Request)
	limits := protocol.DefaultLimits()
	var m protocol.PushEnd
	if m.Decode(e.Body, &limits) == nil && effects.CodeFromWire(m.Code) != effects.Stale {
		h.over = append(h.over, name)
	}
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
			got, want := h.memory[pageOf(layer, block)], contentOf(j.name, layer, j.first+i)
			if got != want {
				observe(out, factReceived, effects.Invalid, fmt.Sprintf("%s is received, and its block %d holds %q, not %q", j.name,
					block, got, want))
				return
			}
		}
	}
	if len(j.blocks) > 0 {
		observe(out, factReceived, effects.OK, "")
	}
}
