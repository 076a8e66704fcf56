package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file.
var (
	checkWhole  = oracle.NewCheck("S1", "registered blocks that came whole")
	checkPlace  = oracle.NewCheck("S2", "what lies where in registered blocks")
	checkOrigin = oracle.NewCheck("S23", "one producer's attempt in a registered cell")
	checkWrites = oracle.NewCheck("S3", "registered blocks that go back while something may store into them")
	checkReads  = oracle.NewCheck("S4", "finished blocks that go back while something may read them")
	checkInTime = oracle.NewCheck("S24", "words on registered blocks, in time")
	checkLease  = oracle.NewCheck("S14", "leases of what is finished")
	checkCode   = oracle.NewCheck("L3", "outcomes of registrations")
)

// came checks a request that is reported as written to the consumer's engine: each registered cell must hold what the
// producer computed for that request, layer, head and position.
func came(w *pd.Cluster, n *world.Node, c *pd.Command) {
	x := requestOf(w, &w.Jobs[c.Job])
	of(w).judged(checkWhole, checkPlace)
	cells(n, blocksOf(c), func(p *world.Page, layer, head uint32, position uint64) {
		if w.Failure != nil {
			return
		}
		for part, s := range p.Stamps {
			switch {
			case s == 0 || s.Part() != part || s.Fill() != p.Stamps[0].Fill():
				of(w).fail(checkWhole, "node %d is told that request %q was written: layer %d, head %d, block %d is torn",
					n.It(), oracle.Request(w.Jobs[c.Job].Name), layer, head, position)
				return
			case !x.means(s.Key(), layer, head, position):
				of(w).fail(checkPlace,
					"node %d is told that request %q was written: layer %d, head %d, block %d holds %x instead of %x",
					n.It(), oracle.Request(w.Jobs[c.Job].Name), layer, head, position, s.Key(), x.key(layer, head, position))
				return
			}
		}
	})
	origins(w, n, c, &x)
	inTime(w, n, c)
}

// inTime checks that on leased planes a node does not believe a writer's message that was sent after the grant had
// ended (M4).
func inTime(w *pd.Cluster, n *world.Node, c *pd.Command) {
	if w.Failure != nil || !w.Setting.Leased {
		return
	}
	of(w).judged(checkInTime)
	late := map[uint32]effects.Generation{}
	for _, g := range n.Grants {
		for _, p := range g.Pages {
			if g.Late {
				late[p.Index] = max(late[p.Index], p.Generation)
			}
		}
	}
	if len(late) == 0 {
		return
	}
	for i := range n.Pool.Pages { // Ignore pages that have a newer generation.
		p := &n.Pool.Pages[i]
		if last, was := late[uint32(i)]; was && last == p.Generation && w.Failure == nil && lent(n, c, p) {
			of(w).fail(checkInTime, "node %d is told that request %q was written, by a word that came after its time",
				n.It(), oracle.Request(w.Jobs[c.Job].Name))
		}
	}
}

// lent reports whether a page belongs to the blocks that a command lends.
func lent(n *world.Node, c *pd.Command, p *world.Page) (yes bool) {
	cells(n, blocksOf(c), func(x *world.Page, _, _ uint32, _ uint64) { yes = yes || x == p })
	return yes
}

// origins checks that all cells come from a computation of the request.
func origins(w *pd.Cluster, n *world.Node, c *pd.Command, x *request) {
	if w.Failure != nil {
		return
	}
	of(w).judged(checkOrigin)
	fills := map[uint32]bool{}
	cells(n, blocksOf(c), func(p *world.Page, _, _ uint32, _ uint64) { fills[p.Stamps[0].Fill()] = true })
	for i := range w.Commands {
		if f := &w.Commands[i]; f.Want == finishes && (f.Job == c.Job || x.alike && !x.named && f.Job == c.Job^1) {
			delete(fills, f.Count<<5)
		}
	}
	if len(fills) > 0 {
		of(w).fail(checkOrigin, "node %d is told that request %q was written, by nobody who computed it",
			n.It(), oracle.Request(w.Jobs[c.Job].Name))
	}
}

// still checks that no transfer can touch the blocks that are returned to an engine.
func still(w *pd.Cluster, n *world.Node, c *pd.Command) {
	of(w).judged(checkWrites, checkReads)
	cells(n, blocksOf(c), func(p *world.Page, layer, head uint32, position uint64) {
		switch {
		case w.Failure != nil:
		case p.Granted != 0 || p.Writers > 0:
			of(w).fail(checkWrites,
				"node %d gives blocks of request %q back while layer %d, head %d, block %d may be written", n.It(),
				oracle.Request(w.Jobs[c.Job].Name), layer, head, position)
		case p.Readers > 0:
			of(w).fail(checkReads,
				"node %d gives blocks of request %q back while layer %d, head %d, block %d may be read", n.It(),
				oracle.Request(w.Jobs[c.Job].Name), layer, head, position)
		}
	})
}

// lease checks that finished blocks are lent for at least the configured lease. Heartbeats may extend the lease.
func lease(w *pd.Cluster, n *world.Node, c *pd.Command, why *effects.Why) {
	of(w).judged(checkLease)
	took, least := w.Now-pd.Begun(c, n), int64(pd.Its(n).Cfg.RegistrationLease)*8/10 // by any clock
	if c.Code == effects.Expired && why != nil && why.Field == "register.kv_lease_duration" && took < least {
		of(w).fail(checkLease, "node %d ends the lease of request %q %d ns after it was finished, before its time",
			n.It(), oracle.Request(w.Jobs[c.Job].Name), took)
	}
}

// A judge counts the checks of a cluster and fails the run.
type judge struct{ w *pd.Cluster }

// of returns a value that reports to a cluster.
func of(w *pd.Cluster) judge { return judge{w} }

// judged counts checks that were made.
func (j judge) judged(checks ...oracle.Check) { pd.Judged(j.w, checks...) }

// fail ends the run with a violation.
func (j judge) fail(c oracle.Check, format string, args ...any) {
	j.w.Fail(c.Property(), format, args...)
}

// codes checks the outcome codes of registrations. Unless a node sends false messages, codes that blame a message are
// forbidden.
var codes = oracle.Of("registrations", "they end as something that happened", func(l *oracle.Listen[struct{}]) {
	oracle.On(l, func(_ *struct{}, call *oracle.Call, e *effects.Deliver) {
		w := pd.In(call)
		n := w.Nodes[call.Node()]
		if n.User {
			return
		}
		c := w.CommandOf(n, e.Ticket)
		if c == nil || c.Over || c.Want != registers && c.Want != finishes {
			return
		}
		call.Judged(checkCode)
		if e.Code == effects.Malformed || e.Code == effects.Invalid || e.Code == effects.Mismatch ||
			e.Code == effects.Unsupported {
			if pd.Lies(w) {
				call.Void(checkCode)
				return
			}
			call.Breaks(checkCode, "node %d ends the %s of request %q as %s, and nobody lied", n.It(), c.Want,
				oracle.Request(w.Jobs[c.Job].Name), e.Code)
		}
	})
})
