package link

import "github.com/kvferry/kvferry/effects"

// pace says how long a peer that failed is left alone.
type pace struct {
	random           uint64
	min, most, unfit effects.Duration
}

// jitter draws from [d/2, d]: peers that failed together do not come back together.
func (p *pace) jitter(d effects.Duration) effects.Duration {
	p.random ^= p.random << 13
	p.random ^= p.random >> 7
	p.random ^= p.random << 17
	half := uint64(d / 2)
	return d/2 + effects.Duration(p.random%(half+1))
}

// backoff is the delay after so many failures in a row.
func (p *pace) backoff(failures uint32) effects.Duration {
	return p.jitter(doubled(p.min, failures-1, p.most))
}

// doubled is d doubled so many times, and no more than most.
func doubled(d effects.Duration, times uint32, most effects.Duration) effects.Duration {
	for range min(times, 30) {
		if d >= most/2 {
			return most
		}
		d *= 2
	}
	return min(d, most)
}

// delay is how long a peer is left alone that has just failed.
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
