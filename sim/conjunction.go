package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
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
	FetchFailsBeside: {"fetch-fails-beside", "a fetch that has begun ends badly while the chunks of another that wants some of the same are handed over",
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

func (r *Result) met(c Conjunction) { r.Coverage.hit(pointConjunction + point(c)) }

// offeredMeets counts what meets as an offer of grant g reaches its receiver; g has counted it.
func (or *keptOracle) offeredMeets(n, owner *node, g *grant) {
	if g.loan.came > 1 && !g.loan.said && n.draining {
		or.w.result.met(DrainedOfferedAgain)
	}
	if g.loan.came > 1 && or.w.clock(owner) > g.ends {
		or.w.result.met(OfferedAgainOver)
	}
	for _, t := range or.w.going.transfers.some {
		if t.read && t.reading && t.local == n.pool && t.link.peer != owner.incarnation && t.link.to == owner.id {
			or.w.result.met(ReadOfFormerLife)
			return
		}
	}
}

// refusedMeets counts a refusal that says that a read of its offer is still under way, where the offer has come again.
func (or *offersOracle) refusedMeets(r *request) {
	if g := or.w.nodes[r.conn.client].pool.loan(r.offer); g != nil && g.loan.came > 1 {
		or.w.result.met(RefusedWhileRead)
	}
}

// restartMeets counts who is frozen as n starts anew, with a link to its former life.
func (w *world) restartMeets(n *node) {
	for _, o := range w.nodes {
		linked := func(x *link) bool { return x.to == n.id && !x.dropped }
		if o.receives() && o.up && o.thaw > w.now && slices.ContainsFunc(o.links, linked) {
			w.result.met(FrozenOverRestart)
		}
	}
}

// fetchMeets counts what meets as a fetch ends.
func (or *fetchOracle) fetchMeets(n *node, e *effects.Deliver, c *command) {
	if e.Code == effects.OK {
		return
	}
	running := func(c *command) bool { return c.device.corr != 0 || c.device.got > 0 }
	if e.Code == effects.NotFound && !c.asked.had && !or.patient(n, c) && or.missed(n, c) < 0 {
		or.w.result.met(FetchOverAsItComes)
	}
	if e.Code == effects.NotFound || e.Code == effects.TooMany || e.Code == effects.Draining {
		return // It did not begin.
	}
	ids := or.wanted(c)
	for _, t := range or.at(n).fetches {
		o := &or.w.commands[t-1]
		if t != e.Ticket && !o.over && running(o) && oneOf(or.wanted(o), ids) {
			or.w.result.met(FetchFailsBeside)
			return
		}
	}
}

// fullMeets counts a breaker that opens beside a request to the same receiver.
func (or *breakerOracle) fullMeets(n *node, receiver int32) {
	if slices.ContainsFunc(or.w.going.conns.some, func(c *conn) bool {
		return c.client == n.id && c.life == n.life && c.server == receiver && c.channel == effects.ChannelAlloc &&
			c.asking > 0 && !c.closed
	}) {
		or.w.result.met(FullUnderWay)
	}
}
