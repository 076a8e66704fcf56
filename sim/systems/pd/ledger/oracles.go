// Package ledger is who judges ranks: oracles, each a value that keeps books of its own of what drivers saw, and fails
// a run in which a promise of docs/safety.md is broken.
package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Oracles judge a run: what machines want and say, what drivers do for them, and what is left in the end. Each is a
// value that looks at one thing and has what it must remember; what several must know is their truth. They change
// nothing of a run, and believe no machine: what they know they have from drivers, but for what machine_pd.go asks.
// Each check names its property in docs/safety.md; hooks.go says what oracles are told, and when.
type Oracles struct {
	truth    truth
	aborted  abortedOracle
	absent   absentOracle
	attempts attemptsOracle
	again    againOracle
	bearer   bearerOracle
	both     bothOracle
	breaker  breakerOracle
	cache    cacheOracle
	claimed  claimedOracle
	claims   claimsOracle
	comm     commOracle
	counts   countsOracle
	places   displacedOracle
	ends     endsOracle
	fetch    fetchOracle
	fills    fillsOracle
	hope     hopeOracle
	kept     keptOracle
	landed   landedOracle
	lapsed   lapsedOracle
	lease    leaseOracle
	lent     lentOracle
	limits   limitsOracle
	loans    loansOracle
	offers   offersOracle
	arena    arenaOracle
	second   secondOracle
	pages    pagesOracle
	plains   plainsOracle
	pressure pressureOracle
	promises promisesOracle
	prompt   promptOracle
	proxy    proxyOracle
	queue    queueOracle
	quiet    quietOracle
	reads    readsOracle
	recall   recallOracle
	shared   sharedOracle
	blocks   registeredOracle
	refused  refusedOracle
	renew    renewOracle
	rest     restOracle
	scatter  scatterOracle
	severed  severedOracle
	share    shareOracle
	stuck    stuckOracle
	why      whyOracle
	words    wordsOracle
}

// The same oracles, for who tells them of one thing.
type (
	OfNetwork Oracles // connections and messages
	OfPlanes  Oracles // links, grants, transfers, copies, and what they do to pages
	OfEpochs  Oracles // communicators
	OfEngines Oracles // commands, their outcomes, and what engines read
)

// Of has them look at a cluster.
func (o *Oracles) Of(w *pd.Cluster) {
	for _, j := range []*judge{
		&o.truth.judge,
		&o.aborted.judge, &o.absent.judge, &o.attempts.judge,
		&o.bearer.judge, &o.both.judge, &o.breaker.judge, &o.claims.judge, &o.claimed.judge,
		&o.counts.judge, &o.fetch.judge, &o.fills.judge, &o.hope.judge,
		&o.kept.judge, &o.landed.judge, &o.lapsed.judge, &o.lease.judge,
		&o.lent.judge, &o.limits.judge, &o.loans.judge, &o.offers.judge,
		&o.arena.judge, &o.second.judge,
		&o.pages.judge, &o.pressure.judge, &o.promises.judge, &o.queue.judge,
		&o.reads.judge, &o.renew.judge, &o.scatter.judge, &o.share.judge,
		&o.why.judge, &o.quiet.judge, &o.comm.judge, &o.cache.judge, &o.recall.judge, &o.shared.judge,
		&o.rest.judge, &o.prompt.judge, &o.again.judge, &o.stuck.judge, &o.places.judge, &o.refused.judge, &o.words.judge,
		&o.severed.judge, &o.plains.judge, &o.ends.judge, &o.proxy.judge, &o.blocks.judge,
	} {
		j.w, j.others = w, o
	}
}

