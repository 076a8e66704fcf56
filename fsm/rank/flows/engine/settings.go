package engine

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings is the part of a rank's configuration that concerns commands and the proxy. Zero means the default.
type Settings struct {
	Proxy          effects.Addr     // to notify of ended requests; empty host: none
	Rank           uint32           // TP rank, sent to the proxy
	PutTimeout     effects.Duration // default 30 s: time limit of a Put without Timeout
	ReserveTimeout effects.Duration // default 10 s: the same of a Reserve
	// RequestTTL is the time for which an idle or notified request is recorded, so that the proxy is notified at most
	// once. RequestTTL must be longer than any gap between batches of one prefill.
	RequestTTL effects.Duration // default 30 s
	// AbandonTTL is the time for which messages for an abandoned request are refused. If AbandonTTL is negative, these
	// messages are served.
	AbandonTTL   effects.Duration // default 10 s
	GetWaitMax   effects.Duration // default 60 s
	PutsMax      uint32           // default 1024 open puts
	ReservesMax  uint32           // default 1024
	RequestsMax  uint32           // default 4096 requests recorded for the proxy
	GetsMax      uint32           // default 1024 open Gets (waiting or pinned)
	RequestIDMax uint32           // default 128 bytes
}

// Fill sets the defaults of fields that are zero.
func (s *Settings) Fill() {
	kernel.SetDefault(&s.PutTimeout, 30*effects.Second)
	kernel.SetDefault(&s.ReserveTimeout, 10*effects.Second)
	kernel.SetDefault(&s.RequestTTL, 30*effects.Second)
	kernel.SetDefault(&s.AbandonTTL, 10*effects.Second)
	kernel.SetDefault(&s.GetWaitMax, 60*effects.Second)
	kernel.SetDefault(&s.PutsMax, 1024)
	kernel.SetDefault(&s.ReservesMax, 1024)
	kernel.SetDefault(&s.RequestsMax, 4096)
	kernel.SetDefault(&s.GetsMax, 1024)
	kernel.SetDefault(&s.RequestIDMax, 128)
}

// Check returns an error that describes a value that cannot work.
func (s *Settings) Check() error {
	return kernel.CheckCounts(kernel.Count{Name: "PutsMax", Value: s.PutsMax},
		kernel.Count{Name: "ReservesMax", Value: s.ReservesMax}, kernel.Count{Name: "RequestsMax", Value: s.RequestsMax},
		kernel.Count{Name: "GetsMax", Value: s.GetsMax}, kernel.Count{Name: "RequestIDMax", Value: s.RequestIDMax})
}

// Need returns the resources that commands need. A put has a request in flight, a transfer, and up to five deadlines:
// for the put itself, for the reply, and for leases.
func (s *Settings) Need() kernel.Need {
	return kernel.Need{
		Deadlines: 5*int(s.PutsMax) + int(s.ReservesMax) + int(s.RequestsMax) + int(s.GetsMax),
		Limits: effects.Limits{
			Sends: int(s.PutsMax), Transfers: int(s.PutsMax),
			Commands: int(s.PutsMax) + int(s.GetsMax) + int(s.ReservesMax),
		},
	}
}

// Sharing returns the resources that Shares and Withdraws need: there may be as many of each as reservations.
func (s *Settings) Sharing() kernel.Need {
	return kernel.Need{Limits: effects.Limits{Commands: 2 * int(s.ReservesMax)}}
}
