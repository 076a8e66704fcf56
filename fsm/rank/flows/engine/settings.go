package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that is about commands and the proxy. Zero means the default.
type Settings struct {
	Proxy          effects.Addr     // where finished requests are told; empty host: nobody
	Rank           uint32           // TP rank, told to the proxy
	PutTimeout     effects.Duration // default 30 s: a Put without Patience
	ReserveTimeout effects.Duration // default 10 s
	// RequestTTL is how long an idle or told request is remembered, so that the proxy is told at most once; longer than
	// any gap between batches of one prefill.
	RequestTTL effects.Duration // default 30 s
	// AbandonTTL is how long what comes for an abandoned request is refused; negative: it is served.
	AbandonTTL   effects.Duration // default 10 s
	GetWaitMax   effects.Duration // default 60 s
	PutsMax      uint32           // default 1024 puts open
	ReservesMax  uint32           // default 1024
	RequestsMax  uint32           // default 4096 requests remembered for the proxy
	GetsMax      uint32           // default 1024 gets open (waiting or pinned)
	RequestIDMax uint32           // default 128 bytes
}

// Fill puts defaults where nothing is said.
func (s *Settings) Fill() {
	kernel.Default(&s.PutTimeout, 30*effects.Second)
	kernel.Default(&s.ReserveTimeout, 10*effects.Second)
	kernel.Default(&s.RequestTTL, 30*effects.Second)
	kernel.Default(&s.AbandonTTL, 10*effects.Second)
	kernel.Default(&s.GetWaitMax, 60*effects.Second)
	kernel.Default(&s.PutsMax, 1024)
	kernel.Default(&s.ReservesMax, 1024)
	kernel.Default(&s.RequestsMax, 4096)
	kernel.Default(&s.GetsMax, 1024)
	kernel.Default(&s.RequestIDMax, 128)
}

// Check says what cannot work.
func (s *Settings) Check() error {
	return kernel.Countable(kernel.Count{Name: "PutsMax", Value: s.PutsMax},
		kernel.Count{Name: "ReservesMax", Value: s.ReservesMax}, kernel.Count{Name: "RequestsMax", Value: s.RequestsMax},
		kernel.Count{Name: "GetsMax", Value: s.GetsMax}, kernel.Count{Name: "RequestIDMax", Value: s.RequestIDMax})
}

// Need is that of commands. A put has a question, a transfer, and up to five deadlines: its own, its answer's, its
// leases'.
func (s *Settings) Need() kernel.Need {
	return kernel.Need{
		Deadlines: 5*int(s.PutsMax) + int(s.ReservesMax) + int(s.RequestsMax) + int(s.GetsMax),
		Limits: effects.Limits{
			Sends: int(s.PutsMax), Transfers: int(s.PutsMax),
			Commands: int(s.PutsMax) + int(s.GetsMax) + int(s.ReservesMax),
		},
	}
}

// Sharing is that of Shares and Withdraws: of each there may be as many as Reserves.
func (s *Settings) Sharing() kernel.Need {
	return kernel.Need{Limits: effects.Limits{Commands: 2 * int(s.ReservesMax)}}
}
