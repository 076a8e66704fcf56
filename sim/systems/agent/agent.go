// Package agent is engines in processes of their own, in a simulated world: they are attached to the rank of their node
// by a machine of fsm/session, over streams that are cut at any byte. Processes die, freeze and lie. What goes wrong
// with them is drawn by the seed.
package agent

import (
	"reflect"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Flow is engines of other processes: they put and get as those within do.
var Flow = pd.Flow{
	Word:     word,
	Profiles: []expand.Profile{{Name: "agent", World: draws, Jobs: jobs}},
	Start:    start, Fetch: fetch, Act: act,
	Commands: []pd.Commands{
		{Want: plan.WantReserve, Ended: ended}, {Want: plan.WantPut, Holds: true, Ended: ended, Returned: returned},
		{Want: plan.WantGet, Ended: ended}, {Want: plan.WantContains, Ended: ended},
		{Want: plan.WantRelease, Ended: ended}, {Want: plan.WantUnpin, Ended: ended},
	},
	Oracles: []oracle.Oracle{rest},
	States:  []reflect.Type{reflect.TypeFor[*struct{}]()},
}

// word: engines are processes of their own. Of a job: such an engine sends it, and such a one reads it.
var word = plan.NewWord(plan.Word{
	Name: "agent",
	World: func(p *plan.Plan) string {
		if p.Topology.HostPages > 0 {
			return "what engines of other processes put is not copied; leave it out, or host_pages"
		}
		return ""
	},
	Job: func(p *plan.Plan, j *plan.Job) string {
		if !p.Topology.Said["agent"] || j.Plain || j.PlainTo || j.Gather || j.Whole {
			return "it needs topology.agent, and is one put; leave out plain, plain_to, gather and whole"
		}
		return ""
	},
})

func draws(d *expand.Draft) {
	d.Topology.Said, d.Topology.HostPages = d.Topology.Said.With(word), 0
}

func jobs(d *expand.Draft) {
	p := d.Plan
	for i := range p.Jobs {
		j := &p.Jobs[i]
		if j.Plain || j.PlainTo || j.Gather || !draw.Hash(p.Seed, draw.Plan, 18, uint64(i)).Permille(750) {
			continue
		}
		j.Said, j.Whole, j.Early = j.Said.With(word), false, false
		if most := int(p.Topology.SenderPages); len(j.Keys) > most {
			j.Keys = j.Keys[:most]
		}
		j.Batch = len(j.Keys)
	}
}

// start has an engine of the sender's begin with a job.
func start(w *pd.Cluster, j *pd.Job) {
	if n := w.Nodes[j.Sender]; n.Up && !j.Probes() {
		of(w).engine(n, j).take(&task{job: j.Place, sends: true})
	}
}

// fetch has one of the receiver's read it.
func fetch(w *pd.Cluster, n *world.Node, j *pd.Job) bool {
	if n.Delays && !j.Take {
		return false
	}
	of(w).engine(n, j).take(&task{job: j.Place})
	return true
}

// What is queued.
const (
	goesOn = iota // an engine
	reads         // an agent, from a stream
	exits         // an agent is told that a process is gone
	ends          // a process
)

func act(w *pd.Cluster, d world.Delivery) {
	a := of(w)
	switch d.A {
	case goesOn:
		if e := a.engines[d.B]; e.wakesAt == w.Now {
			e.wakesAt = 0
			e.goOn()
		}
	case reads:
		a.streams[d.B-1].arrives()
	case ends:
		if e := a.engines[d.B]; !e.gone {
			e.die()
		}
	case exits:
		if h := a.host(w.Nodes[a.engines[d.B].node]); h != nil {
			h.exited(a.engines[d.B])
		}
	}
}

var (
	checkHeld     = oracle.NewCheck("S19", "pages that engines of other processes hold")
	checkCalls    = oracle.NewCheck("L1", "calls of engines of other processes")
	checkOnce     = oracle.NewCheck("L1", "calls that are begun")
	checkUnwanted = oracle.NewCheck("L2", "calls of engines that are gone")
	checkLeft     = oracle.NewCheck("L2", "what engines leave")
)

var rest = oracle.Of("attached engines", "nothing is left of engines that are gone, or hold nothing any more",
	func(l *oracle.Listen[struct{}]) {
		l.Quiet(func(_ *struct{}, call *oracle.Call) {
			w := pd.In(call)
			n := w.Nodes[call.Node()]
			if h := of(w).host(n); !n.User && h != nil {
				call.Judged(checkLeft)
				if _, holdings := h.machine.Totals(); holdings+len(h.holds)+len(h.tickets) > 0 {
					call.Breaks(checkLeft, "node %d holds %d things for engines, and none of those works any more", n.It(), holdings)
				}
			}
		})
	})

const settling = 300 * effects.Second // after the last fault; then calls have ended
