//go:build cgo && linux

package nixl

import (
	"fmt"

	"github.com/kvferry/kvferry/runtime/plane/epochs"
)

// Stats counts what a plane has done since it was opened.
type Stats struct {
	Links, Incoming             int    // current peers: those that we imported, and those that imported us
	FormedEpochs, FencedEpochs  uint64 // epochs of ours as initiator, and how many of them ended before their link
	ExpelledEpochs              uint64 // epochs of peers that were fenced to revoke a grant
	Batches, Descriptors, Bytes uint64 // submitted
	Polls                       uint64 // how often our agents were polled for peers that wait
	WaitingPeers                int    // current number of such peers
}

func (s Stats) String() string {
	return fmt.Sprintf("links=%d incoming=%d formed=%d fenced=%d expelled=%d batches=%d descriptors=%d bytes=%d "+
		"asked=%d waiting=%d", s.Links, s.Incoming, s.FormedEpochs, s.FencedEpochs, s.ExpelledEpochs, s.Batches, s.Descriptors, s.Bytes,
		s.Polls, s.WaitingPeers)
}

// Stats returns the counters.
func (p *Plane) Stats() Stats {
	p.mu.Lock()
	s := p.stats
	p.mu.Unlock()
	s.Links = p.outgoingLinks.LinkCount()
	s.Incoming, s.ExpelledEpochs = p.incomingLinks.LinkCounts()
	p.incomingLinks.ForEachEndpoint(func(end epochs.Endpoint) {
		if end.(*targetEndpoint).isBusy() {
			s.WaitingPeers++
		}
	})
	return s
}

func (p *Plane) updateStats(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}
