package pd

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine may report how a request ended at its sender (KvfEndRequest). Operations that wait for the request at the
// receiver then end, and later operations for the request do not wait.

// ReportsEnd is the word of a job whose sender's engine reports how the request ended.
var ReportsEnd = plan.RegisterFlag(plan.FlowFlag{Name: "tells", CheckJob: func(_ *plan.Plan, j *plan.Job) string {
	if j.Plain || j.PlainTo {
		return "it needs a sender and a receiver that are ranks; leave out tells, or plain and plain_to"
	}
	return ""
}})

// WantEnd is the kind of command by which an engine reports how a request ended, when it puts nothing more for the
// request.
var WantEnd = plan.NewCommandKind(29, "end", true)

// EndCommand returns the command by which the engine of the job's sender reports how the request ended.
func (j *Job) EndCommand(w *Cluster, code effects.Code, reason []byte) Command {
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	if code == effects.Failed {
		code = effects.Refused // A rank that has failed does not report anything.
	}
	return Command{Kind: WantEnd, Job: j.Index, Body: &ops.End{
		Request: j.Name, Peer: engine.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port},
		Code: code, Reason: reason,
	}}
}

// MaybeReportEnd makes an engine inside node n report how a job ended, if the job declares that the engine reports the
// end and is not a probe.
func MaybeReportEnd(w *Cluster, n *world.Node, j *Job, code effects.Code) {
	if j.Flags[ReportsEnd] && n.IsSender() && !j.probe {
		w.GiveCommand(n, j.EndCommand(w, code, []byte("drawn")), InfoOf(n).Cfg.PutTimeout)
	}
}
