//go:build cgo && linux

package nixl

import (
	"fmt"

	"github.com/kvferry/kvferry/runtime/plane/epochs"
)

// Stats counts what a plane has done since it was opened.
type Stats struct {
	Links, Incoming             int    // current peers: those that we imported, and those that imported us
	Formed, Fenced              uint64 // epochs of ours as initiator, and how many of them ended before their link
	Expelled                    uint64 // epochs of peers that were fenced to revoke a grant
	Batches, Descriptors, Bytes uint64 // submitted
	Polls                       uint64 // how often our agents were polled for peers that wait
	Waiting                     int    // current number of such peers
}

func (s Stats) String() string {
	return fmt.Sprintf("links=%d incoming=%d formed=%d fenced=%d expelled=%d batches=%d descriptors=%d bytes=%d "+
		"asked=%d waiting=%d", s.Links, s.Incoming, s.Formed, s.Fenced, s.Expelled, s.Batches, s.Descriptors, s.Bytes,
		s.Polls, s.Waiting)
}

// Stats returns the counters.
func (p *Plane) Stats() Stats {
	p.mu.Lock()
	s := p.stats
	p.mu.Unlock()
	s.Links = p.links.LinkCount()
	s.Incoming, s.Expelled = p.arrivals.Counts()
	p.arrivals.Ends(func(end epochs.End) {
		if end.(*targetEnd).isBusy() {
			s.Waiting++
		}
	})
	return s
}

func (p *Plane) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}
