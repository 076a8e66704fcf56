package expand

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Some seeds of each profile except calm test a peer that accepts no notification: the proxy of one sender, or a sender
// to which one receiver sends done messages. Several attempts are refused in a row, until messages are abandoned while
// later messages wait in the queue.

// refusingPermille is the number of these seeds per thousand.
const refusingPermille = 120

// drawRefusingPeer draws whether a seed tests a peer that accepts no notification.
func drawRefusingPeer(p *plan.Plan, profile string) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 8, n) }
	if profile == "calm" || !at(0).ChancePermille(refusingPermille) {
		return
	}
	from, to, channel, leastWay := int32(at(1).Below(uint64(p.Topology.Senders))), plan.Proxy, effects.ChannelProxy, 0
	if pulls := p.Topology.Pull; len(pulls) > 0 && at(2).ChancePermille(600) {
		from = int32(p.ReceiverAt(int(at(1).Rehash().Below(uint64(p.Topology.Receivers)))))
		to, channel, leastWay = int32(pulls[at(3).Below(uint64(len(pulls)))]), effects.ChannelDone, 1
	}
	if from == to {
		return
	}
	first, way := at(5).Between(1, 3), at(9).Between(leastWay, 2)
	for nth := range at(4).Between(3, 14) { // Refuse either the connection or the first message on the connection.
		p.Strikes = append(p.Strikes, plan.Strike{Fault: plan.FaultEffectRefused,
			About: plan.AboutConn(from, 0, to, channel, uint32(first+nth)), Nth: nthRefused(way, at(uint64(10+nth)))})
	}
	if at(6).ChancePermille(700) {
		p.Tuning.Tells, p.Tuning.Notifies = uint32(at(7).Between(1, 4)), uint32(at(8).Between(1, 3))
	}
	slices.SortStableFunc(p.Strikes, func(a, b plan.Strike) int { return int(a.Fault) - int(b.Fault) })
}

// nthRefused returns what is refused: the connection itself (0), the first message on the connection (1), or a random
// choice between both.
func nthRefused(way int, d draw.Value) uint64 {
	if way == 2 {
		return d.Below(2)
	}
	return uint64(way)
}
