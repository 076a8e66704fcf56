package p2p

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Settings are the part of a rank's configuration that is about chunks shared between peers. Zero means the default.
type Settings struct {
	// Shares: peers may ask which chunks are here, and read them.
	Shares       bool
	LookupAddr   effects.Addr     // where they ask: P2PInitSideRetMsg.peer_lookup_url
	PeerDoneAddr effects.Addr     // where they may say that they have read: AscendQueryDonePortRetMsg.done_url
	ShareTTL     effects.Duration // default 60 s (p2p_pull_pending_ttl): how long a peer may read
	LoansMax     uint32           // default 256: prefixes that peers may read at a time
	LoanSharePct uint32           // default 75: most of the pool that is under them, a page as often as it is lent
	BringsMax    uint32           // default 256: Brings in progress, and lookups of former ones without an answer
	BringTimeout effects.Duration // default 11 s (p2p_sync_get_timeout_s): a Bring that says no patience
	// LookupTimeout is how long a lookup may take. What is not answered by then is a miss.
	LookupTimeout effects.Duration // default 3 s (p2p_lookup_timeout_s)
	Lookups       uint16           // default 16 at a time to one peer
	// PushesMax is how many peers' questions are answered by a write, or by copies, at a time: no peer has more than it
	// leaves.
	PushesMax uint32 // default 4 (p2p_max_concurrent_gets)
	// ArenaPages are those of an arena behind Memory.Pages, in one stretch of memory with them: what peers may read is
	// copied there first, and nothing else is lent (use_host_staging); 0: they read what the store has.
	ArenaPages uint32
	// DevicePages are those of a second pool beside the cache, in memory of a device, which peers know by a name of its
	// own (p2p_use_npu). With Keeps fetches read into it, and what is brought lands in Memory.Pages; else what is brought
	// lands in it. 0: there is none, and Memory.Pages are for both.
	DevicePages uint32
	// Keeps: chunks that are brought may stay with their peers until they are fetched (p2p_delay_pull).
	Keeps bool
}

// Fill puts defaults where nothing is said.
func (s *Settings) Fill() {
	kernel.Default(&s.ShareTTL, 60*effects.Second)
	kernel.Default(&s.LoansMax, 256)
	kernel.Default(&s.LoanSharePct, 75)
	kernel.Default(&s.BringsMax, 256)
	kernel.Default(&s.BringTimeout, 11*effects.Second)
	kernel.Default(&s.LookupTimeout, 3*effects.Second)
	kernel.Default(&s.PushesMax, 4)
	if s.Lookups == 0 {
		s.Lookups = 16
	}
}

// Check says what cannot work.
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
	return kernel.Countable(kernel.Count{Name: "LoansMax", Value: s.LoansMax},
		kernel.Count{Name: "BringsMax", Value: s.BringsMax}, kernel.Count{Name: "PushesMax", Value: s.PushesMax},
		kernel.Count{Name: "ArenaPages", Value: s.ArenaPages}, kernel.Count{Name: "DevicePages", Value: s.DevicePages})
}

// Bringing is the need of who has chunks brought: each Bring has a question, a read, its deadline and its answer's.
func (s *Settings) Bringing() kernel.Need {
	most := int(s.BringsMax)
	return kernel.Need{
		Deadlines: 3 * most, // and one of its own grant, for a moment
		Limits:    effects.Limits{Sends: most, Transfers: most, Commands: most},
	}
}

// Seeking is the need of Brings that name nobody, beside that of directories: each has a deadline while they are asked.
func (s *Settings) Seeking() kernel.Need {
	most := int(s.BringsMax)
	return kernel.Need{Deadlines: most, Limits: effects.Limits{Commands: most}}
}

// Lending is the need of who is asked: each loan has an end, each push a write, and each page of the arena a copy.
func (s *Settings) Lending() kernel.Need {
	return kernel.Need{Deadlines: int(s.LoansMax), Limits: effects.Limits{
		Transfers: int(s.PushesMax), Copies: int(s.ArenaPages),
	}}
}
