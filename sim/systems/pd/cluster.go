// Package pd simulates disaggregated prefill and decode on top of sim/world. The package contains everything around the
// state machines of fsm/rank: the prefill and decode engines that give commands and read the results, the proxy that
// forwards requests, plain peers (LMCache without our extensions), strangers that speak our protocol, and the faults
// that only engines, plain peers and strangers can cause.
//
// A [Cluster] is the [world.System] of a run: sim/world calls the methods of the cluster. Further ways of moving chunks
// are added as a [Flow]; PD's own transfers need no flow. The package reports each event to the oracles of the run
// ([OnCommandGiven] and the following declarations) and does not depend on the oracles. A caller may rely on
// determinism: every choice is drawn from the seed and from the name of the command, message or node that the choice is
// about, so a plan and a seed always give the same run.
//
// Example of a pushed request:
//
//	Job.startWork                 the prefill engine gives a Reserve to its node
//	Command.handleReserveOutcome  the engine has pages, and fills them in two halves
//	Job.continueBatch             the engine gives a Put; the node pushes the chunks to the receiver and notifies the proxy
//	Cluster.forwardRequest        the proxy forwards the request to the decode engine
//	Job.GetChunks                 the decode engine gives a Get
//	Command.handleGetOutcome      the engine reads the pages and checks them; later rereadAndRelease reads them again and gives an Unpin
package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Cluster is a world in which ranks run, together with the engines that give commands to the ranks, and the plain
// peers. A method of a job, a command, a plain peer or a write of a plain peer implements the next action of that
// object, and takes the cluster as an argument.
type Cluster struct {
	world.World
	Setup         ClusterSetup `snap:"share"` // the settings that are derived from the plan (the source)
	RankCount     int          // number of nodes that are ranks; the ranks come first in Nodes
	Flows         Flows        `snap:"share"` // flows that play in this plan, besides PD's own
	Keys          keyTable     `snap:"share"`
	PlainWrites   []PlainWrite
	PlainReader   plainReader    `snap:"share"`
	encoder       messageEncoder `snap:"scratch"`
	decodeBuffers decodeBuffers  `snap:"scratch"` // reusable storage for decoded messages
	AttachedState AttachedState  // state of engines in processes of their own
	CallPartEnded bool           // a put that was a part of a larger call has ended in this step
	TracesPuts    bool           `snap:"share"` // engines give each put a trace

	Work
}

// AttachedState is the state that a flow keeps about engines in processes of their own. See
// [EngineProcesses.StateType].
type AttachedState any

// decodeBuffers holds the storage into which plain peers and the network decode messages, in sequence.
type decodeBuffers struct {
	offer protocol.PullReadyNotif
	ack   protocol.PullReadyDoneAck
	done  protocol.PullDoneSignal
}

// Ranked returns w itself. A larger value that embeds a Cluster gives access to the cluster through this method.
func (w *Cluster) Ranked() *Cluster { return w }

// NonRankMachine returns the machine of the node with index i among the nodes that are not ranks.
func NonRankMachine(w *Cluster, i int) effects.Machine { return w.Nodes[w.RankCount+i].Machine }

// PrepareRun initializes an empty cluster for a plan with the given number of ranks and the flows that play in the
// plan.
func (w *Cluster) PrepareRun(p *plan.Plan, ranks int, flows Flows) {
	w.RankCount, w.Flows = ranks, flows.PlayingIn(p)
	w.Setup = NewClusterSetup(p, w.Flows)
	w.Keys.resetTo(int(w.Setup.nextKey) + w.Setup.probesMax())
}

// ClearRun empties a cluster after the end of a run, and keeps the memory for the next run.
func (w *Cluster) ClearRun() {
	w.RecycleWorld()
	*w = Cluster{
		World: w.World, Work: w.forNextRun(), Keys: w.Keys, PlainWrites: w.PlainWrites[:0],
		encoder: messageEncoder{rewritten: w.encoder.rewritten[:0], roamed: w.encoder.roamed[:0]},
	}
}
