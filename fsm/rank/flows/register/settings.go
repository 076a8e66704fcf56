package register

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
)

// Settings are the part of a rank's configuration that is about registered blocks. Zero means the default.
type Settings struct {
	// Geometry says what lies in which page of this rank. With it the pool is the engine's, and the rank takes Register,
	// Finished and what belongs to them, and nothing else.
	Geometry *geometry.Geometry
	EngineID string // of this engine, of all its ranks
	// SideHost and SidePort are where an engine of vLLM would ask for this one's metadata: decode_host, decode_port.
	SideHost string
	SidePort uint16
	// RegistrationLease is how long a producer lends what is finished (kv_lease_duration): default 30 s. A heartbeat makes
	// it two thirds of that from its arrival, and consumers send one every sixth.
	RegistrationLease effects.Duration
	// RegisterTimeout is that of a Register that says no patience (push_registration_timeout): default 480 s. No
	// registration is parked here for longer either.
	RegisterTimeout  effects.Duration
	ExactIDs         bool   // requests never match by a name without its last digits
	ReceptionsMax    uint32 // default 256 at a time
	ProducersMax     uint32 // default 64 ranks in one Register
	FinishedMax      uint32 // default 1024 finished requests that are lent
	RegistrationsMax uint32 // default 1024 that wait, or are written, of all consumers
	ExpectedMax      uint32 // default 1024 requests, each at each rank, that are kept at producers or not needed
	NamesMax         uint32 // default 256 requests that one word to a producer names
	RegisterWindow   uint16 // default 256 registrations at a time with one peer
}

// On says whether this rank registers blocks.
func (s *Settings) On() bool { return s.Geometry != nil }

// interval is that of heartbeats.
func (s *Settings) interval() effects.Duration { return max(1, s.RegistrationLease/6) }

// extension is what a heartbeat makes of a lease.
func (s *Settings) extension() effects.Duration { return s.RegistrationLease * 2 / 3 }

// parts is how many there may be of all receptions: eight of each, for few engines have more ranks that one rank hears
// of, and those of the largest. Where fewer and larger ones are open the next one is refused.
func (s *Settings) parts() uint32 {
	return max(s.ProducersMax, kernel.Clamped(uint64(s.ReceptionsMax)*uint64(min(s.ProducersMax, 8))))
}

// Grants is how many grants all receptions may have at a time: one for each part.
func (s *Settings) Grants() uint32 {
	if !s.On() {
		return 0
	}
	return s.parts()
}

// Fill puts defaults where nothing is said.
func (s *Settings) Fill() {
	if !s.On() {
		*s = Settings{}
		return
	}
	s.fill()
}

// Default has a value for each field that has one.
func Default() (s Settings) { s.fill(); return s }

func (s *Settings) fill() {
	kernel.Default(&s.RegistrationLease, 30*effects.Second)
	kernel.Default(&s.RegisterTimeout, 480*effects.Second)
	kernel.Default(&s.ReceptionsMax, 256)
	kernel.Default(&s.ProducersMax, 64)
	kernel.Default(&s.FinishedMax, 1024)
	kernel.Default(&s.RegistrationsMax, 1024)
	kernel.Default(&s.ExpectedMax, 1024)
	kernel.Default(&s.NamesMax, 256)
	if s.RegisterWindow == 0 {
		s.RegisterWindow = 256
	}
}

// Check says what cannot work with so many pages.
func (s *Settings) Check(pages uint32, guard effects.Duration) error {
	if !s.On() {
		return nil
	}
	if err := s.Geometry.Check(); err != nil {
		return fmt.Errorf("rank: Geometry: %w", err)
	}
	switch {
	case s.Geometry.Pages() != uint64(pages):
		return fmt.Errorf("rank: Geometry has %d pages, and Pages is %d: make them the same", s.Geometry.Pages(), pages)
	case s.EngineID == "":
		return fmt.Errorf("rank: EngineID is empty with a Geometry: give the engine a name that no other one has")
	case s.RegistrationLease <= guard:
		return fmt.Errorf("rank: RegistrationLease %d ns must be longer than LeaseGuard %d ns, or nothing could be written",
			s.RegistrationLease, guard)
	}
	return kernel.Countable(
		kernel.Count{Name: "ReceptionsMax", Value: s.ReceptionsMax},
		kernel.Count{Name: "ProducersMax", Value: s.ProducersMax},
		kernel.Count{Name: "FinishedMax", Value: s.FinishedMax},
		kernel.Count{Name: "RegistrationsMax", Value: s.RegistrationsMax},
		kernel.Count{Name: "ExpectedMax", Value: s.ExpectedMax}, kernel.Count{Name: "NamesMax", Value: s.NamesMax})
}

// Need is that of both sides: a reception has a deadline, each part a question and a word; a batch has a lease, each
// registration a deadline and a write; each peer a heartbeat.
func (s *Settings) Need(peers uint32) kernel.Need {
	if !s.On() {
		return kernel.Need{}
	}
	parts := int(s.parts())
	return kernel.Need{
		Deadlines: int(s.ReceptionsMax) + 3*parts + int(s.FinishedMax) + int(s.RegistrationsMax) + int(s.ExpectedMax) +
			2*int(peers),
		Limits: effects.Limits{
			Sends: 2*parts + int(peers), Transfers: int(s.RegistrationsMax), Revokes: parts,
			Commands: int(s.ReceptionsMax) + int(s.FinishedMax) + int(s.ExpectedMax) + 1,
		},
	}
}
