package pd

import (
	"reflect"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A Flow is a way in which chunks get from node to node beside those of prefill and decode. A package of its own brings
// it as a value: what ranks, engines, oracles, seeds and the explorer do for it. What is nil is as without it.
type Flow struct {
	// Word is what a topology says for it to play, and a job to be its own ([plan.NewWord]). It is asked for nothing of
	// what follows where it does not play.
	Word string
	// Alone: where it plays all jobs are its own, also those that are made to see whether anything gets through again.
	Alone bool
	// Lender, of such a flow, is the command by which an engine lends a page, to look at.
	Lender func(w *Cluster, n *world.Node, page uint32) effects.Ticket
	// Geometry and Beset, of such a flow, are what a greedy stranger says to a node of its memory, and asks for under an
	// operation.
	Geometry func(w *Cluster, n *world.Node) []uint64
	Beset    func(w *Cluster, n *world.Node, me, to protocol.UUID, operation uint64, d draw.Of) []byte
	Profiles []expand.Profile
	Scopes   func() []explore.Scope

	Cast  func(p *plan.Plan, n *world.Node)                 // what a node does in it
	Rank  func(p *plan.Plan, c *rank.Config)                // what every rank goes by
	Boot  func(p *plan.Plan, n *world.Node, c *rank.Config) // and what one does, beside that
	Ports func(n *world.Node) []effects.Channel             // on which a node listens beside PD's
	Begin func(w *Cluster, n *world.Node, c *Command)       // all pages of a job of its are reserved: its engine has them
	Start func(w *Cluster, j *Job)                          // or a job begins without pages, where this is given
	// Fetch is the engine of a job of its that the proxy has sent on; false: PD's own reads it.
	Fetch func(w *Cluster, n *world.Node, j *Job) bool
	// Act does what is queued as [world.KindAttached]. A flow that has it is of engines in processes of their own: jobs
	// that say its word, and perhaps another flow's beside, begin and are read as it has it, and so are all commands of
	// theirs.
	Act func(w *Cluster, d world.Delivery)
	// Scatter, of such a flow, hands chunks of a fetch over: a [world.KindScattered] follows.
	Scatter func(w *Cluster, n *world.Node, e *effects.Scatter)
	// Keeps, of such a flow, is what it keeps in [Cluster.Attached], as a pointer.
	Keeps reflect.Type
	// Harms, of such a flow, are what may go wrong with its engines in a small world now, in the way that a scope says.
	Harms func(w *Cluster, how string) []world.Delivery
	// Later is the engine of a job of its going on at a place that it has noted (Later).
	Later func(w *Cluster, n *world.Node, j *Job, at int)
	// Layers, where this is given, is how many pages each chunk of a job of its has: its keys are those of layers then.
	Layers func(p *plan.Plan) int
	// Holds, likewise, is how many pages of its sender each chunk of a job is put together of, if its receiver has them in
	// one: its keys are those of chunks then. 0: it has not.
	Holds func(p *plan.Plan, to plan.Node) int

	// Put: an engine has given a put, or its outcome is here and its memory is not, or that is back: then it says what the
	// engine does with it beside giving it back.
	Put func(w *Cluster, n *world.Node, put effects.Ticket, back bool) Use

	// Brings is of a flow in which chunks come that nobody sent: whoever has them is asked by nodes on either side, and
	// so more says hello, and keeps promises, than what pushes and pulls account for.
	Brings bool
	// Has says that a rank has pages of its engine's share for the flow, or is about to.
	Has func(s *rank.Stats) bool

	Commands []Commands
	Oracles  []oracle.Oracle
	Words    []Word         // that only their senders may say
	States   []reflect.Type // of what its oracles remember, as pointers
}

// A Use is what an engine does with the pages of a put.
type Use uint8

// Uses; of two the latter counts.
const (
	Unused Use = iota
	Used       // they are not filled again
	Lent       // nor given back before the flow does
)

// Commands are those of one kind that engines give for a flow. Their names come from [plan.NewWant].
type Commands struct {
	Want     plan.Want
	Holds    bool // they may have their outcome before their memory is the engine's again
	Ended    func(w *Cluster, n *world.Node, e *effects.Deliver, c *Command)
	Returned func(w *Cluster, n *world.Node, c *Command) // after an outcome that held
}

// Flows are some of them.
type Flows []*Flow

// of are the commands of a flow that one is of; nil: it is PD's own.
func (all Flows) of(c *Command) *Commands {
	for _, f := range all {
		if c.Attached && f.Act == nil {
			continue
		}
		if i := slices.IndexFunc(f.Commands, func(k Commands) bool { return k.Want == c.Want }); i >= 0 {
			return &f.Commands[i]
		}
	}
	return nil
}

// put tells flows of a put, and says what is done with its pages.
func (all Flows) put(w *Cluster, n *world.Node, put effects.Ticket, back bool) (use Use) {
	for _, f := range all {
		if f.Put != nil {
			use = max(use, f.Put(w, n, put, back))
		}
	}
	return use
}

// owner is the flow whose job it is; nil: PD's own.
func (all Flows) owner(j *Job) *Flow {
	for _, f := range all {
		if j.Said[f.Word] || f.Alone {
			return f
		}
	}
	return nil
}

// attaching is the flow whose engines, in processes of their own, work on a job; nil: those within do.
func (all Flows) attaching(j *Job) *Flow {
	for _, f := range all {
		if f.Act != nil && j.Said[f.Word] {
			return f
		}
	}
	return nil
}

// Harms are what may go wrong in a small world in a way.
func (all Flows) Harms(w *Cluster, how string) (some []world.Delivery) {
	for _, f := range all {
		if f.Harms != nil {
			some = append(some, f.Harms(w, how)...)
		}
	}
	return some
}

// Alone says whether all jobs are of one flow.
func (all Flows) Alone() bool { return all.alone() != nil }

// Lender is the command by which a page of a node's engine is lent, where all jobs are of one flow.
func (all Flows) Lender(w *Cluster, n *world.Node, page uint32) effects.Ticket {
	return all.alone().Lender(w, n, page)
}

// alone is the flow whose jobs all are, if there is one that plays.
func (all Flows) alone() *Flow {
	for _, f := range all {
		if f.Alone {
			return f
		}
	}
	return nil
}

// Layers is how many pages chunks have whose layers have pages of their own; 0: there are none.
func (all Flows) Layers(p *plan.Plan) int {
	for _, f := range all {
		if f.Layers != nil {
			return f.Layers(p)
		}
	}
	return 0
}

// Playing are those that have a part in a plan.
func (all Flows) Playing(p *plan.Plan) (some Flows) {
	for _, f := range all {
		if p.Topology.Said[f.Word] {
			some = append(some, f)
		}
	}
	return some
}

// Bring says whether chunks come that nobody sent.
func (all Flows) Bring() bool {
	return slices.ContainsFunc(all, func(f *Flow) bool { return f.Brings })
}

// Have says whether one of them has pages of its engine's share.
func (all Flows) Have(s *rank.Stats) bool {
	return slices.ContainsFunc(all, func(f *Flow) bool { return f.Has != nil && f.Has(s) })
}

// In is the cluster of which an oracle is told.
func In(c *oracle.Call) *Cluster { return c.Run().(interface{ Ranked() *Cluster }).Ranked() }
