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
	Flag:     flowWord,
	Profiles: []expand.Profile{{Name: "p2p", AfterWorld: drawWorld, AfterJobs: drawJobs}},
	SetRole:  setRole,
	ConfigureRanks: func(p *plan.Plan, c *rank.Config) {
		c.Shares = true
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 9, 100+n) }
		c.ShareTTL, c.LoansMax, c.BringsMax = c.Lease, p.Bounds.Grants, p.Bounds.Grants
		c.BringTimeout, c.LookupTimeout = c.PutTimeout, 3*c.ReplyTimeout/4
		c.Lookups, c.LoanSharePct = uint16(at(0).Between(1, 4)), uint32(at(1).Between(10, 100))
		c.PushesMax = uint32(at(2).Between(1, 6))
		if !draw.IsFixed(p.Seed) { // No setting is in force only because another one has the same value.
			c.ShareTTL = c.Lease * effects.Duration(at(10).Between(60, 140)) / 100
			c.BringTimeout = c.PutTimeout * effects.Duration(at(11).Between(50, 150)) / 100
			if at(12).ChancePermille(300) {
				c.LoansMax = uint32(at(13).Between(1, 4))
			}
			if at(14).ChancePermille(300) {
				c.BringsMax = uint32(at(15).Between(1, 4))
			}
		}
		limitMessages(p, c)
		configureDirectories(p, c)
	},
	NeededRoles:      neededRoles,
	Scopes:           smallScopes,
	ConfigureNode:    configureNode,
	ListenChannels:   listenChannels,
	RequestsChunks:   true,
	HoldsEnginePages: func(s *rank.Stats) bool { return s.Brings > 0 }, // Counts the Bring commands in flight.
	StartJob:         startJob,
	HandlePut:        handlePut,
	Commands: []pd.CommandKind{{Kind: wantBring, HandleOutcome: handleOutcome}, {Kind: wantStore, HandleOutcome: handleStored},
		{Kind: wantLocate},
		{Kind: wantShare, HandleOutcome: handleShareOutcome},
		{Kind: wantWithdraw, HandleOutcome: handleWithdrawOutcome}},
	Oracles:        []oracle.Oracle{bringOracle, storeOracle, shareOracle, withdrawOracle, silentPeerOracle},
	SenderMessages: senderMessages,
}

// neededRoles returns the roles that a node needs for its puts, or one of the roles of engines if it takes part in
// none.
func neededRoles(p *plan.Plan, n plan.Node) (roles effects.Roles) {
	for i := range p.Jobs {
		switch j := &p.Jobs[i]; {
		case j.Flags[flowWord]:
		case j.From == n:
			roles |= effects.RolePrefill
		case j.To == n:
			roles |= effects.RoleDecode
		}
	}
	if roles == 0 {
		roles = effects.RolePrefill
		if draw.Hash(p.Seed, draw.Plan, 9, 500+uint64(n)).ChancePermille(500) {
			roles = effects.RoleDecode
		}
	}
	return roles
}

// flowWord is the word of the plan for sharing. In a topology the word means that nodes which both send and receive
// share chunks. In a job the word means that no put takes place, and that the receiver brings the leading chunks that
// the sender has.
var flowWord = plan.RegisterFlag(plan.FlowFlag{
	Name: "share",
	CheckTopology: func(p *plan.Plan) string {
		others := len(p.Topology.Flags)
		for _, beside := range []string{"arena", "second", "agent"} {
			if p.Topology.Flags[beside] {
				others--
			}
		}
		if t := &p.Topology; t.Both != t.Senders || t.Both != t.Receivers || len(t.Pull) > 0 || others > 1 {
			return "nodes that share must both send and receive, and cannot pull or recall; leave out share or the rest"
		}
		return ""
	},
	CheckJob: func(p *plan.Plan, j *plan.Job) string {
		if !p.Topology.Flags["share"] || j.Plain || j.PlainTo || j.Gather || j.Flags["recall"] {
			return "a share job needs topology.share and has no put: leave out plain, plain_to, gather and recall"
		}
		return ""
	},
})

// pushWord marks a share job in which the node that has the chunks writes them to the receiver.
var pushWord = plan.RegisterFlag(plan.FlowFlag{Name: "push", CheckJob: func(_ *plan.Plan, j *plan.Job) string {
	if !j.Flags[flowWord] {
		return "push needs share; leave out push, or set share"
	}
	return ""
}})

// aliasWord marks a share job that uses the request name of the preceding job, which belongs to another node.
var aliasWord = plan.RegisterFlag(plan.FlowFlag{Name: "alike", CheckJob: func(p *plan.Plan, j *plan.Job) string {
	if !j.Flags[flowWord] || j == &p.Jobs[0] {
		return "alike needs share and a preceding job; leave out alike, or set share"
	}
	return ""
}})

// arenaWord means that some of the nodes copy chunks into an arena before lending them.
var arenaWord = plan.RegisterFlag(plan.FlowFlag{Name: "arena", CheckTopology: func(p *plan.Plan) string {
	if !p.Topology.Flags[flowWord] {
		return "arena needs share; leave out arena, or set share"
	}
	return ""
}})

