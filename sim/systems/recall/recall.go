// Package recall simulates prefill nodes that read chunks back from decode nodes. The package contains the behaviour of
// the engines, the random choices of a seed, the oracles that check the recalled chunks, and the small worlds for
// exhaustive exploration. Package pd runs the flow through Flow.
//
// Example: job 0 sends two chunks to a receiver, and the receiver caches both. Job 1 lists the same keys and recalls.
// The sender of job 1 reserves two pages, asks the receiver's query port for the leading cached chunks, and reads the
// chunks into the pages. The oracle checks that each page holds the whole chunk of the right key, and the engine
// releases the pages.
package recall

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Flow describes the recall flow to package pd.
var Flow = pd.Flow{
	Flag: flowWord,
	// All receivers are caches, so that more chunks stay available for recalls.
	Profiles: []expand.Profile{{Name: "recall", AfterWorld: expand.DrawCaches, AfterJobs: drawJobs}},
	Scopes:   smallScopes,
	SetRole:  func(_ *plan.Plan, n *world.Node) { n.LendsChunks = n.IsReceiver() },
	ConfigureRanks: func(p *plan.Plan, c *rank.Config) {
		c.Recalls, c.RecallTimeout, c.RecallsMax = true, c.PutTimeout, p.Bounds.Grants
		at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 7, 1<<40|n) }
		if draw.IsFixed(p.Seed) {
			return
		}
		c.RecallTimeout = c.PutTimeout * effects.Duration(at(0).Between(50, 150)) / 100
		if at(1).ChancePermille(300) {
			c.RecallsMax = uint32(at(2).Between(1, 6))
		}
	},
	ListenChannels: listenChannels,
	BeginJob:       beginJob,
	Commands:       []pd.CommandKind{{Kind: wantRecall, MayHoldMemory: true, HandleOutcome: handleOutcome, HandleReturn: handleReturn}},
	Oracles:        []oracle.Oracle{recallOracle, orderOracle},
	SenderMessages: senderMessages,
}

// flowWord is the word of the plan for recalls. In a topology the word allows senders to read chunks back from
// receivers. In a job the word means that the job sends nothing, and that the sender recalls the leading chunks that
// the receiver has.
var flowWord = plan.RegisterFlag(plan.FlowFlag{
	Name:          "recall",
	CheckTopology: func(*plan.Plan) string { return "" },
	CheckJob: func(p *plan.Plan, j *plan.Job) string {
		if !p.Topology.Flags["recall"] || j.Plain || j.PlainTo || j.Gather {
			return "a recall job needs topology.recall and sends nothing: leave out plain, plain_to and gather"
		}
		return ""
	},
})

// listenChannels returns the query channel for a node that lends chunks and does not pull, and nothing otherwise.
func listenChannels(n *world.Node) []effects.Channel {
	if !n.LendsChunks || n.OffersChunks {
		return nil
	}
	return []effects.Channel{effects.ChannelQuery}
}

// senderMessages are the cache queries. A forged query could end the access of another reader.
var senderMessages = []pd.SenderMessage{{
	Decode: func(b []byte, _ draw.Value) (s pd.DecodedMessage, ok bool) {
		var m protocol.CacheQueryRequest
		if m.Decode(b, &pd.WireLimits) != nil || !m.HasExt {
			return s, false
		}
		m.Ext.Version = pd.ProtoVersion
		return pd.DecodedMessage{From: &m.Ext.Incarnation, To: &m.Ext.To, Encode: func() []byte { return m.Append(nil) }}, true
	},
	HarmChannel: func(to *world.Node) (effects.Channel, bool) { return effects.ChannelQuery, to.LendsChunks },
}}
