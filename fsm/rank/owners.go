package rank

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// owner is whose something is: the one table of owners. A new flow has a field of the rank and a row here.
//
// What comes out is called through an interface, so the step's Env is the rank's and not on its stack.
func (r *Rank) owner(of kernel.Owner) flow.Flow {
	switch of {
	case kernel.OwnerRank:
		return drainFlow{r}
	case kernel.OwnerLink:
		return linkFlow{&r.links}
	case kernel.OwnerEngine:
		return commandFlow{&r.commands}
	case kernel.OwnerGets, kernel.OwnerStore, kernel.OwnerPending, kernel.OwnerBundles:
		return waitFlow{r}
	case kernel.OwnerPushSource:
		return &r.pushSource
	case kernel.OwnerPushTarget:
		return &r.pushTarget
	case kernel.OwnerPullSource:
		return &r.pullSource
	case kernel.OwnerPullTarget, kernel.OwnerPipeline, kernel.OwnerNotices, kernel.OwnerLease, kernel.OwnerDeferred:
		return &r.pullTarget // It alone has rows in those rooms.
	case kernel.OwnerRecallSource:
		return &r.recallSource
	case kernel.OwnerRecallTarget:
		return &r.recallTarget
	case kernel.OwnerP2POwner:
		return &r.p2pOwner
	case kernel.OwnerP2PRequester:
		return &r.p2pRequester
	case kernel.OwnerP2PTarget:
		return r.p2pRequester.Grants()
	case kernel.OwnerRegistrar:
		return registrarFlow{&r.registrar}
	case kernel.OwnerLookups:
		return lookupFlow{r.p2pRequester.Seeks.Lookups()}
	case kernel.OwnerLayers:
		return &r.layers
	case kernel.OwnerConsumer:
		return &r.consumer
	case kernel.OwnerProducer:
		return &r.producer
	case kernel.OwnerEndSource:
		return &r.endSource
	case kernel.OwnerNone, kernel.Owners:
	}
	panic("BUG: nobody is told of what becomes of something")
}
