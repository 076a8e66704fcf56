// Package p2p is nodes that share what they have, in a simulated world: what their engines do, what seeds draw of it,
// and who judges what comes.
package p2p

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/p2p"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Flow is chunks that are shared.
var Flow = pd.Flow{
	Name:     "p2p",
	Profiles: []expand.Profile{{Name: "p2p", World: expand.Sharers, Jobs: draws}},
	Plays:    func(p *plan.Plan) bool { return p.Topology.Share },
	Cast: func(p *plan.Plan, n *world.Node) {
		n.Shares = p.Topology.Share
	},
	Rank: func(p *plan.Plan, c *rank.Config) {
		if c.Shares = p.Topology.Share; !c.Shares {
			return
		}
		at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Plan, 9, 100+n) }
		c.ShareTTL, c.LoansMax, c.BringsMax = c.Lease, p.Bounds.Grants, p.Bounds.Grants
		c.BringTimeout, c.LookupTimeout = c.PutTimeout, 3*c.ReplyTimeout/4
		c.Lookups, c.LoanSharePct = uint16(at(0).Between(1, 4)), uint32(at(1).Between(30, 100))
		finds(p, c)
	},
	Scopes:   small,
	Ports:    ports,
	Owns:     func(j *pd.Job) bool { return j.Share },
	Start:    start,
	Commands: []pd.Commands{{Want: want, Ended: ended}},
	Oracles:  []oracle.Oracle{brought},
	Words:    words,
}

// ports are where a node is asked what it shares.
func ports(n *world.Node) []effects.Channel {
	if !n.Shares {
		return nil
	}
	return []effects.Channel{effects.ChannelLookup, effects.ChannelPeerDone}
}

// want are the commands of an engine that has chunks brought.
var want = plan.NewWant(14, "bring", false)

// start has the chunks of a job brought to its receiver.
func start(w *pd.Cluster, j *pd.Job) {
	n := w.Nodes[j.Receiver]
	if !n.Up {
		return
	}
	b := ops.Bring{Request: j.Name, Keys: j.Keys}
	if init := w.Nodes[j.Sender].Addr(effects.ChannelInit); !j.Find {
		b.From = ops.Peer{Host: init.Host, InitPort: init.Port}
	}
	t := w.Give(n, pd.Command{Want: want, Job: j.Place, Body: &b}, pd.Its(n).Cfg.BringTimeout)
	w.MaybeAbort(n, t)
}

// ended has the engine take what came.
func ended(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if e.Hits > 0 {
		w.Jobs[c.Job].Get(w)
	}
}

// draws draws requests whose chunks another node has, as far as it still has them.
func draws(d *expand.Draft) {
	p := d.Plan
	sent := len(p.Jobs)
	for i := range sent {
		at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Plan, 9, 1000+uint64(i)<<8|n) }
		j := &p.Jobs[i]
		if j.Plain || j.PlainTo || j.Gather || !at(0).Permille(600) || len(p.Jobs) >= plan.JobsMax {
			continue
		}
		to := plan.Node(at(1).Below(uint64(p.Topology.Both)))
		if to == j.To {
			continue
		}
		r := plan.Job{
			Request: expand.Unused(p), From: j.To, To: to, Share: true, Keys: slices.Clone(j.Keys),
			At: j.At + at(2).Time(0, p.Timeouts.ClaimTTL),
		}
		if at(3).Permille(300) { // What nobody has ends the prefix.
			r.Keys = append(r.Keys, plan.KeysOwn+r.Request*8+7)
		}
		r.Batch = len(r.Keys)
		p.Jobs = append(p.Jobs, r)
	}
}

// What is judged here.
var checkCode = oracle.NewCheck("L3", "outcomes of chunks that are brought")

// brought judges what engines are told that have chunks brought: nobody lied, so nothing makes no sense.
var brought = oracle.Of("shares", "what peers share comes whole or not at all", func(l *oracle.Listen[struct{}]) {
	oracle.OnEffect(l, func(_ *struct{}, call *oracle.Call, e *effects.Deliver) {
		w := pd.In(call)
		n := w.Nodes[call.Node()]
		if n.User {
			return
		}
		c := w.CommandOf(n, e.Ticket)
		if c == nil || c.Want != want || c.Over {
			return
		}
		call.Judged(checkCode)
		if e.Code == effects.Malformed || e.Code == effects.Refused || e.Code == effects.Invalid {
			if pd.Lies(w) {
				call.Void(checkCode)
				return
			}
			call.Breaks(checkCode, "node %d has chunks of request %q brought, which ends as %s, and nobody lied",
				n.It(), oracle.Request(w.Jobs[c.Job].Name), e.Code)
		}
	})
})
