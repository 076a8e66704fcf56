package recall

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// The functions in this file make the reasons that the Source reports beside its codes. They are called only
// where something has failed.

func recallsFull(most uint32) *effects.Why {
	return &effects.Why{
		Field: "tables.recalls", Ours: number(most) + ", and as many are in progress",
		Remedy: "retry when one has ended, or raise tables.recalls",
	}
}

func peersFull(most uint32) *effects.Why {
	return &effects.Why{
		Field: "tables.peers", Ours: number(most) + ", and all of them are in use", Remedy: "raise tables.peers",
	}
}

func notServed() effects.Why {
	return effects.Why{
		Stage: effects.StageAsk, Field: "pd_bidirectional", Theirs: "false",
		Remedy: "set pd_bidirectional: true and pd_peer_query_port there",
	}
}

func notOpened(to effects.Addr, code effects.Code) effects.Why {
	w := effects.Why{
		Addr: to, Stage: effects.StageConnect, Field: "pd_peer_query_port", Ours: number(uint32(to.Port)),
		Remedy: "check that it runs, and that it has pd_bidirectional: true and this pd_peer_query_port",
	}
	if w.Theirs = code.String(); code == effects.Unreachable {
		w.Theirs = "refused"
	}
	return w
}

func outOfTime(r *row) effects.Why {
	w := effects.Why{Field: "Patience", Ours: r.Patience.String(), Theirs: "no answer"}
	switch r.phase {
	case waiting:
		w.Theirs = "not connected, or busy with what came before"
	case reading:
		w.Theirs = "not all arrived"
	case asking, settling, leaving, telling, phases:
	}
	return w
}

// said returns the reason that a peer stated beside its code, or that the peer stated none.
func said(reason []byte) effects.Why {
	if len(reason) == 0 {
		return effects.Why{Field: "kvf_reason", Theirs: "not given"}
	}
	return effects.Why{Said: effects.Words(reason)}
}

func (p *Peer) words() string {
	return effects.Words([]byte(p.Host)) + ":" + number(uint32(p.InitPort)) + "," + number(uint32(p.AllocPort)) + "," +
		number(uint32(p.QueryPort))
}

func number[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// stage returns the stage that reports name for the recall's phase.
func (r *row) stage() effects.Stage {
	if r.phase == reading || r.phase == settling {
		return effects.StageTransfer
	}
	return effects.StageAsk
}

// Left returns the number of recalls that a drain waits for.
func (f *Source) Left(*flow.Env) int { return f.rows.Len() }

// State returns the state of the recall that ref names, and 0 for a Ref that names no recall.
func (f *Source) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	if r := f.rows.Get(ref.Subject); r != nil && ref.Kind != kindOpen {
		return uint16(r.phase) + 1
	}
	return 0
}

// SourceStateNames returns the names of the states, in order.
func SourceStateNames() []string {
	return []string{
		"query connection", "recall waiting", "recall asking", "recall reading", "recall settling", "recall leaving",
		"recall telling",
	}
}
