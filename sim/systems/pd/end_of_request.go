package pd

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine may report how a request ended at its sender (KvfEndRequest). Operations that wait for the request at the
// receiver then end, and later operations for the request do not wait.

// ReportsEnd is the word of a job whose sender's engine reports how the request ended.
var ReportsEnd = plan.ReportsEnd

// WantEnd is the kind of command by which an engine reports how a request ended, when it puts nothing more for the
// request.
var WantEnd = plan.NewCommandKind(29, "end", true)

// Tenant returns the tenant of the job's chunks.
func (j *Job) Tenant() effects.Tenant { return effects.Tenant(protocol.TenantOf(j.Keys[0])) }

// EndCommand returns the command by which the engine of the job's sender reports how the request ended.
func (j *Job) EndCommand(w *Cluster, code effects.Code, reason []byte) Command {
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	if code == effects.Failed {
		code = effects.Refused // A rank that has failed does not report anything.
	}
	return Command{Kind: WantEnd, Job: j.Index, Body: &ops.End{
		Request: j.Name, Tenant: j.Tenant(), Peer: engine.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port},
		Code: code, Reason: reason,
	}}
}

// HandleRestart makes the engine of a restarted sender at times report that requests of the earlier incarnations have
// failed, as a supervisor does that knows which requests were in progress.
func (w *Cluster) HandleRestart(n *world.Node) {
	if !n.IsSender() || draw.IsFixed(w.Seed) || w.Healed {
		return
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if !j.Flags[ReportsEnd] || j.probe || j.Sender != n.ID || !j.started || j.SenderIncarnation == n.Incarnation || j.allPutsOK {
			continue
		}
		if d := draw.Hash(w.Seed, draw.Engine, uint64(i)<<8|uint64(n.Incarnation), 91); d.ChancePermille(900) {
			w.MaybeAbort(n, GiveCommandAfter(w, n, d.Rehash().HeavyTail(20*effects.Millisecond),
				j.EndCommand(w, effects.Faulted, []byte("restarted")), InfoOf(n).Cfg.PutTimeout))
		}
	}
}

// MaybeReportEnd makes an engine inside node n report how a job ended, if the job declares that the engine reports the
// end and is not a probe.
func MaybeReportEnd(w *Cluster, n *world.Node, j *Job, code effects.Code) {
	if j.Flags[ReportsEnd] && n.IsSender() && !j.probe {
		w.MaybeAbort(n, w.GiveCommand(n, j.EndCommand(w, code, []byte("drawn")), InfoOf(n).Cfg.PutTimeout))
	}
}
