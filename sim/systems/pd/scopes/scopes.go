// Package scopes defines prefill and decode worlds that are so small that the explorer (package explore) can try every
// order of events. [List] returns the scopes, with names and descriptions, and [NewPlan] converts a scope into a plan
// that the simulator can run. A scope states the jobs, how many faults may happen and of which kinds. Everything else
// has the smallest bounds that the scope allows, so that the number of states stays small.
//
// Example: the scope "push-cut" has a job with a single chunk, and a single fault that breaks a connection or a link.
// Plan gives the scope a sender and a receiver with a page each; the explorer then breaks the connection at every point
// of the transfer.
package scopes

import (
	"slices"
	"time"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
)

// List returns all scopes of prefill and decode.
func List() []explore.Scope {
	return slices.Concat(pushScopes(), carriedScopes(), pullScopes(), delayedScopes(),
		cacheScopes(), communicatorScopes(), dualRoleScopes(), sweepScopes())
}

// NewPlan returns the plan of a scope. The bounds are as small as the scope allows.
func NewPlan(s *explore.Scope) *plan.Plan {
	const unit = time.Duration(explore.Unit)
	p := plan.New()
	p.Seed, p.Profile = draw.LowestSeed, s.Name
	p.Topology.Senders, p.Topology.Receivers = max(s.Senders, 1), max(s.Receivers, 1)
	if s.Both {
		p.Topology.Both = min(p.Topology.Senders, p.Topology.Receivers)
	}
	p.Topology.Leased, p.Topology.Communicators = s.Leased, s.Communicators
	for i := range p.Topology.Senders {
		if s.Pull {
			p.Topology.Pull = append(p.Topology.Pull, plan.Node(i))
		}
	}
	for i := range p.Topology.Receivers {
		if s.Delay {
			p.Topology.Delay = append(p.Topology.Delay, p.ReceiverAt(i))
		}
		if s.Cache {
			p.Topology.Cache = append(p.Topology.Cache, p.ReceiverAt(i))
		}
	}
	p.Timeouts = plan.Timeouts{Put: 6 * unit, Reserve: 3 * unit, Alloc: unit, Reply: 2 * unit, Lease: 4 * unit,
		LeaseGuard: unit,
		Residual:   unit, ClaimTTL: 6 * unit, BackoffMin: unit, BackoffMax: 2 * unit, GetWaitMax: 3 * unit,
		PullTTL: 4 * unit, Read: 3 * unit, Fetch: 3 * unit, Lead: unit / 2, Loan: 4 * unit}
	if s.PutTimeout > 0 {
		p.Timeouts.Put = time.Duration(s.PutTimeout) * unit
	}
	p.Bounds = plan.Bounds{Puts: 4, Reserves: 4, Gets: 4, Waiters: 4, Requests: 4, Grants: 4, Peers: 3, Overtakes: 2,
		PeerSharePct: 100, EngineSharePct: 100,
		Staging: max(s.Staging, 1), Offers: 4, Places: 8, Fetches: 4}
	p.Bounds.ReservePPM = s.ReservePPM
	chunks := uint32(0)
	for i, j := range s.Jobs {
		job := plan.Job{Request: uint32(i), From: plan.Node(j.Sender), To: p.ReceiverAt(j.Receiver),
			Batch: len(j.Chunks), Early: j.Early}
		for _, chunk := range j.Chunks {
			job.Keys = append(job.Keys, uint32(chunk))
			chunks++
		}
		if j.Batch > 0 {
			job.Batch = j.Batch
		}
		p.Jobs = append(p.Jobs, job)
	}
	p.Topology.SenderPages, p.Topology.ReceiverPages = max(chunks, 1), max(chunks, 1)
	if s.SenderPages > 0 {
		p.Topology.SenderPages = s.SenderPages
	}
	if s.ReceiverPages > 0 {
		p.Topology.ReceiverPages = s.ReceiverPages
	}
	if s.AdjustPlan != nil {
		s.AdjustPlan(&p)
	}
	return &p
}
