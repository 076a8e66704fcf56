package pd

import (
	"reflect"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A Flow is a way in which chunks get from node to node beside those of prefill and decode. A package of its own brings
// it as a value: what ranks, engines, oracles, seeds and the explorer do for it. What is nil is as without it.
type Flow struct {
	Name     string
	Profiles []expand.Profile
	Scopes   func() []explore.Scope

	Plays func(p *plan.Plan) bool                     // it has a part in a plan; only then its oracles judge
	Cast  func(p *plan.Plan, n *world.Node)           // what a node does in it
	Rank  func(p *plan.Plan, c *rank.Config)          // what every rank goes by
	Ports func(n *world.Node) []effects.Channel       // on which a node listens beside PD's
	Owns  func(j *Job) bool                           // a job is its own: all its pages are reserved at once, and then
	Begin func(w *Cluster, n *world.Node, c *Command) // its engine has them
	Start func(w *Cluster, j *Job)                    // or it begins without pages, where this is given

	Commands []Commands
	Oracles  []oracle.Oracle
	Words    []Word         // that only their senders may say
	States   []reflect.Type // of what its oracles remember, as pointers
}

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
		if i := slices.IndexFunc(f.Commands, func(k Commands) bool { return k.Want == c.Want }); i >= 0 {
			return &f.Commands[i]
		}
	}
	return nil
}

// owner is the flow whose job it is; nil: PD's own.
func (all Flows) owner(j *Job) *Flow {
	for _, f := range all {
		if f.Owns != nil && f.Owns(j) {
			return f
		}
	}
	return nil
}

// In is the cluster of which an oracle is told.
func In(c *oracle.Call) *Cluster { return c.Run().(interface{ Ranked() *Cluster }).Ranked() }
