package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/world"
)

// A Conjunction is several rare things at once that machines once failed under, or could. Campaigns count them: how long
// one is says less than what happened in it.
type Conjunction uint8

// Conjunctions. New ones are added before conjunctions, with a row in conjunctionForms.
const (
	// DrainedOfferedAgain and its like are named in conjunctionForms, as they are printed.
	DrainedOfferedAgain Conjunction = iota
	OfferedAgainOver
	FrozenOverRestart
	ReadOfFormerLife
	FetchFailsBeside
	FetchOverAsItComes
	FullUnderWay
	RefusedWhileRead
	AnsweredAfterClose

	conjunctions
)

// conjunctionForms says of each its name, what happens, and in which profiles some ten thousand seeds must meet it.
var conjunctionForms = [conjunctions]struct {
	name, about string
	profiles    []string
}{
	DrainedOfferedAgain: {"drained-offered-again", "an offer whose answer was lost comes again to a receiver that drains, and has not ended it",
		[]string{"pull", "delayed", "full"}},
	OfferedAgainOver: {"offered-again-over", "an offer comes again to its receiver after its lease",
		[]string{"pull", "delayed", "full"}},
	FrozenOverRestart: {"frozen-over-restart", "a receiver is frozen while a sender that it reads from starts anew",
		[]string{"pull", "delayed", "full"}},
	ReadOfFormerLife: {"read-of-former-life", "a sender offers anew while what its former life offered may still be read",
		[]string{"pull", "delayed", "full"}},
	FetchFailsBeside: {"fetch-fails-beside",
		"a fetch ends badly while chunks that another one wants, too, are handed over",
		[]string{"delayed", "full"}},
	FetchOverAsItComes: {"fetch-over-as-it-comes", "the time of a fetch is over in the step in which its last chunk comes",
		[]string{"full"}},
	FullUnderWay: {"full-under-way", "a sender is told that a receiver is full while another request of its is under way there",
		[]string{"full"}},
	RefusedWhileRead: {"refused-while-read",
		"an offer that comes again is refused while a read of it may still be under way",
		[]string{"pull", "delayed", "full"}},
	AnsweredAfterClose: {"answered-after-close", "an answer is in its client's mailbox when the connection is closed",
		[]string{"swarm", "crash", "fenced", "leased", "starve", "upstream", "pull", "delayed", "full", "foreign"}},
}

// String is the name, as summaries print it.
func (c Conjunction) String() string { return conjunctionForms[c].name }

// About says in a sentence what happens.
func (c Conjunction) About() string { return conjunctionForms[c].about }

// Conjunctions are all of them, in the order of their numbers.
func Conjunctions() []Conjunction {
	all := make([]Conjunction, conjunctions)
	for c := range all {
		all[c] = Conjunction(c)
	}
	return all
}

// Unmet are the conjunctions that seeds of the summary's profile can meet, and did not.
func (s *Summary) Unmet() []Conjunction {
	met := s.Coverage.Counts("conjunction")
	return slices.DeleteFunc(Meetable(s.Profile), func(c Conjunction) bool { return met[c.String()] > 0 })
}

// Meetable are the conjunctions that some ten thousand seeds of a profile must meet.
func Meetable(profile string) []Conjunction {
	return slices.DeleteFunc(Conjunctions(), func(c Conjunction) bool { return !slices.Contains(conjunctionForms[c].profiles, profile) })
}

// met counts one.
func met(r *Result, c Conjunction) { r.Coverage.Hit(pointConjunction + coverage.Point(c)) }

// offeredMeets counts what meets as an offer of grant g reaches its receiver; g has counted it.
func (or *keptOracle) offeredMeets(n, owner *world.Node, g *world.Grant) {
	if g.Loan.Came > 1 && !g.Loan.Said && n.Draining {
		met(&or.w.Result, DrainedOfferedAgain)
	}
	if g.Loan.Came > 1 && or.w.Clock(owner) > g.Ends {
		met(&or.w.Result, OfferedAgainOver)
	}
	for _, t := range or.w.Going.Transfers.Some {
		if t.Read && t.Reading && t.Local == n.Pool && t.Link.Peer != its(owner).incarnation && t.Link.To == owner.ID {
			met(&or.w.Result, ReadOfFormerLife)
			return
		}
	}
}

// refusedMeets counts a refusal that says that a read of its offer is still under way, where the offer has come again.
func (or *offersOracle) refusedMeets(r *world.Request) {
	if g := or.w.Nodes[r.Conn.Client].Pool.Loan(r.Offer); g != nil && g.Loan.Came > 1 {
		met(&or.w.Result, RefusedWhileRead)
	}
}

// restartMeets counts who is frozen as n starts anew, with a link to its former life.
func (w *cluster) restartMeets(n *world.Node) {
	for _, o := range w.Nodes {
		linked := func(x *world.Link) bool { return x.To == n.ID && !x.Dropped }
		if o.Receives() && o.Up && o.Thaw > w.Now && slices.ContainsFunc(o.Links, linked) {
			met(&w.Result, FrozenOverRestart)
		}
	}
}

// fetchMeets counts what meets as a fetch ends.
func (or *fetchOracle) fetchMeets(n *world.Node, e *effects.Deliver, c *command) {
	if e.Code == effects.OK {
		return
	}
	running := func(c *command) bool { return c.device.Corr != 0 || c.device.Got > 0 }
	if e.Code == effects.NotFound && !c.asked.had && !or.patient(n, c) && or.missed(n, c) < 0 {
		met(&or.w.Result, FetchOverAsItComes)
	}
	if e.Code == effects.NotFound || e.Code == effects.TooMany || e.Code == effects.Draining {
		return // It did not begin.
	}
	ids := or.wanted(c)
	for _, t := range or.at(n).fetches {
		o := &or.w.commands[t-1]
		if t != e.Ticket && !o.over && running(o) && oneOf(or.wanted(o), ids) {
			met(&or.w.Result, FetchFailsBeside)
			return
		}
	}
}

// fullMeets counts a breaker that opens beside a request to the same receiver.
func (or *breakerOracle) fullMeets(n *world.Node, receiver int32) {
	if slices.ContainsFunc(or.w.Going.Conns.Some, func(c *world.Conn) bool {
		return c.Client == n.ID && c.Life == n.Life && c.Server == receiver && c.Channel == effects.ChannelAlloc &&
			c.Asking > 0 && !c.Closed
	}) {
		met(&or.w.Result, FullUnderWay)
	}
}
