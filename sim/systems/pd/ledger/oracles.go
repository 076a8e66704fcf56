// Package ledger holds the oracles that judge ranks (prefill and decode nodes) in a simulated run. Each oracle keeps
// separate records of what the drivers saw, and fails the run when a promise of docs/safety.md (safety S, liveness L,
// communicators C) is broken.
//
// The package exports [Ledger], which package sim adds to the oracles of a run. The oracles subscribe to the events of
// packages world and pd (the two files happenings.go), such as "a grant is made" or "a store lands on a page", and to
// the events of [runFacts]. An oracle never changes a run. The facts come from what the drivers did, and the oracle
// compares with them what the machine emits. Where an oracle compares a machine's own count or state with the facts, it
// asks the machine through machine.go of package pd. A broken promise ends the run with the name of the
// property and a sentence about nodes, pages, grants and tickets.
//
// Example: the machine of node 2 grants page 7 to a sender under grant 3. writeGrantOracle records the grant at the
// page and checks that no engine, no transfer and no second grant has the page (S4, S5). The grant is revoked, and the
// page is granted to another sender. Then a delayed store of the first transfer lands on page 7. The oracle sees that
// the page is granted under another id than the transfer's, and fails the run with property S3.
package ledger

import (
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Oracles holds the state of the oracles in one run. The oracles look at what machines emit, at what drivers do for
// machines, and at what is left at the end. Each oracle judges a single subject and keeps the records that this
// requires. Facts that several oracles need are in [runFacts]. Each check names a property of docs/safety.md. The files
// happenings.go of packages world and pd define what is reported to the oracles, and when.
type Oracles struct {
	limits         limitOracle
	facts          runFacts
	counts         countOracle
	quiet          quietOracle
	reasons        reasonOracle
	enginePages    enginePageOracle
	readLeases     readLeaseOracle
	writeGrants    writeGrantOracle
	readFills      readFillOracle
	leaseTimes     leaseTimeOracle
	tableShares    tableShareOracle
	restState      restOracle
	resends        resendOracle
	attempts       attemptOracle
	plainSenders   plainSenderOracle
	dualRole       dualRoleOracle
	connLosses     connLossOracle
	scatters       scatterOracle
	refusals       refusalOracle
	commandTables  commandTableOracle
	aborts         abortOracle
	unreachables   unreachableOracle
	breakers       breakerOracle
	proxyTries     proxyOracle
	putResults     putResultOracle
	lookups        lookupOracle
	registrations  registrationOracle
	recalls        recallOracle
	communicators  communicatorOracle
	stuckBatches   stuckOracle
	plainCounts    plainCountOracle
	claims         claimOracle
	bundles        bundleOracle
	lapses         lapseOracle
	promises       promiseOracle
	queue          queueOracle
	getWaits       getWaitOracle
	requestEnds    requestEndOracle
	prompt         promptOracle
	pageShares     pageShareOracle
	peerRows       peerRowOracle
	cache          cacheOracle
	deferredOffers deferredOfferOracle
	renewals       renewOracle
	fetches        fetchOracle
	offers         offerOracle
	offerQueue     offerQueueOracle
	freePages      freeOracle
	arena          arenaOracle
	engineReads    engineReadOracle
	secondPools    secondPoolOracle
	doneMessages   doneMessageOracle
	asks           askOracle
	replyTimes     replyTimeOracle
	retryPauses    retryPauseOracle
	loans          loanOracle
	commandRows    commandRowOracle
	grantTimes     grantTimeOracle
	peerCodes      peerCodeOracle
	earliest       earliestOracle
	revocations    revocationOracle
	cacheOrder     cacheOrderOracle
	renewRetries   renewRetryOracle
	openFailures   openFailureOracle
	trust          trustOracle
	tenants        tenantOracle
	sums           sumOracle
	tenantShares   tenantShareOracle
	origins        originOracle
	domains        domainOracle
	putTimes       putTimeOracle
	metrics        metricOracle
	checkpoints    checkpointOracle
}

// Ledger is the definition of the oracles of ranks, combined into a single oracle, because these oracles read each
// other's records. The oracles receive each event in the order of this list, and the first oracle that finds a broken
// promise reports the failure.
var Ledger = oracle.New("ledger", "ranks keep the promises of docs/safety.md", func(l *oracle.Subscriptions[Oracles]) {
	addOracle(l, func(o *Oracles) *limitOracle { return &o.limits })
	addOracle(l, func(o *Oracles) *runFacts { return &o.facts })
	addOracle(l, func(o *Oracles) *countOracle { return &o.counts })
	addOracle(l, func(o *Oracles) *quietOracle { return &o.quiet })
	addOracle(l, func(o *Oracles) *reasonOracle { return &o.reasons })
	addOracle(l, func(o *Oracles) *enginePageOracle { return &o.enginePages })
	addOracle(l, func(o *Oracles) *readLeaseOracle { return &o.readLeases })
	addOracle(l, func(o *Oracles) *writeGrantOracle { return &o.writeGrants })
	addOracle(l, func(o *Oracles) *readFillOracle { return &o.readFills })
	addOracle(l, func(o *Oracles) *leaseTimeOracle { return &o.leaseTimes })
	addOracle(l, func(o *Oracles) *tableShareOracle { return &o.tableShares })
	addOracle(l, func(o *Oracles) *restOracle { return &o.restState })
	addOracle(l, func(o *Oracles) *resendOracle { return &o.resends })
	addOracle(l, func(o *Oracles) *attemptOracle { return &o.attempts })
	addOracle(l, func(o *Oracles) *plainSenderOracle { return &o.plainSenders })
	addOracle(l, func(o *Oracles) *dualRoleOracle { return &o.dualRole })
	addOracle(l, func(o *Oracles) *connLossOracle { return &o.connLosses })
	addOracle(l, func(o *Oracles) *scatterOracle { return &o.scatters })
	addOracle(l, func(o *Oracles) *refusalOracle { return &o.refusals })
	addOracle(l, func(o *Oracles) *commandTableOracle { return &o.commandTables })
	addOracle(l, func(o *Oracles) *abortOracle { return &o.aborts })
	addOracle(l, func(o *Oracles) *unreachableOracle { return &o.unreachables })
	addOracle(l, func(o *Oracles) *breakerOracle { return &o.breakers })
	addOracle(l, func(o *Oracles) *proxyOracle { return &o.proxyTries })
	addOracle(l, func(o *Oracles) *putResultOracle { return &o.putResults })
	addOracle(l, func(o *Oracles) *lookupOracle { return &o.lookups })
	addOracle(l, func(o *Oracles) *registrationOracle { return &o.registrations })
	addOracle(l, func(o *Oracles) *recallOracle { return &o.recalls })
	addOracle(l, func(o *Oracles) *communicatorOracle { return &o.communicators })
	addOracle(l, func(o *Oracles) *stuckOracle { return &o.stuckBatches })
	addOracle(l, func(o *Oracles) *plainCountOracle { return &o.plainCounts })
	addOracle(l, func(o *Oracles) *claimOracle { return &o.claims })
	addOracle(l, func(o *Oracles) *lapseOracle { return &o.lapses })
	addOracle(l, func(o *Oracles) *promiseOracle { return &o.promises })
	addOracle(l, func(o *Oracles) *bundleOracle { return &o.bundles })
	addOracle(l, func(o *Oracles) *queueOracle { return &o.queue })
	addOracle(l, func(o *Oracles) *getWaitOracle { return &o.getWaits })
	addOracle(l, func(o *Oracles) *requestEndOracle { return &o.requestEnds })
	addOracle(l, func(o *Oracles) *promptOracle { return &o.prompt })
	addOracle(l, func(o *Oracles) *pageShareOracle { return &o.pageShares })
	addOracle(l, func(o *Oracles) *peerRowOracle { return &o.peerRows })
	addOracle(l, func(o *Oracles) *cacheOracle { return &o.cache })
	addOracle(l, func(o *Oracles) *deferredOfferOracle { return &o.deferredOffers })
	addOracle(l, func(o *Oracles) *renewOracle { return &o.renewals })
	addOracle(l, func(o *Oracles) *fetchOracle { return &o.fetches })
	addOracle(l, func(o *Oracles) *offerOracle { return &o.offers })
	addOracle(l, func(o *Oracles) *offerQueueOracle { return &o.offerQueue })
	addOracle(l, func(o *Oracles) *freeOracle { return &o.freePages })
	addOracle(l, func(o *Oracles) *arenaOracle { return &o.arena })
	addOracle(l, func(o *Oracles) *engineReadOracle { return &o.engineReads })
	addOracle(l, func(o *Oracles) *secondPoolOracle { return &o.secondPools })
	addOracle(l, func(o *Oracles) *doneMessageOracle { return &o.doneMessages })
	addOracle(l, func(o *Oracles) *askOracle { return &o.asks })
	addOracle(l, func(o *Oracles) *replyTimeOracle { return &o.replyTimes })
	addOracle(l, func(o *Oracles) *retryPauseOracle { return &o.retryPauses })
	addOracle(l, func(o *Oracles) *loanOracle { return &o.loans })
	addOracle(l, func(o *Oracles) *commandRowOracle { return &o.commandRows })
	addOracle(l, func(o *Oracles) *grantTimeOracle { return &o.grantTimes })
	addOracle(l, func(o *Oracles) *peerCodeOracle { return &o.peerCodes })
	addOracle(l, func(o *Oracles) *earliestOracle { return &o.earliest })
	addOracle(l, func(o *Oracles) *revocationOracle { return &o.revocations })
	addOracle(l, func(o *Oracles) *cacheOrderOracle { return &o.cacheOrder })
	addOracle(l, func(o *Oracles) *renewRetryOracle { return &o.renewRetries })
	addOracle(l, func(o *Oracles) *openFailureOracle { return &o.openFailures })
	addOracle(l, func(o *Oracles) *trustOracle { return &o.trust })
	addOracle(l, func(o *Oracles) *tenantOracle { return &o.tenants })
	addOracle(l, func(o *Oracles) *sumOracle { return &o.sums })
	addOracle(l, func(o *Oracles) *tenantShareOracle { return &o.tenantShares })
	addOracle(l, func(o *Oracles) *originOracle { return &o.origins })
	addOracle(l, func(o *Oracles) *domainOracle { return &o.domains })
	addOracle(l, func(o *Oracles) *putTimeOracle { return &o.putTimes })
	addOracle(l, func(o *Oracles) *metricOracle { return &o.metrics })
	addOracle(l, func(o *Oracles) *checkpointOracle { return &o.checkpoints })
})

// oraclePointer is the constraint on the pointer type of an oracle that can be added to [Ledger].
type oraclePointer[P any] interface {
	*P
	setReferences(w *pd.Cluster, all *Oracles)
	// subscribe subscribes the oracle to what it has to know. It is part of the constraint and no optional method, because
	// an oracle that is not subscribed judges nothing, and no run would differ.
	subscribe(l *oracle.Subscriptions[P])
}

// oracleAccessors holds an accessor for each registered oracle.
var oracleAccessors []oracleAccessor

// oracleAccessor returns an oracle out of the oracles of a run.
type oracleAccessor func(*Oracles) interface {
	setReferences(w *pd.Cluster, all *Oracles)
}

// addOracle registers an oracle with the ledger, and subscribes it. A method reset is called when a run begins, with
// the number of nodes. An oracle with state for each incarnation ([perIncarnation]) clears the state of a node when a
// new incarnation of the node starts, before anything else about the new incarnation is reported to the oracle.
func addOracle[P any, M oraclePointer[P]](l *oracle.Subscriptions[Oracles], at func(*Oracles) *P) {
	oracleAccessors = append(oracleAccessors, func(o *Oracles) interface{ setReferences(*pd.Cluster, *Oracles) } { return M(at(o)) })
	part, zero := oracle.AddPart(l, at), any(new(P))
	if _, is := zero.(incarnationOracle); is {
		oracle.On(part, func(o *P, _ *oracle.Call, e world.NodeStarted) { any(o).(incarnationOracle).beginIncarnation(e.Node) })
	}
	M(new(P)).subscribe(part)
}

// SetReferences sets the references of each oracle to the cluster w and to all oracles.
func (o *Oracles) SetReferences(w *pd.Cluster) {
	for _, m := range oracleAccessors {
		m(o).setReferences(w, o)
	}
}

// BeginRun prepares the oracles for a run of the cluster w. The number of nodes counts custom nodes, too; the state for
// each incarnation is kept for the ranks only.
func (o *Oracles) BeginRun(w *pd.Cluster, nodes int) {
	o.SetReferences(w)
	for _, m := range oracleAccessors {
		x := m(o)
		if r, ok := x.(interface{ reset(nodes int) }); ok {
			r.reset(nodes)
		}
		if r, ok := x.(incarnationOracle); ok {
			r.makeRoom(w.SourcePlan.NodeCount())
		}
	}
}

// oracleBase is the part that all oracles have in common: references to the cluster and to all oracles.
type oracleBase struct {
	w          *pd.Cluster `snap:"share"` // Set by setReferences; a clone of a run sets the clone's cluster.
	allOracles *Oracles    `snap:"share"`
}

func (j *oracleBase) setReferences(w *pd.Cluster, all *Oracles) { j.w, j.allOracles = w, all }

// nodeOf returns the node that a call is about.
func (j *oracleBase) nodeOf(c *oracle.Call) *world.Node { return j.w.Nodes[c.Node()] }

// isRecountStep reports whether counts that are slow to compute are checked after this step of n. In the runs of an
// explorer, which are short, the counts are checked after every step.
func (j *oracleBase) isRecountStep(n *world.Node) bool {
	return n.StepCount%recountInterval == 1 || draw.IsFixed(j.w.Seed)
}

// countJudged records in the run's coverage that each of the checks had something to judge. The check then either holds
// or calls fail.
func (j *oracleBase) countJudged(checks ...oracle.Check) {
	j.w.CountJudged(checks...)
}

// countVoid records in the run's coverage that a check could have applied, but has nothing to judge in this case.
func (j *oracleBase) countVoid(c oracle.Check) {
	c.CountVoid(&j.w.Result.Coverage)
}

// fail ends the run, because the property of check c is broken.
func (j *oracleBase) fail(c oracle.Check, format string, args ...any) {
	j.w.Fail(c.Property(), format, args...)
}

// oracles returns the oracles of the run.
func (j *oracleBase) oracles() *Oracles { return j.allOracles }

// facts returns the facts about the run.
func (j *oracleBase) facts() *runFacts { return &j.allOracles.facts }

// incarnationOracle is an oracle with state for the current incarnation of each node.
type incarnationOracle interface {
	makeRoom(nodes int)
	beginIncarnation(n *world.Node)
}

// perIncarnation holds an oracle's state for the current incarnation of each node, indexed by node.
type perIncarnation[S any] struct{ states []S }

// reusableState is the state of an incarnation. Clearing the state for the next incarnation keeps the memory.
type reusableState interface{ clearForReuse() }

// stateOf returns the state for the current incarnation of n.
func (p *perIncarnation[S]) stateOf(n *world.Node) *S { return &p.states[n.ID] }

// makeRoom makes room for the state of the given number of nodes, in the memory of earlier runs. beginIncarnation
// clears the state of a node before its first use.
func (p *perIncarnation[S]) makeRoom(nodes int) {
	if cap(p.states) < nodes {
		p.states = make([]S, nodes)
	}
	p.states = p.states[:nodes]
}

// beginIncarnation clears the state of a node, because a new incarnation of the node starts.
func (p *perIncarnation[S]) beginIncarnation(n *world.Node) {
	any(&p.states[n.ID]).(reusableState).clearForReuse()
}
