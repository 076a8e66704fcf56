package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// WantTenantShare is the kind of command by which an operator changes the share of a tenant at a node that works.
var WantTenantShare = plan.NewCommandKind(31, "tenant share", false)

var checkTenantShare = oracle.NewCheck("S18", "changes of the share of a tenant")

// maybeChangeShare changes the share of a tenant at the receiver of a job that begins, if the plan says so, the job is of
// the second half of the jobs, and this incarnation of the receiver has its first share.
func (j *Job) maybeChangeShare(w *Cluster) {
	n, later := w.Nodes[j.Receiver], w.SourcePlan.Bounds.TenantShareLater
	if later == 0 || 2*j.Index < len(w.Jobs) || !n.Up || n.Custom || InfoOf(n).shareChanges {
		return
	}
	InfoOf(n).shareChanges = true
	delay := draw.Hash(w.Seed, draw.Engine, uint64(n.Subject()), 92).Duration(0, 50*effects.Millisecond)
	GiveCommandAfter(w, n, delay, Command{Kind: WantTenantShare, Job: j.Index, Body: &rank.SetTenantShare{Pct: later}}, 0)
}

// handleShareReceipt records that a machine receives the change: from this step on the new share is in force.
func handleShareReceipt(n *world.Node, body *rank.SetTenantShare) {
	InfoOf(n).Cfg.TenantSharePct = body.Pct
}

// checkShareOutcome checks that a change succeeds. Plans with such a change limit the pages of tenants from the start on.
func (c *Command) checkShareOutcome(w *Cluster, n *world.Node, e *effects.Deliver) {
	if w.CountJudged(checkTenantShare); e.Code != effects.OK {
		w.FailCheck(checkTenantShare, "node %d refuses to change the share of a tenant to %d %%: %s", n.AsSubject(),
			c.Body.(*rank.SetTenantShare).Pct, e.Code)
	}
}
