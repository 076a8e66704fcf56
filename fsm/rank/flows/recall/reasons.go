package recall

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// The functions in this file make the reasons that the Source reports beside its codes. They are called only
// where something has failed.

func recallsFullReason(limit uint32) *effects.Why {
	return &effects.Why{
		Field: "tables.recalls", Ours: formatCount(limit) + ", and as many are in progress",
		Remedy: "retry when one has ended, or raise tables.recalls",
	}
}

func peersFullReason(limit uint32) *effects.Why {
	return &effects.Why{
		Field: "tables.peers", Ours: formatCount(limit) + ", and all of them are in use", Remedy: "raise tables.peers",
	}
}

func notServedReason() effects.Why {
	return effects.Why{
		Stage: effects.StageAsk, Field: "pd_bidirectional", Theirs: "false",
		Remedy: "set pd_bidirectional: true and pd_peer_query_port there",
	}
}

func notOpenedReason(addr effects.Addr, code effects.Code) effects.Why {
	w := effects.Why{
		Addr: addr, Stage: effects.StageConnect, Field: "pd_peer_query_port", Ours: formatCount(uint32(addr.Port)),
		Remedy: "check that it runs, and that it has pd_bidirectional: true and this pd_peer_query_port",
	}
	if w.Theirs = code.String(); code == effects.Unreachable {
		w.Theirs = "refused"
	}
	return w
}

func timeoutReason(r *recallRow) effects.Why {
	w := effects.Why{Field: "Timeout", Ours: r.Timeout.String(), Theirs: "no answer"}
	switch r.phase {
	case recallWaiting:
		w.Theirs = "not connected, or busy with what came before"
	case recallReading:
		w.Theirs = "not all arrived"
	case recallQuerying, recallSettling, recallDoneQueued, recallDoneSent, recallPhaseCount:
	}
	return w
}

// peerReason returns the reason that a peer stated beside its code, or that the peer stated none.
func peerReason(reason []byte) effects.Why {
	if len(reason) == 0 {
		return effects.Why{Field: "kvf_reason", Theirs: "not given"}
	}
	return effects.Why{Said: effects.SanitizeText(reason)}
}

func (p *Peer) formatAddress() string {
	return effects.SanitizeText([]byte(p.Host)) + ":" + formatCount(uint32(p.InitPort)) + "," + formatCount(uint32(p.AllocPort)) + "," +
		formatCount(uint32(p.QueryPort))
}

func formatCount[T int | uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 10) }

func entryName(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// reportStage returns the stage that reports name for the recall's phase.
func (r *recallRow) reportStage() effects.Stage {
	if r.phase == recallReading || r.phase == recallSettling {
		return effects.StageTransfer
	}
	return effects.StageAsk
}

// CountUnfinished returns the number of recalls that a drain waits for.
func (f *Source) CountUnfinished(*flow.Env) int { return f.rows.Len() }

// RowState returns the state of the recall that ref names, and 0 for a Ref that names no recall.
func (f *Source) RowState(_ *flow.Rooms, ref kernel.Ref) uint16 {
	if r := f.rows.Get(ref.Subject); r != nil && ref.Kind != kindOpen {
		return uint16(r.phase) + 1
	}
	return 0
}

// SourceStateNames returns the names of the states, in order.
func SourceStateNames() []string {
	return []string{
		"query connection", "recall waiting", "recall querying", "recall reading", "recall settling", "recall done queued",
		"recall done sent",
	}
}
