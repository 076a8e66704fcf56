// Package ledger holds the oracles that judge ranks (prefill and decode nodes) in a simulated run. Each oracle keeps
// separate records of what the drivers saw, and fails the run when a promise of docs/safety.md (safety S, liveness L)
// is broken.
//
// The package exports [Ledger], which package sim adds to the oracles of a run. The oracles subscribe to the events of
// packages world and pd (the two files happenings.go), such as "a grant is made" or "a store lands on a page", and to
// the events of [truth]. An oracle never changes a run, and never relies on what a state machine claims: the oracle
// compares what the machine emits with what the drivers did. A broken promise ends the run with the name of the
// property and a sentence about nodes, pages, grants and tickets.
//
// Example: the machine of node 2 grants page 7 to a sender under grant 3. pagesOracle records the grant at the page and
// checks that no engine, no transfer and no second grant has the page (S4, S5). The grant is revoked, and the page is
// granted to another sender. Then a delayed store of the first transfer lands on page 7. The oracle sees that the page
// is granted under another id than the transfer's, and fails the run with property S3.
package ledger

import (
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Oracles holds the oracles of a run. The oracles look at what machines emit, at what drivers do for machines, and at
// what is left at the end. Each oracle judges a single subject and keeps the records that this requires. Facts that
// several oracles need are in [truth]. The facts come from drivers and not from machines, except for the few queries to
// a machine in machine.go of package pd. Each check names a property of docs/safety.md. The files happenings.go of
// packages world and pd define what is reported to the oracles, and when.
type Oracles struct {
	limits   limitsOracle
	truth    truth
	counts   countsOracle
	quiet    quietOracle
	why      whyOracle
	lent     lentOracle
	loans    loansOracle
	pages    pagesOracle
	fills    fillsOracle
	lease    leaseOracle
	share    shareOracle
	rest     restOracle
	again    againOracle
	attempts attemptsOracle
	bearer   bearerOracle
	both     bothOracle
	severed  severedOracle
	scatter  scatterOracle
	refused  refusedOracle
	aborted  abortedOracle
	absent   absentOracle
	breaker  breakerOracle
	proxy    proxyOracle
	promises promisesOracle
	shared   sharedOracle
	blocks   registeredOracle
	recall   recallOracle
	comm     commOracle
	stuck    stuckOracle
	plains   plainsOracle
	claims   claimsOracle
	lapsed   lapsedOracle
	claimed  claimedOracle
	queue    queueOracle
	hope     hopeOracle
	ends     endsOracle
	prompt   promptOracle
	landed   landedOracle
	places   displacedOracle
	cache    cacheOracle
	kept     keptOracle
	renew    renewOracle
	fetch    fetchOracle
	offers   offersOracle
	pressure pressureOracle
	free     freeOracle
	arena    arenaOracle
	reads    readsOracle
	second   secondOracle
	words    wordsOracle
}

// Ledger combines the oracles of ranks into a single oracle, because these oracles read each other's records. The
// oracles receive each event in the order of this list, and the first oracle that finds a broken promise reports the
// failure.
var Ledger = oracle.Of("ledger", "ranks keep the promises of docs/safety.md", func(l *oracle.Listen[Oracles]) {
	add(l, func(o *Oracles) *limitsOracle { return &o.limits })
	add(l, func(o *Oracles) *truth { return &o.truth })
	add(l, func(o *Oracles) *countsOracle { return &o.counts })
	add(l, func(o *Oracles) *quietOracle { return &o.quiet })
	add(l, func(o *Oracles) *whyOracle { return &o.why })
	add(l, func(o *Oracles) *lentOracle { return &o.lent })
	add(l, func(o *Oracles) *loansOracle { return &o.loans })
	add(l, func(o *Oracles) *pagesOracle { return &o.pages })
	add(l, func(o *Oracles) *fillsOracle { return &o.fills })
	add(l, func(o *Oracles) *leaseOracle { return &o.lease })
	add(l, func(o *Oracles) *shareOracle { return &o.share })
	add(l, func(o *Oracles) *restOracle { return &o.rest })
	add(l, func(o *Oracles) *againOracle { return &o.again })
	add(l, func(o *Oracles) *attemptsOracle { return &o.attempts })
	add(l, func(o *Oracles) *bearerOracle { return &o.bearer })
	add(l, func(o *Oracles) *bothOracle { return &o.both })
	add(l, func(o *Oracles) *severedOracle { return &o.severed })
	add(l, func(o *Oracles) *scatterOracle { return &o.scatter })
	add(l, func(o *Oracles) *refusedOracle { return &o.refused })
	add(l, func(o *Oracles) *abortedOracle { return &o.aborted })
	add(l, func(o *Oracles) *absentOracle { return &o.absent })
	add(l, func(o *Oracles) *breakerOracle { return &o.breaker })
	add(l, func(o *Oracles) *proxyOracle { return &o.proxy })
	add(l, func(o *Oracles) *promisesOracle { return &o.promises })
	add(l, func(o *Oracles) *sharedOracle { return &o.shared })
	add(l, func(o *Oracles) *registeredOracle { return &o.blocks })
	add(l, func(o *Oracles) *recallOracle { return &o.recall })
	add(l, func(o *Oracles) *commOracle { return &o.comm })
	add(l, func(o *Oracles) *stuckOracle { return &o.stuck })
	add(l, func(o *Oracles) *plainsOracle { return &o.plains })
	add(l, func(o *Oracles) *claimsOracle { return &o.claims })
	add(l, func(o *Oracles) *lapsedOracle { return &o.lapsed })
	add(l, func(o *Oracles) *claimedOracle { return &o.claimed })
	add(l, func(o *Oracles) *queueOracle { return &o.queue })
	add(l, func(o *Oracles) *hopeOracle { return &o.hope })
	add(l, func(o *Oracles) *endsOracle { return &o.ends })
	add(l, func(o *Oracles) *promptOracle { return &o.prompt })
	add(l, func(o *Oracles) *landedOracle { return &o.landed })
	add(l, func(o *Oracles) *displacedOracle { return &o.places })
	add(l, func(o *Oracles) *cacheOracle { return &o.cache })
	add(l, func(o *Oracles) *keptOracle { return &o.kept })
	add(l, func(o *Oracles) *renewOracle { return &o.renew })
	add(l, func(o *Oracles) *fetchOracle { return &o.fetch })
	add(l, func(o *Oracles) *offersOracle { return &o.offers })
	add(l, func(o *Oracles) *pressureOracle { return &o.pressure })
	add(l, func(o *Oracles) *freeOracle { return &o.free })
	add(l, func(o *Oracles) *arenaOracle { return &o.arena })
	add(l, func(o *Oracles) *readsOracle { return &o.reads })
	add(l, func(o *Oracles) *secondOracle { return &o.second })
	add(l, func(o *Oracles) *wordsOracle { return &o.words })
})

// member is the constraint on the pointer type of an oracle that can be added to [Ledger].
type member[P any] interface {
	*P
	seat(w *pd.Cluster, all *Oracles)
}

// members holds an accessor for each registered oracle.
var members []seated

// seated returns an oracle out of the oracles of a run.
type seated func(*Oracles) interface {
	seat(w *pd.Cluster, all *Oracles)
}

// add registers an oracle with the ledger. If the oracle has a method subscribe, the method is called and subscribes
// the oracle to events. A method reset is called when a run begins, with the number of nodes. An oracle with state for
// each incarnation ([perLife]) clears the state of a node when a new incarnation of the node starts, before anything
// else about the new incarnation is reported to the oracle.
func add[P any, M member[P]](l *oracle.Listen[Oracles], at func(*Oracles) *P) {
	members = append(members, func(o *Oracles) interface{ seat(*pd.Cluster, *Oracles) } { return M(at(o)) })
	part, zero := oracle.Part(l, at), any(new(P))
	if _, is := zero.(ofLives); is {
		oracle.On(part, func(o *P, _ *oracle.Call, e world.Started) { any(o).(ofLives).begin(e.Node) })
	}
	if x, is := zero.(interface{ listen(*oracle.Listen[P]) }); is {
		x.listen(part)
	}
}

// Of sets the references of each oracle to the cluster w and to all oracles.
func (o *Oracles) Of(w *pd.Cluster) {
	for _, m := range members {
		m(o).seat(w, o)
	}
}

// Begin prepares the oracles for a run of the cluster w with the given number of nodes.
func (o *Oracles) Begin(w *pd.Cluster, nodes int) {
	o.Of(w)
	for _, m := range members {
		x := m(o)
		if r, is := x.(interface{ reset(nodes int) }); is {
			r.reset(nodes)
		}
		if r, is := x.(ofLives); is {
			r.room(w.Source.NodeCount())
		}
	}
}

// judge is the part that all oracles have in common: references to the cluster and to all oracles.
type judge struct {
	w      *pd.Cluster `snap:"share"` // Set by seat; a clone of a run sets the clone's cluster.
	others *Oracles    `snap:"share"`
}

func (j *judge) seat(w *pd.Cluster, all *Oracles) { j.w, j.others = w, all }

// node returns the node that a call is about.
func (j *judge) node(c *oracle.Call) *world.Node { return j.w.Nodes[c.Node()] }

// recounts reports whether counts that are slow to compute are checked after this step of n. In the runs of an
// explorer, which are short, the counts are checked after every step.
func (j *judge) recounts(n *world.Node) bool {
	return n.Steps%recountEvery == 1 || j.w.Seed >= draw.RestlessSeed
}

// judged records in the run's coverage that each of the checks had something to judge. The check then either holds or
// calls fail.
func (j *judge) judged(checks ...oracle.Check) {
	for _, c := range checks {
		j.w.Result.Coverage.Hit(pd.PointJudged + coverage.Point(c))
	}
}

// void records in the run's coverage that a check could have applied, but has nothing to judge in this case.
func (j *judge) void(c oracle.Check) { j.w.Result.Coverage.Hit(pd.PointVoid + coverage.Point(c)) }

// fail ends the run, because the property of check c is broken.
func (j *judge) fail(c oracle.Check, format string, args ...any) {
	j.w.Fail(c.Property(), format, args...)
}

// all returns the oracles of the run.
func (j *judge) all() *Oracles { return j.others }

// truth returns the facts about the run.
func (j *judge) truth() *truth { return &j.others.truth }

// ofLives is an oracle with state for the current incarnation of each node.
type ofLives interface {
	room(nodes int)
	begin(n *world.Node)
}

// perLife holds an oracle's state for the current incarnation of each node, indexed by node.
type perLife[S any] struct{ lives []S }

// emptiable is the state of an incarnation. Clearing the state for the next incarnation keeps the memory.
type emptiable interface{ startReply() }

// at returns the state for the current incarnation of n.
func (p *perLife[S]) at(n *world.Node) *S { return &p.lives[n.ID] }

// room makes room for the state of the given number of nodes, in the memory of earlier runs.
func (p *perLife[S]) room(nodes int) {
	if cap(p.lives) < nodes {
		p.lives = make([]S, nodes)
	}
	p.lives = p.lives[:nodes]
}

// begin clears the state of a node, because a new incarnation of the node starts.
func (p *perLife[S]) begin(n *world.Node) { any(&p.lives[n.ID]).(emptiable).startReply() }
