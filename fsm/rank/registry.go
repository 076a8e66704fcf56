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
	all          []kernel.Owner
	peerSignaled []kernel.Owner // flows that are signaled when an outbound peer changed

	commanders   []kernel.Owner
	servers      []messageRoute
	classKeepers []kernel.Owner
	rowCounters  []kernel.Owner
	linkWaiters  []kernel.Owner
	peerWatchers []kernel.Owner
	lossSweeps   []kernel.Owner
	drainSweeps  []kernel.Owner
	continuers   []kernel.Owner
}

// messageRoute is a kind of message that a flow takes.
type messageRoute struct {
	owner   kernel.Owner
	channel effects.Channel
	// TagNone: all messages of the channel that no other flow takes by their tag
	tag protocol.Tag
}

// registerFlow adds a flow to the lists. signaledByPeers says that the flow is signaled when an outbound peer changed.
func (r *Rank) registerFlow(owner kernel.Owner, signaledByPeers bool) {
	g, f := &r.flows, r.flowOf(owner)
	g.all = append(g.all, owner)
	if signaledByPeers {
		g.peerSignaled = append(g.peerSignaled, owner)
	}
	addIf := func(list *[]kernel.Owner, is bool) {
		if is {
			*list = append(*list, owner)
		}
	}
	addIf(&g.commanders, implements[flow.Commander](f))
	addIf(&g.classKeepers, implements[flow.ClassKeeper](f))
	addIf(&g.rowCounters, implements[flow.ClassHolder](f))
	addIf(&g.linkWaiters, implements[flow.LinkWaiter](f))
	addIf(&g.peerWatchers, implements[flow.PeerWatcher](f))
	addIf(&g.lossSweeps, implements[flow.LossSweeper](f))
	addIf(&g.drainSweeps, implements[flow.DrainSweeper](f))
	addIf(&g.continuers, implements[flow.Continuer](f))
	if s, ok := f.(flow.Server); ok {
		for channel := range effects.ChannelOther {
			if tag, ok := s.ServedTag(channel); ok {
				g.servers = append(g.servers, messageRoute{owner, channel, tag})
			}
		}
	}
}

func implements[T any](f flow.Flow) bool { _, ok := f.(T); return ok }

// serverFor returns the flow that takes a message, or false if there is none.
func (r *Rank) serverFor(x *effects.Received) (flow.Server, bool) {
	owner := kernel.OwnerNone
	for i := range r.flows.servers {
		s := &r.flows.servers[i]
		if s.channel != x.Channel {
			continue
		}
		if s.tag == protocol.TagNone {
			owner = s.owner
		} else if protocol.HasTag(x.Body, s.tag, &r.cfg.Wire) {
			owner = s.owner
			break
		}
	}
	if owner == kernel.OwnerNone {
		return nil, false
	}
	return r.flowOf(owner).(flow.Server), true
}
