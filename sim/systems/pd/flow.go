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
	// Flag is the word by which a topology declares that the flow takes part, and by which a job declares that the job
	// belongs to the flow ([plan.RegisterFlag]). The fields below are not used in a plan in which the flow does not
	// take part.
	Flag string
	// Exclusive is set for a flow to which every job belongs where the flow plays.
	Exclusive *ExclusivePart
	// Processes is set for a flow that serves engines in processes of their own.
	Processes *EngineProcesses
	// Layers is set for a flow whose chunks have a page for each layer.
	Layers *LayeredChunks

	Profiles []expand.Profile
	Scopes   func() []explore.Scope

	SetRole func(p *plan.Plan, n *world.Node) // sets what a node does in the flow
	// NeededRoles returns the roles of a policy that a node needs for what it does in the plan. If it is nil, a node
	// needs prefill to send and decode to receive.
	NeededRoles    func(p *plan.Plan, n plan.Node) effects.Roles
	ConfigureRanks func(p *plan.Plan, c *rank.Config)                // changes the configuration that all ranks share
	ConfigureNode  func(p *plan.Plan, n *world.Node, c *rank.Config) // changes the configuration of one rank
	ListenChannels func(n *world.Node) []effects.Channel             // channels on which a node listens besides PD's own
	// runs when all pages of a job of the flow are reserved and belong to the engine
	BeginJob func(w *Cluster, n *world.Node, c *Command)
	// if set, starts a job of the flow, which needs no reserved pages
	StartJob func(w *Cluster, j *Job)
	// ContinueJob continues the work of an engine on a job of the flow. The argument at is the place that the flow
	// passed when the continuation was scheduled.
	ContinueJob func(w *Cluster, n *world.Node, j *Job, at int)

	// HandlePut runs when an engine has given a put, again if the outcome arrives before the put's memory is returned
	// (back is false in both cases), and when the memory is returned (back is true). In the last case the result says
	// what the engine does with the pages besides giving the pages back.
	HandlePut func(w *Cluster, n *world.Node, put effects.Ticket, back bool) PageUse

	// RewriteRequest returns a request of a node as it arrives: another implementation would write it differently.
	RewriteRequest func(w *Cluster, n *world.Node, body []byte) []byte

	// RequestsChunks is set if chunks of this flow can arrive without a push: nodes of both roles request chunks from
	// any node that has the chunks. Therefore there are more handshakes, and more nodes that must keep promises, than
	// pushes and pulls explain.
	RequestsChunks bool
	// HoldsEnginePages reports whether a rank has pages of its engine's share for the flow, or is about to have some.
	HoldsEnginePages func(s *rank.Stats) bool

	Commands       []CommandKind
	Oracles        []oracle.Oracle
	SenderMessages []SenderMessage // messages of the flow that only their sender may send
}

// ExclusivePart is the additional part of a flow to which all jobs belong, including the probe jobs that check whether
// transfers succeed again after all faults have ended.
type ExclusivePart struct {
	// FindLender gives the command by which an engine lends a page for inspection, and returns its ticket.
	FindLender func(w *Cluster, n *world.Node, page uint32) effects.Ticket
	// Geometry returns what a greedy stranger declares to node n about the stranger's memory. The next function returns
	// the message by which the stranger makes a request under the given operation number.
	Geometry        func(w *Cluster, n *world.Node) []uint64
	StrangerRequest func(w *Cluster, n *world.Node, me, to protocol.UUID, operation uint64, d draw.Value) []byte
}

// EngineProcesses is the additional part of a flow that serves engines in separate processes. Jobs with the flow's
// word, which may carry another flow's word as well, begin and are read through this flow, and the flow handles all
// commands of these jobs.
type EngineProcesses struct {
	// FetchJob runs for the engine of a job of the flow after the proxy has forwarded the job.
	FetchJob func(w *Cluster, n *world.Node, j *Job)
	// HandleDelivery handles deliveries of kind [world.KindAttached].
	HandleDelivery func(w *Cluster, d world.Delivery)
	// ScatterChunks hands over the chunks of a fetch. A [world.KindScattered] delivery follows.
	ScatterChunks func(w *Cluster, n *world.Node, e *effects.Scatter)
	// StateType is the pointer type of the value that the flow stores in [Cluster.AttachedState].
	StateType reflect.Type
	// ListFaults returns the faults that can happen to the engines at this moment in a small world, of the kind that
	// the scope names.
	ListFaults func(w *Cluster, how string) []world.Delivery
}

