// Package recall is prefills that read back what decodes still have, in a simulated world: what their engines do, what
// seeds draw of it, who judges what comes back, and its small worlds.
package recall

import (
	"reflect"

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

// Flow is recalls.
var Flow = pd.Flow{
	Word: word,
	// Receivers are caches, from which there is more to read.
	Profiles: []expand.Profile{{Name: "recall", World: expand.Caches, Jobs: draws}},
	Scopes:   small,
	Cast:     func(_ *plan.Plan, n *world.Node) { n.Lends = n.Receives() },
	Rank: func(p *plan.Plan, c *rank.Config) {
		c.Recalls, c.RecallTimeout, c.RecallsMax = true, c.PutTimeout, p.Bounds.Grants
	},
	Ports:    ports,
	Begin:    begin,
	Commands: []pd.Commands{{Want: want, Holds: true, Ended: ended, Returned: returned}},
	Oracles:  []oracle.Oracle{brought, inTurn},
	Words:    words,
	States:   []reflect.Type{reflect.TypeFor[*asked](), reflect.TypeFor[*turned]()},
}

// word: what receivers have may be read back by senders. Of a job: nobody sends anything for it, and its sender reads
// back what its receiver has of its first chunks.
var word = plan.NewWord(plan.Word{
	Name:  "recall",
	World: func(*plan.Plan) string { return "" },
	Job: func(p *plan.Plan, j *plan.Job) string {
		if !p.Topology.Said["recall"] || j.Plain || j.PlainTo || j.Gather {
			return "it needs topology.recall, and nobody sends it: leave out plain, plain_to and gather"
		}
		return ""
	},
})

// ports are where a node is asked what it has.
func ports(n *world.Node) []effects.Channel {
	if !n.Lends || n.Pulls {
		return nil
	}
	return []effects.Channel{effects.ChannelQuery}
}

// words are questions for what there is: a false one would end what another may read.
var words = []pd.Word{{
	Read: func(b []byte, _ draw.Of) (s pd.Said, ok bool) {
		var m protocol.CacheQueryRequest
		if m.Decode(b, &pd.WireLimits) != nil || !m.HasExt {
			return s, false
		}
		m.Ext.Version = pd.ProtoVersion
		return pd.Said{From: &m.Ext.Incarnation, To: &m.Ext.To, Write: func() []byte { return m.Append(nil) }}, true
	},
	Harm: func(to *world.Node) (effects.Channel, bool) { return effects.ChannelQuery, to.Lends },
}}
