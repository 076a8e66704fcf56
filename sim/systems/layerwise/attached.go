package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What engines in processes of their own need to compute a request as those within do.

// The kinds of their commands.
var (
	Begins   = begins
	Saves    = saves
	Stops    = stops
	Finishes = finishes
)

// A Script is what an engine computes of a job, whose pages it has.
type Script struct {
	w *pd.Cluster
	x prefill
}

// ScriptOf draws it.
func ScriptOf(w *pd.Cluster, j *pd.Job) Script { return Script{w, prefillOf(w, j)} }

// Len is how many layers of steps there are. Behind the last one it finishes.
func (s *Script) Len() int { return len(s.x.steps) * pagesOf(s.x.j) }

// Preempted and Dropped say what happens before the layer at a place.
func (s *Script) Preempted(at int) bool { return at == s.x.preempt }

// Dropped says whether it is dropped there.
func (s *Script) Dropped(at int) bool { return at == s.x.drop }

// Computes fills the pages of a Reserve: all of one origin.
func (s *Script) Computes(n *world.Node, reserve *pd.Command) {
	measures(n, s.x.j, reserve)
	computes(s.w, n, s.x.j, 1)
}

// Begin, Save, Preempt, Drop and Finish are its commands, of which the later ones name the first by its ticket.
func (s *Script) Begin() pd.Command { return s.x.begin(s.w) }

// Save says that the layer at a place is computed.
func (s *Script) Save(at int, run effects.Ticket) pd.Command {
	c := s.x.save(s.w, at)
	c.From, c.Body.(*ops.Save).Run = at, run
	return c
}

// Preempt loses what is computed.
func (s *Script) Preempt(run effects.Ticket) pd.Command {
	return pd.Command{Want: stops, Body: &ops.Preempt{Request: s.x.j.Name, Run: run}}
}

// Drop ends it early.
func (s *Script) Drop(run effects.Ticket) pd.Command {
	return pd.Command{Want: stops, Body: &ops.Drop{Request: s.x.j.Name, Run: run}}
}

// Finish ends it.
func (s *Script) Finish(run effects.Ticket) pd.Command {
	c := s.x.finish(s.w)
	c.Body.(*ops.Finish).Run = run
	return c
}

// Patience is how long a command may wait.
func Patience(n *world.Node, c *pd.Command) effects.Duration { return patience(n, c) }

// Back has it judged that the pages of a command are the engine's again.
func Back(w *pd.Cluster, n *world.Node, c *pd.Command) { back(w, n, c) }
