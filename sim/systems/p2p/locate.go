package p2p

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// locate is the kind of the commands by which an engine asks directories for the locations of chunks. An engine that
// missed chunks tries again; see seeksAgain.
var locate = plan.NewWant(16, "locate", false)

// locates makes an engine sometimes ask how many chunks of a job exist, before the engine brings the chunks.
func locates(w *pd.Cluster, n *world.Node, j *pd.Job) {
	d := draw.Hash(w.Seed, draw.Engine, uint64(j.Place)<<8|uint64(j.Given[want]), 22)
	if w.Seed >= draw.RestlessSeed || !d.Permille(300) {
		return
	}
	t := w.Give(n, pd.Command{Want: locate, Job: j.Place, Body: &ops.Locate{Keys: j.Keys}}, pd.Its(n).Cfg.BringTimeout)
	w.MaybeAbort(n, t)
}

// seeksAgain makes an engine that missed a chunk sometimes start the job again soon.
func seeksAgain(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &w.Jobs[c.Job]
	if !j.Said[finding] || e.Code != effects.NotFound || j.Given[want] > 3 || w.Healed {
		return
	}
	if d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 23); d.Permille(600) {
		w.ForNode(n, d.Heavy(100*effects.Millisecond), world.Delivery{Kind: world.KindStart, A: uint64(c.Job)})
	}
}

// located checks the outcomes of locate commands against the replies of the directories.
var located = oracle.Of("located",
	"who asks directories how much there is of some chunks is told what one of them said, or "+
		"that none did", func(l *oracle.Listen[heard]) {
		hears(l)
		oracle.On(l, func(h *heard, call *oracle.Call, e *effects.Deliver) {
			w := pd.In(call)
			s := h.seek(int32(call.Node()), e.Ticket)
			if s == nil {
				return
			}
			a := h.answer(s.node, s.of)
			switch c := &w.Commands[e.Ticket-1]; {
			case c.Want != locate:
			case !slices.Contains(misses, e.Code):
				call.Fail("node %d asks where chunks are by ticket %d, which ends as %s", call.Node(), oracle.Ticket(e.Ticket),
					e.Code)
			case e.Hits > 0 && (e.Code != effects.OK || a == nil || a.said>>min(e.Hits, 63)&1 == 0):
				call.Fail("node %d is told by ticket %d that somebody has %d chunks, which no directory said",
					call.Node(), oracle.Ticket(e.Ticket), e.Hits)
			}
			h.over(s)
		})
	})
