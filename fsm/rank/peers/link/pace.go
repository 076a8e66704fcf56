package link

import "github.com/kvferry/kvferry/effects"

// pace computes the delays before a failed peer is tried again.
type pace struct {
	random           uint64
	min, most, unfit effects.Duration
}

// jitter returns a random duration in [d/2, d], so that peers that failed together are not tried again together.
func (p *pace) jitter(d effects.Duration) effects.Duration {
	p.random ^= p.random << 13
	p.random ^= p.random >> 7
	p.random ^= p.random << 17
	half := uint64(d / 2)
	return d/2 + effects.Duration(p.random%(half+1))
}

// backoff returns the delay after the given number of failures in a row.
func (p *pace) backoff(failures uint32) effects.Duration {
	return p.jitter(doubled(p.min, failures-1, p.most))
}

// doubled returns d doubled the given number of times, limited to most.
func doubled(d effects.Duration, times uint32, most effects.Duration) effects.Duration {
	for range min(times, 30) {
		if d >= most/2 {
			return most
		}
		d *= 2
	}
	return min(d, most)
}

// delay returns the delay before a peer that has just failed is tried again. It depends on whether the peer was of
// another kind, has never answered a hello, or failed otherwise.
func (p *pace) delay(of *Outbound) effects.Duration {
	switch {
	case of.alien:
		return p.jitter(p.unfit)
	case of.silent == 1:
		return p.jitter(p.most)
	case of.silent > 1:
		return p.jitter(doubled(p.most, of.silent-1, p.unfit))
	}
	return p.backoff(of.fails)
}
