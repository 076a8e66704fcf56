package register

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
)

// Settings are the part of a rank's configuration that concerns registered blocks. Zero means the default.
type Settings struct {
	// Geometry says which content is in which page of this rank. With a Geometry the pool belongs to the engine, and
	// the rank accepts Register, Finished and the related commands, and no others.
	Geometry *geometry.Geometry
	EngineID string // of this engine, for all ranks
	// SideHost and SidePort are the address at which an engine of vLLM would request the metadata of this engine:
	// decode_host, decode_port.
	SideHost string
	SidePort uint16
	// RegistrationLease is the time for which a producer lends finished blocks (kv_lease_duration); default 30 s. A
	// heartbeat sets the remaining time to two thirds of this value, and consumers send a heartbeat six times in this
	// time.
	RegistrationLease effects.Duration
	// RegisterTimeout is the time limit of a Register without Timeout (push_registration_timeout); default
	// 480 s. A producer parks a registration at most for this time as well.
	RegisterTimeout effects.Duration
	// ExactIDs disables matching requests by names without their last digits.
	ExactIDs bool
	// ReceptionsMax limits the receptions at a time; default 256.
	ReceptionsMax uint32
	// ProducersMax limits the producer ranks of a Register; default 64.
	ProducersMax uint32
	// FinishedMax limits the finished requests that are lent; default 1024.
	FinishedMax uint32
	// RegistrationsMax limits the registrations of all consumers that wait or are being written; default 1024.
	RegistrationsMax uint32
	// ExpectedMax limits the errands: requests that are expected or not needed, counted once for each producer rank;
	// default 1024.
	ExpectedMax uint32
	// NamesMax limits the requests in an errand message; default 256.
	NamesMax uint32
	// RegisterWindow limits the registrations in flight with a peer; default 256, which is also the most.
	RegisterWindow uint16
}

// On reports whether this rank registers blocks.
func (s *Settings) On() bool { return s.Geometry != nil }

// interval returns the time between heartbeats.
func (s *Settings) interval() effects.Duration { return max(1, s.RegistrationLease/6) }

// extension returns the remaining time of a lease after a heartbeat.
func (s *Settings) extension() effects.Duration { return s.RegistrationLease * 2 / 3 }

// parts returns the limit of parts of all receptions: eight for each reception, because few consumers receive from
// more ranks, and at least those of the largest reception. If fewer and larger receptions are open, the next one is
// refused.
func (s *Settings) parts() uint32 {
	return max(s.ProducersMax, kernel.ClampCount(uint64(s.ReceptionsMax)*uint64(min(s.ProducersMax, 8))))
}

// Grants returns the limit of grants of all receptions: one grant for each part.
func (s *Settings) Grants() uint32 {
	if !s.On() {
		return 0
	}
	return s.parts()
}

// Fill sets unset fields to their defaults. Without a Geometry it clears all fields.
func (s *Settings) Fill() {
	if !s.On() {
		*s = Settings{}
		return
	}
	s.fill()
}

// Default returns the default of each field that has one.
func Default() (s Settings) { s.fill(); return s }

func (s *Settings) fill() {
	kernel.SetDefault(&s.RegistrationLease, 30*effects.Second)
	kernel.SetDefault(&s.RegisterTimeout, 480*effects.Second)
	kernel.SetDefault(&s.ReceptionsMax, 256)
	kernel.SetDefault(&s.ProducersMax, 64)
	kernel.SetDefault(&s.FinishedMax, 1024)
	kernel.SetDefault(&s.RegistrationsMax, 1024)
	kernel.SetDefault(&s.ExpectedMax, 1024)
	kernel.SetDefault(&s.NamesMax, 256)
	if s.RegisterWindow == 0 {
		s.RegisterWindow = 256
	}
}

// Check returns an error if the settings are invalid for a pool of this many pages.
func (s *Settings) Check(pages uint32, guard effects.Duration) error {
	if !s.On() {
		return nil
	}
	if err := s.Geometry.Check(); err != nil {
		return fmt.Errorf("rank: Geometry: %w", err)
	}
	switch {
	case s.Geometry.CountPages() != uint64(pages):
		return fmt.Errorf("rank: Geometry has %d pages, and Pages is %d: make them the same", s.Geometry.CountPages(), pages)
	case s.EngineID == "":
		return fmt.Errorf("rank: EngineID is empty with a Geometry: give the engine a name that no other engine has")
	case int(s.RegisterWindow) > effects.ChannelRegister.UnansweredMax():
		return fmt.Errorf("rank: RegisterWindow is %d, and a peer reads at most %d unanswered registrations of a connection: "+
			"make it smaller", s.RegisterWindow, effects.ChannelRegister.UnansweredMax())
	case s.RegistrationLease <= guard:
		return fmt.Errorf("rank: RegistrationLease %d ns must be longer than LeaseGuard %d ns, or nothing could be written",
			s.RegistrationLease, guard)
	}
	return kernel.CheckCounts(
		kernel.Count{Name: "ReceptionsMax", Value: s.ReceptionsMax},
		kernel.Count{Name: "ProducersMax", Value: s.ProducersMax},
		kernel.Count{Name: "FinishedMax", Value: s.FinishedMax},
		kernel.Count{Name: "RegistrationsMax", Value: s.RegistrationsMax},
		kernel.Count{Name: "ExpectedMax", Value: s.ExpectedMax}, kernel.Count{Name: "NamesMax", Value: s.NamesMax})
}

// Need returns the needs of both flows: a reception has a deadline, and each part a request and a withdrawal; a batch
// has a lease, and each registration a deadline and a write; each peer has an errand message.
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
