package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/pipeline"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/protocol"
)

// RoomsConfig is the part of the rank's configuration that targets and their rooms need.
type RoomsConfig struct {
	Layout           protocol.Layout
	PageBytes        uint64
	Buffer           protocol.UUID
	Leased           bool
	Bearer           bool // the planes serve peers without our extensions
	Residual         effects.Duration
	ReplyForm        protocol.ReplyForm
	TrustUncommitted bool
	AllocTimeout     effects.Duration
	Lease            effects.Duration
	ClaimTTL         effects.Duration
	GetWaitMax       effects.Duration
	LeaseGuard       effects.Duration
	ReadTimeout      effects.Duration
	ReplyTimeout     effects.Duration
	FetchTimeout     effects.Duration
	LeadMin          effects.Duration
	AbandonTTL       effects.Duration // negative: what comes for an abandoned request is served
	AbandonsMax      uint32
	LoanMax          effects.Duration
	AddressesOnly    bool // senders say where they take words by address, not by name
	Delay            bool // offers are read when the engine fetches, not when they come
	OffersMax        uint32
	PlacesMax        uint32
	Pipeline         pipeline.Config
	BackoffMin       effects.Duration
	BackoffMax       effects.Duration
	PeersMax         uint32
	BatchMax         uint32
	WaitersMax       uint32
	WaitingBytes     uint64 // of requests and offers that wait
	GrantsMax        uint32
	GetsMax          uint32
	PagesMax         uint32 // of the pool
	Retention        store.Retention
	ClaimsMax        uint32 // beyond the first on each page
	EntriesMax       uint32
	OvertakesMax     uint32
	RenewsMax        uint32 // leases in one renewal
	NotifyMax        uint32 // tries to tell one end
	Wire             protocol.Limits
}
