package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/systems/pd/ledger"
	"github.com/kvferry/kvferry/sim/world"
)

// bench is all who judge a trial: the oracles of ranks, those of users, and their properties.
type bench struct {
	*ledger.Oracles
	*ledger.OfNetwork
	*ledger.OfPlanes
	*ledger.OfEpochs
	w *trial
}

func (b *bench) BeforeStep(n *world.Node, k world.Kind, ev effects.Event) {
	b.Oracles.BeforeStep(n, k, ev)
	b.w.heardBy(n, ev)
}

func (b *bench) Watched(n *world.Node, ev effects.Event) {
	if len(b.w.watchers) > 0 {
		b.w.stepped(n, ev)
	}
}

func (b *bench) Wanted(n *world.Node, e effects.Effect) {
	b.w.heardBy(n, e)
	b.Oracles.Wanted(n, e)
}

func (b *bench) AtRest(n *world.Node) { b.w.tellQuiet(n) }

func (b *bench) AfterStep(n *world.Node) {
	if n.User {
		b.w.boundedOwn(n)
		return
	}
	b.Oracles.AfterStep(n)
}

func (b *bench) OnDeath(n *world.Node) {
	b.w.tellDown(n)
	if n.User {
		b.w.diedOwn(n)
		return
	}
	b.Oracles.OnDeath(n)
}

func (b *bench) OnQuiet(n *world.Node, when string) {
	if n.User {
		b.w.quietOwn(n, when)
		return
	}
	b.Oracles.OnQuiet(n, when)
}
