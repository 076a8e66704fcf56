package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file.
var (
	checkWhole   = oracle.NewCheck("S1", "registered blocks that were written whole")
	checkPlace   = oracle.NewCheck("S2", "contents of the cells of registered blocks")
	checkOrigin  = oracle.NewCheck("S23", "one producer's attempt in a registered cell")
	checkWrites  = oracle.NewCheck("S3", "registered blocks returned while a transfer may write them")
	checkReads   = oracle.NewCheck("S4", "finished blocks returned while a transfer may read them")
	checkInTime  = oracle.NewCheck("S24", "notices about written blocks, in time")
	checkLease   = oracle.NewCheck("S14", "leases of finished blocks")
	checkCode    = oracle.NewCheck("L3", "outcomes of registrations")
	checkCovered = oracle.NewCheck("L3", "registrations of computed blocks, not refused as uncovered")
)

// checkWritten checks a request that is reported as written to the consumer's engine: each registered cell must hold
// what the producer computed for that request, layer, head and position.
func checkWritten(w *pd.Cluster, n *world.Node, c *pd.Command) {
	x := drawRequest(w, &w.Jobs[c.Job])
	reporterFor(w).countChecks(checkWhole, checkPlace)
	visitCells(n, lentBlocks(c), func(p *world.Page, layer, head uint32, position uint64) {
		if w.Failure != nil {
			return
		}
		for part, s := range p.Stamps {
			switch {
			case s == 0 || s.Part() != part || s.Fill() != p.Stamps[0].Fill():
				reporterFor(w).fail(checkWhole, "node %d is told that request %q was written: layer %d, head %d, block %d is torn",
					n.AsSubject(), oracle.Request(w.Jobs[c.Job].Name), layer, head, position)
				return
			case !x.isExpectedKey(s.Key(), layer, head, position):
				reporterFor(w).fail(checkPlace,
					"node %d is told that request %q was written: layer %d, head %d, block %d holds %x instead of %x",
					n.AsSubject(), oracle.Request(w.Jobs[c.Job].Name), layer, head, position, s.Key(), x.cellKey(layer, head, position))
				return
			}
		}
	})
	checkOrigins(w, n, c, &x)
	checkWriteTime(w, n, c)
}

// checkWriteTime checks that on leased planes a node does not believe a writer's message that was sent after the grant
// had ended (M4).
func checkWriteTime(w *pd.Cluster, n *world.Node, c *pd.Command) {
	if w.Failure != nil || !w.Conditions.Leased {
		return
	}
	reporterFor(w).countChecks(checkInTime)
	late := map[uint32]effects.Generation{}
	for _, g := range n.Grants {
		for _, p := range g.Pages {
			if g.LateCommit {
				late[p.Index] = max(late[p.Index], p.Generation)
			}
		}
	}
	if len(late) == 0 {
		return
	}
	for i := range n.Pool.Pages { // Ignore pages that have a newer generation.
		p := &n.Pool.Pages[i]
		if last, found := late[uint32(i)]; found && last == p.Generation && w.Failure == nil && isLent(n, c, p) {
			reporterFor(w).fail(checkInTime, "node %d is told that request %q was written, by a notice sent after the grant had ended",
				n.AsSubject(), oracle.Request(w.Jobs[c.Job].Name))
		}
	}
}

// isLent reports whether a page belongs to the blocks that a command lends.
func isLent(n *world.Node, c *pd.Command, p *world.Page) (found bool) {
	visitCells(n, lentBlocks(c), func(x *world.Page, _, _ uint32, _ uint64) { found = found || x == p })
	return found
}

// checkOrigins checks that all cells come from a computation of the request.
func checkOrigins(w *pd.Cluster, n *world.Node, c *pd.Command, x *request) {
	if w.Failure != nil {
		return
	}
	reporterFor(w).countChecks(checkOrigin)
	fills := map[uint32]bool{}
	visitCells(n, lentBlocks(c), func(p *world.Page, _, _ uint32, _ uint64) { fills[p.Stamps[0].Fill()] = true })
	for i := range w.Commands {
		if f := &w.Commands[i]; f.Kind == wantFinished && (f.Job == c.Job || x.sharesName && !x.namesTransfer && f.Job == c.Job^1) {
			delete(fills, f.Count<<5)
		}
	}
	if len(fills) > 0 {
		reporterFor(w).fail(checkOrigin, "node %d is told that request %q was written, with cells of no computation of the request",
			n.AsSubject(), oracle.Request(w.Jobs[c.Job].Name))
	}
}

