package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// A registry lists the flows of a rank by what they are called for, each list in the order of the calls. The lists
// follow from the interfaces that a flow implements (package flow), and do not change after the rank was made.
type registry struct {
	all     []kernel.Owner
	callers []kernel.Owner // flows that are signaled when an outbound peer changed

	commanders  []kernel.Owner
	servers     []served
	keepers     []kernel.Owner
	busiers     []kernel.Owner
	linkWaiters []kernel.Owner
	watchers    []kernel.Owner
	lossSweeps  []kernel.Owner
	drainSweeps []kernel.Owner
	continuers  []kernel.Owner
}

// served is a kind of message that a flow takes.
type served struct {
	by      kernel.Owner
	channel effects.Channel
	// TagNone: all messages of the channel that no other flow takes by their tag
	tag protocol.Tag
}

// register adds a flow to the lists. calls says that the flow calls peers.
func (r *Rank) register(of kernel.Owner, calls bool) {
	g, f := &r.flows, r.owner(of)
	g.all = append(g.all, of)
	if calls {
		g.callers = append(g.callers, of)
	}
	add := func(list *[]kernel.Owner, is bool) {
		if is {
			*list = append(*list, of)
		}
	}
	add(&g.commanders, is[flow.Commander](f))
	add(&g.keepers, is[flow.ClassKeeper](f))
	add(&g.busiers, is[flow.Busier](f))
	add(&g.linkWaiters, is[flow.LinkWaiter](f))
	add(&g.watchers, is[flow.PeerWatcher](f))
	add(&g.lossSweeps, is[flow.LossSweeper](f))
	add(&g.drainSweeps, is[flow.DrainSweeper](f))
	add(&g.continuers, is[flow.Continuer](f))
	if s, ok := f.(flow.Server); ok {
		for channel := range effects.ChannelOther {
			if tag, ok := s.Serves(channel); ok {
				g.servers = append(g.servers, served{of, channel, tag})
			}
		}
	}
}

func is[T any](f flow.Flow) bool { _, ok := f.(T); return ok }

// server returns the flow that takes a message, or false if there is none.
func (r *Rank) server(x *effects.Received) (flow.Server, bool) {
	by := kernel.OwnerNone
	for i := range r.flows.servers {
		s := &r.flows.servers[i]
		if s.channel != x.Channel {
			continue
		}
		if s.tag == protocol.TagNone {
			by = s.by
		} else if protocol.HasTag(x.Body, s.tag, &r.cfg.Wire) {
			by = s.by
			break
		}
	}
	if by == kernel.OwnerNone {
		return nil, false
	}
	return r.owner(by).(flow.Server), true
}

// owner returns the room or the flow that an owner id stands for. A new flow has a field in Rank and a case here.
//
// The result is called through an interface, so the step's Env must be a field of the rank: on the stack it would
// escape.
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
		return &r.pullTarget // No other flow has rows in those rooms.
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
	case kernel.OwnerEndTarget:
		return &r.endTarget
	case kernel.OwnerNone, kernel.Owners:
	}
	panic("BUG: a completion, a deadline or a grant has no owner")
}
