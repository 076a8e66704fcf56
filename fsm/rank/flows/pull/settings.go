package pull

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/protocol"
)

// OfferSettings is the part of a rank's configuration that is about who offers. Zero means the default.
type OfferSettings struct {
	// Pull: this sender leases its pages and receivers read them; otherwise it pushes.
	Pull bool
	// DoneAddr is where this sender takes the ends of its offers, as receivers can reach it. Required with Pull.
	DoneAddr effects.Addr
	// RenewAddr is where it takes renewals of them: its init socket, as receivers can reach it. Empty host: nowhere.
	RenewAddr effects.Addr
	// PullTTL is how long an offer stands, however little is heard of its reader.
	PullTTL effects.Duration // default 360 s (pd_pull_pending_ttl)
	// ReservePPM of the pool's pages, in millionths, are never leased: floor(pages × (1 −
	// ReservePPM/10⁶)) is the high-water mark.
	ReservePPM uint32 // default 20000 (pd_pull_backpressure_reserve_pct 2.0); ReserveNone: nothing
}

// ReserveNone as ReservePPM reserves nothing.
const ReserveNone = 1 << 31

// Fill puts defaults where nothing is said.
func (s *OfferSettings) Fill() {
	kernel.Default(&s.PullTTL, 360*effects.Second)
	kernel.Default(&s.ReservePPM, 20_000)
	if s.ReservePPM == ReserveNone {
		s.ReservePPM = 0
	}
}

// Check says what cannot work.
func (s *OfferSettings) Check() error {
	if s.ReservePPM >= 1_000_000 {
		return fmt.Errorf("rank: ReservePPM is %d: give less than 1000000, or nothing could ever be leased", s.ReservePPM)
	}
	return nil
}

// CheckOffers says what cannot work where it offers, from so many pages, with such a guard.
func (s *OfferSettings) CheckOffers(pages uint32, guard effects.Duration) error {
	done := protocol.Endpoint{Host: s.DoneAddr.Host, Port: s.DoneAddr.Port}
	renew := protocol.Endpoint{Host: s.RenewAddr.Host, Port: s.RenewAddr.Port}
	switch {
	case done.Host == "" || done.Port == 0:
		return fmt.Errorf("rank: DoneAddr is %q port %d: name where receivers tell that they have read", done.Host, done.Port)
	case done.Unspecified():
		return fmt.Errorf("rank: DoneAddr host is %q, which no receiver can reach: name this node's own address", done.Host)
	case renew.Host != "" && (renew.Unspecified() || renew.Port == 0):
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

// Reserved is the part of the pool, in millionths, that is never leased.
func (s *OfferSettings) Reserved() uint32 {
	if s.ReservePPM == ReserveNone {
		return 0
	}
	return s.ReservePPM
}

// HighWater is the most of so many pages that are leased at a time.
func (s *OfferSettings) HighWater(pages uint32) uint32 {
	return uint32(uint64(pages) * uint64(1_000_000-s.Reserved()) / 1_000_000)
}

// ReadSettings is the part of a rank's configuration that is about who reads. Zero means the default.
type ReadSettings struct {
	// Delay: this receiver keeps offers and reads them when its engine fetches; otherwise as they come.
	Delay bool
	// AddressesOnly: this receiver refuses an offer whose sender says by name where it takes words. Somebody would have
	// to be asked for the name, and whom is the peer's choice.
	AddressesOnly bool
	ReadTimeout   effects.Duration // default 10 s: a receiver's read of one offer
}

// Fill puts defaults where nothing is said.
func (s *ReadSettings) Fill() { kernel.Default(&s.ReadTimeout, 10*effects.Second) }
