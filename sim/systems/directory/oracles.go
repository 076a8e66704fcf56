package directory

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvferry/kvferry/effects"
	core "github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// The checks of the oracles that are named in sim/obligations.yaml. They have the names of the system and of the oracle.
var (
	checkHolders   = oracle.NewCheck("directory:", "holders")
	checkReports   = oracle.NewCheck("directory:", "reports")
	checkConverged = oracle.NewCheck("directory:", "converges")
)

// holdersOracle checks that a directory only names workers that it was told of.
var holdersOracle = oracle.New("holders",
	"a directory names only workers of the requester's rank that have registered, have not been silent "+
		"for too long and can be reached, each instance once, in order of their chunks, and never the requester",
	checkLookups(func(_ *ledger, x *directoryLedger, c *oracle.Call, q *request, m *protocol.BatchedP2PLookupRetMsg) {
		c.CountJudged(checkHolders)
		seen, most := map[string]bool{}, len(q.hashes)
		if n, limit := len(m.Holders), min(x.limits.PeersPerLookup, x.limits.HoldersPerChunk); n > limit {
			c.Fail("the reply names %d instances, and the limit is %d", n, limit)
			return
		}
		for i := range m.Holders {
			h := &m.Holders[i]
			name, hits := string(h.InstanceID), int(h.HitChunks)
			switch t := x.findEntry(workerID{instance: name, rank: q.sender.rank}); {
			case t == nil:
				c.Fail("the reply names %s for rank %d, which has not registered", name, q.sender.rank)
			case t.url != string(h.PeerInitURL):
				c.Fail("the reply names %s at %s, and the worker is at %s", name, h.PeerInitURL, t.url)
			case name == q.sender.instance:
				c.Fail("the reply names %s, which is the requester", name)
			case seen[name]:
				c.Fail("the reply names %s twice", name)
			case hits > most:
				c.Fail("the reply names %s with %d chunks after %d: out of order, or more than requested", name, hits, most)
			}
			seen[name], most = true, hits
		}
	}))

// reportsOracle checks that a directory invents no chunks and forgets none.
var reportsOracle = oracle.New("reports",
	"a directory states only chunks that the worker has reported since it registered, and "+
		"all of them if no report is missing, before, during and after a full sync",
	checkLookups(func(_ *ledger, x *directoryLedger, c *oracle.Call, q *request, m *protocol.BatchedP2PLookupRetMsg) {
		c.CountJudged(checkReports)
		says, fewest := hitsOf(m), 0
		if n := len(m.Holders); n > 0 && n == x.limits.PeersPerLookup {
			fewest = int(m.Holders[n-1].HitChunks) // Other instances with as many chunks may be left out.
		}
		for _, t := range x.entries {
			hits := says[t.id.instance]
			if t.id.rank != q.sender.rank || t.id.instance == q.sender.instance {
				continue
			}
			if told := countPrefix(t.possible, q.hashes); hits > told {
				c.Fail("the reply states that %s has %d chunks, and only %d were reported", t.id.instance, hits, told)
			}
			if t.required == nil || x.limits.HoldersPerChunk < manyHolders {
				continue // Holders that were refused are missing.
			}
			if sure := countPrefix(t.required.chunks, q.hashes); hits < sure && (hits > 0 || sure > fewest) {
				c.Fail("the reply states that %s has %d chunks, and %d were reported without a gap", t.id.instance, hits, sure)
			}
		}
	}))

// convergenceOracle checks that the directories know the truth some time after the last fault.
var convergenceOracle = oracle.New("converges",
	"some time after the last fault, a directory knows the chunks of every worker, and "+
		"no chunk of a worker that has left",
	checkLookups(checkConvergence(checkConverged, workers, convergeTime)))

// checkConvergence returns a check that a directory knows the chunks of the given workers once the given time has
// passed since the last fault and the last change.
func checkConvergence(check oracle.Check, workers []workerNode, converge time.Duration) lookupCheck {
	return func(b *ledger, x *directoryLedger, c *oracle.Call, q *request, m *protocol.BatchedP2PLookupRetMsg) {
		if b.faultsEndAt == 0 || c.Now().Sub(max(b.faultsEndAt, b.lastChangeAt)) < effects.Duration(converge) {
			c.CountVoid(check)
			return
		}
		c.CountJudged(check)
		if wrong := findDifference(planOf(c), workers, &x.limits, b, q, m); wrong != "" {
			c.Fail("%s replies that %s", c.NodeName(), wrong)
		}
	}
}

