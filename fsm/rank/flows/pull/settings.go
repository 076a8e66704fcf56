package pull

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// OfferSettings is the part of a rank's configuration that concerns senders of offers. A zero field takes the
// default.
type OfferSettings struct {
	// Pull: this sender leases pages and receivers read them. Otherwise this sender pushes.
	Pull bool
	// DoneAddr is the address at which receivers can send done messages to this sender. Required with Pull.
	DoneAddr effects.Addr
	// RenewAddr is the address at which receivers can ask for renewals of leases: the init socket of this sender.
	// With an empty host no lease is renewed.
	RenewAddr effects.Addr
	// PullTTL is the time to live of an offer, however little is received from the reader.
	PullTTL effects.Duration // default 360 s (pd_pull_pending_ttl)
	// ReservePPM is the share of the pool's pages, in millionths, that is never leased. The high-water mark is
	// floor(pages × (1 − ReservePPM/10⁶)).
	ReservePPM uint32 // default 20000 (pd_pull_backpressure_reserve_pct 2.0); ReserveNone: nothing
}

// ReserveNone is the value of ReservePPM that reserves no pages.
const ReserveNone = 1 << 31

// Fill replaces zero fields by their defaults.
func (s *OfferSettings) Fill() {
	kernel.SetDefault(&s.PullTTL, 360*effects.Second)
	kernel.SetDefault(&s.ReservePPM, 20_000)
	if s.ReservePPM == ReserveNone {
		s.ReservePPM = 0
	}
}

// Check returns an error if a setting is out of range.
func (s *OfferSettings) Check() error {
	if s.ReservePPM >= 1_000_000 {
		return fmt.Errorf("rank: ReservePPM is %d: give less than 1000000, or nothing could ever be leased", s.ReservePPM)
	}
	return nil
}

// CheckOffers returns an error if the settings cannot work for a rank that offers chunks from a pool of the given
// number of pages. guard is the LeaseGuard.
func (s *OfferSettings) CheckOffers(pages uint32, guard effects.Duration) error {
	done := protocol.Endpoint{Host: s.DoneAddr.Host, Port: s.DoneAddr.Port}
	renew := protocol.Endpoint{Host: s.RenewAddr.Host, Port: s.RenewAddr.Port}
	switch {
	case done.Host == "" || done.Port == 0:
		return fmt.Errorf("rank: DoneAddr is %q port %d: name where receivers tell that they have read", done.Host, done.Port)
	case done.IsUnspecified():
		return fmt.Errorf("rank: DoneAddr host is %q, which no receiver can reach: name this node's own address", done.Host)
	case renew.Host != "" && (renew.IsUnspecified() || renew.Port == 0):
		return fmt.Errorf("rank: RenewAddr is %q, which no receiver can reach: name this node's own address and its init "+
			"port", renew)
	case s.HighWater(pages) == 0:
		return fmt.Errorf("rank: ReservePPM %d of %d pages leaves none to lease: reserve less, or enlarge the pool",
			s.ReservePPM, pages)
	case guard >= s.PullTTL:
		return fmt.Errorf("rank: LeaseGuard %d ns must be shorter than PullTTL %d ns", guard, s.PullTTL)
	}
	return nil
}

// Reserved returns the share of the pool, in millionths, that is never leased.
func (s *OfferSettings) Reserved() uint32 {
	if s.ReservePPM == ReserveNone {
		return 0
	}
	return s.ReservePPM
}

// HighWater returns the high-water mark of a pool of the given number of pages: the largest number of pages that are
// leased at a time.
func (s *OfferSettings) HighWater(pages uint32) uint32 {
	return uint32(uint64(pages) * uint64(1_000_000-s.Reserved()) / 1_000_000)
}

// ReadSettings is the part of a rank's configuration that concerns receivers of offers. A zero field takes the
// default.
type ReadSettings struct {
	// Delay: this receiver keeps offers until the engine fetches the chunks. Otherwise offers are read on
	// arrival.
	Delay bool
	// AddressesOnly: this receiver refuses an offer if the sender gives a host name instead of an address for
	// done messages. Resolving a name would mean to query a name server of the peer's choice.
	AddressesOnly bool
	ReadTimeout   effects.Duration // the time limit of the read of one offer; default 10 s
}

// Fill replaces zero fields by their defaults.
func (s *ReadSettings) Fill() { kernel.SetDefault(&s.ReadTimeout, 10*effects.Second) }
