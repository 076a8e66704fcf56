package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The parts of this package that attached engines (package agent) use.

// The kinds of the commands of layerwise pushes.
var (
	WantBegin  = wantBegin
	WantSave   = wantSave
	WantStop   = wantStop
	WantFinish = wantFinish
)

// A Script says how an engine computes a job for which it has reserved pages.
type Script struct {
	w       *pd.Cluster
	prefill prefill
}

// ScriptOf draws the script of a job.
func ScriptOf(w *pd.Cluster, j *pd.Job) Script { return Script{w, drawPrefill(w, j)} }

// Len returns the number of saves: the layers of all steps. After the last save the engine finishes the request.
func (s *Script) Len() int { return len(s.prefill.stepEnds) * pagesPerChunk(s.prefill.job) }

// IsPreempted reports whether the request is preempted before the save with index at.
func (s *Script) IsPreempted(at int) bool { return at == s.prefill.preemptAt }

// IsDropped reports whether the request is dropped before the save with index at.
func (s *Script) IsDropped(at int) bool { return at == s.prefill.dropAt }

// FillPages fills the pages of a Reserve, all with one origin.
func (s *Script) FillPages(n *world.Node, reserve *pd.Command) {
	setLengths(n, s.prefill.job, reserve)
	fillPages(s.w, n, s.prefill.job, 1)
}

// Begin returns the command that begins the request. The other commands refer to it by its ticket, run.
func (s *Script) Begin() pd.Command { return s.prefill.beginCommand(s.w) }

// Save returns the command that reports the layer of the save with index at as computed.
func (s *Script) Save(at int, run effects.Ticket) pd.Command {
	c := s.prefill.saveCommand(s.w, at)
	c.From, c.Body.(*ops.Save).Run = at, run
	return c
}

// Preempt returns the command that preempts the request and discards the computed layers.
func (s *Script) Preempt(run effects.Ticket) pd.Command {
	return pd.Command{Kind: wantStop, Body: &ops.Preempt{Request: s.prefill.job.Name, Run: run}}
}

// Drop returns the command that ends the request early.
func (s *Script) Drop(run effects.Ticket) pd.Command {
	return pd.Command{Kind: wantStop, Body: &ops.Drop{Request: s.prefill.job.Name, Run: run}}
}

// Finish returns the command that finishes the request.
func (s *Script) Finish(run effects.Ticket) pd.Command {
	c := s.prefill.finishCommand(s.w)
	c.Body.(*ops.Finish).Run = run
	return c
}

// CommandTimeout returns the timeout of a command.
func CommandTimeout(n *world.Node, c *pd.Command) effects.Duration { return commandTimeout(n, c) }

// ReportReturned reports to the oracles that the pages of a command belong to the engine again.
func ReportReturned(w *pd.Cluster, n *world.Node, c *pd.Command) { reportReturned(w, n, c) }