// manyHolders is more holders than a chunk can have: four instances, each with records, a full sync and records since a
// gap.
const manyHolders = 13

// findDifference describes a difference between a reply and the true chunks of the given workers. The result is empty
// if the reply is right. The limits are those of the directory.
func findDifference(p *plan.Plan, workers []workerNode, d *core.Config, b *ledger, q *request, m *protocol.BatchedP2PLookupRetMsg) string {
	hits, fewest := hitsOf(m), 0
	if n := len(m.Holders); n > 0 && n == d.PeersPerLookup {
		fewest = int(m.Holders[n-1].HitChunks) // Other instances with as many chunks may be left out.
	}
	for _, x := range workers {
		if x.id.lacksExtensions || x.id.rank != q.sender.rank || x.id.instance == q.sender.instance {
			continue // A worker without an incarnation may be confused with its earlier process.
		}
		if b.incarnations.mayStayStale(x.id) || mayBeTaken(p, x.id.instance) || isMixed(p, x.id.instance) {
			continue
		}
		chunks, answered := countPrefix(b.chunks[x.node], q.hashes), hits[x.id.instance]
		if b.departed[x.node] {
			chunks = 0
		}
		if answered < chunks && d.HoldersPerChunk < manyHolders {
			continue // Holders that were refused are missing.
		}
		if answered != chunks && (answered > 0 || chunks > fewest) {
			return fmt.Sprintf("%s has %d chunks; the true number is %d", x.node, answered, chunks)
		}
	}
	return ""
}

// hitsOf returns the number of chunks of each instance that a reply states.
func hitsOf(m *protocol.BatchedP2PLookupRetMsg) map[string]int {
	hits := map[string]int{}
	for i := range m.Holders {
		hits[string(m.Holders[i].InstanceID)] = int(m.Holders[i].HitChunks)
	}
	return hits
}

// honestyOracle checks that workers report only chunks that they have, or had at some time in their present
// incarnation.
var honestyOracle = oracle.New("honest reports",
	"a worker reports only chunks that it has had, and in a full sync only chunks that "+
		"it has",
	func(l *oracle.Subscriptions[honestyState]) {
		oracle.On(l, func(b *honestyState, c *oracle.Call, e *effects.Command) {
			b.recordCommand(c, e)
			for _, k := range b.chunks[c.NodeName()] {
				b.everHeldBy(c)[k] = true
			}
		})
		oracle.On(l, func(b *honestyState, c *oracle.Call, e *effects.Post) { b.checkPost(c, e) })
		oracle.On(l, func(b *honestyState, c *oracle.Call, _ oracle.IncarnationEnded) {
			b.handleDown(c)
			delete(b.everHeld, c.NodeName())
		})
	})

type honestyState struct {
	ledger
	everHeld map[string]map[uint64]bool
}

func (b *honestyState) everHeldBy(c *oracle.Call) map[uint64]bool {
	if b.everHeld == nil {
		b.everHeld = map[string]map[uint64]bool{}
	}
	if b.everHeld[c.NodeName()] == nil {
		b.everHeld[c.NodeName()] = map[uint64]bool{}
	}
	return b.everHeld[c.NodeName()]
}

func (b *honestyState) checkPost(c *oracle.Call, e *effects.Post) {
	if c.NodeName() == crowdName || c.NodeName() == impostorName {
		return // They invent their reports.
	}
	var ops protocol.BatchedKVOperationMsg
	var batch protocol.FullSyncBatchMsg
	switch {
	case ops.Decode(e.Body, nil) == nil:
		for i := range ops.Operations {
			if op := &ops.Operations[i]; op.Type == protocol.OpAdmit && !b.everHeldBy(c)[op.Key.Bits] {
				c.Fail("%s reports chunk %x as added, which it never had", c.NodeName(), op.Key.Bits)
			}
		}
	case batch.Decode(e.Body, nil) == nil:
		for _, k := range batch.Keys {
			if _, has := slices.BinarySearch(b.chunks[c.NodeName()], k.Bits); !has {
				c.Fail("%s reports chunk %x in a full sync, which it does not have", c.NodeName(), k.Bits)
			}
		}
	}
}

