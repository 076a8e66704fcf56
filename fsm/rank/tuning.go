package rank

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Tuning bounds the internal work of a rank: how much is done at a time, and how often an action is repeated. The
// defaults suit all known deployments; zero means the default. The values are not constants, so that simulators can
// draw them: a threshold that no small run reaches would hide the defects on its other side.
type Tuning struct {
	// SettleMax is the maximum number of deadlines and changed peers that one step handles (default 64). If more is
	// left, the next Tick is due at once.
	SettleMax uint32
	// SweepRows is the maximum number of condemned rows, and chunks of these, that one step ends (default 256). If more
	// is left, the next Tick is due at once.
	SweepRows uint32
	// AttemptsMax is the number of requests or offers after which a put or a recall fails (default 3).
	AttemptsMax uint32
	// TellsMax is the maximum number of attempts to deliver one notification to the proxy (default 10).
	TellsMax uint32
	// NotifyMax is the maximum number of attempts to deliver one done message for an offer (default 5).
	NotifyMax uint32
	// RenewsMax is the maximum number of leases that one renewal message lists (default 512).
	RenewsMax uint32
	// LeftoversMax is the maximum number of outstanding completions of earlier connection attempts to a peer (default
	// 12). While there are more, no new attempt begins.
	LeftoversMax uint32
	// PlainsMax is the maximum number of inbound peers without our extensions at a time (default 16). Each has a
	// fairness class of its own.
	PlainsMax uint32
	// BreakersPerPeer times PeersMax is the maximum number of addresses with a circuit breaker at a time.
	BreakersPerPeer uint32 // default 4
	// ProvenPeerBonus is the additional time for which an inbound peer keeps its place in the table once the peer has sent a
	// message after the handshake.
	ProvenPeerBonus effects.Duration // default 60 s
}

// tuningMax bounds each count in Tuning, so that the work of one step stays small.
const tuningMax = 1 << 16

func (t *Tuning) fill() error {
	kernel.SetDefault(&t.SettleMax, 64)
	kernel.SetDefault(&t.SweepRows, 256)
	kernel.SetDefault(&t.AttemptsMax, 3)
	kernel.SetDefault(&t.TellsMax, 10)
	kernel.SetDefault(&t.NotifyMax, 5)
	kernel.SetDefault(&t.RenewsMax, 512)
	kernel.SetDefault(&t.LeftoversMax, 12)
	kernel.SetDefault(&t.PlainsMax, 16)
	kernel.SetDefault(&t.BreakersPerPeer, 4)
	kernel.SetDefault(&t.ProvenPeerBonus, 60*effects.Second)
	for _, f := range []struct {
		name  string
		value uint32
	}{
		{"SettleMax", t.SettleMax}, {"SweepRows", t.SweepRows}, {"AttemptsMax", t.AttemptsMax},
		{"TellsMax", t.TellsMax}, {"NotifyMax", t.NotifyMax}, {"RenewsMax", t.RenewsMax},
		{"LeftoversMax", t.LeftoversMax},
		{"PlainsMax", t.PlainsMax}, {"BreakersPerPeer", t.BreakersPerPeer},
	} {
		if f.value > tuningMax {
			return fmt.Errorf("rank: Tuning.%s is %d: give at most %d", f.name, f.value, tuningMax)
		}
	}
	return nil
}