// Begin makes them ready for a run of a cluster.
func (o *Oracles) Begin(w *pd.Cluster, nodes int) {
	o.Of(w)
	o.truth.begin()
	o.again.begin(nodes)
	o.recall.begin()
	o.ends.begin()
	o.shared.begin()
	o.comm.through, o.stuck.links = o.comm.through[:0], o.stuck.links[:0]
	nodes = w.Source.NodeCount()
	o.aborted.room(nodes)
	o.absent.room(nodes)
	o.attempts.room(nodes)
	o.arena.room(nodes)
	o.both.room(nodes)
	o.breaker.room(nodes)
	o.cache.room(nodes)
	o.claims.room(nodes)
	o.claimed.room(nodes)
	o.places.room(nodes)
	o.ends.room(nodes)
	o.fetch.room(nodes)
	o.hope.room(nodes)
	o.kept.room(nodes)
	o.landed.room(nodes)
	o.lapsed.room(nodes)
	o.lent.room(nodes)
	o.limits.room(nodes)
	o.offers.room(nodes)
	o.plains.room(nodes)
	o.pressure.room(nodes)
	o.prompt.room(nodes)
	o.proxy.room(nodes)
	o.queue.room(nodes)
	o.refused.room(nodes)
	o.renew.room(nodes)
	o.severed.room(nodes)
	o.blocks.room(nodes)
	o.shared.room(nodes)
	o.words.room(nodes)
}

// Started tells them that a node begins a life, with that memory.
func (o *Oracles) Started(n *world.Node, b effects.BufferID) {
	o.aborted.begin(n)
	o.absent.begin(n)
	o.attempts.begin(n)
	o.arena.begin(n)
	o.both.begin(n)
	o.breaker.begin(n)
	o.cache.begin(n)
	o.claims.begin(n)
	o.claimed.begin(n)
	o.places.begin(n)
	o.ends.perLife.begin(n)
	o.fetch.begin(n)
	o.hope.begin(n)
	o.kept.begin(n)
	o.landed.begin(n)
	o.lapsed.begin(n)
	o.lent.begin(n)
	o.limits.begin(n)
	o.limits.started(n)
	o.offers.begin(n)
	o.plains.begin(n)
	o.pressure.begin(n)
	o.prompt.begin(n)
	o.proxy.begin(n)
	o.queue.begin(n)
	o.refused.begin(n)
	o.renew.begin(n)
	o.severed.begin(n)
	o.blocks.begin(n)
	o.shared.perLife.begin(n)
	o.words.begin(n)
	o.truth.started(n, b)
}

// A judge is what each oracle is: one who looks at a world, and at what the others know.
type judge struct {
	w      *pd.Cluster `snap:"share"` // cloned says which
	others *Oracles    `snap:"share"`
}

// judged counts that checks say something: that what they look at is as was promised, or else they fail.
func (j *judge) judged(checks ...oracle.Check) {
	for _, c := range checks {
		j.w.Result.Coverage.Hit(pd.PointJudged + coverage.Point(c))
	}
}

// void counts that a check has nothing to say where it might have had.
func (j *judge) void(c oracle.Check) { j.w.Result.Coverage.Hit(pd.PointVoid + coverage.Point(c)) }

// fail ends the run because what a check judges is not as was promised.
func (j *judge) fail(c oracle.Check, format string, args ...any) {
	j.w.Fail(c.Property(), format, args...)
}

func (j *judge) all() *Oracles { return j.others }
func (j *judge) truth() *truth { return &j.others.truth }

// perLife is what an oracle remembers of the present life of each node.
type perLife[S any] struct{ lives []S }

// What is remembered of one life can be emptied for the next, in the same memory of ours.
type emptiable interface{ empty() }

func (p *perLife[S]) at(n *world.Node) *S { return &p.lives[n.ID] }

// room makes room for nodes, with what memory there is of earlier runs.
func (p *perLife[S]) room(nodes int) {
	if cap(p.lives) < nodes {
		p.lives = make([]S, nodes)
	}
	p.lives = p.lives[:nodes]
}

// begin forgets a node's life.
func (p *perLife[S]) begin(n *world.Node) { any(&p.lives[n.ID]).(emptiable).empty() }
