package memory

// Where peers and our own engine take pages of one pool, what the engine has is counted as class 0's, so that neither
// takes all of it from the other. Elsewhere nothing is counted, and class 0 is nobody's.

// MostOfOwn is how many pages our engine may have at the most.
func (p *Pool) MostOfOwn() uint32 { return min(p.Total(), p.own) }

// Charge counts n pages that were taken for our engine. FitsShare of class 0 must hold before.
func (ps *Pools) Charge(p *Pool, n uint32) { p.used[0] += n }

// Discharge notes that the engine gave them back. Who waits for its share looks again, also where something else has
// the pages still.
func (ps *Pools) Discharge(p *Pool, n uint32) {
	if p.used[0] < n {
		panic("BUG: our engine gives back more pages than it has")
	}
	p.used[0] -= n
	ps.freed++
}