// arenaPages returns the number of pages in the arena of a node; 0 means no arena.
func arenaPages(p *plan.Plan, n *world.Node) uint32 {
	d := draw.Hash(p.Seed, draw.Plan, 9, 300+uint64(n.ID))
	switch {
	case !p.Topology.Flags[arenaWord]:
		return 0
	case draw.IsFixed(p.Seed):
		return 2
	case d.ChancePermille(200):
		return 0
	case d.Rehash().ChancePermille(300): // Often full.
		return uint32(d.Rehash().Rehash().Between(1, 2))
	}
	return uint32(d.Rehash().Rehash().Between(3, 10))
}

// secondPoolWord means that some of the nodes have a second pool.
var secondPoolWord = plan.RegisterFlag(plan.FlowFlag{Name: "second", CheckTopology: func(p *plan.Plan) string {
	if !p.Topology.Flags[flowWord] {
		return "second needs share; leave out second, or set share"
	}
	return ""
}})

// secondPoolPages returns the number of pages in the second pool of a node; 0 means no second pool. An arena copies
// only from the first pool, so a node with an arena has a second pool only if the node fetches.
func secondPoolPages(p *plan.Plan, n *world.Node) uint32 {
	d := draw.Hash(p.Seed, draw.Plan, 9, 400+uint64(n.ID))
	switch {
	case !p.Topology.Flags[secondPoolWord] || arenaPages(p, n) > 0 && !n.KeepsOffers:
		return 0
	case draw.IsFixed(p.Seed):
		return 2
	case d.ChancePermille(250):
		return 0
	case d.Rehash().ChancePermille(400): // Often full.
		return uint32(d.Rehash().Rehash().Between(1, 3))
	}
	return uint32(d.Rehash().Rehash().Between(4, 12))
}

// listenChannels returns the channels on which peers look up and release shared chunks.
func listenChannels(*world.Node) []effects.Channel {
	return []effects.Channel{effects.ChannelLookup, effects.ChannelPeerDone}
}

// wantBring is the kind of the Bring commands.
var wantBring = plan.NewCommandKind(14, "bring", false)

// startJob gives the receiver of a job a Bring command for the chunks of the job.
func startJob(w *pd.Cluster, j *pd.Job) {
	n := w.Nodes[j.Receiver]
	if !n.Up {
		return
	}
	if j.Flags[aliasWord] {
		j.Name = append(j.Name[:0], w.Jobs[j.Index-1].Name...)
	}
	if j.Flags[findWord] {
		maybeLocate(w, n, j)
	}
	t := w.GiveCommand(n, pd.Command{Kind: wantBring, Job: j.Index, Body: NewBring(w, n, j)}, pd.InfoOf(n).Cfg.BringTimeout)
	w.MaybeAbort(n, t)
}

// NewBring returns the command that brings the chunks of a job to node n.
func NewBring(w *pd.Cluster, n *world.Node, j *pd.Job) *ops.Bring {
	b := ops.Bring{Request: j.Name, Keys: j.Keys, Mode: transferMode(n, j)}
	if draw.Hash(w.Seed, draw.Engine, uint64(j.Index), 32).ChanceIfRandom(700) { // Otherwise the Bring may be too large.
		b.Keys = b.Keys[:max(1, pd.CountBringFits(n, j.Name, j.Keys, b.Mode))]
	}
	if init := w.Nodes[j.Sender].Addr(effects.ChannelInit); !j.Flags[findWord] {
		b.From = ops.Peer{Host: init.Host, InitPort: init.Port}
	}
	return &b
}

// handleOutcome handles the outcome of a Bring: the engine takes the chunks, or tries again.
func handleOutcome(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	takeChunks(w, n, e, c)
	maybeRetry(w, n, e, c)
}

// The check of this file.
var checkCode = oracle.NewCheck("L3", "outcomes of Brings")

// bringOracle checks the outcome codes of Bring commands. Unless a node sends false messages, no command may end as
// Malformed, Refused or Invalid.
var bringOracle = oracle.New("shares", "a Bring gets whole chunks or none", func(l *oracle.Subscriptions[struct{}]) {
	oracle.On(l, func(_ *struct{}, call *oracle.Call, e *effects.Deliver) {
		w := pd.ClusterOf(call)
		n := w.Nodes[call.Node()]
		if n.Custom {
			return
		}
		c := w.CommandOf(n, e.Ticket)
		if c == nil || c.Kind != wantBring || c.Finished {
			return
		}
		call.CountJudged(checkCode)
		if e.Code == effects.Malformed || e.Code == effects.Refused || e.Code == effects.Invalid {
			if pd.IsUnreliable(w) {
				call.CountVoid(checkCode)
				return
			}
			call.FailCheck(checkCode, "node %d brings chunks of request %q, which ends as %s, and no peer sent a false message",
				n.AsSubject(), oracle.Request(w.Jobs[c.Job].Name), e.Code)
		}
	})
})
