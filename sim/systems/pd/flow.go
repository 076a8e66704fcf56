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

// A Flow is an additional way in which chunks move from node to node, besides PD's own prefill and decode transfers.
// A package of its own defines a flow as a value; the fields say what ranks, engines, oracles, seeds and the explorer
// do for the flow. A field that is nil adds nothing.
type Flow struct {
	// Word is the word by which a topology declares that the flow takes part, and by which a job declares that the job
	// belongs to the flow ([plan.NewWord]). The fields below are not used in a plan in which the flow does not take
	// part.
	Word string
	// Alone is set for a flow to which every job belongs where the flow plays.
	Alone *Alone
	// Processes is set for a flow that serves engines in processes of their own.
	Processes *Processes
	// Layers is set for a flow whose chunks have a page for each layer.
	Layers *Layers

	Profiles []expand.Profile
	Scopes   func() []explore.Scope

	Cast  func(p *plan.Plan, n *world.Node)                 // sets what a node does in the flow
	Rank  func(p *plan.Plan, c *rank.Config)                // changes the configuration that all ranks share
	Boot  func(p *plan.Plan, n *world.Node, c *rank.Config) // changes the configuration of one rank
	Ports func(n *world.Node) []effects.Channel             // channels on which a node listens besides PD's own
	// runs when all pages of a job of the flow are reserved and belong to the engine
	Begin func(w *Cluster, n *world.Node, c *Command)
	// if set, starts a job of the flow, which needs no reserved pages
	Start func(w *Cluster, j *Job)
	// Later continues the work of an engine on a job of the flow. The argument at is the place that the flow passed
	// when the continuation was scheduled.
	Later func(w *Cluster, n *world.Node, j *Job, at int)

	// Put runs when an engine has given a put, again if the outcome arrives before the put's memory is returned (back
	// is false in both cases), and when the memory is returned (back is true). In the last case the result says what
	// the engine does with the pages besides giving the pages back.
	Put func(w *Cluster, n *world.Node, put effects.Ticket, back bool) Use

	// Brings is set if chunks of this flow can arrive without a push: nodes of both roles request chunks from any node
	// that has the chunks. Therefore there are more handshakes, and more nodes that must keep promises, than pushes and
	// pulls explain.
	Brings bool
	// Has reports whether a rank has pages of its engine's share for the flow, or is about to have some.
	Has func(s *rank.Stats) bool

	Commands []Commands
	Oracles  []oracle.Oracle
	Words    []Word // messages of the flow that only their sender may send
}

// Alone is the additional part of a flow to which all jobs belong, including the probe jobs that check whether
// transfers succeed again after all faults have ended.
type Alone struct {
	// Lender gives the command by which an engine lends a page for inspection, and returns its ticket.
	Lender func(w *Cluster, n *world.Node, page uint32) effects.Ticket
	// Geometry returns what a greedy stranger declares to node n about the stranger's memory. The next function returns
	// the message by which the stranger makes a request under the given operation number.
	Geometry func(w *Cluster, n *world.Node) []uint64
	Beset    func(w *Cluster, n *world.Node, me, to protocol.UUID, operation uint64, d draw.Of) []byte
}

// Processes is the additional part of a flow that serves engines in separate processes. Jobs with the flow's word,
// which may carry another flow's word as well, begin and are read through this flow, and the flow handles all commands
// of these jobs.
type Processes struct {
	// Fetch runs for the engine of a job of the flow after the proxy has forwarded the job.
	Fetch func(w *Cluster, n *world.Node, j *Job)
	// Act handles deliveries of kind [world.KindAttached].
	Act func(w *Cluster, d world.Delivery)
	// Scatter hands over the chunks of a fetch. A [world.KindScattered] delivery follows.
	Scatter func(w *Cluster, n *world.Node, e *effects.Scatter)
	// Keeps is the pointer type of the value that the flow stores in [Cluster.Attached].
	Keeps reflect.Type
	// Harms returns the faults that can happen to the engines at this moment in a small world, of the kind that the
	// scope names.
	Harms func(w *Cluster, how string) []world.Delivery
}

