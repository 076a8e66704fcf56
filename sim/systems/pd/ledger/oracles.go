// Package ledger is who judges ranks: oracles, each a value that keeps books of its own of what drivers saw, and fails
// a run in which a promise of docs/safety.md is broken.
package ledger

import (
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Oracles judge a run: what machines want and say, what drivers do for them, and what is left in the end. Each is a
// value that looks at one thing and has what it must remember; what several must know is their truth. They change
// nothing of a run, and believe no machine: what they know they have from drivers, but for what machine_pd.go asks.
// Each check names its property in docs/safety.md; hooks.go says what oracles are told, and when.
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

// Ledger is the oracles of ranks as one, whose parts read each other's records. Of one happening the parts hear in the
// order of this list: the first that finds a promise broken tells the story.
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

// A member is one of the oracles.
type member[P any] interface {
	*P
	seat(w *pd.Cluster, all *Oracles)
}

// members has each oracle of a run take its seat; see add.
var members []seated

// seated finds an oracle among those of a run.
type seated func(*Oracles) interface {
	seat(w *pd.Cluster, all *Oracles)
}

// add registers an oracle. It subscribes in its method listen, if it has one. One that has a method reset is called
// when a run begins, with the number of nodes. One that keeps records of lives ([perLife]) begins them anew with each
// incarnation, before anything else is reported of that.
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

// Of has the oracles look at a cluster.
func (o *Oracles) Of(w *pd.Cluster) {
	for _, m := range members {
		m(o).seat(w, o)
	}
}

// Begin makes them ready for a run of a cluster.
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

// A judge is what each oracle is: one who looks at a world, and at what the others know.
type judge struct {
	w      *pd.Cluster `snap:"share"` // cloned says which
	others *Oracles    `snap:"share"`
}

func (j *judge) seat(w *pd.Cluster, all *Oracles) { j.w, j.others = w, all }

// node is the node that a call is about.
func (j *judge) node(c *oracle.Call) *world.Node { return j.w.Nodes[c.Node()] }

// recounts says whether what is slow to count is counted after this step of n. The worlds of an explorer never get old.
func (j *judge) recounts(n *world.Node) bool {
	return n.Steps%recountEvery == 1 || j.w.Seed >= draw.RestlessSeed
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

// ofLives is an oracle that keeps records of the present incarnation of each node.
type ofLives interface {
	room(nodes int)
	begin(n *world.Node)
}

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
