package memory

// In a rank of both roles, peers and this rank's engine take pages of one pool. There the pages of the engine are
// counted as pages of class 0, so that neither the peers nor the engine can take the whole pool. In other ranks the
// engine's pages are not counted.

// EngineLimit returns the limit of pages that the engine may have.
func (p *Pool) EngineLimit() uint32 { return min(p.TotalPages(), p.engineShare) }

// ChargeEngine counts n pages that were taken for the engine. The caller must have checked FitsShare for class 0.
func (ps *Pools) ChargeEngine(p *Pool, n uint32) { p.usedByClass[0] += n }

// DischargeEngine stops counting n pages that the engine gave back. Requests that wait for the share of the engine are
// tried again, even if the pages are still in use elsewhere. DischargeEngine panics if the engine has fewer than n
// pages.
func (ps *Pools) DischargeEngine(p *Pool, n uint32) {
	if p.usedByClass[0] < n {
		panic("BUG: our engine gives back more pages than it has")
	}
	p.usedByClass[0] -= n
	ps.freedCount++
}
