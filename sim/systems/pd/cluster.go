// Package pd is disaggregated prefill and decode in a simulated world: ranks, the engines that give them commands and
// read what came, the proxy between them, plain peers, strangers who speak our protocol, and the faults that only those
// make. Who judges them is told what happens ([Judges]), and this package does not know them.
package pd

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Cluster is a world in which ranks run, with the engines that give them commands and plain peers beside them. Who
// judges is told by it, and has it before him.
type Cluster struct {
	world.World
	Plan        Setting  `snap:"share"` // what the source says
	Ranks       int      // how many nodes are, of all; they come first
	Jury        Judges   `snap:"share"`
	Flows       []*Flow  `snap:"share"` // beside PD's own
	Keys        [][]byte `snap:"share"` // by number
	PlainWrites []PlainWrite
	Reader      plainReader `snap:"share"`
	rewritten   []byte      `snap:"scratch"` // the newest message in other forms
	words       words       `snap:"scratch"` // messages that are read again and again
	Parted      bool        // a put that was a part of a call has ended in this step

	Jobs       []Job
	Commands   []Command                  `snap:"bag"` // by ticket-1
	Undone     world.Live[effects.Ticket] `snap:"skip"`
	bodies     bodies                     `snap:"scratch"`
	given      [plan.Wants]uint32         `snap:"skip"` // commands that are for no job
	Unfinished int                        // engine commands without their Deliver or Return
}

// words are messages that plain peers and the network read, one after the other.
type words struct {
	offer protocol.PullReadyNotif
	ack   protocol.PullReadyDoneAck
	done  protocol.PullDoneSignal
}

// bodies is the memory of commands, see [stock].
type bodies struct {
	reserves world.Arena[ops.Reserve]
	puts     world.Arena[ops.Put]
	releases world.Arena[ops.Release]
	gets     world.Arena[ops.Get]
	contains world.Arena[ops.Contains]
	fetches  world.Arena[ops.Fetch]
	unpins   world.Arena[ops.Unpin]
}

func (s *bodies) reset() {
	s.reserves.Reset()
	s.puts.Reset()
	s.releases.Reset()
	s.gets.Reset()
	s.contains.Reset()
	s.fetches.Reset()
	s.unpins.Reset()
}

// of is the cluster that a world is part of, or that is in what the world is part of.
func of(w *world.World) *Cluster { return w.Side.(interface{ Ranked() *Cluster }).Ranked() }

// Ranked is w itself, for whoever has it in something larger.
func (w *Cluster) Ranked() *Cluster { return w }

// Beside is the machine of a node beside ranks, by its place among those.
func Beside(w *Cluster, i int) effects.Machine { return w.Nodes[w.Ranks+i].Machine }

// Prepare makes a cluster that is empty ready for a plan with so many ranks and these flows.
func (w *Cluster) Prepare(p *plan.Plan, ranks int, flows []*Flow) {
	w.Plan, w.Ranks, w.Flows = SettingOf(p, flows), ranks, flows
	w.roomForKeys()
}

// Clear empties a cluster that was run to its end, but for its memory.
func (w *Cluster) Clear() {
	w.Retire()
	w.bodies.reset()
	*w = Cluster{
		World: w.World, bodies: w.bodies, Keys: w.Keys,
		Jobs: w.Jobs[:0], Commands: w.Commands[:0], Undone: w.Undone.Emptied(), PlainWrites: w.PlainWrites[:0],
		rewritten: w.rewritten[:0],
	}
}

// tidy is called between deliveries: a command that has ended holds nothing later.
func (w *Cluster) tidy() {
	w.Undone.Tidy(func(t effects.Ticket) bool { c := &w.Commands[t-1]; return c.Over && !c.Held })
}

// addJob adds a job without chunks, in the memory of one of an earlier run if there is one.
func (w *Cluster) addJob() *Job {
	if len(w.Jobs) == cap(w.Jobs) {
		w.Jobs = append(w.Jobs, Job{})
		return &w.Jobs[len(w.Jobs)-1]
	}
	w.Jobs = w.Jobs[:len(w.Jobs)+1]
	j := &w.Jobs[len(w.Jobs)-1]
	*j = Job{Name: j.Name[:0], Batches: j.Batches[:0], Keys: j.Keys[:0], Ids: j.Ids[:0]}
	return j
}
