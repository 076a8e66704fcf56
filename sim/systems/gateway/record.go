package gateway

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	machine "github.com/kvferry/kvferry/fsm/gateway"
)

// keyOf returns the key in the blob of a hello.
func keyOf(blob []byte) uint64 {
	const keyBytes = 8
	if len(blob) < keyBytes {
		return 0
	}
	return binary.BigEndian.Uint64(blob)
}

// recordEffects records what the gateway does in a call, and judges it.
func (h *host) recordEffects(about *subject, o *machine.Effects, out *effects.Effects) {
	l := &h.ledger
	for i := range o.Reports {
		h.recordReport(about, &o.Reports[i], out)
	}
	for _, a := range o.MakeAgents {
		h.verifyAgentMade(about, out)
		l.agentsOf[a] = subject{producer: about.producer}
	}
	for _, a := range o.MakeWriters {
		l.agentsOf[a] = subject{attempt: about.attempt}
		if t := l.attemptOf(about.attempt); t != nil {
			t.writer = a
		}
	}
	for _, x := range o.Loads {
		l.loads[x.LoadID] = l.agentsOf[x.Agent]
	}
	for _, q := range o.Queries {
		s := *about
		s.host = q.Addr.Host
		l.queries[q.QueryID] = s
	}
	for _, a := range o.DestroyAgents {
		l.leave(a)
	}
	for i := range o.Notifications {
		l.recordSent(&o.Notifications[i], out)
	}
	for _, ev := range o.Events {
		switch e := ev.(type) {
		case *effects.Replied:
			h.verifyReplied(e, out)
		case *effects.Received:
			h.verifyPassed(e, out)
		default: // It is judged elsewhere.
		}
	}
	for _, n := range o.DoneExpulsions {
		h.verifyProof(n, out)
	}
	h.verifyOpen(out)
}
