package rank

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Unfinished counts the things of one kind that a drain waits for.
type Unfinished struct {
	Kind  string // in the plural, such as "puts"
	Count int
}

// flowUnfinished names what a drain waits for in each flow. An owner without a name has nothing of its own that a drain
// waits for.
//
//kvferry:table
var flowUnfinished = [kernel.OwnerCount]string{
	kernel.OwnerPushSource:   "puts",
	kernel.OwnerPullSource:   "offers whose chunks peers have not all read",
	kernel.OwnerPullTarget:   "done messages to peers",
	kernel.OwnerRecallSource: "recalls from peers",
	kernel.OwnerRecallTarget: "leases of recalled chunks",
	kernel.OwnerP2POwner:     "leases of shared chunks",
	kernel.OwnerP2PRequester: "requests for shared chunks",
	kernel.OwnerRegistrar:    "reports to directories",
	kernel.OwnerLayers:       "layerwise prefills",
	kernel.OwnerConsumer:     "registrations that peers have not written",
	kernel.OwnerProducer:     "writes of registered blocks",
	kernel.OwnerEndSource:    "ends of requests that peers have not acknowledged",
}

// countRooms counts what a drain waits for in the shared rooms, by kind.
func countRooms(e *flow.Env) [6]Unfinished {
	return [...]Unfinished{
		{"requests of peers that wait for pages", e.Pending.Len()},
		{"Gets that wait, or whose pages the engine has not released", e.Gets.Len()},
		{"grants that peers may still write under", e.Pools.CountGrants()},
		{"fetches", e.Fetches.CountUnfinished()},
		{"deferred offers", e.Deferred.Len()},
		{"bundles of layers", e.Landings.Bundles.Len()},
	}
}

// eachUnfinished calls yield for each kind of which there may be something that a drain waits for.
func (r *Rank) eachUnfinished(e *flow.Env, yield func(Unfinished)) {
	for _, owner := range r.flows.all {
		yield(Unfinished{flowUnfinished[owner], r.flowOf(owner).CountUnfinished(e)})
	}
	yield(Unfinished{"reservations", r.commands.CountReserves()})
	yield(Unfinished{"requests whose end the proxy is to be told", r.commands.CountUnnotified()})
	yield(Unfinished{flowUnfinished[kernel.OwnerRegistrar], r.registrar.CountActive()})
	for _, x := range countRooms(e) {
		yield(x)
	}
}

// countUnfinished returns the number of things that a drain waits for.
func (r *Rank) countUnfinished(e *flow.Env) (n int) {
	r.eachUnfinished(e, func(x Unfinished) { n += x.Count })
	return n
}

// ListUnfinished returns what a Drain still waits for, or would wait for if it had not expired. The result is nil before
// the first Drain, and when nothing is left.
func (r *Rank) ListUnfinished() (all []Unfinished) {
	if !r.draining {
		return nil
	}
	r.eachUnfinished(&r.env, func(x Unfinished) {
		if x.Count > 0 {
			all = append(all, x)
		}
	})
	return all
}