// LayeredChunks is the additional part of a flow with a page for each layer of a chunk.
type LayeredChunks struct {
	// PagesPerChunk returns how many pages each chunk of a job of the flow has. The job's keys are then keys of layers.
	PagesPerChunk func(p *plan.Plan) int
	// SenderPagesPerChunk returns how many pages of the sender make up a chunk of a job, if the receiver stores the
	// chunk in a single page. The job's keys are then keys of chunks. The result is 0 if the receiver does not store
	// chunks in this way.
	SenderPagesPerChunk func(p *plan.Plan, to plan.Node) int
}

// A PageUse says what an engine does with the pages of a put.
type PageUse uint8

// Uses. If two flows use the same pages, the greater value applies.
const (
	PagesUnused PageUse = iota
	PagesUsed           // the pages are not filled again
	PagesLent           // the pages are also not given back before the flow gives them back
)

// CommandKind describes one kind of command that engines give for a flow. The name of the kind comes from
// [plan.NewCommandKind].
type CommandKind struct {
	Kind          plan.CommandKind
	MayHoldMemory bool // the outcome may arrive before the command's memory belongs to the engine again
	HandleOutcome func(w *Cluster, n *world.Node, e *effects.Deliver, c *Command)
	// runs when the memory returns, after an outcome that held the memory
	HandleReturn func(w *Cluster, n *world.Node, c *Command)
}

// Flows is a list of flows.
type Flows []*Flow

// kindOf returns the entry for c in the commands of the flow that c belongs to, or nil if c is a command of PD itself.
func (all Flows) kindOf(c *Command) *CommandKind {
	for _, f := range all {
		if c.Attached && f.Processes == nil {
			continue
		}
		if i := slices.IndexFunc(f.Commands, func(k CommandKind) bool { return k.Kind == c.Kind }); i >= 0 {
			return &f.Commands[i]
		}
	}
	return nil
}

// notifyPut passes a put to the flows and returns what the engine does with the pages of the put.
func (all Flows) notifyPut(w *Cluster, n *world.Node, put effects.Ticket, returned bool) (use PageUse) {
	for _, f := range all {
		if f.HandlePut != nil {
			use = max(use, f.HandlePut(w, n, put, returned))
		}
	}
	return use
}

// ownerOf returns the flow that the job belongs to, or nil if the job is a job of PD itself.
func (all Flows) ownerOf(j *Job) *Flow {
	for _, f := range all {
		if j.Flags[f.Flag] || f.Exclusive != nil {
			return f
		}
	}
	return nil
}

// processFlowOf returns the flow that runs the job's engines in processes of their own, or nil if the engines are
// inside the nodes.
func (all Flows) processFlowOf(j *Job) *Flow {
	for _, f := range all {
		if f.Processes != nil && j.Flags[f.Flag] {
			return f
		}
	}
	return nil
}

// ListFaults returns the faults of a kind that can happen in a small world at this moment.
func (all Flows) ListFaults(w *Cluster, kind string) (faults []world.Delivery) {
	for _, f := range all {
		if f.Processes != nil {
			faults = append(faults, f.Processes.ListFaults(w, kind)...)
		}
	}
	return faults
}

// ExclusivePart returns the part of the playing flow to which all jobs belong, or nil if there is none.
func (all Flows) ExclusivePart() *ExclusivePart {
	for _, f := range all {
		if f.Exclusive != nil {
			return f.Exclusive
		}
	}
	return nil
}

// LayersPerChunk returns the number of pages of a chunk if each layer has pages of its own, and 0 otherwise.
func (all Flows) LayersPerChunk(p *plan.Plan) int {
	for _, f := range all {
		if f.Layers != nil {
			return f.Layers.PagesPerChunk(p)
		}
	}
	return 0
}

// PlayingIn returns the flows that take part in a plan.
func (all Flows) PlayingIn(p *plan.Plan) (playing Flows) {
	for _, f := range all {
		if p.Topology.Flags[f.Flag] {
			playing = append(playing, f)
		}
	}
	return playing
}

// AnyRequestsChunks reports whether chunks can arrive that were not pushed. See [Flow.RequestsChunks].
func (all Flows) AnyRequestsChunks() bool {
	return slices.ContainsFunc(all, func(f *Flow) bool { return f.RequestsChunks })
}

// AnyHoldsEnginePages reports whether a flow has pages of its engine's share.
func (all Flows) AnyHoldsEnginePages(s *rank.Stats) bool {
	return slices.ContainsFunc(all, func(f *Flow) bool { return f.HoldsEnginePages != nil && f.HoldsEnginePages(s) })
}

// ClusterOf returns the cluster that an oracle's call is about.
func ClusterOf(c *oracle.Call) *Cluster {
	return c.SystemRun().(interface{ Ranked() *Cluster }).Ranked()
}
