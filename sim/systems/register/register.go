// Package register simulates two engines that exchange registered blocks: a producer engine with several ranks and
// stages, and a consumer engine with several ranks. The package contains the behaviour of both engines, the random
// choices of a seed and the oracles. Package pd runs the flow through Flow.
//
// Example: the router dispatches a request to both engines. The consumer's rank takes free blocks and registers the
// blocks with the producer's ranks. The producer's ranks compute the request and report it as finished, before or after
// the registration arrives. The ranks write the blocks, and the oracle checks every cell before the consumer reuses its
// blocks.
package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Flow describes registered blocks to package pd.
var Flow = pd.Flow{
	Flag:      flowWord,
	Exclusive: &pd.ExclusivePart{FindLender: findLender, Geometry: strangerGeometry, StrangerRequest: strangerRegistration},
	Profiles:  []expand.Profile{{Name: "register", AfterWorld: drawWorld, AfterJobs: drawJobs, AfterCondense: restoreRoom}},
	Scopes:    smallScopes,
	ConfigureRanks: func(p *plan.Plan, c *rank.Config) {
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 15, 100+n) }
		c.BatchMax = uint32(at(4).Between(pagesMax, 2*pagesMax))
		c.RegistrationLease = c.Lease
		c.RegisterTimeout = c.PutTimeout
		c.ReceptionsMax, c.ProducersMax = max(p.Bounds.Puts, 2), uint32(at(5).Between(8, 16))
		c.BatchesMax = max(p.Bounds.Puts, 2)
		c.FinishedMax, c.RegistrationsMax = c.BatchesMax, max(p.Bounds.Waiters, 2*uint32(p.NodeCount()))
		c.ExpectedMax, c.NamesMax = uint32(at(0).Between(4, 32)), uint32(at(1).Between(1, 8))
		c.RegisterWindow = uint16(at(2).Between(1, 16))
		c.ExactIDs = at(3).ChancePermille(100)
	},
	ConfigureNode: func(p *plan.Plan, n *world.Node, c *rank.Config) {
		s := drawShape(p)
		g := s.geometryOf(n.ID)
		c.Geometry, c.Pages, c.Role, c.Bearer = g, uint32(g.CountPages()), rank.RoleBoth, false
		c.EngineID = s.engineName(n.ID)
		at := draw.Hash(p.Seed, draw.Plan, 17, uint64(n.ID))
		if !draw.IsFixed(p.Seed) && at.ChancePermille(250) { // The limits of the nodes differ.
			c.RegisterWindow = max(1, c.RegisterWindow/2)
		}
		if !s.isConsumer(n.ID) && !draw.IsFixed(p.Seed) && at.Rehash().ChancePermille(250) {
			c.RegisterTimeout = c.PutTimeout / 2 // Registrations wait for a shorter time than the consumer says.
		}
	},
	NeededRoles: func(p *plan.Plan, n plan.Node) effects.Roles {
		if s := drawShape(p); s.isConsumer(int32(n)) {
			return effects.RoleDecode
		}
		return effects.RolePrefill
	},
	ListenChannels: func(*world.Node) []effects.Channel { return []effects.Channel{effects.ChannelRegister} },
	SenderMessages: senderMessages,
	RewriteRequest: rewriteRequest,
	StartJob:       startJob,
	ContinueJob:    continueJob,
	Commands: []pd.CommandKind{
		{Kind: wantRegister, MayHoldMemory: true, HandleOutcome: handleOutcome, HandleReturn: handleReturn},
		{Kind: wantFinished, MayHoldMemory: true, HandleOutcome: handleOutcome, HandleReturn: handleReturn},
		{Kind: wantAborted}, {Kind: wantExpect}, {Kind: wantNotNeeded},
	},
	Oracles: []oracle.Oracle{codesOracle, abortOracle, limitsOracle, timesOracle},
}

// flowWord is the word of the plan for registered blocks. All jobs of the world are then requests of the two engines.
var flowWord = plan.RegisterFlag(plan.FlowFlag{
	Name: "register",
	CheckTopology: func(p *plan.Plan) string {
		t := &p.Topology
		if t.Both != t.Senders || t.Both != t.Receivers || len(t.Pull)+len(t.Delay) > 0 ||
			len(t.Flags) > 1 || t.Mismatch || t.Leased && t.Trust {
			return "nodes that register must both send and receive, and cannot take part in another flow; leave out the others"
		}
		return ""
	},
})

// The kinds of the commands of the engines.
var (
	wantRegister  = plan.NewCommandKind(24, "register", false)
	wantFinished  = plan.NewCommandKind(25, "finished", true)
	wantAborted   = plan.NewCommandKind(26, "aborted", true)
	wantExpect    = plan.NewCommandKind(27, "expect", false)
	wantNotNeeded = plan.NewCommandKind(28, "not needed", false)
)
