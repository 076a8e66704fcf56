// Package p2p is nodes that share what they have, in a simulated world: what their engines do, what seeds draw of it,
// and who judges what comes.
package p2p

import (
	"reflect"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Flow is chunks that are shared.
var Flow = pd.Flow{
	Word:     word,
	Profiles: []expand.Profile{{Name: "p2p", World: sharers, Jobs: draws}},
	Cast:     cast,
	Rank: func(p *plan.Plan, c *rank.Config) {
		c.Shares = true
		at := func(n uint64) draw.Of { return draw.Hash(p.Seed, draw.Plan, 9, 100+n) }
		c.ShareTTL, c.LoansMax, c.BringsMax = c.Lease, p.Bounds.Grants, p.Bounds.Grants
		c.BringTimeout, c.LookupTimeout = c.PutTimeout, 3*c.ReplyTimeout/4
		c.Lookups, c.LoanSharePct = uint16(at(0).Between(1, 4)), uint32(at(1).Between(30, 100))
		c.PushesMax = uint32(at(2).Between(1, 6))
		finds(p, c)
	},
	Scopes: small,
	States: []reflect.Type{reflect.TypeFor[*waiting]()},
	Boot:   boot,
	Ports:  ports,
	Brings: true,
	Has:    func(s *rank.Stats) bool { return s.Brings > 0 }, // Of that share, until it has come.
	Start:  start,
	Put:    put,
	Commands: []pd.Commands{{Want: want, Ended: ended}, {Want: keep, Ended: kept}, {Want: locate},
		{Want: lets, Ended: lent},
		{Want: backs, Ended: back}},
	Oracles: []oracle.Oracle{brought, takes, keeps, silent},
	Words:   words,
}

// word: nodes that do both share what they have. Of a job: nobody sends anything for it, and its receiver has brought
// what its sender has of its first chunks.
var word = plan.NewWord(plan.Word{
	Name: "share",
	World: func(p *plan.Plan) string {
		others := len(p.Topology.Said)
		for _, beside := range []string{"arena", "second", "agent"} {
			if p.Topology.Said[beside] {
				others--
			}
		}
		if t := &p.Topology; t.Both != t.Senders || t.Both != t.Receivers || len(t.Pull) > 0 || others > 1 {
			return "who shares does both, and neither pull nor recall; leave one out"
		}
		return ""
	},
	Job: func(p *plan.Plan, j *plan.Job) string {
		if !p.Topology.Said["share"] || j.Plain || j.PlainTo || j.Gather || j.Said["recall"] {
			return "it needs topology.share, and nobody sends it: leave out plain, plain_to, gather and recall"
		}
		return ""
	},
})

// writing is said of a job that is shared: who has the chunks writes them.
var writing = plan.NewWord(plan.Word{Name: "push", Job: func(_ *plan.Plan, j *plan.Job) string {
	if !j.Said[word] {
		return "it needs share; leave it out, or set that"
	}
	return ""
}})

// named is said of a job that is shared: its engine knows it by the name of the job before, which is another node's.
var named = plan.NewWord(plan.Word{Name: "alike", Job: func(p *plan.Plan, j *plan.Job) string {
	if !j.Said[word] || j == &p.Jobs[0] {
		return "it needs share, and a job before it; leave it out, or set that"
	}
	return ""
}})

// arena: what some of these nodes lend is copied first.
var arena = plan.NewWord(plan.Word{Name: "arena", World: func(p *plan.Plan) string {
	if !p.Topology.Said[word] {
		return "it needs share; leave it out, or set that"
	}
	return ""
}})

// arenaOf is of how many pages a node's arena is.
func arenaOf(p *plan.Plan, n *world.Node) uint32 {
	d := draw.Hash(p.Seed, draw.Plan, 9, 300+uint64(n.ID))
	switch {
	case !p.Topology.Said[arena]:
		return 0
	case p.Seed >= draw.RestlessSeed:
		return 2
	case d.Permille(200):
		return 0
	case d.Again().Permille(300): // Often full.
		return uint32(d.Again().Again().Between(1, 2))
	}
	return uint32(d.Again().Again().Between(3, 10))
}

// second: some of these nodes have a second pool.
var second = plan.NewWord(plan.Word{Name: "second", World: func(p *plan.Plan) string {
	if !p.Topology.Said[word] {
		return "it needs share; leave it out, or set that"
	}
	return ""
}})

// secondOf is of how many pages a node's second pool is. An arena has copies of what is in the first alone, so beside
// one there is none but for fetches.
func secondOf(p *plan.Plan, n *world.Node) uint32 {
	d := draw.Hash(p.Seed, draw.Plan, 9, 400+uint64(n.ID))
	switch {
	case !p.Topology.Said[second] || arenaOf(p, n) > 0 && !n.Delays:
		return 0
	case p.Seed >= draw.RestlessSeed:
		return 2
	case d.Permille(250):
		return 0
	case d.Again().Permille(400): // Often full.
		return uint32(d.Again().Again().Between(1, 3))
	}
	return uint32(d.Again().Again().Between(4, 12))
}

// ports are where a node is asked what it shares.
func ports(*world.Node) []effects.Channel {
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
	if j.Said[named] {
		j.Name = append(j.Name[:0], w.Jobs[j.Place-1].Name...)
	}
	if j.Said[finding] {
		locates(w, n, j)
	}
	t := w.Give(n, pd.Command{Want: want, Job: j.Place, Body: Bring(w, n, j)}, pd.Its(n).Cfg.BringTimeout)
	w.MaybeAbort(n, t)
}

// Bring is what has the chunks of a job brought.
func Bring(w *pd.Cluster, n *world.Node, j *pd.Job) *ops.Bring {
	b := ops.Bring{Request: j.Name, Keys: j.Keys, Mode: mode(n, j)}
	if init := w.Nodes[j.Sender].Addr(effects.ChannelInit); !j.Said[finding] {
		b.From = ops.Peer{Host: init.Host, InitPort: init.Port}
	}
	return &b
}

// ended has the engine take what came.
func ended(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	comes(w, n, e, c)
	seeksAgain(w, n, e, c)
}

// What is judged here.
var checkCode = oracle.NewCheck("L3", "outcomes of chunks that are brought")

// brought judges what engines are told that have chunks brought: nobody lied, so nothing makes no sense.
var brought = oracle.Of("shares", "what peers share comes whole or not at all", func(l *oracle.Listen[struct{}]) {
	oracle.On(l, func(_ *struct{}, call *oracle.Call, e *effects.Deliver) {
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