// repliesOracle checks that directories reply at once, so that no request times out.
var repliesOracle = oracle.New("replies", "a directory replies to each request in the step that receives it",
	func(l *oracle.Subscriptions[openRequests]) {
		oracle.On(l, func(b *openRequests, c *oracle.Call, e *effects.Received) {
			if was := b.byNode[c.NodeName()]; was != 0 {
				c.Fail("request %d to %s has no reply", was, c.NodeName())
			}
			if e.Channel != effects.ChannelLog {
				b.setOpen(c, e.Request)
			}
		})
		oracle.On(l, func(b *openRequests, c *oracle.Call, e *effects.Reply) { b.setOpen(c, 0) })
		oracle.On(l, func(b *openRequests, c *oracle.Call, _ oracle.IncarnationEnded) { b.setOpen(c, 0) })
	})

type openRequests struct{ byNode map[string]effects.Request }

func (b *openRequests) setOpen(c *oracle.Call, r effects.Request) {
	if b.byNode == nil {
		b.byNode = map[string]effects.Request{}
	}
	if b.byNode[c.NodeName()] = r; r == 0 {
		delete(b.byNode, c.NodeName())
	}
}

// departureOracle checks that no message of a worker can arrive after its deregistration and make the worker known
// again.
var departureOracle = oracle.New("departure",
	"a worker deregisters from a directory once no message in flight can make it "+
		"known again, and sends nothing to the directory afterwards",
	func(l *oracle.Subscriptions[workersConns]) {
		oracle.On(l, func(b *workersConns, c *oracle.Call, e *effects.Open) { b.connsOf(c).opening[e.Corr] = e.Addr.Host })
		oracle.On(l, func(b *workersConns, c *oracle.Call,
			e *effects.Opened) {
			b.connsOf(c).conns[e.Conn] = b.connsOf(c).opening[e.Corr]
		})
		oracle.On(l, func(b *workersConns, c *oracle.Call, e *effects.Replied) { delete(b.connsOf(c).registrations, e.Corr) })
		oracle.On(l, func(b *workersConns, c *oracle.Call, e *effects.Unanswered) {
			delete(b.connsOf(c).registrations, e.Corr)
		})
		oracle.On(l, func(b *workersConns, c *oracle.Call, e *effects.Send) {
			n, to := b.connsOf(c), b.connsOf(c).conns[e.Conn]
			switch tag, _ := protocol.PeekControllerTag(e.Body, nil); {
			case tag != protocol.TagRegisterMsg && tag != protocol.TagHeartbeatMsg:
			case n.leftDirectories[to]:
				c.Fail("%s registers again after its deregistration", c.NodeName())
			default:
				n.registrations[e.Corr] = to
			}
		})
		oracle.On(l, func(b *workersConns, c *oracle.Call, e *effects.Post) { b.checkPost(c, e) })
		oracle.On(l, func(b *workersConns, c *oracle.Call, _ oracle.IncarnationEnded) { delete(b.byNode, c.NodeName()) })
	})

type workersConns struct{ byNode map[string]*workerConns }

// workerConns holds the connections and the pending requests of a worker, with the directory of each.
type workerConns struct {
	opening         map[effects.Corr]string
	conns           map[effects.Conn]string
	registrations   map[effects.Corr]string // pending registrations and heartbeats
	leftDirectories map[string]bool         // directories at which the worker has deregistered
}

func (b *workersConns) connsOf(c *oracle.Call) *workerConns {
	if b.byNode == nil {
		b.byNode = map[string]*workerConns{}
	}
	if b.byNode[c.NodeName()] == nil {
		b.byNode[c.NodeName()] = &workerConns{
			opening: map[effects.Corr]string{}, conns: map[effects.Conn]string{}, registrations: map[effects.Corr]string{},
			leftDirectories: map[string]bool{},
		}
	}
	return b.byNode[c.NodeName()]
}

func (b *workersConns) checkPost(c *oracle.Call, e *effects.Post) {
	if c.NodeName() == crowdName || c.NodeName() == impostorName {
		return // They deregister at any time.
	}
	n, to := b.connsOf(c), b.connsOf(c).conns[e.Conn]
	tag, _ := protocol.PeekControllerTag(e.Body, nil)
	switch {
	case tag != protocol.TagDeRegisterMsg && n.leftDirectories[to]:
		c.Fail("%s sends a report after its deregistration", c.NodeName())
	case tag != protocol.TagDeRegisterMsg:
	default:
		for _, at := range n.registrations {
			if at == to {
				c.Fail("%s deregisters while a registration or a heartbeat is in flight", c.NodeName())
			}
		}
		n.leftDirectories[to] = true
	}
}
