package link

import "github.com/kvferry/kvferry/effects"

// pace computes the delays before a failed peer is tried again.
type pace struct {
	random                         uint64
	delayMin, delayMax, unfitDelay effects.Duration
}

// jitterDelay returns a random duration in [d/2, d], so that peers that failed together are not tried again together.
func (p *pace) jitterDelay(d effects.Duration) effects.Duration {
	p.random ^= p.random << 13
	p.random ^= p.random >> 7
	p.random ^= p.random << 17
	half := uint64(d / 2)
	return d/2 + effects.Duration(p.random%(half+1))
}

// failureDelay returns the delay after the given number of failures in a row.
func (p *pace) failureDelay(failures uint32) effects.Duration {
	return p.jitterDelay(doubleTimes(p.delayMin, failures-1, p.delayMax))
}

// doubleTimes returns d doubled the given number of times, limited to most.
func doubleTimes(d effects.Duration, times uint32, limit effects.Duration) effects.Duration {
	for range min(times, 30) {
		if d >= limit/2 {
			return limit
		}
		d *= 2
	}
	return min(d, limit)
}

// retryDelay returns the delay before a peer that has just failed is tried again. It depends on whether the peer was of
// another kind or forbids this node, has never answered a hello, or failed otherwise. A policy that forbids this node is
// mended by an operator, so trying often would not help.
func (p *pace) retryDelay(peer *Outbound) effects.Duration {
	switch {
	case peer.otherKind || peer.cause == effects.Forbidden:
		return p.jitterDelay(p.unfitDelay)
	case peer.unansweredHellos == 1:
		return p.jitterDelay(p.delayMax)
	case peer.unansweredHellos > 1:
		return p.jitterDelay(doubleTimes(p.delayMax, peer.unansweredHellos-1, p.unfitDelay))
	}
	return p.failureDelay(peer.failures)
}
