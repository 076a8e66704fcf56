// Package pd is disaggregated prefill and decode in a simulated world: ranks, the engines that give them commands and
// read what came, the proxy between them, plain peers, strangers who speak our protocol, and the faults that only those
// make. It reports what happens to the oracles of the run ([OnGiven] and the others there), which it does not know.
package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Cluster is a world in which ranks run, with the engines that give them commands and plain peers beside them. The
// methods of a job, a command, a plain peer's message or a plain peer's write say what becomes of it; each is given the
// cluster.
type Cluster struct {
	world.World
	Plan        Setting `snap:"share"` // what the source says
	Ranks       int     // how many nodes are, of all; they come first
	Flows       Flows   `snap:"share"` // that play beside PD's own
	known       Flows   `snap:"share"` // all that may
	Keys        keys    `snap:"share"`
	PlainWrites []PlainWrite
	Reader      plainReader `snap:"share"`
	encoders    encoders    `snap:"scratch"`
	inbox       inbox       `snap:"scratch"` // messages that are read again and again
	Attached    Attached    // engines in processes of their own
	Parted      bool        // a put that was a part of a call has ended in this step

	Work
}

// Attached is what a flow keeps of engines in processes of their own: see [Flow.Keeps].
type Attached any

// inbox are messages that plain peers and the network read, one after the other.
type inbox struct {
	offer protocol.PullReadyNotif
	ack   protocol.PullReadyDoneAck
	done  protocol.PullDoneSignal
}

// of is the cluster that a world is part of, or that is in what the world is part of.
func of(w *world.World) *Cluster { return w.Side.(interface{ Ranked() *Cluster }).Ranked() }

// Ranked is w itself, for whoever has it in something larger.
func (w *Cluster) Ranked() *Cluster { return w }

// Beside is the machine of a node beside ranks, by its place among those.
func Beside(w *Cluster, i int) effects.Machine { return w.Nodes[w.Ranks+i].Machine }

// Prepare makes a cluster that is empty ready for a plan with so many ranks, and those of the flows that play in it.
func (w *Cluster) Prepare(p *plan.Plan, ranks int, flows Flows) {
	w.Ranks, w.Flows, w.known = ranks, flows.Playing(p), flows
	w.Plan = SettingOf(p, w.Flows)
	w.Keys.room(int(w.Plan.keys) + w.Plan.probesMax())
}

// Clear empties a cluster that was run to its end, but for its memory.
func (w *Cluster) Clear() {
	w.Retire()
	*w = Cluster{
		World: w.World, Work: w.emptied(), Keys: w.Keys, PlainWrites: w.PlainWrites[:0],
		encoders: encoders{w.encoders.rewritten[:0]},
	}
}
