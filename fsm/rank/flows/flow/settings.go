package flow

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// Settings are the part of a rank's configuration that more than one flow goes by. Zero means the default.
type Settings struct {
	Layout protocol.Layout
	// Leased: the planes are hardware that nobody can watch (rule M4); otherwise all are fenced (M3).
	Leased bool
	// Bearer: on these planes whoever knows an address can store there, so that peers without our extensions are
	// served. Only hardware can be so, and only the simulator's is: every plane of package runtime asks each peer for
	// its proof. Elsewhere such a peer is refused at once, since nothing it was granted could ever arrive. Needs Leased.
	Bearer       bool
	AllocTimeout effects.Duration // default 2 s (pd_alloc_fail_backoff_ttl): a request's wait for pages
	ReplyTimeout effects.Duration // default 5 s: a peer's answer; longer than its AllocTimeout
	Lease        effects.Duration // default 30 s: life of a write grant; assumed of receivers that state none
	LeaseGuard   effects.Duration // default 1 s: a holder starts nothing more this long before the lease ends
	// ReadLeaseMax bounds the life of an offer, renewals included, and how long a receiver believes that one stands.
	ReadLeaseMax effects.Duration // default 10 × PullTTL
	BackoffMin   effects.Duration // default 50 ms
	BackoffMax   effects.Duration // default 5 s
	BatchMax     uint32           // default 4096 chunks of a command or a message
	// Window is how many requests a sender has in flight on one connection to a receiver's alloc port, and a receiver
	// takes on one; the smaller of the two counts.
	Window uint16 // default 1: the next one when the last one was answered
	// Carries is how many bytes of chunks a request for pages carries itself, at the most, where its receiver takes as
	// many; 0: none. The driver must be able to copy to and from pages of ours by itself, so no page is in a device.
	Carries uint32
	Wire    protocol.Limits
}

// Fill puts defaults where nothing is said. A lease lasts as long as ten offers stand.
func (s *Settings) Fill(offer effects.Duration) {
	kernel.Default(&s.AllocTimeout, 2*effects.Second)
	kernel.Default(&s.ReplyTimeout, 5*effects.Second)
	kernel.Default(&s.Lease, 30*effects.Second)
	kernel.Default(&s.LeaseGuard, effects.Second)
	kernel.Default(&s.ReadLeaseMax, 10*offer)
	kernel.Default(&s.BackoffMin, 50*effects.Millisecond)
	kernel.Default(&s.BackoffMax, 5*effects.Second)
	kernel.Default(&s.BatchMax, 4096)
	if s.Wire == (protocol.Limits{}) {
		s.Wire = protocol.DefaultLimits()
	}
}

// Check says what cannot work.
func (s *Settings) Check() error {
	switch {
	case s.Bearer && !s.Leased:
		return fmt.Errorf("rank: Bearer without Leased: a fenced plane lets nobody in who presents no grant; set Leased, " +
			"or leave Bearer out")
	case s.ReplyTimeout <= s.AllocTimeout:
		return fmt.Errorf("rank: ReplyTimeout %d ns must be longer than AllocTimeout %d ns, or every wait for pages would "+
			"look like a dead peer", s.ReplyTimeout, s.AllocTimeout)
	case uint64(s.Carries) > uint64(s.Wire.MessageBytes/2):
		return fmt.Errorf("rank: Carries %d bytes must be at most half of Wire.MessageBytes, %d: a request has keys, too",
			s.Carries, s.Wire.MessageBytes)
	case s.LeaseGuard >= s.Lease:
		return fmt.Errorf("rank: LeaseGuard %d ns must be shorter than Lease %d ns", s.LeaseGuard, s.Lease)
	}
	return kernel.Countable(kernel.Count{Name: "BatchMax", Value: s.BatchMax})
}

// Need is that of any rank: a drain, and what is not counted.
func (s *Settings) Need() kernel.Need {
	return kernel.Need{Deadlines: 16, Limits: effects.Limits{Sends: 8, Commands: 1, PagesPerBatch: int(s.BatchMax)}}
}