// Layers is the additional part of a flow with a page for each layer of a chunk.
type Layers struct {
	// PerChunk returns how many pages each chunk of a job of the flow has. The job's keys are then keys of layers.
	PerChunk func(p *plan.Plan) int
	// Together returns how many pages of the sender make up a chunk of a job, if the receiver stores the chunk in a
	// single page. The job's keys are then keys of chunks. The result is 0 if the receiver does not store chunks in
	// this way.
	Together func(p *plan.Plan, to plan.Node) int
}

// A Use says what an engine does with the pages of a put.
type Use uint8

// Uses. If two flows use the same pages, the greater value applies.
const (
	Unused Use = iota
	Used       // the pages are not filled again
	Lent       // the pages are also not given back before the flow gives them back
)

// Commands describes one kind of command that engines give for a flow. The name of the kind comes from [plan.NewWant].
type Commands struct {
	Want  plan.Want
	Holds bool // the outcome may arrive before the command's memory belongs to the engine again
	Ended func(w *Cluster, n *world.Node, e *effects.Deliver, c *Command)
	// runs when the memory returns, after an outcome that held the memory
	Returned func(w *Cluster, n *world.Node, c *Command)
}

// Flows is a list of flows.
type Flows []*Flow

// of returns the entry for c in the commands of the flow that c belongs to, or nil if c is a command of PD itself.
func (all Flows) of(c *Command) *Commands {
	for _, f := range all {
		if c.Attached && f.Processes == nil {
			continue
		}
		if i := slices.IndexFunc(f.Commands, func(k Commands) bool { return k.Want == c.Want }); i >= 0 {
			return &f.Commands[i]
		}
	}
	return nil
}

// put passes a put to the flows and returns what the engine does with the pages of the put.
func (all Flows) put(w *Cluster, n *world.Node, put effects.Ticket, back bool) (use Use) {
	for _, f := range all {
		if f.Put != nil {
			use = max(use, f.Put(w, n, put, back))
		}
	}
	return use
}

// owner returns the flow that the job belongs to, or nil if the job is a job of PD itself.
func (all Flows) owner(j *Job) *Flow {
	for _, f := range all {
		if j.Said[f.Word] || f.Alone != nil {
			return f
		}
	}
	return nil
}

// attaching returns the flow that runs the job's engines in processes of their own, or nil if the engines are inside
// the nodes.
func (all Flows) attaching(j *Job) *Flow {
	for _, f := range all {
		if f.Processes != nil && j.Said[f.Word] {
			return f
		}
	}
	return nil
}

// Harms returns the faults of the kind how that can happen in a small world at this moment.
func (all Flows) Harms(w *Cluster, how string) (some []world.Delivery) {
	for _, f := range all {
		if f.Processes != nil {
			some = append(some, f.Processes.Harms(w, how)...)
		}
	}
	return some
}

// Alone returns the part of the playing flow to which all jobs belong, or nil if there is none.
func (all Flows) Alone() *Alone {
	for _, f := range all {
		if f.Alone != nil {
			return f.Alone
		}
	}
	return nil
}

// Layers returns the number of pages of a chunk if each layer has pages of its own, and 0 otherwise.
func (all Flows) Layers(p *plan.Plan) int {
	for _, f := range all {
		if f.Layers != nil {
			return f.Layers.PerChunk(p)
		}
	}
	return 0
}

// Playing returns the flows that take part in a plan.
func (all Flows) Playing(p *plan.Plan) (some Flows) {
	for _, f := range all {
		if p.Topology.Said[f.Word] {
			some = append(some, f)
		}
	}
	return some
}

// Bring reports whether chunks can arrive that were not pushed. See [Flow.Brings].
func (all Flows) Bring() bool {
	return slices.ContainsFunc(all, func(f *Flow) bool { return f.Brings })
}

// Have reports whether a flow has pages of its engine's share.
func (all Flows) Have(s *rank.Stats) bool {
	return slices.ContainsFunc(all, func(f *Flow) bool { return f.Has != nil && f.Has(s) })
}

// In returns the cluster that an oracle's call is about.
func In(c *oracle.Call) *Cluster { return c.Run().(interface{ Ranked() *Cluster }).Ranked() }
