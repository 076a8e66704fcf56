package pd

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine may say how a request ended at its sender (KvfEndRequest). What waits for the request at the receiver ends
// then, and what asks later does not wait.

// Tells is said of a job whose sender's engine says how it ended.
var Tells = plan.NewWord(plan.Word{Name: "tells", Job: func(_ *plan.Plan, j *plan.Job) string {
	if j.Plain || j.PlainTo {
		return "it is between two of our nodes; leave it out, or plain and plain_to"
	}
	return ""
}})

// WantEnd are commands by which an engine says how a request ended of which nothing more is put.
var WantEnd = plan.NewWant(29, "end", true)

// End is the command by which the engine of a job's sender says how it ended.
func (j *Job) End(w *Cluster, code effects.Code, reason []byte) Command {
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	if code == effects.Failed {
		code = effects.Refused // A rank that has failed says nothing.
	}
	return Command{Want: WantEnd, Job: j.Place, Body: &ops.End{
		Request: j.Name, Peer: engine.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port},
		Code: code, Reason: reason,
	}}
}

// Tell has an engine within its node say how a job ended, if that is to be said of it.
func Tell(w *Cluster, n *world.Node, j *Job, code effects.Code) {
	if j.Said[Tells] && n.Sends() && !j.probe {
		w.Give(n, j.End(w, code, []byte("drawn")), Its(n).Cfg.PutTimeout)
	}
}
