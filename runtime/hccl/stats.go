//go:build cgo && linux

package hccl

import "fmt"

// Stats counts what a plane has done since it was opened.
type Stats struct {
	Links, Incoming             int    // now: links that this node and that peers opened
	FormedEpochs, FencedEpochs  uint64 // communicators made as initiator, and fenced before their link ended
	ExpelledEpochs              uint64 // communicators of peers that were fenced to revoke a grant
	Batches, Descriptors, Bytes uint64 // that were submitted
}

func (s Stats) String() string {
	return fmt.Sprintf("links=%d incoming=%d formed=%d fenced=%d expelled=%d batches=%d descriptors=%d bytes=%d",
		s.Links, s.Incoming, s.FormedEpochs, s.FencedEpochs, s.ExpelledEpochs, s.Batches, s.Descriptors, s.Bytes)
}

// Stats returns the counters.
func (p *Plane) Stats() Stats {
	p.mu.Lock()
	s := p.stats
	p.mu.Unlock()
	s.Links = p.outgoingLinks.LinkCount()
	s.Incoming, s.ExpelledEpochs = p.incomingLinks.LinkCounts()
	return s
}

func (p *Plane) updateStats(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}
