// Package p2p simulates nodes that share cached chunks with each other. The package contains the behaviour of the
// engines, the random choices of a seed, the oracles that check the outcomes, and the small worlds for exhaustive
// exploration. Package pd runs the flow through Flow; Directories adds directory nodes that the ranks notify and query.
//
// Example: job 0 sends a chunk to node 1. Job 1 is a share job from node 1 to node 0: the engine of node 0 gives its
// rank a Bring command that names node 1 (or no peer, in which case the rank asks a directory). Node 1 grants a read
// lease on the page, node 0 reads the page, and the Bring ends with one hit. The engine then gets the chunk.
package p2p

import (
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

// Flow describes the sharing of chunks to package pd.
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
	Boot:   boot,
	Ports:  ports,
	Brings: true,
	Has:    func(s *rank.Stats) bool { return s.Brings > 0 }, // Counts the Bring commands in flight.
	Start:  start,
	Put:    put,
	Commands: []pd.Commands{{Want: want, Ended: ended}, {Want: keep, Ended: kept}, {Want: locate},
		{Want: lets, Ended: lent},
		{Want: backs, Ended: back}},
	Oracles: []oracle.Oracle{brought, takes, keeps, silent},
	Words:   words,
}

// word is the word of the plan for sharing. In a topology the word means that nodes which both send and receive share
// chunks. In a job the word means that no put takes place, and that the receiver brings the leading chunks that the
// sender has.
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

// writing marks a share job in which the node that has the chunks writes them to the receiver.
var writing = plan.NewWord(plan.Word{Name: "push", Job: func(_ *plan.Plan, j *plan.Job) string {
	if !j.Said[word] {
		return "it needs share; leave it out, or set that"
	}
	return ""
}})

// named marks a share job that uses the request name of the preceding job, which belongs to another node.
var named = plan.NewWord(plan.Word{Name: "alike", Job: func(p *plan.Plan, j *plan.Job) string {
	if !j.Said[word] || j == &p.Jobs[0] {
		return "it needs share, and a job before it; leave it out, or set that"
	}
	return ""
}})

// arena means that some of the nodes copy chunks into an arena before lending them.
var arena = plan.NewWord(plan.Word{Name: "arena", World: func(p *plan.Plan) string {
	if !p.Topology.Said[word] {
		return "it needs share; leave it out, or set that"
	}
	return ""
}})

// arenaOf returns the number of pages in the arena of a node; 0 means no arena.
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

// second means that some of the nodes have a second pool.
var second = plan.NewWord(plan.Word{Name: "second", World: func(p *plan.Plan) string {
	if !p.Topology.Said[word] {
		return "it needs share; leave it out, or set that"
	}
	return ""
}})

// secondOf returns the number of pages in the second pool of a node; 0 means no second pool. An arena copies only from
// the first pool, so a node with an arena has a second pool only if the node fetches.
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

// ports returns the channels on which peers look up and release shared chunks.
func ports(*world.Node) []effects.Channel {
	return []effects.Channel{effects.ChannelLookup, effects.ChannelPeerDone}
}

// want is the kind of the Bring commands.
var want = plan.NewWant(14, "bring", false)

// start gives the receiver of a job a Bring command for the chunks of the job.
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

// Bring returns the command that brings the chunks of a job to node n.
func Bring(w *pd.Cluster, n *world.Node, j *pd.Job) *ops.Bring {
	b := ops.Bring{Request: j.Name, Keys: j.Keys, Mode: mode(n, j)}
	if init := w.Nodes[j.Sender].Addr(effects.ChannelInit); !j.Said[finding] {
		b.From = ops.Peer{Host: init.Host, InitPort: init.Port}
	}
	return &b
}

// ended handles the outcome of a Bring: the engine takes the chunks, or tries again.
func ended(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	comes(w, n, e, c)
	seeksAgain(w, n, e, c)
}

// The check of this file.
var checkCode = oracle.NewCheck("L3", "outcomes of chunks that are brought")

// brought checks the outcome codes of Bring commands. Unless a node sends false messages, no command may end as
// Malformed, Refused or Invalid.
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
