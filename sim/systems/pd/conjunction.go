package pd

import (
	"slices"

	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/world"
)

// A Conjunction is a combination of rare events under which machines failed once, or could fail. Campaigns count
// conjunctions, because what happened in a campaign says more than how long it ran.
type Conjunction uint8

// The conjunctions. Add a new conjunction before the constant conjunctions, and add a row to ConjunctionForms.
const (
	// ConjunctionForms has the printed name and description of each of the following constants.
	DrainedOfferedAgain Conjunction = iota
	OfferedAgainOver
	FrozenOverRestart
	ReadOfFormerLife
	FetchFailsBeside
	FetchOverAsItComes
	FullUnderWay
	RefusedWhileRead
	AnsweredAfterClose
	EngineKeptFor
	KeptFromEngine
	DrainedAgain

	conjunctions
)

// ConjunctionForms gives for each conjunction the name, a description, and the profiles in which the conjunction must
// occur within some ten thousand seeds.
var ConjunctionForms = [conjunctions]struct {
	name, about string
	Profiles    []string
}{
	DrainedOfferedAgain: {"drained-offered-again",
		"an offer whose answer was lost comes again to a receiver that drains, and has not ended it",
		[]string{"pull", "delayed", "full"}},
	OfferedAgainOver: {"offered-again-over", "an offer comes again to its receiver after its lease",
		[]string{"pull", "delayed", "full"}},
	FrozenOverRestart: {"frozen-over-restart", "a receiver is frozen while a sender that it reads from starts anew",
		[]string{"pull", "delayed", "full"}},
	ReadOfFormerLife: {"read-of-former-incarnation",
		"a sender offers anew while what its former incarnation offered may still be read",
		[]string{"pull", "delayed", "full"}},
	FetchFailsBeside: {"fetch-fails-beside",
		"a fetch ends badly while chunks that another one wants, too, are handed over",
		[]string{"delayed", "full"}},
	FetchOverAsItComes: {"fetch-over-as-it-comes", "the time of a fetch is over in the step in which its last chunk comes",
		[]string{"full"}},
	FullUnderWay: {"full-under-way",
		"a sender is told that a receiver is full while another request of its is under way there",
		[]string{"full"}},
	RefusedWhileRead: {"refused-while-read",
		"an offer that comes again is refused while a read of it may still be under way",
		[]string{"pull", "delayed", "full"}},
	AnsweredAfterClose: {"answered-after-close", "an answer is in its client's mailbox when the connection is closed",
		[]string{"swarm", "crash", "fenced", "leased", "starve", "upstream", "pull", "delayed", "full", "foreign"}},
	EngineKeptFor: {"engine-kept-for", "a node's own engine was passed as often as may be, and a peer waits there, too",
		[]string{"both"}},
	KeptFromEngine: {"kept-from-engine", "a peer was passed as often as may be, and the node's own engine waits, too",
		[]string{"both"}},
	DrainedAgain: {"drained-again", "a drain expired, and its engine drains once more",
		[]string{"swarm", "pull", "delayed", "full"}},
}

// String returns the name of the conjunction, as summaries print it.
func (c Conjunction) String() string { return ConjunctionForms[c].name }

// About returns a sentence that describes the conjunction.
func (c Conjunction) About() string { return ConjunctionForms[c].about }

// Conjunctions returns all conjunctions in the order of their numbers.
func Conjunctions() []Conjunction {
	all := make([]Conjunction, conjunctions)
	for c := range all {
		all[c] = Conjunction(c)
	}
	return all
}

// Meetable returns the conjunctions that must occur within some ten thousand seeds of a profile.
func Meetable(profile string) []Conjunction {
	return slices.DeleteFunc(Conjunctions(), func(c Conjunction) bool {
		return !slices.Contains(ConjunctionForms[c].Profiles, profile)
	})
}

// Met counts an occurrence of the conjunction c.
func Met(r *world.Result, c Conjunction) { r.Coverage.Hit(pointConjunction + coverage.Point(c)) }

// RestartMeets counts receivers that are frozen while n restarts and that have a link to n's former incarnation.
func (w *Cluster) RestartMeets(n *world.Node) {
	for _, o := range w.Nodes {
		linked := func(x *world.Link) bool { return x.To == n.ID && !x.Dropped }
		if o.Receives() && o.Up && o.Thaw > w.Now && slices.ContainsFunc(o.Links, linked) {
			Met(&w.Result, FrozenOverRestart)
		}
	}
}