// checkUntouched checks that no transfer can touch the blocks that are returned to an engine.
func checkUntouched(w *pd.Cluster, n *world.Node, c *pd.Command) {
	reporterFor(w).countChecks(checkWrites, checkReads)
	visitCells(n, lentBlocks(c), func(p *world.Page, layer, head uint32, position uint64) {
		switch {
		case w.Failure != nil:
		case p.Granted != 0 || p.Writers > 0:
			reporterFor(w).fail(checkWrites,
				"node %d gives blocks of request %q back while layer %d, head %d, block %d may be written", n.AsSubject(),
				oracle.Request(w.Jobs[c.Job].Name), layer, head, position)
		case p.Readers > 0:
			reporterFor(w).fail(checkReads,
				"node %d gives blocks of request %q back while layer %d, head %d, block %d may be read", n.AsSubject(),
				oracle.Request(w.Jobs[c.Job].Name), layer, head, position)
		}
	})
}

// checkLeaseTime checks that finished blocks are lent for at least the configured lease. Heartbeats may extend the
// lease.
func checkLeaseTime(w *pd.Cluster, n *world.Node, c *pd.Command, why *effects.Why) {
	reporterFor(w).countChecks(checkLease)
	took, least := w.Now-pd.ReceiptTime(c, n), int64(pd.InfoOf(n).Cfg.RegistrationLease)*8/10 // by any clock
	if c.Code == effects.Expired && why != nil && why.Field == "register.kv_lease_duration" && took < least {
		reporterFor(w).fail(checkLease, "node %d ends the lease of request %q %d ns after it was finished, before its time",
			n.AsSubject(), oracle.Request(w.Jobs[c.Job].Name), took)
	}
}

// A reporter counts the checks of a cluster and fails the run.
type reporter struct{ w *pd.Cluster }

// reporterFor returns a value that reports to a cluster.
func reporterFor(w *pd.Cluster) reporter { return reporter{w} }

// countChecks counts checks that were made.
func (j reporter) countChecks(checks ...oracle.Check) { j.w.CountJudged(checks...) }

// fail ends the run with a violation.
func (j reporter) fail(c oracle.Check, format string, args ...any) {
	j.w.Fail(c.Property(), format, args...)
}

// codesOracle checks the outcome codes of registrations. Unless a node sends false messages, codes that blame a message
// are forbidden, and so is a refusal of blocks that the producer has computed.
var codesOracle = oracle.New("registrations", "registrations end with a code for what happened", func(l *oracle.Subscriptions[struct{}]) {
	oracle.On(l, func(_ *struct{}, call *oracle.Call, e *effects.Deliver) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if n.Custom {
			return
		}
		c := w.CommandOf(n, e.Ticket)
		if c == nil || c.Finished || c.Kind != wantRegister && c.Kind != wantFinished {
			return
		}
		call.CountJudged(checkCode)
		switch e.Code { //nolint:exhaustive // The others blame no message.
		case effects.Malformed, effects.Invalid, effects.Mismatch, effects.Unsupported:
			if pd.MayChangeMessages(w) {
				call.CountVoid(checkCode)
				return
			}
			call.FailCheck(checkCode, "node %d ends the %s of request %q as %s, and no peer sent a false message", n.AsSubject(), c.Kind,
				oracle.Request(w.Jobs[c.Job].Name), e.Code)
		case effects.NotFound:
			checkNotFound(call, n, c)
		}
	})
})

// checkNotFound checks a request that ends because the producer's blocks do not cover the consumer's: every rank of the
// producer computes the same blocks of a request, so the rank must have computed too few. A plane that refuses a write
// may use the same code.
func checkNotFound(call *oracle.Call, n *world.Node, c *pd.Command) {
	w := pd.ClusterOf(call)
	x := drawRequest(w, &w.Jobs[c.Job])
	call.CountJudged(checkCovered)
	if x.sharesName || pd.MayStrike(w, plan.FaultRequestCorrupted, plan.FaultReplyCorrupted, plan.FaultPushRefused) {
		call.CountVoid(checkCovered)
		return
	}
	if x.computedBlocks >= x.promptBlocks {
		call.FailCheck(checkCovered, "node %d ends the %s of request %q because blocks are not covered: %d were computed, and %d are wanted",
			n.AsSubject(), c.Kind, oracle.Request(w.Jobs[c.Job].Name), x.computedBlocks, x.promptBlocks)
	}
}
