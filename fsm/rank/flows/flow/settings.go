package flow

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// Settings is the part of a rank's configuration that more than one flow uses. Zero means the default.
type Settings struct {
	Layout protocol.Layout
	// Leased means that the planes are hardware, and that nobody can observe the accesses of peers (rule M4). Otherwise
	// all planes are fenced (M3).
	Leased bool
	// Verifies means that the driver compares the bytes of chunks with the checksums that their sources stated. Where
	// the driver cannot do so by itself before it reports that pages were stored, the rank has the pages compared
	// before their chunks are readable (S33).
	Verifies bool
	// Bearer means that on these planes every peer that knows an address can store there, so that peers without our
	// extensions can be served (M5). Only hardware can be like that, and only the simulator has a plane of this kind:
	// every plane of package runtime requires a proof of identity from each peer. On all other planes peers without our
	// extensions are refused at once, because data for their grants could never arrive. Bearer requires Leased.
	Bearer bool
	// AllocTimeout (pd_alloc_fail_backoff_ttl) is the maximum time for which an allocation request waits for pages;
	// default 2 s.
	AllocTimeout effects.Duration
	// ReplyTimeout is the time limit for a peer's reply; default 5 s. ReplyTimeout must be longer than the peer's
	// AllocTimeout.
	ReplyTimeout effects.Duration
	// Lease is the duration of a write grant; default 30 s. A sender assumes this duration if a receiver states none.
	Lease effects.Duration
	// LeaseGuard is the time before the end of a lease at which its holder stops starting accesses under it; default 1
	// s. It is how long a driver may be held up between reading the clock and an access. What clocks drift is subtracted
	// besides (link.Settings.DriftPPM).
	LeaseGuard effects.Duration
	// ReadLeaseMax bounds the duration of an offer, renewals included, and how long a receiver believes that an offer
	// stands.
	ReadLeaseMax effects.Duration // default 10 × PullTTL
	BackoffMin   effects.Duration // default 50 ms
	BackoffMax   effects.Duration // default 5 s
	BatchMax     uint32           // default 4096 chunks in one command or message
	// Window is the number of requests that a sender has in flight on one connection to a receiver's alloc port, and
	// the number that a receiver accepts on one connection. The smaller of the two values counts. With the default, 1,
	// the next request is sent when the last one was answered.
	Window uint16
	// Carries is the maximum number of bytes of chunks that an allocation request carries itself, if its receiver
	// accepts as many; 0: none. The driver must be able to copy to and from our pages by itself, so no page may lie in
	// a device.
	Carries uint32
	Wire    protocol.Limits
	// Tenants are the tenants whose chunks this rank may hold, request and send; nil: all.
	Tenants *effects.Tenants `snap:"share"`
}

// Fill sets defaults where nothing is given. offer is how long an offer stands: by default ReadLeaseMax is ten times as
// long.
func (s *Settings) Fill(offer effects.Duration) {
	kernel.SetDefault(&s.AllocTimeout, 2*effects.Second)
	kernel.SetDefault(&s.ReplyTimeout, 5*effects.Second)
	kernel.SetDefault(&s.Lease, 30*effects.Second)
	kernel.SetDefault(&s.LeaseGuard, effects.Second)
	kernel.SetDefault(&s.ReadLeaseMax, 10*offer)
	kernel.SetDefault(&s.BackoffMin, 50*effects.Millisecond)
	kernel.SetDefault(&s.BackoffMax, 5*effects.Second)
	kernel.SetDefault(&s.BatchMax, 4096)
	if s.Wire == (protocol.Limits{}) {
		s.Wire = protocol.DefaultLimits()
	}
}

// Check returns an error that describes a value that cannot work.
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
	return kernel.CheckCounts(kernel.Count{Name: "BatchMax", Value: s.BatchMax})
}

// Need returns the resources that every rank needs: those of a drain, and those that the remaining parts do not count.
func (s *Settings) Need() kernel.Need {
	return kernel.Need{Deadlines: 16, Limits: effects.Limits{Sends: 8, Commands: 1, PagesPerBatch: int(s.BatchMax)}}
}
