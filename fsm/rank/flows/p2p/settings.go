package p2p

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that concerns sharing chunks between peers. Zero means the default.
type Settings struct {
	// Shares says that peers may ask which chunks are present, and read them.
	Shares bool
	// LookupAddr is the address for lookups of peers: P2PInitSideRetMsg.peer_lookup_url.
	LookupAddr effects.Addr
	// PeerDoneAddr is an additional address for done messages of peers: AscendQueryDonePortRetMsg.done_url.
	PeerDoneAddr effects.Addr
	// ShareTTL is the time for which a peer may read a loan; default 60 s (p2p_pull_pending_ttl).
	ShareTTL effects.Duration
	// LoansMax limits the loans at a time; default 256.
	LoansMax uint32
	// LoanSharePct limits the part of the pool that is in loans, in percent; default 75. A page counts once for each
	// loan.
	LoanSharePct uint32
	// BringsMax limits the Brings in progress, including lookups of former Brings without a reply; default 256.
	BringsMax uint32
	// BringTimeout is the time limit of a Bring without Timeout; default 11 s (p2p_sync_get_timeout_s).
	BringTimeout effects.Duration
	// LookupTimeout is the time limit of a lookup; default 3 s (p2p_lookup_timeout_s). A lookup without a reply by
	// then is a miss.
	LookupTimeout effects.Duration
	// Lookups limits the lookups in flight to a peer; default 16.
	Lookups uint16
	// PushesMax limits the requests of peers in service, that is, answered by a write or by copies; default 4
	// (p2p_max_concurrent_gets). No peer has more than it leaves for the remaining peers.
	PushesMax uint32
	// ArenaPages is the number of pages of the arena, which follows Memory.Pages in the same region of memory. Chunks
	// for peers are copied to the arena first, and nothing else is lent (use_host_staging). 0: peers read the pages
	// of the store.
	ArenaPages uint32
	// DevicePages is the number of pages of a second pool beside the cache, in the memory of a device, which peers
	// know by a separate buffer name (p2p_use_npu). With Keeps, fetches read into this pool and brought chunks land
	// in Memory.Pages. Without Keeps, brought chunks land in this pool. 0: there is no second pool, and Memory.Pages
	// serve both purposes.
	DevicePages uint32
	// Keeps says that brought chunks may stay at their peers until a fetch reads them (p2p_delay_pull).
	Keeps bool
}

// Fill sets unset fields to their defaults.
func (s *Settings) Fill() {
	kernel.SetDefault(&s.ShareTTL, 60*effects.Second)
	kernel.SetDefault(&s.LoansMax, 256)
	kernel.SetDefault(&s.LoanSharePct, 75)
	kernel.SetDefault(&s.BringsMax, 256)
	kernel.SetDefault(&s.BringTimeout, 11*effects.Second)
	kernel.SetDefault(&s.LookupTimeout, 3*effects.Second)
	kernel.SetDefault(&s.PushesMax, 4)
	if s.Lookups == 0 {
		s.Lookups = 16
	}
}

// Check returns an error if the settings are invalid.
func (s *Settings) Check() error {
	if s.Shares && (s.LookupAddr.Port == 0 || s.PeerDoneAddr.Port == 0) {
		return fmt.Errorf("rank: LookupAddr is %s:%d and PeerDoneAddr is %s:%d with Shares: peers ask there; give a host "+
			"and a port for each", s.LookupAddr.Host, s.LookupAddr.Port, s.PeerDoneAddr.Host, s.PeerDoneAddr.Port)
	}
	if s.ArenaPages > 0 && !s.Shares {
		return fmt.Errorf("rank: ArenaPages is %d without Shares: nobody reads there; give 0, or share", s.ArenaPages)
	}
	if s.DevicePages > 0 && !s.Shares {
		return fmt.Errorf("rank: DevicePages is %d without Shares: nothing comes there; give 0, or share", s.DevicePages)
	}
	if s.LoanSharePct > 100 {
		return fmt.Errorf("rank: LoanSharePct is %d: give 1 to 100", s.LoanSharePct)
	}
	return kernel.CheckCounts(kernel.Count{Name: "LoansMax", Value: s.LoansMax},
		kernel.Count{Name: "BringsMax", Value: s.BringsMax}, kernel.Count{Name: "PushesMax", Value: s.PushesMax},
		kernel.Count{Name: "ArenaPages", Value: s.ArenaPages}, kernel.Count{Name: "DevicePages", Value: s.DevicePages})
}

// Bringing returns the needs of a Requester. Each Bring has a request, a read, a deadline and the deadline of the
// reply.
func (s *Settings) Bringing() kernel.Need {
	most := int(s.BringsMax)
	return kernel.Need{
		Deadlines: 3 * most, // including one of the get's own grant, for a moment
		Limits:    effects.Limits{Sends: most, Transfers: most, Commands: most},
	}
}

// Seeking returns the needs of Brings without a named peer, in addition to the needs of the lookups: each has a
// deadline while directories are asked.
func (s *Settings) Seeking() kernel.Need {
	most := int(s.BringsMax)
	return kernel.Need{Deadlines: most, Limits: effects.Limits{Commands: most}}
}

// Lending returns the needs of an Owner: each loan has a deadline, each push a write, and each page of the arena a
// copy.
func (s *Settings) Lending() kernel.Need {
	return kernel.Need{Deadlines: int(s.LoansMax), Limits: effects.Limits{
		Transfers: int(s.PushesMax), Copies: int(s.ArenaPages),
	}}
}
