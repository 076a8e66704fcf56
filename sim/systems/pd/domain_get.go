package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// WantOfDomain is the kind of command by which an engine states another trust domain, and gets the chunk that a stranger
// of this domain sent, or asks whether it is here.
var WantOfDomain = plan.NewCommandKind(30, "foreign get", false)

// maybeGetOfDomain sometimes makes the engine of n get the first chunk of a job from a trust domain, in most cases that of
// a stranger which is about to send its false chunk. The Get names no request, so that it consumes nothing.
func (w *Cluster) maybeGetOfDomain(n *world.Node, j *Job, realm effects.Realm, d draw.Value) {
	if !n.Up || n.Draining || j.PlainTo || !d.ChancePermille(500) {
		return
	}
	if d = d.Rehash(); d.ChancePermille(200) {
		realm = effects.RealmUnproven
	}
	d = d.Rehash()
	wait, delay := d.Duration(0, InfoOf(n).Cfg.GetWaitMax), d.Rehash().Duration(0, 20*effects.Millisecond)
	c := Command{Kind: WantOfDomain, Job: j.Index, Count: 1}
	if d = d.Rehash().Rehash(); d.ChancePermille(300) {
		wait, c.Body = 0, w.bodies.contains.AllocCopy(engine.Contains{Keys: j.Keys[:1], Realm: realm})
	} else {
		c.Body = w.bodies.gets.AllocCopy(engine.Get{Keys: j.Keys[:1], Realm: realm, Wait: wait})
	}
	GiveCommandAfter(w, n, delay, c, wait)
}

var checkDomainHits = oracle.NewCheck("S32", "contents of gets of a domain")

// handleGetOfDomain handles the outcome of a WantOfDomain.
func (c *Command) handleGetOfDomain(w *Cluster, n *world.Node, e *effects.Deliver) {
	w.CountJudged(checkDomainHits)
	if _, gets := c.Body.(*engine.Get); e.Hits > 1 || gets && len(e.Pages) != int(e.Hits) || !gets && len(e.Pages) > 0 {
		w.FailCheck(checkDomainHits, "node %d gets %d pages and %d hits for a key of a stated domain", n.AsSubject(), len(e.Pages),
			e.Hits)
		return
	}
	c.Pages = w.Arenas.EffectPages.CopySlice(e.Pages)
	if OnGetOfDomain.Report(&w.Panel, n.ID, GetOfDomain{n, e, c}); w.Failure == nil && len(e.Pages) > 0 {
		d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 11)
		w.QueueForNode(n, d.HeavyTail(30*effects.Millisecond), world.Delivery{Kind: world.KindReleasePages, A: uint64(e.Ticket)})
	}
}
